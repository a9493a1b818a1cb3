//! What lies in a message of vhost-user.
//!
//! Source: QEMU, docs/interop/vhost-user.rst, "Message Specification". All integers are in the machine's own order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What every message begins with. 12 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Head {
    /// What it is: [`request`].
    pub request: u32,
    /// Version, and whether it is an answer or wants one.
    pub flags: u32,
    /// Bytes of the body.
    pub bytes: u32,
}
const _: () = assert!(size_of::<Head>() == 12);

pub(super) const VERSION: u32 = 1;
pub(super) const VERSION_MASK: u32 = 3;
pub(super) const REPLY: u32 = 1 << 2;
pub(super) const NEED_REPLY: u32 = 1 << 3;

/// What a monitor says.
pub mod request {
    #![expect(missing_docs, reason = "the names are the standard's own")]
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
}

/// The feature bit that says that there are protocol features.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;

/// What is offered: several queues, answers when asked for, the space of the device.
pub const OFFERED: u64 = protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG;

/// Protocol features.
pub mod protocol {
    #![expect(missing_docs, reason = "the names are the standard's own")]
    pub const MQ: u64 = 1 << 0;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const CONFIG: u64 = 1 << 9;
}

/// A region of the guest's memory. 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Region {
    /// Where the guest has it.
    pub guest: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Where the monitor has it.
    pub user: u64,
    /// Where it begins in the file beside the message.
    pub offset: u64,
}
const _: () = assert!(size_of::<Region>() == 32);

#[repr(C)]
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
pub(super) struct RingState {
    pub(super) index: u32,
    pub(super) value: u32,
}

#[repr(C)]
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
pub(super) struct RingAddresses {
    pub(super) index: u32,
    pub(super) flags: u32,
    pub(super) descriptors: u64,
    pub(super) used: u64,
    pub(super) available: u64,
    pub(super) log: u64,
}
const _: () = assert!(size_of::<RingAddresses>() == 40);

/// In the number of a queue: no descriptor comes with it.
pub(super) const NO_DESCRIPTOR: u64 = 1 << 8;

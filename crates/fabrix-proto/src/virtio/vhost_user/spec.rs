//! vhost-user messages: headers, bodies, message numbers and feature bits, and their parsers. The
//! parent module implements what a message does.

use alloc::vec::Vec;

use zerocopy::{FromBytes, IntoBytes};

use crate::virtio::inflight::Shape;
use crate::virtio::queue::SIZE_MAX;
use crate::{Breach, Violation};

/// Length of a header in bytes.
pub const HEAD_BYTES: usize = size_of::<Head>();
/// Longest accepted body in bytes: eight memory regions, or a device's configuration space.
pub const BODY_BYTES_MAX: usize = 512;
/// Most descriptors beside a message.
pub const DESCRIPTORS_MAX: usize = REGIONS_MAX;
/// Most queues.
pub const QUEUES_MAX: usize = 16;
/// Most regions of memory.
pub const REGIONS_MAX: usize = 8;

native! {
    /// Header of every message. 12 bytes.
    pub struct Head: 12 bytes {
        /// Number of the message: [`request`].
        pub request: u32,
        /// Version, the reply bit and the need-reply bit.
        pub flags: u32,
        /// Length of the body in bytes.
        pub bytes: u32,
    }
}

pub(super) const VERSION: u32 = 1;
pub(super) const VERSION_MASK: u32 = 3;
pub(super) const REPLY: u32 = 1 << 2;
pub(super) const NEED_REPLY: u32 = 1 << 3;

/// Messages of a monitor.
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
    pub const SET_BACKEND_REQ_FD: u32 = 21;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
}

/// Message of the back end: the device's configuration space has changed. It has no body.
pub(super) const BACKEND_CONFIG_CHANGE: u32 = 2;

/// Feature bit: protocol features can be negotiated.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;

/// Offered protocol features: several queues, acknowledgements, the configuration space and notices
/// of its changes, and a record of requests in progress.
pub const OFFERED: u64 = protocol::MQ
    | protocol::REPLY_ACK
    | protocol::BACKEND_REQ
    | protocol::CONFIG
    | protocol::INFLIGHT_SHMFD;

/// Protocol features.
pub mod protocol {
    #![expect(missing_docs, reason = "the names are the standard's own")]
    pub const MQ: u64 = 1 << 0;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const BACKEND_REQ: u64 = 1 << 5;
    pub const CONFIG: u64 = 1 << 9;
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
}

native! {
    /// A region of the guest's memory. 32 bytes.
    pub struct Region: 32 bytes {
        /// Guest address.
        pub guest: u64,
        /// Length in bytes.
        pub bytes: u64,
        /// Address in the monitor's memory.
        pub user: u64,
        /// Offset in the file that comes with the message.
        pub offset: u64,
    }

    pub(super) struct RingState: 8 bytes {
        pub(super) index: u32,
        pub(super) value: u32,
    }

    pub(super) struct RingAddresses: 40 bytes {
        pub(super) index: u32,
        pub(super) flags: u32,
        pub(super) descriptors: u64,
        pub(super) used: u64,
        pub(super) available: u64,
        pub(super) log: u64,
    }

    /// Description of a record of requests in progress. 24 bytes. The last four are unused.
    pub(super) struct Inflight: 24 bytes {
        /// Length of the record in bytes, which the back end decides.
        pub(super) bytes: u64,
        /// Offset of the record in its file.
        pub(super) offset: u64,
        pub(super) queues: u16,
        pub(super) entries: u16,
        padding: [u8; 4],
    }
}

impl Inflight {
    /// Parses a description, and checks the numbers of queues and entries.
    pub(super) fn read(body: &[u8]) -> Result<(Self, Shape), Violation> {
        let asked = Self::read_from_bytes(body).map_err(|_| short())?;
        let queues = usize::from(asked.queues);
        let shape = Shape {
            queues: asked.queues,
            entries: asked.entries,
        };
        let is_queue = asked.entries.is_power_of_two() && asked.entries <= SIZE_MAX;
        if queues == 0 || queues > QUEUES_MAX || !is_queue {
            return Err(wrong(
                "a record is asked for that no queues have",
                asked.queues.into(),
            ));
        }
        Ok((asked, shape))
    }
}

/// Flag in a queue number: no descriptor comes with the message.
pub(super) const NO_DESCRIPTOR: u64 = 1 << 8;

pub(super) fn is_sane(region: &Region) -> bool {
    region.bytes > 0
        && region.guest.is_multiple_of(PAGE_BYTES)
        && region.offset.is_multiple_of(PAGE_BYTES)
        && region.guest.checked_add(region.bytes).is_some()
        && region.user.checked_add(region.bytes).is_some()
        && region.offset.checked_add(region.bytes).is_some()
}

pub(super) fn overlap(regions: &[Region]) -> bool {
    let apart =
        |a: &Region, b: &Region| a.guest + a.bytes <= b.guest || b.guest + b.bytes <= a.guest;
    let others = |at: usize| regions[..at].iter();
    (0..regions.len()).any(|at| !others(at).all(|other| apart(other, &regions[at])))
}

pub(super) fn config_range(body: &[u8]) -> Result<(usize, usize), Violation> {
    let (head, rest) = body.split_at_checked(12).ok_or_else(short)?;
    let field =
        |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (offset, bytes) = (field(0) as usize, field(4) as usize);
    if rest.len() != bytes {
        return Err(wrong(
            "a part of the device's space has not the length that it says",
            bytes as u64,
        ));
    }
    Ok((offset, bytes))
}

pub(super) fn ring_with_descriptor(body: u64, descriptors: usize) -> Result<usize, Violation> {
    let expected = usize::from(body & NO_DESCRIPTOR == 0);
    if body & !(NO_DESCRIPTOR | 0xff) != 0 || descriptors != expected {
        return Err(wrong(
            "a queue comes with more or fewer descriptors than it says",
            body,
        ));
    }
    ring_index(body & 0xff)
}

pub(super) fn one_descriptor(descriptors: usize) -> Result<(), Violation> {
    match descriptors {
        1 => Ok(()),
        _ => Err(wrong(
            "a message that brings a descriptor brings none, or several",
            descriptors as u64,
        )),
    }
}

pub(super) fn ring_index(index: u64) -> Result<usize, Violation> {
    match usize::try_from(index) {
        Ok(ring) if ring < QUEUES_MAX => Ok(ring),
        _ => Err(wrong("there is no queue of this number", index)),
    }
}

pub(super) fn state(body: &[u8]) -> Result<RingState, Violation> {
    RingState::read_from_bytes(body).map_err(|_| short())
}

pub(super) fn number(body: &[u8]) -> Result<u64, Violation> {
    body.try_into().map(u64::from_ne_bytes).map_err(|_| short())
}

pub(super) fn exactly(body: &[u8], bytes: usize) -> Result<(), Violation> {
    match body.len() == bytes {
        true => Ok(()),
        false => Err(short()),
    }
}

pub(super) fn reply(request: u32, body: &[u8]) -> Vec<u8> {
    let head = Head {
        request,
        flags: VERSION | REPLY,
        bytes: u32::try_from(body.len()).unwrap_or(u32::MAX),
    };
    [head.as_bytes(), body].concat()
}

pub(super) fn wrong(sentence: &'static str, found: u64) -> Violation {
    Violation::new(Breach::HeaderField, 0, sentence).found(found)
}

pub(super) fn early(sentence: &'static str) -> Violation {
    Violation::new(Breach::Sequence, 0, sentence)
}

pub(super) fn short() -> Violation {
    let sentence = "a message is longer or shorter than its kind is";
    Violation::new(Breach::HeaderField, 8, sentence)
}

pub(super) const PAGE_BYTES: u64 = 4096;
/// Largest configuration space in bytes that vhost-user allows.
pub(super) const CONFIG_BYTES_MAX: usize = 256;

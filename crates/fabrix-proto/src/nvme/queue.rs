//! One queue of a controller, whatever transport carries its capsules: the contract between
//! commands and transports.
//!
//! A transport hands out whole commands and moves their data by slot; the command layer says what
//! becomes of a command. Neither side of the contract speaks of bytes on a wire: a transport of
//! byte streams (NVMe/TCP) and one of messages and remote keys (NVMe/RDMA) can both keep it. What
//! only one transport has (digests, R2T, the SUCCESS flag; keys and their invalidation) stays
//! behind it.
//!
//! | the command layer | NVMe/TCP | NVMe/RDMA |
//! |---|---|---|
//! | `fetch` | R2T, then H2CData | RDMA READ from the keyed address |
//! | `answer` with data | C2HData | RDMA WRITE to the keyed address |
//! | `answer` | CapsuleResp, or SUCCESS with the last C2HData | SEND, with invalidate |
//! | [`Transfer::Inline`] | the data lies in the receive buffer | the same |
//!
//! Where data lies in memory is the business of the transport that moves it. No trait here is used
//! as `dyn`: the command layer is generic over the transport.
//!
//! Source: NVM Express Base Specification 2.1, "NVMe over Fabrics", "Capsules and Data Transfer".

use alloc::string::String;

use super::spec::{CompletionEntry, SubmissionEntry};
use crate::{Claim, Settled, Slot};

/// How a command's data moves, seen from the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The command has no data.
    None,
    /// The data came with the command, and lies where the transport received it.
    Inline {
        /// Length of the data in bytes.
        bytes: u32,
    },
    /// The host has the data. The command is to be answered, or its data fetched, before the next
    /// event is taken: the data may already be on its way.
    Fetch {
        /// Length of the data in bytes.
        bytes: u32,
    },
    /// The host expects data, which the answer sends.
    Send {
        /// Most bytes that the host takes.
        bytes: u32,
    },
}

impl Transfer {
    /// Length of the data in bytes, in whichever direction it moves.
    #[must_use]
    #[inline(always)]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Inline { bytes } | Self::Fetch { bytes } | Self::Send { bytes } => bytes,
        }
    }
}

/// What a transport tells the controller's side.
#[derive(Debug, PartialEq, Eq)]
pub enum ControllerEvent {
    /// A command has come. [`ControllerQueue::entry`] is its submission entry.
    Command {
        /// The claim on its slot, until it is answered.
        claim: Claim,
        /// How its data moves.
        transfer: Transfer,
        /// `false`: its inline data was damaged on the way. The command is not executed, but
        /// answered with Transient Transport Error.
        intact: bool,
    },
    /// All data that [`ControllerQueue::fetch`] asked for has arrived.
    Fetched {
        /// The slot of the command.
        slot: Slot,
        /// `false`: the data was damaged on the way, as for `Command`.
        intact: bool,
    },
    /// The data of a command that was answered early moves no more: its memory is free.
    Released {
        /// The slot of the command.
        slot: Slot,
    },
    /// The host has ended the connection; [`ControllerQueue::termination`] says why.
    Terminated,
}

/// The controller's side of one queue: what commands ask of their transport.
pub trait ControllerQueue {
    /// Memory of a disk that is sent from where it lies. The trait only passes it on.
    type Lent;

    /// The submission entry of the command that was the last event, until the next event is taken.
    fn entry(&self) -> &SubmissionEntry;

    /// Takes over what the Connect command says of the queue: whether it is an admin queue, its
    /// entries as a plain count, and whether SQ flow control is used.
    fn set_queue(&mut self, is_admin: bool, entries: u32, flow_control: bool);

    /// Whether this is an admin queue, as every queue is before its Connect command.
    fn is_admin(&self) -> bool;

    /// Whether only buffers of the shard can be sent, and no pages of a disk from where they lie:
    /// these may be written meanwhile, or the adapter does not know them.
    fn needs_buffers(&self) -> bool;

    /// Moves the data of a [`Transfer::Fetch`] into the memory that the slot was given;
    /// [`ControllerEvent::Fetched`] follows. Once for each command.
    fn fetch(&mut self, slot: Slot);

    /// Answers a command: moves the first `data_bytes` of its data to the host, then completes it.
    ///
    /// The data lies in `lent`, or else in the memory that the slot was given, which is free
    /// afterwards. The transport fills in the command id and SQHD of `entry`. Data of the host's
    /// that is still on its way is received and dropped; [`ControllerEvent::Released`] follows it.
    fn answer(
        &mut self,
        claim: Claim,
        entry: CompletionEntry,
        data_bytes: u32,
        lent: Option<Self::Lent>,
    ) -> Settled;

    /// The host shuts the controller down and waits for no event: answers to its event requests
    /// are not sent from now on.
    fn forget_event_requests(&mut self);

    /// How many slots are in use: by commands that are not answered, or whose data still moves.
    fn slots_in_use(&self) -> usize;

    /// Why the host has ended the connection, if it has said so.
    fn termination(&self) -> Option<String>;
}

/// How a command's data moves, seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostTransfer {
    /// The command has no data.
    None,
    /// The slot's data goes to the controller.
    Write {
        /// Length of the data in bytes.
        bytes: u32,
    },
    /// The controller's data goes to the slot.
    Read {
        /// Most bytes that the slot takes.
        bytes: u32,
    },
}

/// What a transport tells the host's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// The controller speaks our protocol: commands may be submitted.
    Ready,
    /// A command was answered, and its slot is free; [`HostQueue::entry`] is the answer.
    Completed {
        /// The slot of the command.
        slot: Slot,
        /// Bytes of data that have moved; all that the command asked for where the transport cannot
        /// count them. A read that succeeds with fewer bytes than it asked for
        /// is for the owner to refuse.
        data_bytes: u32,
        /// `false`: data of the command was damaged on the way.
        intact: bool,
    },
    /// The controller has ended the connection; [`HostQueue::termination`] says why.
    Terminated,
}

/// The host's side of one queue: what commands ask of their transport.
pub trait HostQueue {
    /// Submits a command in `slot`, which is free; the data lies in the memory that the slot was
    /// given. The transport fills in the command id and the data descriptor of `entry`.
    ///
    /// `false`, and nothing sent: the controller is not ready or the connection is over, or the
    /// slot is in use or does not exist.
    fn submit(&mut self, slot: Slot, entry: &mut SubmissionEntry, transfer: HostTransfer) -> bool;

    /// The answer that was the last event, until the next event is taken.
    fn entry(&self) -> &CompletionEntry;

    /// Most data in bytes that the controller takes within an I/O command's capsule (IOCCSZ).
    fn set_in_capsule(&mut self, bytes: u32);

    /// Whether the controller speaks our protocol and the connection is not over.
    fn is_ready(&self) -> bool;

    /// Why the controller has ended the connection, if it has said so.
    fn termination(&self) -> Option<String>;
}

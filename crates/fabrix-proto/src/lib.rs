//! Storage protocols as state machines without I/O.
//!
//! This crate implements the standards and nothing else. It has no socket, no clock and no source
//! of randomness, and never sees the user's data. A stream moves bytes and calls a [`Machine`].
//! Time is an argument, and checksums are a function. Disks are unknown here.
//!
//! Map: [`nvme`] holds the command set, the subsystem as plain data, the controller, and the TCP
//! transport below `nvme::tcp`; [`iscsi`] the target's side of an iSCSI connection; [`scsi`] the
//! direct-access block device, its logical unit and the reservations of all protocols; [`portal`]
//! which address of a target a peer is told; [`codec`] the bounded reader and writer for what no
//! structure can describe; [`violation`] the one way a peer can break the rules.

#![no_std]
#![allow(
    clippy::result_large_err,
    reason = "a violation carries a copy of the offending header inline: it ends a connection, and allocates nothing"
)]

extern crate alloc;

#[macro_use]
mod wire;

mod claim;
pub mod codec;
pub mod fuse;
pub mod iscsi;
pub mod nbd;
pub mod nvme;
pub mod portal;
pub mod scsi;
pub mod ublk;
pub mod violation;
pub mod virtio;

pub use claim::{Claim, Settled};
pub use violation::{Breach, Violation};

use core::time::Duration;

/// Index in a connection's table of commands in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// CRC32C of bytes (Castagnoli, initial value all ones, final inversion).
///
/// The caller passes the function to a machine, because this crate has no CPU features of its own.
pub type Crc32c = fn(&[u8]) -> u32;

/// Time on a monotonic clock, in nanoseconds from the caller's origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time `milliseconds` later, saturating.
    #[must_use]
    pub const fn plus_ms(self, milliseconds: u64) -> Self {
        Self(
            self.0
                .saturating_add(milliseconds.saturating_mul(1_000_000)),
        )
    }

    /// Time `duration` later, saturating.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// Nanoseconds since `earlier`. Zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Destination of the next received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The caller passes at least this many contiguous bytes, with all that arrived behind them, to
    /// [`Machine::header`].
    Header {
        /// Number of bytes, never zero.
        bytes: usize,
    },
    /// The caller puts the next bytes into a slot's payload, then calls [`Machine::payload`].
    Payload {
        /// Slot of the payload.
        slot: Slot,
        /// Offset in the payload, in bytes.
        offset: u32,
        /// Number of bytes, never zero, without the result of the pass.
        bytes: u32,
        /// Pass over the payload. The stream compares its result with the received one.
        pass: Pass,
    },
    /// Nothing. The connection is over.
    Closed,
}

impl Want {
    /// Number of wanted header bytes. Zero if the machine wants payload or nothing.
    fn header_bytes(self) -> usize {
        match self {
            Self::Header { bytes } => bytes,
            Self::Payload { .. } | Self::Closed => 0,
        }
    }
}

/// Computation over moving payload, whose result follows the payload on the wire.
///
/// The machine names the pass and the stream computes it, because the machine never sees payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pass {
    /// Nothing.
    #[default]
    None,
    /// CRC32C of the payload and its padding up to a multiple of [`Machine::PAYLOAD_UNIT`]. The
    /// result follows in 4 bytes, little-endian.
    Crc32c,
}

impl Pass {
    /// Pass of a connection with or without data digests.
    #[must_use]
    pub const fn of_digest(used: bool) -> Self {
        if used { Self::Crc32c } else { Self::None }
    }

    /// Length in bytes of the result behind the payload.
    #[must_use]
    pub const fn trailer_bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Crc32c => 4,
        }
    }
}

/// Bytes that a machine has consumed, and the resulting event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumed<E> {
    /// Number of consumed bytes, at least the wanted number.
    pub bytes: usize,
    /// Event, if the bytes caused one.
    pub event: Option<E>,
}

/// Destination of what a machine sends, in order.
pub trait Sink {
    /// Sends these bytes, with which a PDU begins. They are copied before the call returns.
    fn bytes(&mut self, bytes: &[u8]);

    /// Sends `bytes` of a slot's payload from `offset`, padded with zeroes to a multiple of
    /// [`Machine::PAYLOAD_UNIT`], and the result of `pass` over payload and padding.
    fn payload(&mut self, slot: Slot, offset: u32, bytes: u32, pass: Pass);
}

impl<S: Sink> Sink for &mut S {
    #[inline(always)]
    fn bytes(&mut self, bytes: &[u8]) {
        (**self).bytes(bytes);
    }

    #[inline(always)]
    fn payload(&mut self, slot: Slot, offset: u32, bytes: u32, pass: Pass) {
        (**self).payload(slot, offset, bytes, pass);
    }
}

/// One side of one connection as a state machine without I/O.
///
/// Every call returns at most one event, and no PDU causes an allocation. After an error
/// [`want`](Machine::want) returns [`Want::Closed`] forever.
pub trait Machine {
    /// Event for the owner.
    type Event;

    /// Unit of payload on the wire in bytes. The stream sends or skips zeroes up to the next
    /// multiple. The pass covers these zeroes, but [`Want::Payload`] and [`Sink::payload`] do not
    /// count them.
    const PAYLOAD_UNIT: u32 = 1;

    /// Sends the next payload that the peer has requested. Returns its length in bytes, 0 when no
    /// payload is requested. The owner calls this when the send queue has room, so that new
    /// commands need not wait behind requested data.
    fn send_data<S: Sink>(&mut self, _out: &mut S) -> u32 {
        0
    }

    /// Destination of the next received bytes.
    fn want(&self) -> Want;

    /// Consumes the bytes that [`Want::Header`] requests from the start of `arrived`. It may also
    /// consume bytes behind them, if the first bytes state the length of a header. It consumes
    /// nothing behind its event.
    ///
    /// # Errors
    /// The peer has violated the protocol. The connection ends, if possible with
    /// [`terminate`](Machine::terminate).
    fn header<S: Sink>(
        &mut self,
        arrived: &[u8],
        out: &mut S,
    ) -> Result<Consumed<Self::Event>, Violation>;

    /// Processes the arrival of the payload that [`Want::Payload`] requested. `intact` is false if
    /// the result of the pass differs.
    ///
    /// # Errors
    /// As for [`header`](Machine::header).
    fn payload<S: Sink>(
        &mut self,
        intact: bool,
        out: &mut S,
    ) -> Result<Option<Self::Event>, Violation>;

    /// Sends the termination request of the standard for `violation`. Afterwards
    /// [`want`](Machine::want) returns [`Want::Closed`].
    fn terminate<S: Sink>(&mut self, violation: &Violation, out: &mut S);
}

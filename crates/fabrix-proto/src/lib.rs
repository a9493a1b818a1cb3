//! What the bytes mean: protocols as machines without I/O.
//!
//! This crate knows the standards (NVMe, NVMe over Fabrics, and what follows) and nothing else. It
//! touches no socket, no clock, no source of randomness and never sees the user's data: a driver
//! moves bytes and tells a [`Machine`] about them, time comes in as an argument, checksums as a
//! function. It does not know what a disk is.
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

/// One place in a connection's table of commands in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// CRC32C (Castagnoli, initial value all ones, final inversion) over the bytes given.
///
/// Handed to a machine at construction, because this crate has no CPU features of its own.
pub type Crc32c = fn(&[u8]) -> u32;

/// A point on a monotonic clock, in nanoseconds from an origin that only the caller knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// This point and `milliseconds` more; the end of time when that is past it.
    #[must_use]
    pub const fn plus_ms(self, milliseconds: u64) -> Self {
        Self(
            self.0
                .saturating_add(milliseconds.saturating_mul(1_000_000)),
        )
    }

    /// This point and `duration` more; the end of time when that is past it.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// Nanoseconds from `earlier` to here, zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// What a machine needs next from its peer: the destination of the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Hand over so many bytes, contiguous, with what has arrived behind them, to
    /// [`Machine::header`].
    Header {
        /// How many bytes, never zero.
        bytes: usize,
    },
    /// Put the next bytes into a slot's payload, then call [`Machine::payload`].
    Payload {
        /// Whose payload.
        slot: Slot,
        /// Where in it, in bytes.
        offset: u32,
        /// How many bytes, never zero; the result of the pass is not counted.
        bytes: u32,
        /// What the driver computes over the payload; it compares the result with the one that
        /// arrives.
        pass: Pass,
    },
    /// Nothing any more: the connection is over.
    Closed,
}

impl Want {
    /// How many bytes of a header are wanted; none when it is something else.
    fn header_bytes(self) -> usize {
        match self {
            Self::Header { bytes } => bytes,
            Self::Payload { .. } | Self::Closed => 0,
        }
    }
}

/// What is computed over payload while it moves, and where the result stands on the wire.
///
/// A machine names the pass, the driver computes it: the machine never sees the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pass {
    /// Nothing.
    #[default]
    None,
    /// CRC32C of the payload and of its filling up to a multiple of [`Machine::PAYLOAD_UNIT`]. The
    /// result follows them in 4 bytes, little-endian.
    Crc32c,
}

impl Pass {
    /// The pass of a connection that has data digests, or has none.
    #[must_use]
    pub const fn of_digest(used: bool) -> Self {
        if used { Self::Crc32c } else { Self::None }
    }

    /// Bytes of the result behind the payload.
    #[must_use]
    pub const fn trailer_bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Crc32c => 4,
        }
    }
}

/// What a machine did with bytes that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumed<E> {
    /// So many of them are done with, at least those that it wanted.
    pub bytes: usize,
    /// What they meant.
    pub event: Option<E>,
}

/// Where a machine puts what is to be sent, in order.
pub trait Sink {
    /// Send these bytes, with which a PDU begins; they are copied before the call returns.
    fn bytes(&mut self, bytes: &[u8]);

    /// Send `bytes` of a slot's payload from `offset`, filled with zeros to a multiple of
    /// [`Machine::PAYLOAD_UNIT`], and the result of `pass` over all that.
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

/// One side of one connection, as pure state.
///
/// There is no queue of events and no allocation per PDU: every call yields at most one event.
/// After an error [`want`](Machine::want) is [`Want::Closed`] for ever.
pub trait Machine {
    /// What the machine tells its owner.
    type Event;

    /// Payload travels in multiples of so many bytes: the driver swallows, or sends, zeros up to
    /// the next one, before the result of the pass, which covers them. They do not count in
    /// [`Want::Payload`] and [`Sink::payload`].
    const PAYLOAD_UNIT: u32 = 1;

    /// Says the next piece of payload that the peer has asked for and that was not said yet; gives
    /// how many bytes of it, 0 when there is none. For the side that asks: its owner calls this
    /// when there is room, so that what it says of its own accord need not wait behind all that.
    fn send_data<S: Sink>(&mut self, _out: &mut S) -> u32 {
        0
    }

    /// The next bytes, and where they belong.
    fn want(&self) -> Want;

    /// Takes the bytes that [`Want::Header`] asked for from the start of `arrived`, and may take
    /// what lies behind them: a header whose length its first bytes tell is then read at once. It
    /// takes nothing that follows its event.
    ///
    /// # Errors
    /// The peer broke the rules; the connection ends, best after [`terminate`](Machine::terminate).
    fn header<S: Sink>(
        &mut self,
        arrived: &[u8],
        out: &mut S,
    ) -> Result<Consumed<Self::Event>, Violation>;

    /// Learns that the payload [`Want::Payload`] asked for has arrived; `intact` is false when the
    /// result of the pass differs.
    ///
    /// # Errors
    /// As for [`header`](Machine::header).
    fn payload<S: Sink>(
        &mut self,
        intact: bool,
        out: &mut S,
    ) -> Result<Option<Self::Event>, Violation>;

    /// Says the standard's goodbye for `violation`; after it [`want`](Machine::want) is
    /// [`Want::Closed`].
    fn terminate<S: Sink>(&mut self, violation: &Violation, out: &mut S);
}

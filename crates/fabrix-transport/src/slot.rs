//! The payload of a command in progress: where a slot's bytes are received, and where they are sent
//! from.
//!
//! Knows buffers; does not know why they travel.

use fabrix_rt::{Buf, Lent};

/// Where the payload that arrives for a slot is put.
#[derive(Default)]
pub enum Incoming {
    /// In the receive buffer, where [`Stream::in_place`](crate::Stream::in_place) shows it.
    #[default]
    InPlace,
    /// In a buffer, from this offset in bytes.
    Buf(Buf, usize),
    /// In a buffer from its start, unless all of these bytes have arrived already: then they stay
    /// in the receive buffer, and the slot becomes [`Incoming::InPlace`].
    Awaited(Buf, usize),
}

impl Incoming {
    /// The buffer. None: the payload is in the receive buffer.
    #[must_use]
    #[inline(always)]
    pub fn into_buf(self) -> Option<Buf> {
        match self {
            Self::InPlace => None,
            Self::Buf(buf, _) | Self::Awaited(buf, _) => Some(buf),
        }
    }

    /// The buffer, as [`into_buf`](Self::into_buf).
    #[must_use]
    pub fn buf(&self) -> Option<&Buf> {
        match self {
            Self::InPlace => None,
            Self::Buf(buf, _) | Self::Awaited(buf, _) => Some(buf),
        }
    }
}

/// Where the payload that is sent for a slot lies.
pub enum Outgoing {
    /// In a buffer, from this offset in bytes.
    Buf(Buf, usize),
    /// In a disk's own pages. Others may write them while they are sent, so nothing may be computed
    /// over them.
    Lent(Lent),
}

/// The payload of one slot, in both directions.
#[derive(Default)]
pub(crate) struct Payload {
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Option<Outgoing>,
}

impl Payload {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.incoming, Incoming::InPlace) && self.outgoing.is_none()
    }

    /// The buffer of either direction.
    pub(crate) fn into_buf(self) -> Option<Buf> {
        match self.outgoing {
            Some(Outgoing::Buf(buf, _)) => Some(buf),
            Some(Outgoing::Lent(_)) | None => self.incoming.into_buf(),
        }
    }
}

const _: () = assert!(
    size_of::<Payload>() <= 64,
    "a slot's payload fills one cache line"
);

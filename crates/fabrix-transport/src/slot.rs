//! The payload of a command in progress: what a slot of a machine holds while its bytes are on the
//! way.
//!
//! Knows buffers; does not know why they travel.

use fabrix_rt::{Buf, Lent};

/// What a slot's payload lies in.
#[derive(Default)]
pub enum Held {
    /// No memory yet: payload that arrives for the slot is handed out where it lies in the receive
    /// buffer.
    #[default]
    Nothing,
    /// A buffer, and where in it the slot's payload starts.
    Buf(Buf, usize),
    /// A buffer from its start, for so many bytes that are to arrive. If they arrive in one piece
    /// they stay in the receive buffer, and the slot holds [`Held::Stayed`].
    Awaited(Buf, usize),
    /// All has arrived, and lies where [`Stream::in_place`](crate::Stream::in_place) shows it; the
    /// buffer was not needed.
    Stayed(Buf),
    /// A disk's own pages, to be sent only, and without a digest: they may change on the way.
    Lent(Lent),
}

const _: () = assert!(size_of::<Held>() <= 40, "slots are moved for every command");

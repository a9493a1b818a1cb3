//! Sends a gather by reference, without the kernel's copy, as far as the socket has room.
//!
//! Done by hand, as io_uring has no such send. Whatever does not go this way is left for an ordinary send, which
//! copies: nothing here decides whether bytes arrive, only how.

use std::os::fd::AsFd;

use crate::sys::socket;
use crate::{Gather, Socket};

/// Sends all of it, or less. Piece by piece: the peer reads one while the next is copied. They leave as one stretch:
/// the kernel takes 16 pages at a time, and would send the few bytes by which those are longer than a segment, and then
/// each piece's end, in packets of their own.
pub(crate) fn send_references(socket: &Socket, gather: &mut Gather) {
    let descriptor = socket.as_fd();
    let wire = gather.wire();
    // Refused, there are more packets.
    let _ = socket::cork(descriptor, true);
    let mut room = 0;
    while wire.unsent_bytes() > 0 {
        let bytes = wire.next_piece(PIECE_BYTES);
        if room < ROOM_FOR_ONE * bytes {
            room = socket::send_room(descriptor).unwrap_or(0);
        }
        let Some(left) = room.checked_sub(ROOM_FOR_ONE * bytes) else {
            break; // splicing would wait, with the whole shard
        };
        room = left;
        if !matches!(wire.refer(descriptor, bytes), Ok(sent) if sent == bytes) {
            break;
        }
    }
    wire.copy_from_now_on();
    let _ = socket::cork(descriptor, false);
}

/// Less costs more calls than the peer gains by it, more lets it wait.
const PIECE_BYTES: usize = 128 << 10;
/// What the socket counts for a byte in its queue, with all the descriptions around it, is less.
const ROOM_FOR_ONE: usize = 2;

//! Sends what a gather refers to without copying it, as far as the socket has room.
//!
//! Done by hand, as io_uring has no such send. Whatever does not go this way is left for an ordinary send, which
//! copies: nothing here decides whether bytes arrive, only how.

use std::os::fd::AsFd;

use crate::sys::socket;
use crate::{Gather, Socket};

/// Sends up to the last part that goes by reference, or less.
pub(crate) fn send_references(socket: &Socket, gather: &mut Gather) {
    let descriptor = socket.as_fd();
    let wire = gather.wire();
    while let Some(next) = wire.next_reference() {
        let room = socket::send_room(descriptor).unwrap_or(0);
        if room < ROOM_FOR_ONE * (next.bytes_before + next.bytes) {
            break; // splicing would wait, with the whole shard
        }
        if next.bytes_before > 0 {
            match wire.send_at_most(
                descriptor,
                libc::MSG_DONTWAIT | libc::MSG_MORE,
                next.bytes_before,
            ) {
                Ok(sent) if sent == next.bytes_before => {}
                _ => break,
            }
        }
        if !matches!(wire.refer(descriptor), Ok(sent) if sent == next.bytes) {
            break;
        }
    }
    wire.copy_from_now_on();
}

/// What the socket counts for a byte in its queue, with all the descriptions around it, is less.
const ROOM_FOR_ONE: usize = 2;

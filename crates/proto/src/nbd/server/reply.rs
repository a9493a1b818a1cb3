//! How requests are answered: simply, or in chunks where the client wants those.
//!
//! Source: "The NBD protocol", sections "Simple reply message" and "Structured reply chunk message".

use super::{Progress, Server};
use crate::nbd::spec::{CHUNK_MAGIC, Error, SIMPLE_REPLY_MAGIC, chunk};
use crate::{Sink, Slot};

impl Server {
    /// A request was carried out; a read's data lies in its slot from `start` on. The slot is free then.
    pub fn succeed<S: Sink>(&mut self, slot: Slot, start: u32, out: &mut S) {
        let Some(progress) = self.take(slot) else {
            return;
        };
        if !progress.reads {
            return simple(progress.cookie, 0, out);
        }
        if self.chosen.structured {
            let bytes = progress.bytes.saturating_add(8);
            head(
                progress.cookie,
                (chunk::DONE, chunk::OFFSET_DATA),
                bytes,
                out,
            );
            out.bytes(&progress.offset.to_be_bytes());
        } else {
            simple(progress.cookie, 0, out);
        }
        out.payload(slot, start, progress.bytes, false);
    }

    /// A request that asks for nothing was carried out. The slot is free then.
    pub fn succeed_empty<S: Sink>(&mut self, slot: Slot, out: &mut S) {
        if let Some(progress) = self.take(slot) {
            self.nothing(progress, out);
        }
    }

    /// A request was not carried out. The slot is free then.
    pub fn fail<S: Sink>(&mut self, slot: Slot, error: Error, out: &mut S) {
        if let Some(progress) = self.take(slot) {
            self.refuse(progress.cookie, progress.reads, error, out);
        }
    }

    fn nothing<S: Sink>(&self, progress: Progress, out: &mut S) {
        if progress.reads && self.chosen.structured {
            head(progress.cookie, (chunk::DONE, chunk::NONE), 0, out);
        } else {
            simple(progress.cookie, 0, out);
        }
    }

    /// Reads are answered in chunks once that was agreed upon; everything else may be answered simply.
    pub(super) fn refuse<S: Sink>(&self, cookie: [u8; 8], reads: bool, error: Error, out: &mut S) {
        let number = error as u32;
        if reads && self.chosen.structured {
            head(cookie, (chunk::DONE, chunk::ERROR), 6, out);
            out.bytes(&number.to_be_bytes());
            out.bytes(&0_u16.to_be_bytes());
        } else {
            simple(cookie, number, out);
        }
    }
}

fn simple<S: Sink>(cookie: [u8; 8], error: u32, out: &mut S) {
    let mut reply = [0; 16];
    reply[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    reply[4..8].copy_from_slice(&error.to_be_bytes());
    reply[8..].copy_from_slice(&cookie);
    out.bytes(&reply);
}

/// The head of a chunk with so many bytes behind it.
fn head<S: Sink>(cookie: [u8; 8], (flags, kind): (u16, u16), bytes: u32, out: &mut S) {
    let mut head = [0; 20];
    head[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    head[4..6].copy_from_slice(&flags.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&cookie);
    head[16..].copy_from_slice(&bytes.to_be_bytes());
    out.bytes(&head);
}

//! How requests are answered: simply, or in chunks where the client wants those.
//!
//! Source: "The NBD protocol", sections "Simple reply message" and "Structured reply chunk message".

use super::pieces::{Answer, Piece, Progress};
use super::{Extent, Server, State};
use crate::nbd::options::ALLOCATION_ID;
use crate::nbd::spec::{CHUNK_MAGIC, Error, SIMPLE_REPLY_MAGIC, chunk};
use crate::{Sink, Slot};

/// The most extents that one answer tells.
pub const EXTENTS_MAX: usize = 256;

impl Server {
    /// A read was carried out, and its data lies in its slot. The slot is free then.
    pub fn succeed<S: Sink>(&mut self, slot: Slot, out: &mut S) {
        let Some(piece) = self.end_piece(slot) else {
            return;
        };
        let is_over = self.end_request(piece.request);
        let progress = self.requests[usize::from(piece.request)];
        if progress.answer == Answer::Data {
            if !progress.answered_in_part {
                self.data_head(&progress, out);
            }
            self.requests[usize::from(piece.request)].answered_in_part = true;
        } else if let Some(error) = progress.error {
            // The client may not use what it is sent of a request that has failed.
            return self.settle(&progress, is_over.then_some(error), out);
        } else {
            let flags = if is_over { chunk::DONE } else { 0 };
            chunk_of_data(progress.cookie, flags, (piece.offset, piece.bytes), out);
        }
        out.payload(slot, 0, piece.bytes, false);
    }

    /// A request that asks for no data, or for none of it, was carried out. The slot is free then.
    pub fn succeed_empty<S: Sink>(&mut self, slot: Slot, out: &mut S) {
        let Some(piece) = self.end_piece(slot) else {
            return;
        };
        if !self.end_request(piece.request) {
            return;
        }
        let progress = self.requests[usize::from(piece.request)];
        match progress.error {
            Some(error) => self.settle(&progress, Some(error), out),
            None if self.is_chunked(progress.answer) => {
                head(progress.cookie, (chunk::DONE, chunk::NONE), 0, out);
            }
            None => simple(progress.cookie, 0, out),
        }
    }

    /// What a request for the block status is answered with: at least one extent, from the first byte that was asked
    /// for, and no more than were asked for; [`EXTENTS_MAX`] at most. The slot is free then.
    pub fn tell_extents<S: Sink>(&mut self, slot: Slot, extents: &[Extent], out: &mut S) {
        let Some(Piece { request, .. }) = self.end_piece(slot) else {
            return;
        };
        self.end_request(request);
        let cookie = self.requests[usize::from(request)].cookie;
        let mut told = [0; 4 + 8 * EXTENTS_MAX];
        told[..4].copy_from_slice(&ALLOCATION_ID.to_be_bytes());
        for (place, extent) in told[4..].chunks_exact_mut(8).zip(extents) {
            place[..4].copy_from_slice(&extent.bytes.to_be_bytes());
            place[4..].copy_from_slice(&extent.flags.to_be_bytes());
        }
        let told = &told[..4 + 8 * extents.len().min(EXTENTS_MAX)];
        head(cookie, (chunk::DONE, chunk::BLOCK_STATUS), told.len(), out);
        out.bytes(told);
    }

    /// A request, or a piece of it, was not carried out. The slot is free then.
    pub fn fail<S: Sink>(&mut self, slot: Slot, error: Error, out: &mut S) {
        let Some(Piece { request, .. }) = self.end_piece(slot) else {
            return;
        };
        let progress = &mut self.requests[usize::from(request)];
        let error = *progress.error.get_or_insert(error);
        if progress.answer == Answer::Data {
            self.drop_rest(request);
        }
        let progress = self.requests[usize::from(request)];
        if progress.answered_in_part {
            // The client takes all that comes for the data that it has been promised.
            self.state = State::Over;
        } else if self.end_request(request) {
            self.settle(&progress, Some(error), out);
        }
    }

    /// Says an error, if it is time to.
    fn settle<S: Sink>(&self, progress: &Progress, error: Option<Error>, out: &mut S) {
        if let Some(error) = error {
            self.refuse(
                progress.cookie,
                progress.answer != Answer::Simple,
                error,
                out,
            );
        }
    }

    fn is_chunked(&self, answer: Answer) -> bool {
        self.chosen.structured && answer != Answer::Simple
    }

    /// The head of an answer whose data comes in one run.
    fn data_head<S: Sink>(&self, progress: &Progress, out: &mut S) {
        match self.chosen.structured {
            true => {
                let range = (progress.offset, progress.bytes);
                chunk_of_data(progress.cookie, chunk::DONE, range, out);
            }
            false => simple(progress.cookie, 0, out),
        }
    }

    /// `chunked`: a request of a kind that is answered in chunks once that was agreed upon.
    pub(super) fn refuse<S: Sink>(
        &self,
        cookie: [u8; 8],
        chunked: bool,
        error: Error,
        out: &mut S,
    ) {
        let number = error as u32;
        if chunked && self.chosen.structured {
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

/// The head of a chunk of data; the data follows.
fn chunk_of_data<S: Sink>(cookie: [u8; 8], flags: u16, (offset, bytes): (u64, u32), out: &mut S) {
    head(cookie, (flags, chunk::OFFSET_DATA), bytes as usize + 8, out);
    out.bytes(&offset.to_be_bytes());
}

/// The head of a chunk with so many bytes behind it.
fn head<S: Sink>(cookie: [u8; 8], (flags, kind): (u16, u16), bytes: usize, out: &mut S) {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut head = [0; 20];
    head[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    head[4..6].copy_from_slice(&flags.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&cookie);
    head[16..].copy_from_slice(&bytes.to_be_bytes());
    out.bytes(&head);
}

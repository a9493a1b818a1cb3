//! Replies to requests: simple replies, or chunks if the client has agreed to structured replies.
//! With extended headers every reply is a chunk.
//!
//! Source: "The NBD protocol", sections "Simple reply message", "Structured reply chunk message"
//! and "Extended reply chunk message".

use super::pieces::{Answer, Piece, Progress};
use super::{Extent, Server, State};
use crate::nbd::options::ALLOCATION_ID;
use crate::nbd::spec::{CHUNK_MAGIC, EXTENDED_CHUNK_MAGIC, Error, SIMPLE_REPLY_MAGIC, chunk};
use crate::{Pass, Sink, Slot};

/// Most extents in one reply.
pub const EXTENTS_MAX: usize = 256;

/// Fields of the request that its replies echo.
#[derive(Clone, Copy, Default)]
pub(super) struct Origin {
    pub(super) cookie: [u8; 8],
    /// Offset of the first byte of the request, echoed in extended replies only.
    pub(super) offset: u64,
}

impl Server {
    /// Answers a read whose data is in its slot, and frees the slot.
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
            // A failed request sends no further data: the client would discard it.
            return self.settle(&progress, is_over.then_some(error), out);
        } else {
            let flags = if is_over { chunk::DONE } else { 0 };
            let range = (piece.offset, piece.data_bytes.into());
            self.chunk_of_data(progress.origin, flags, range, out);
        }
        out.payload(slot, 0, piece.data_bytes, Pass::None);
    }

    /// Answers a successful request that returns no data, and frees the slot.
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
                self.head(progress.origin, (chunk::DONE, chunk::NONE), 0, out);
            }
            None => simple(progress.origin, 0, out),
        }
    }

    /// Answers a request for the block status, and frees the slot. The extents start at the first
    /// requested byte. There is at least one extent, at most as many as requested, and at most
    /// [`EXTENTS_MAX`].
    pub fn tell_extents<S: Sink>(&mut self, slot: Slot, extents: &[Extent], out: &mut S) {
        let Some(Piece { request, .. }) = self.end_piece(slot) else {
            return;
        };
        self.end_request(request);
        let origin = self.requests[usize::from(request)].origin;
        let extents = &extents[..extents.len().min(EXTENTS_MAX)];
        let mut told = [0; 8 + 16 * EXTENTS_MAX];
        told[..4].copy_from_slice(&ALLOCATION_ID.to_be_bytes());
        let (kind, bytes) = match self.chosen.extended {
            true => (chunk::BLOCK_STATUS_EXT, put_wide(extents, &mut told[4..])),
            false => (chunk::BLOCK_STATUS, put_narrow(extents, &mut told[4..])),
        };
        let told = &told[..4 + bytes];
        self.head(origin, (chunk::DONE, kind), told.len() as u64, out);
        out.bytes(told);
    }

    /// Answers a failed request, or records the failure of a piece, and frees the slot.
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
            // No error can follow: the client takes the next bytes for the promised data.
            self.state = State::Over;
        } else if self.end_request(request) {
            self.settle(&progress, Some(error), out);
        }
    }

    /// Sends an error, if there is one.
    fn settle<S: Sink>(&self, progress: &Progress, error: Option<Error>, out: &mut S) {
        if let Some(error) = error {
            let has_chunks = progress.answer != Answer::Simple;
            self.refuse(progress.origin, has_chunks, error, out);
        }
    }

    fn is_chunked(&self, answer: Answer) -> bool {
        self.chosen.extended || self.chosen.structured && answer != Answer::Simple
    }

    /// Sends the head of a reply whose data comes in one run.
    fn data_head<S: Sink>(&self, progress: &Progress, out: &mut S) {
        match self.chosen.structured {
            true => {
                let range = (progress.origin.offset, progress.bytes);
                self.chunk_of_data(progress.origin, chunk::DONE, range, out);
            }
            false => simple(progress.origin, 0, out),
        }
    }

    /// Sends an error reply. `has_chunks`: requests of this kind have structured replies once these
    /// are agreed.
    pub(super) fn refuse<S: Sink>(
        &self,
        origin: Origin,
        has_chunks: bool,
        error: Error,
        out: &mut S,
    ) {
        let number = error as u32;
        if self.chosen.extended || has_chunks && self.chosen.structured {
            self.head(origin, (chunk::DONE, chunk::ERROR), 6, out);
            out.bytes(&number.to_be_bytes());
            out.bytes(&0_u16.to_be_bytes());
        } else {
            simple(origin, number, out);
        }
    }

    /// Sends the head of a chunk of data. The data follows.
    fn chunk_of_data<S: Sink>(
        &self,
        origin: Origin,
        flags: u16,
        (offset, bytes): (u64, u64),
        out: &mut S,
    ) {
        self.head(origin, (flags, chunk::OFFSET_DATA), bytes + 8, out);
        out.bytes(&offset.to_be_bytes());
    }

    /// Sends the head of a chunk with `bytes` bytes of content.
    fn head<S: Sink>(&self, origin: Origin, (flags, kind): (u16, u16), bytes: u64, out: &mut S) {
        let mut head = [0; 32];
        head[4..6].copy_from_slice(&flags.to_be_bytes());
        head[6..8].copy_from_slice(&kind.to_be_bytes());
        head[8..16].copy_from_slice(&origin.cookie);
        if self.chosen.extended {
            head[..4].copy_from_slice(&EXTENDED_CHUNK_MAGIC.to_be_bytes());
            head[16..24].copy_from_slice(&origin.offset.to_be_bytes());
            head[24..].copy_from_slice(&bytes.to_be_bytes());
            return out.bytes(&head);
        }
        // The length fits: no reply has more than 32 MiB of data.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        head[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
        head[16..20].copy_from_slice(&bytes.to_be_bytes());
        out.bytes(&head[..20]);
    }
}

fn simple<S: Sink>(origin: Origin, error: u32, out: &mut S) {
    let mut reply = [0; 16];
    reply[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    reply[4..8].copy_from_slice(&error.to_be_bytes());
    reply[8..].copy_from_slice(&origin.cookie);
    out.bytes(&reply);
}

/// Writes extents with lengths of 32 bits. Returns the number of bytes written.
fn put_narrow(extents: &[Extent], into: &mut [u8]) -> usize {
    for (place, extent) in into.chunks_exact_mut(8).zip(extents) {
        // The length fits: no extent is longer than the request, whose length has 32 bits.
        let bytes = u32::try_from(extent.bytes).unwrap_or(u32::MAX);
        place[..4].copy_from_slice(&bytes.to_be_bytes());
        place[4..].copy_from_slice(&extent.flags.to_be_bytes());
    }
    8 * extents.len()
}

/// Writes the number of extents, then the extents with lengths of 64 bits. Returns the number of
/// bytes written.
fn put_wide(extents: &[Extent], into: &mut [u8]) -> usize {
    let count = u32::try_from(extents.len()).unwrap_or(u32::MAX);
    into[..4].copy_from_slice(&count.to_be_bytes());
    for (place, extent) in into[4..].chunks_exact_mut(16).zip(extents) {
        place[..8].copy_from_slice(&extent.bytes.to_be_bytes());
        place[8..].copy_from_slice(&u64::from(extent.flags).to_be_bytes());
    }
    4 + 16 * extents.len()
}

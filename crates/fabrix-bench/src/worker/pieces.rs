//! Requests that are longer than the disk takes at once.
//!
//! The worker splits such a request into pieces. Each piece has a slot with a buffer of its own.
//! The first slot of a request keeps its times. The request is counted once, when all its pieces
//! are answered, so its latency is that of the slowest piece. The verification works on whole
//! requests, so its data is copied from and to the pieces.

use std::collections::VecDeque;

use fabrix_block::Status;
use fabrix_rt::Shard;

use super::slot::Slot;
use super::{Setup, Worker};
use crate::access::Direction;

/// How requests are split.
pub(super) struct Pieces {
    /// Largest number of pieces per request. 1: no request is split.
    pub(super) most: u32,
    /// Length of a piece in disk blocks. Only the last piece of a request may be shorter.
    blocks: u32,
    block_bytes: u32,
    /// Slots of pieces that are not submitted yet.
    due: VecDeque<u32>,
    /// Data of a verified write whose pieces are not all submitted. Another request starts only
    /// after them.
    stamped: Vec<u8>,
    /// Data of a read that is verified.
    gathered: Vec<u8>,
}

impl Pieces {
    pub(super) fn new(setup: &Setup) -> Self {
        let job = &setup.job;
        let longest = job
            .used_sides()
            .map(|write| job.sizes(write).longest_bytes())
            .max();
        let longest = longest.unwrap_or(job.block_bytes);
        let blocks = (setup.max_transfer_bytes / setup.block_bytes).max(1);
        let most = (longest / setup.block_bytes).div_ceil(blocks);
        let whole_bytes = match most {
            2.. if job.verify.is_some() => longest as usize,
            _ => 0,
        };
        Self {
            most,
            blocks,
            block_bytes: setup.block_bytes,
            due: VecDeque::with_capacity((job.iodepth * (most - 1)) as usize),
            stamped: vec![0; whole_bytes],
            gathered: vec![0; whole_bytes],
        }
    }

    /// Length of the longest piece in bytes.
    pub(super) fn longest_bytes(&self) -> usize {
        self.blocks as usize * self.block_bytes as usize
    }

    /// Copies a part of the stamped data, which begins at `from`, to the buffer of a piece.
    pub(super) fn copy_stamped(&self, from: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.stamped[from..][..bytes.len()]);
    }

    /// The data of a read of `bytes`, whose pieces are in the first ones of `slots`. None if a
    /// buffer is missing.
    pub(super) fn gather(&mut self, slots: &[Slot], bytes: usize) -> Option<&[u8]> {
        let most = self.longest_bytes();
        let whole = &mut self.gathered[..bytes];
        for (part, slot) in whole.chunks_mut(most).zip(slots) {
            part.copy_from_slice(&slot.read.as_ref()?.bytes()[..part.len()]);
        }
        Some(whole)
    }

    /// First slots of all requests.
    pub(super) fn first_slots(&self, iodepth: u32) -> VecDeque<u32> {
        (0..iodepth).map(|request| request * self.most).collect()
    }
}

impl Worker {
    /// Splits the request of a prepared slot, and queues all pieces but the first. Returns the
    /// length of the first piece in bytes.
    pub(super) fn split(&mut self, first: u32) -> usize {
        let access = self.slots[first as usize].access;
        let count = self.request_blocks(first).div_ceil(self.pieces.blocks);
        let slot = &mut self.slots[first as usize];
        (slot.pieces_left, slot.failure) = (count, None);
        if access.direction == Direction::Write
            && let Some(verifier) = &mut self.verifier
        {
            let bytes = (access.units * self.unit_bytes) as usize;
            verifier.stamp(access.unit, &mut self.pieces.stamped[..bytes]);
        }
        for piece in first + 1..first + count {
            self.slots[piece as usize].access = access;
            self.pieces.due.push_back(piece);
        }
        self.piece_bytes(first)
    }

    /// The next piece of a split request, with its buffer.
    pub(super) fn next_piece(&mut self, shard: &mut Shard) -> Option<u32> {
        let slot = self.pieces.due.pop_front()?;
        let bytes = self.piece_bytes(slot);
        self.prepare_buffer(shard, slot, bytes);
        Some(slot)
    }

    /// First block of a slot's piece in its request, and its length, in disk blocks.
    pub(super) fn piece(&self, slot: u32) -> (u32, u32) {
        let first = slot % self.pieces.most * self.pieces.blocks;
        (
            first,
            (self.request_blocks(slot) - first).min(self.pieces.blocks),
        )
    }

    fn piece_bytes(&self, slot: u32) -> usize {
        let (_, blocks) = self.piece(slot);
        blocks as usize * self.pieces.block_bytes as usize
    }

    /// Offset of a slot's piece in its request, in bytes.
    #[inline]
    pub(super) fn piece_offset(&self, slot: u32) -> usize {
        match self.pieces.most {
            1 => 0,
            most => (slot % most) as usize * self.pieces.longest_bytes(),
        }
    }

    /// Length of a slot's request in disk blocks.
    fn request_blocks(&self, slot: u32) -> u32 {
        self.slots[slot as usize].access.units * self.setup.region.blocks_per_unit
    }

    /// Records the answer of a piece. After the last piece it returns the first slot of the
    /// request, with the status of the first failed piece.
    pub(super) fn end_piece(&mut self, slot: u32, status: Status) -> Option<(u32, Status)> {
        let first = slot - slot % self.pieces.most;
        let request = &mut self.slots[first as usize];
        request.pieces_left -= 1;
        if !status.is_ok() {
            request.failure.get_or_insert(status);
        }
        let status = request.failure.unwrap_or(Status::Ok);
        (request.pieces_left == 0).then_some((first, status))
    }
}

//! Sends answers to the kernel: headers and bodies by value, read data by reference to the disk's
//! memory.
//!
//! Second part of `server`.

use fabrix_block::{Geometry, Status};
use fabrix_proto::fuse::{self, Facts};
use fabrix_rt::{Gather, Loan, Op, Shard, errno};

use super::plan::Reply;
use super::{Call, Requester, SEND, Server};
use crate::job::errno_of;

impl Server {
    /// Frees the slot of a request and answers it.
    pub(super) fn finish(
        &mut self,
        shard: &mut Shard,
        slot: u16,
        call: &Call,
        status: Status,
        loan: Loan,
    ) {
        self.free.push(slot);
        if call.answered {
            return;
        }
        if let Some(errno) = errno_of(status) {
            return self.refuse(shard, call.requester, errno);
        }
        match call.reply {
            Reply::Empty => self.answer(shard, call.requester, &[]),
            Reply::Written(bytes) => self.answer(shard, call.requester, &fuse::written(bytes)),
            Reply::Data { skip, bytes } => {
                self.send_data(shard, call.requester, (loan, skip, bytes))
            }
        }
    }

    /// Answers with read data: `bytes` bytes, after the first `skip`.
    fn send_data(
        &mut self,
        shard: &mut Shard,
        requester: Requester,
        (loan, skip, bytes): (Loan, usize, usize),
    ) {
        if requester.entry.is_some() {
            return self.send_data_in_exchange(shard, requester, (loan, skip, bytes));
        }
        let mut gather = self.gather();
        gather.push_bytes(&fuse::head(requester.unique, 0, bytes));
        match loan {
            Loan::Lent(lent) => gather.push_lent(lent.slice(skip, bytes)),
            Loan::Buf(buf) => gather.push_buf(buf, skip, bytes),
            _ => {
                gather.clear();
                self.gathers.push(gather);
                return self.refuse(shard, requester, errno::EIO);
            }
        }
        self.send_message(shard, SEND, gather);
    }

    pub(super) fn facts(&self, geometry: &Geometry) -> Facts {
        Facts {
            bytes: geometry.bytes(),
            block_bytes: geometry.physical_block_bytes.max(geometry.block_bytes),
            read_only: geometry.read_only,
            owner: self.owner,
        }
    }

    pub(super) fn attributes(
        &mut self,
        shard: &mut Shard,
        requester: Requester,
        geometry: &Geometry,
    ) {
        let body = fuse::attributes(&self.facts(geometry));
        self.answer(shard, requester, &body);
    }

    pub(super) fn answer(&mut self, shard: &mut Shard, requester: Requester, body: &[u8]) {
        match requester.entry {
            Some(_) => self.answer_in_exchange(shard, requester, body),
            None => self.send_answer(shard, SEND, requester.unique, Ok(body)),
        }
    }

    pub(super) fn refuse(&mut self, shard: &mut Shard, requester: Requester, errno: i32) {
        match requester.entry {
            Some(_) => self.end_exchange(shard, requester, |_| Err(errno)),
            None => self.send_answer(shard, SEND, requester.unique, Err(errno)),
        }
    }

    /// Writes an answer to /dev/fuse: a body or an errno.
    pub(super) fn send_answer(
        &mut self,
        shard: &mut Shard,
        slot: u32,
        unique: u64,
        answer: Result<&[u8], i32>,
    ) {
        let mut gather = self.gather();
        match answer {
            Ok(body) => {
                gather.push_bytes(&fuse::head(unique, 0, body.len()));
                gather.push_bytes(body);
            }
            Err(errno) => gather.push_bytes(&fuse::head(unique, -errno, 0)),
        }
        self.send_message(shard, slot, gather);
    }

    fn gather(&mut self) -> Box<Gather> {
        let fresh = || Box::new(Gather::new(fuse::ANSWER_BYTES_MAX, ANSWER_PARTS));
        self.gathers.pop().unwrap_or_else(fresh)
    }

    fn send_message(&mut self, shard: &mut Shard, slot: u32, gather: Box<Gather>) {
        let file = self.file.clone();
        shard.start(self.token(slot), Op::GiveMessage { file, gather });
    }
}

/// Parts of an answer: the header with a body by value, and data by reference.
const ANSWER_PARTS: usize = 2;

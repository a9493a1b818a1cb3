//! How the kernel is answered: heads and bodies by value, what was read by reference, from where
//! the disk has it.
//!
//! The second part of `server`.

use fabrix_block::{Geometry, Status};
use fabrix_proto::fuse::{self, Facts};
use fabrix_rt::{Gather, Loan, Op, Shard, errno};

use super::plan::Reply;
use super::{Asker, Call, GIVE, Server};
use crate::job::errno_of;

impl Server {
    /// Frees the slot of a call and answers it.
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
            return self.refuse(shard, call.asker, errno);
        }
        match call.reply {
            Reply::Empty => self.answer(shard, call.asker, &[]),
            Reply::Written(bytes) => self.answer(shard, call.asker, &fuse::written(bytes)),
            Reply::Data { skip, bytes } => self.give_data(shard, call.asker, (loan, skip, bytes)),
        }
    }

    /// Answers with what was read, from so many bytes into it.
    fn give_data(
        &mut self,
        shard: &mut Shard,
        asker: Asker,
        (loan, skip, bytes): (Loan, usize, usize),
    ) {
        if asker.place.is_some() {
            return self.give_in_exchange(shard, asker, (loan, skip, bytes));
        }
        let mut gather = self.gather();
        gather.push_bytes(&fuse::head(asker.unique, 0, bytes));
        match loan {
            Loan::Lent(lent) => gather.push_lent(lent.slice(skip, bytes)),
            Loan::Buf(buf) => gather.push_buf(buf, skip, bytes),
            _ => {
                gather.clear();
                self.gathers.push(gather);
                return self.refuse(shard, asker, errno::EIO);
            }
        }
        self.give_message(shard, GIVE, gather);
    }

    pub(super) fn facts(&self, geometry: &Geometry) -> Facts {
        Facts {
            bytes: geometry.bytes(),
            block_bytes: geometry.physical_block_bytes.max(geometry.block_bytes),
            read_only: geometry.read_only,
            owner: self.owner,
        }
    }

    pub(super) fn attributes(&mut self, shard: &mut Shard, asker: Asker, geometry: &Geometry) {
        let body = fuse::attributes(&self.facts(geometry));
        self.answer(shard, asker, &body);
    }

    pub(super) fn answer(&mut self, shard: &mut Shard, asker: Asker, body: &[u8]) {
        match asker.place {
            Some(_) => self.answer_in_exchange(shard, asker, body),
            None => self.give(shard, GIVE, asker.unique, Ok(body)),
        }
    }

    pub(super) fn refuse(&mut self, shard: &mut Shard, asker: Asker, errno: i32) {
        match asker.place {
            Some(_) => self.end_exchange(shard, asker, |_| Err(errno)),
            None => self.give(shard, GIVE, asker.unique, Err(errno)),
        }
    }

    /// Writes an answer to /dev/fuse: a body, or an errno.
    pub(super) fn give(
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
        self.give_message(shard, slot, gather);
    }

    fn gather(&mut self) -> Box<Gather> {
        let fresh = || Box::new(Gather::new(fuse::ANSWER_BYTES_MAX, ANSWER_PARTS));
        self.gathers.pop().unwrap_or_else(fresh)
    }

    fn give_message(&mut self, shard: &mut Shard, slot: u32, gather: Box<Gather>) {
        let file = self.file.clone();
        shard.start(self.token(slot), Op::GiveMessage { file, gather });
    }
}

/// An answer: its head and the longest body by value, and data by reference.
const ANSWER_PARTS: usize = 2;

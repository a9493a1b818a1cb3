//! How the kernel is answered: heads and bodies by value, what was read by reference, from where the disk has it.
//!
//! The second part of `server`.

use fabrix_block::{Geometry, Status};
use fabrix_proto::fuse::{self, Facts};
use fabrix_rt::{Gather, Loan, Op, Shard, errno};

use super::plan::Reply;
use super::{Call, GIVE, Server};
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
            return self.refuse(shard, call.unique, errno);
        }
        match call.reply {
            Reply::Empty => self.answer(shard, call.unique, &[]),
            Reply::Written(bytes) => self.answer(shard, call.unique, &fuse::written(bytes)),
            Reply::Data { skip, bytes } => {
                let mut gather = self.gather();
                gather.push_bytes(&fuse::head(call.unique, 0, bytes));
                match loan {
                    Loan::Lent(lent) => gather.push_lent(lent.slice(skip, bytes)),
                    Loan::Buf(buf) => gather.push_buf(buf, skip, bytes),
                    _ => {
                        self.gathers.push(gather);
                        return self.refuse(shard, call.unique, errno::EIO);
                    }
                }
                self.give(shard, gather);
            }
        }
    }

    pub(super) fn facts(&self, geometry: &Geometry) -> Facts {
        Facts {
            bytes: geometry.bytes(),
            block_bytes: geometry.physical_block_bytes.max(geometry.block_bytes),
            read_only: geometry.read_only,
            owner: self.owner,
        }
    }

    pub(super) fn attributes(&mut self, shard: &mut Shard, unique: u64, geometry: &Geometry) {
        let body = fuse::attributes(&self.facts(geometry));
        self.answer(shard, unique, &body);
    }

    pub(super) fn answer(&mut self, shard: &mut Shard, unique: u64, body: &[u8]) {
        let mut gather = self.gather();
        gather.push_bytes(&fuse::head(unique, 0, body.len()));
        gather.push_bytes(body);
        self.give(shard, gather);
    }

    pub(super) fn refuse(&mut self, shard: &mut Shard, unique: u64, errno: i32) {
        let mut gather = self.gather();
        gather.push_bytes(&fuse::head(unique, -errno, 0));
        self.give(shard, gather);
    }

    pub(super) fn gather(&mut self) -> Box<Gather> {
        let fresh = || Box::new(Gather::new(fuse::ANSWER_BYTES_MAX, ANSWER_PARTS));
        self.gathers.pop().unwrap_or_else(fresh)
    }

    pub(super) fn give(&mut self, shard: &mut Shard, gather: Box<Gather>) {
        let file = self.file.clone();
        shard.start(self.token(GIVE), Op::GiveMessage { file, gather });
    }
}

/// An answer: its head and the longest body by value, and data by reference.
const ANSWER_PARTS: usize = 2;

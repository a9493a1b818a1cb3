//! Requests at the queue pair for the commands of a queue: RDMA READs, and answers.
//!
//! Each slot waits for room at most once, so the slots bound what waits.

use std::mem;

use fabrix_proto::Slot;
use fabrix_proto::nvme::rdma::capsule::{DESCRIPTORS_MOST, descriptors};
use fabrix_proto::nvme::rdma::target::Answer;
use fabrix_proto::nvme::spec::{CompletionEntry, Status};
use fabrix_rt::Buf;
use sys_rdma::{Memory, Part, Remote, Unsent, Why};
use zerocopy::IntoBytes;

use super::RdmaQueue;
use crate::rdma::{Begin, Pair, Waiting};
use crate::slot::Outgoing;

/// Requests of one command at the most: its data in pieces, and the response.
pub(super) const REQUESTS_OF_A_COMMAND: u32 = DESCRIPTORS_MOST as u32 + 1;
/// Parts of a command's data.
pub(super) const PARTS_MOST: usize = DESCRIPTORS_MOST as usize;

/// What is to be done for a slot.
pub(crate) enum Work {
    /// Read the data of the command into the buffer.
    Fetch { slot: Slot, buf: Buf },
    /// Write the data, send the response, and take the next command in this slot.
    Answer {
        slot: Slot,
        answer: Answer,
        data: Option<(Memory, usize)>,
    },
    /// Take the next command in this slot.
    Forget { slot: Slot },
}

impl Work {
    /// The answer to a command, with its data.
    pub(super) fn answer(slot: Slot, answer: Answer, outgoing: Option<Outgoing>) -> Self {
        let data = match outgoing {
            Some(Outgoing::Buf(buf, start)) => Some((Memory::Buf(buf), start)),
            Some(Outgoing::Lent(lent)) => Some((Memory::Lent(lent), 0)),
            None => None,
        };
        Self::Answer { slot, answer, data }
    }

    /// The slot whose RDMA READ has this token. None: it is a token of something else.
    pub(super) fn fetched_slot(token: u64) -> Option<Slot> {
        let slot = token.checked_sub(FETCH)?;
        u16::try_from(slot).ok().map(Slot)
    }
}

impl<P: Pair> Begin for RdmaQueue<P> {
    type Work = Work;

    fn waiting(&mut self) -> &mut Waiting<Work> {
        &mut self.waiting
    }

    fn is_read(work: &Work) -> bool {
        matches!(work, Work::Fetch { .. })
    }

    fn try_begin(&mut self, work: Work) -> Option<Work> {
        match work {
            Work::Fetch { slot, buf } => self.try_fetch(slot, buf),
            Work::Answer { slot, answer, data } => self.try_answer(slot, answer, data),
            Work::Forget { slot } => {
                self.take_next(slot);
                None
            }
        }
    }
}

impl<P: Pair> RdmaQueue<P> {
    fn try_fetch(&mut self, slot: Slot, buf: Buf) -> Option<Work> {
        let bytes = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        self.split(slot, 0, bytes);
        let pair = self.pair.as_mut()?;
        let token = FETCH + u64::from(slot.0);
        match pair.read(buf, &self.parts, token) {
            Err(Unsent {
                why: Why::Full,
                memory: Some(Memory::Buf(buf)),
            }) => Some(Work::Fetch { slot, buf }),
            Err(unsent) => {
                if unsent.why == Why::Unregistered {
                    self.unfetched.push_back(slot);
                }
                // A closed connection ends by itself.
                None
            }
            Ok(()) => None,
        }
    }

    fn try_answer(
        &mut self,
        slot: Slot,
        mut answer: Answer,
        data: Option<(Memory, usize)>,
    ) -> Option<Work> {
        match &data {
            Some((_, start)) => self.split(slot, *start, answer.data_bytes),
            None => self.parts.clear(),
        }
        let pair = self.pair.as_mut()?;
        if pair.room() < self.parts.len() + 1 {
            return Some(Work::Answer { slot, answer, data });
        }
        if let Some((memory, _)) = data
            && !self.parts.is_empty()
            && let Err(unsent) = pair.write(memory, &self.parts)
            && unsent.why != Why::Closed
        {
            // Nothing was written, so the host must not believe that it has its data.
            let failed = CompletionEntry::new(Status::TRANSIENT_TRANSPORT_ERROR, 0);
            answer.entry.status = failed.status;
        }
        let response = answer.entry.as_bytes();
        // A closed connection takes no answer and needs none.
        let _closed = pair.send(response, answer.invalidate, ANSWER);
        self.take_next(slot);
        None
    }

    /// Sets the parts of a transfer of `bytes` bytes of memory from `start`, along the descriptors
    /// of a command.
    fn split(&mut self, slot: Slot, mut start: usize, mut bytes: u32) {
        let mut parts = mem::take(&mut self.parts);
        parts.clear();
        for descriptor in descriptors(self.capsule(slot)).iter().take(PARTS_MOST) {
            let length = descriptor.length_bytes().min(bytes);
            if length == 0 {
                continue;
            }
            let remote = Remote {
                address: descriptor.address.get(),
                key: descriptor.key.get(),
            };
            parts.push(Part {
                start,
                bytes: length,
                remote,
            });
            (start, bytes) = (start + length as usize, bytes - length);
        }
        self.parts = parts;
    }

    /// Hands the receive of a slot to the device again.
    fn take_next(&mut self, slot: Slot) {
        if self.current == Some(slot) {
            self.current = None;
        }
        if let Some(pair) = &mut self.pair {
            pair.post_receive(slot.0.into());
        }
    }
}

/// Token of everything of an answer. Nothing follows its end but the room that it leaves.
const ANSWER: u64 = 0;
/// Token of the RDMA READ of slot 0. Those of other slots follow.
const FETCH: u64 = 1;

//! Requests at the queue pair for the commands of a queue: RDMA READs, and answers.
//!
//! Each slot waits for room at most once, so the slots bound what waits.

use fabrix_proto::Slot;
use fabrix_proto::nvme::rdma::capsule::{DESCRIPTORS_MOST, descriptors};
use fabrix_proto::nvme::rdma::target::Answer;
use fabrix_proto::nvme::spec::{CompletionEntry, KeyedSglDescriptor, Status};
use fabrix_rt::Buf;
use sys_rdma::{Memory, Part, Remote, Unsent, Why};
use zerocopy::IntoBytes;

use super::RdmaQueue;
use crate::rdma::{Begin, Pair, Waiting};
use crate::slot::Outgoing;

/// Requests of one command at the most: its data in pieces, and the response.
pub(super) const REQUESTS_OF_A_COMMAND: u32 = DESCRIPTORS_MOST as u32 + 1;
/// Parts of a command's data.
const PARTS_MOST: usize = DESCRIPTORS_MOST as usize;

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
        let mut parts = [NO_PART; PARTS_MOST];
        let bytes = u32::try_from(buf.len()).unwrap_or(u32::MAX);
        let count = split(descriptors(self.capsule(slot)), 0, bytes, &mut parts);
        let pair = self.pair.as_mut()?;
        let token = FETCH + u64::from(slot.0);
        match pair.read(buf, &parts[..count], token) {
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
        let mut parts = [NO_PART; PARTS_MOST];
        let start = data.as_ref().map_or(0, |(_, start)| *start);
        let listed = descriptors(self.capsule(slot));
        let count = match data {
            Some(_) => split(listed, start, answer.data_bytes, &mut parts),
            None => 0,
        };
        let pair = self.pair.as_mut()?;
        if pair.room() < count + 1 {
            return Some(Work::Answer { slot, answer, data });
        }
        if let Some((memory, _)) = data
            && count > 0
            && let Err(unsent) = pair.write(memory, &parts[..count], ANSWER)
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

/// Parts of a transfer of `bytes` bytes of memory from `start`, along the descriptors. Returns the
/// number of parts.
fn split(
    listed: &[KeyedSglDescriptor],
    mut start: usize,
    mut bytes: u32,
    parts: &mut [Part; PARTS_MOST],
) -> usize {
    let mut count = 0;
    for descriptor in listed.iter().take(PARTS_MOST) {
        let length = descriptor.length_bytes().min(bytes);
        if length == 0 {
            continue;
        }
        parts[count] = Part {
            start,
            bytes: length,
            remote: Remote {
                address: descriptor.address.get(),
                key: descriptor.key.get(),
            },
        };
        (start, bytes, count) = (start + length as usize, bytes - length, count + 1);
    }
    count
}

const NO_PART: Part = Part {
    start: 0,
    bytes: 0,
    remote: Remote { address: 0, key: 0 },
};
/// Token of everything of an answer. Nothing follows its end but the room that it leaves.
const ANSWER: u64 = 0;
/// Token of the RDMA READ of slot 0. Those of other slots follow.
const FETCH: u64 = 1;

//! What a client does on a connection with an order: messages, RDMA WRITEs or RDMA READs, as many
//! at the same time as ordered.
//!
//! A message counts when the server has answered it: by a message of the same length (echo), or by
//! one that says how many have come (send). So the server always has a receive for the next one. A
//! READ and a WRITE count when they have ended.

use std::collections::VecDeque;

use fabrix_bench::latency::Recorder;
use fabrix_rt::{Buf, Nanos, Shard};
use sys_rdma::{Data, Memory, Part, QueuePair, QueueSizes, Unsent, Why};

use super::endpoint::COPIED_MOST;
use super::wire::{Answer, Mode, Order};

/// Figures of one connection.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Latency of all requests that have ended.
    pub(super) latency: Recorder,
    /// Bytes of all requests that have ended.
    pub(super) bytes: u64,
    /// Starts of the requests in flight, the oldest first.
    started: VecDeque<Nanos>,
}

impl Tally {
    pub(super) fn begin(&mut self, now: Nanos) {
        self.started.push_back(now);
    }

    /// The oldest request has ended.
    pub(super) fn end(&mut self, bytes: u32, now: Nanos) {
        let began = self.started.pop_front().unwrap_or(now);
        let ns = now.since(began).as_nanos();
        self.latency.record(u64::try_from(ns).unwrap_or(u64::MAX));
        self.bytes += u64::from(bytes);
    }

    /// Requests in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.started.len()
    }
}

/// The requests of one connection.
pub(super) struct Load {
    order: Order,
    answer: Answer,
    /// Requests that may be in flight.
    depth: usize,
    /// Bytes of all messages and RDMA WRITEs.
    source: Buf,
    /// Buffers for RDMA READs that none uses.
    sinks: Vec<Buf>,
    pub(super) tally: Tally,
}

impl Load {
    /// The load of an order that the server has accepted. `reads`: RDMA READs that this end may
    /// have in flight.
    ///
    /// Errors: a sentence, without buffers.
    pub(super) fn new(
        shard: &mut Shard,
        order: Order,
        answer: Answer,
        reads: u8,
    ) -> Result<Self, String> {
        let depth = match order.mode {
            Mode::Read => order.depth.min(reads.min(answer.reads).into()),
            _ => order.depth,
        };
        let mut take = || {
            let buf = shard.take_buf(order.bytes as usize);
            buf.ok_or("there is no memory for the data")
        };
        let mut source = take()?;
        source.bytes_mut().fill(0x5a);
        let sinks = match order.mode {
            Mode::Read => (0..depth).map(|_| take()).collect::<Result<_, _>>()?,
            _ => Vec::new(),
        };
        Ok(Self {
            order,
            answer,
            depth: depth as usize,
            source,
            sinks,
            tally: Tally::default(),
        })
    }

    /// Queues that the order needs at the client.
    pub(super) fn queue_sizes(order: Order) -> QueueSizes {
        let (receives, receive_bytes) = match order.mode {
            Mode::Echo => (order.depth, order.bytes),
            Mode::Send => (order.depth, COUNT_BYTES),
            Mode::Ping | Mode::Write | Mode::Read => (PING_RECEIVES, COPIED_MOST),
        };
        QueueSizes {
            sends: order.depth.max(PING_SENDS),
            receives,
            receive_bytes,
            message_bytes: COPIED_MOST,
            windows: 0,
        }
    }

    /// Prepares as many requests as may be in flight.
    ///
    /// Errors: the device cannot use the memory.
    pub(super) fn fill(&mut self, queue: &mut QueuePair, now: Nanos) -> Result<(), String> {
        while self.tally.in_flight() < self.depth && queue.room() > 0 {
            match self.begin(queue) {
                Ok(()) => self.tally.begin(now),
                Err(unsent) => return self.refused(unsent),
            }
        }
        Ok(())
    }

    fn begin(&mut self, queue: &mut QueuePair) -> Result<(), Unsent> {
        let bytes = self.order.bytes;
        let part = Part {
            start: 0,
            bytes,
            remote: self.answer.memory,
        };
        match self.order.mode {
            Mode::Read => match self.sinks.pop() {
                Some(sink) => queue.read(sink, &[part], 0),
                None => Err(Unsent {
                    why: Why::Full,
                    memory: None,
                }),
            },
            Mode::Write => queue.write(Memory::Buf(self.source.clone()), &[part], Some(0)),
            Mode::Ping | Mode::Send | Mode::Echo => send(queue, &self.source),
        }
    }

    fn refused(&mut self, unsent: Unsent) -> Result<(), String> {
        if let (Mode::Read, Some(Memory::Buf(sink))) = (self.order.mode, unsent.memory) {
            self.sinks.push(sink);
        }
        match unsent.why {
            Why::Unregistered => Err(UNREGISTERED.to_owned()),
            Why::Full | Why::Closed => Ok(()),
        }
    }

    /// A request has ended. Messages count by their answers.
    pub(super) fn ended(&mut self, memory: Option<Memory>, now: Nanos) {
        match (self.order.mode, memory) {
            (Mode::Read, Some(Memory::Buf(sink))) => self.sinks.push(sink),
            (Mode::Write, _) => {}
            _ => return,
        }
        self.tally.end(self.order.bytes, now);
    }

    /// A message of the server.
    ///
    /// Errors: it answers nothing.
    pub(super) fn received(&mut self, message: &[u8], now: Nanos) -> Result<(), String> {
        let count = match self.order.mode {
            Mode::Echo => usize::from(message.len() == self.order.bytes as usize),
            Mode::Send => count(message).unwrap_or(0) as usize,
            Mode::Ping | Mode::Write | Mode::Read => 0,
        };
        if !(1..=self.tally.in_flight()).contains(&count) {
            return Err("the server has answered what was not asked".to_owned());
        }
        (0..count).for_each(|_| self.tally.end(self.order.bytes, now));
        Ok(())
    }
}

/// Sends a buffer as a message. A short one is copied, so that the device need not fetch it.
pub(super) fn send(queue: &mut QueuePair, buf: &Buf) -> Result<(), Unsent> {
    if buf.len() <= COPIED_MOST as usize {
        return queue.send(buf.bytes(), None, None, 0);
    }
    let data = Data {
        start: 0,
        bytes: u32::try_from(buf.len()).unwrap_or(u32::MAX),
        memory: Memory::Buf(buf.clone()),
    };
    queue.send(&[], Some(data), None, 0)
}

/// Number of messages that the server has taken since it said so before. None: the message does
/// not say it.
fn count(message: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(message.try_into().ok()?))
}

/// Length of the server's answer to messages.
const COUNT_BYTES: u32 = 4;
/// Requests and receives that a ping needs, with room for answers that overtake completions.
const PING_SENDS: u32 = 4;
const PING_RECEIVES: u32 = 4;
pub(super) const UNREGISTERED: &str =
    "the RDMA device cannot use this memory: see `ulimit -l` and `fabrix doctor`";

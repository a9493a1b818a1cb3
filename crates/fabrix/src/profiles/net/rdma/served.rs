//! One connection of the server: what the order of its client needs.
//!
//! RDMA READs and RDMA WRITEs of the client need memory only: the device carries them out. Messages
//! are answered, and a client without an order gets the server of rping.

use std::io;
use std::sync::Arc;

use fabrix_rt::{Buf, HugePages, Region, Shard};
use sys_rdma::{
    Access, Device, Done, Exposed, Memory, Part, QueuePair, QueueSizes, Remote, Unsent, Why,
};

use super::endpoint::COPIED_MOST;
use super::load::{UNREGISTERED, send};
use super::wire::{Mode, Order, PLACE_BYTES, read_place};

/// What the server has for a connection.
pub(super) struct Served {
    pub(super) order: Order,
    /// Memory that the client reads or writes.
    exposed: Option<Exposed>,
    /// Answer to a message, as long as the message.
    answer: Option<Buf>,
    /// Messages to be answered.
    due: u32,
    /// The bytes of a ping between reading and writing them.
    pinged: Option<Buf>,
}

impl Served {
    /// Memory for an order.
    ///
    /// Errors: the device or the system gives none.
    pub(super) fn new(shard: &mut Shard, device: &Arc<Device>, order: Order) -> io::Result<Self> {
        let exposed = match order.mode {
            Mode::Write | Mode::Read => Some(expose(device, order.bytes)?),
            Mode::Ping | Mode::Echo | Mode::Send => None,
        };
        let answer = match order.mode {
            Mode::Echo => Some(filled(shard, order.bytes).ok_or(io::ErrorKind::OutOfMemory)?),
            _ => None,
        };
        Ok(Self {
            order,
            exposed,
            answer,
            due: 0,
            pinged: None,
        })
    }

    /// Queues that an order needs at the server.
    pub(super) fn queue_sizes(order: Order) -> QueueSizes {
        let (sends, receives, receive_bytes) = match order.mode {
            Mode::Ping => (PING_QUEUE, PING_QUEUE, COPIED_MOST),
            Mode::Echo | Mode::Send => (order.depth, order.depth, order.bytes),
            Mode::Write | Mode::Read => (1, 1, 1),
        };
        QueueSizes {
            sends,
            receives,
            receive_bytes,
            message_bytes: COPIED_MOST,
            windows: 0,
        }
    }

    /// Memory for RDMA of the client.
    pub(super) fn remote(&self) -> Remote {
        let nothing = Remote { address: 0, key: 0 };
        let exposed = self.exposed.as_ref();
        exposed.map_or(nothing, |exposed| exposed.remote(0))
    }

    /// Takes all news of the connection and answers them. Result: whether there was a message.
    ///
    /// Errors: a sentence, after which the connection ends. None of it for a client that has gone.
    pub(super) fn take(
        &mut self,
        shard: &mut Shard,
        queue: &mut QueuePair,
    ) -> Result<bool, Option<String>> {
        let mut heard = false;
        while let Some(done) = queue.next_done() {
            match done {
                Done::Received { slot, bytes, .. } => {
                    self.received(shard, queue, (slot, bytes))?;
                    queue.post_receive(slot);
                    heard = true;
                }
                Done::Ended {
                    token,
                    is_ok: true,
                    memory,
                } => self.ended(queue, token, memory)?,
                Done::Ended { .. } => {}
                Done::Failed(failure) if failure.is_flush() => return Err(None),
                Done::Failed(failure) => return Err(Some(failure.to_string())),
            }
        }
        self.answer(queue)?;
        let flushed = queue.flush();
        flushed.map_err(|error| Some(error.to_string()))?;
        Ok(heard)
    }

    fn received(
        &mut self,
        shard: &mut Shard,
        queue: &mut QueuePair,
        (slot, bytes): (u32, usize),
    ) -> Result<(), Option<String>> {
        match self.order.mode {
            Mode::Ping => {
                let place = read_place(queue.message(slot, bytes));
                let place = place.ok_or_else(|| Some(NO_PING.to_owned()))?;
                self.pinged(shard, queue, place)
            }
            Mode::Echo | Mode::Send if bytes == self.order.bytes as usize => {
                self.due = self.due.saturating_add(1);
                Ok(())
            }
            _ => Err(Some("a message that was not ordered".to_owned())),
        }
    }

    /// The client has named a place: of its bytes, or for them.
    fn pinged(
        &mut self,
        shard: &mut Shard,
        queue: &mut QueuePair,
        (remote, bytes): (Remote, u32),
    ) -> Result<(), Option<String>> {
        let part = Part {
            start: 0,
            bytes,
            remote,
        };
        match self.pinged.take() {
            None => {
                let buf = shard.take_buf(bytes as usize);
                let buf = buf.ok_or_else(|| Some("no memory for the ping".to_owned()))?;
                begun(queue.read(buf, &[part], READ))
            }
            Some(buf) if buf.len() == bytes as usize => {
                begun(queue.write(Memory::Buf(buf), &[part], None))?;
                begun(queue.send(&GO, None, None, SENT))
            }
            Some(_) => Err(Some(NO_PING.to_owned())),
        }
    }

    fn ended(
        &mut self,
        queue: &mut QueuePair,
        token: u64,
        memory: Option<Memory>,
    ) -> Result<(), Option<String>> {
        match (token, memory) {
            (READ, Some(Memory::Buf(buf))) => {
                self.pinged = Some(buf);
                begun(queue.send(&GO, None, None, SENT))
            }
            _ => Ok(()),
        }
    }

    /// Answers messages, as far as there is room. What is left waits for the end of a request.
    fn answer(&mut self, queue: &mut QueuePair) -> Result<(), Option<String>> {
        while self.due > 0 && queue.room() > 0 && !queue.is_closed() {
            match &self.answer {
                Some(answer) => {
                    begun(send(queue, answer))?;
                    self.due -= 1;
                }
                None => {
                    begun(queue.send(&self.due.to_be_bytes(), None, None, SENT))?;
                    self.due = 0;
                }
            }
        }
        Ok(())
    }
}

fn expose(device: &Arc<Device>, bytes: u32) -> io::Result<Exposed> {
    let region = Region::new(bytes as usize, HugePages::No)?;
    region.write(0, &vec![0x5a; bytes as usize]);
    Exposed::new(device, region.pin(), Access::ReadAndWrite)
}

fn filled(shard: &mut Shard, bytes: u32) -> Option<Buf> {
    let mut buf = shard.take_buf(bytes as usize)?;
    buf.bytes_mut().fill(0x5a);
    Some(buf)
}

/// A connection that has ended takes no work, and says so by itself.
fn begun(begun: Result<(), Unsent>) -> Result<(), Option<String>> {
    match begun.map_err(|unsent| unsent.why) {
        Ok(()) | Err(Why::Closed) => Ok(()),
        Err(Why::Full) => Err(Some(
            "the client asks for more at once than it may".to_owned(),
        )),
        Err(Why::Unregistered) => Err(Some(UNREGISTERED.to_owned())),
    }
}

/// rping looks at the length of an answer only.
const GO: [u8; PLACE_BYTES] = [0; PLACE_BYTES];
const NO_PING: &str = "what came is neither an order of `fabrix bench net` nor a ping of rping";
/// Requests and receives of a ping: the client waits for each answer.
const PING_QUEUE: u32 = 4;
/// Tokens of requests.
const SENT: u64 = 0;
const READ: u64 = 1;

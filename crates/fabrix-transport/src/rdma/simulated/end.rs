//! One end of a connection in memory, as its device sees it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use fabrix_rt::Buf;
use sys_rdma::{Access, Data, Done, Memory, Part, WorkFailure};

use super::SimulatedSizes;
use super::window::Window;

/// The device's view of one end: it carries out what the owner of the queue pair has posted.
#[derive(Clone)]
pub struct SimulatedEnd(Rc<RefCell<End>>);

/// What came of an attempt to execute a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is no request, or the end is closed.
    Idle,
    /// The request is a message, and the other end has no receive.
    Waits,
    /// The other end is closed, and answers nothing.
    Lost,
    /// It was executed. True: a message has arrived at the other end.
    Executed(bool),
    /// The other end has refused the request. The connection has failed at both ends.
    Failed,
}

pub(super) struct End {
    pub(super) sizes: SimulatedSizes,
    /// Memory that the other end reaches, by key.
    pub(super) exposed: BTreeMap<u32, Vec<u8>>,
    /// By number.
    pub(super) windows: BTreeMap<u32, Window>,
    /// Windows that were opened so far. Each opening has a key of its own.
    pub(super) openings: u32,
    pub(super) slots: Vec<Vec<u8>>,
    pub(super) prepared_receives: Vec<u32>,
    pub(super) receives: VecDeque<u32>,
    pub(super) posted: BTreeSet<u32>,
    pub(super) prepared: Vec<Request>,
    pub(super) requests: VecDeque<Request>,
    /// Number of requests at the front that are executed and have not ended.
    executed: usize,
    /// Messages that were not told yet.
    arrived: VecDeque<Done>,
    /// What the owner was not told yet, and the window that it closes. Until it is told, the window
    /// has its memory.
    pub(super) done: VecDeque<(Done, Option<u32>)>,
    pub(super) is_closed: bool,
}

pub(super) struct Request {
    pub(super) work: Work,
    /// Entries of the send queue.
    entries: usize,
    /// None: the end is not told.
    pub(super) token: Option<u64>,
    /// Bytes that an RDMA READ has found, by part.
    found: Vec<Vec<u8>>,
}

pub(super) enum Work {
    /// A message, a key that becomes invalid with it, and data behind the message.
    Send(Vec<u8>, Option<u32>, Option<Data>),
    Open(u32),
    Close(u32),
    Write(Memory, Vec<Part>),
    Read(Buf, Vec<Part>),
}

impl Request {
    pub(super) fn new(work: Work, entries: usize, token: Option<u64>) -> Self {
        Self {
            work,
            entries,
            token,
            found: Vec::new(),
        }
    }

    pub(super) fn reads(&self) -> usize {
        match &self.work {
            Work::Read(_, parts) => parts.len(),
            Work::Send(..) | Work::Open(_) | Work::Close(_) | Work::Write(..) => 0,
        }
    }

    /// Whether its memory is none that a device knows.
    pub(super) fn is_lent(&self) -> bool {
        matches!(&self.work, Work::Write(Memory::Lent(_), _))
    }

    pub(super) fn into_memory(self) -> Option<Memory> {
        match self.work {
            Work::Open(_) | Work::Close(_) => None,
            Work::Send(_, _, data) => data.map(|data| data.memory),
            Work::Write(memory, _) => Some(memory),
            Work::Read(buf, _) => Some(Memory::Buf(buf)),
        }
    }
}

impl End {
    pub(super) fn all(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().chain(&self.prepared)
    }

    pub(super) fn entries(&self) -> usize {
        self.all().map(|request| request.entries).sum()
    }

    /// The connection has failed: everything posted ends.
    fn fail(&mut self, status: i32, text: &'static str) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let arrived = std::mem::take(&mut self.arrived);
        self.done
            .extend(arrived.into_iter().map(|done| (done, None)));
        let failure = Done::Failed(WorkFailure { status, text });
        self.done.push_back((failure, None));
        self.executed = 0;
        let requests = self.requests.drain(..).chain(self.prepared.drain(..));
        for request in requests {
            let Some(token) = request.token else {
                continue;
            };
            let ended = Done::Ended {
                token,
                is_ok: false,
                memory: request.into_memory(),
            };
            self.done.push_back((ended, None));
        }
        self.receives.clear();
        self.posted.clear();
    }

    /// A message of the other end takes the next receive.
    fn take_message(&mut self, message: &[u8], invalidated: Option<u32>) {
        let slot = self.receives.pop_front().expect("the caller has looked");
        self.posted.remove(&slot);
        self.slots[slot as usize] = message.to_vec();
        self.arrived.push_back(Done::Received {
            slot,
            bytes: message.len(),
            invalidated,
        });
    }
}

impl SimulatedEnd {
    pub(super) fn new(sizes: SimulatedSizes) -> Self {
        Self(Rc::new(RefCell::new(End {
            sizes,
            exposed: BTreeMap::new(),
            windows: BTreeMap::new(),
            openings: 0,
            slots: vec![Vec::new(); sizes.first_receives],
            prepared_receives: Vec::new(),
            receives: VecDeque::new(),
            posted: BTreeSet::new(),
            prepared: Vec::new(),
            requests: VecDeque::new(),
            executed: 0,
            arrived: VecDeque::new(),
            done: VecDeque::new(),
            is_closed: false,
        })))
    }

    pub(super) fn with<T>(&self, act: impl FnOnce(&mut End) -> T) -> T {
        act(&mut self.0.borrow_mut())
    }

    /// Whether the connection has failed or ended at this end.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.with(|end| end.is_closed)
    }

    /// Requests that were handed to the device and have not ended.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.with(|end| end.requests.len())
    }

    /// Executes the next request: its bytes are copied now. `peer` is the other end.
    pub fn execute(&self, peer: &Self) -> Step {
        let mut mine = self.0.borrow_mut();
        let mut other = peer.0.borrow_mut();
        let next = mine.executed;
        if mine.is_closed || next >= mine.requests.len() {
            return Step::Idle;
        }
        if let Work::Open(number) | Work::Close(number) = mine.requests[next].work {
            let opens = matches!(mine.requests[next].work, Work::Open(_));
            mine.change_window(number, opens);
            mine.executed += 1;
            return Step::Executed(false);
        }
        if other.is_closed {
            return Step::Lost;
        }
        let is_send = matches!(mine.requests[next].work, Work::Send(..));
        if is_send && other.receives.is_empty() {
            return Step::Waits;
        }
        match carry_out(&mut mine.requests[next], &mut other) {
            Ok(()) => {
                mine.executed += 1;
                Step::Executed(is_send)
            }
            Err((status, text, at_other)) => {
                mine.fail(status, text);
                other.fail(at_other, FLUSHED);
                Step::Failed
            }
        }
    }

    /// The first executed request ends: this end has the answer of the other one.
    pub fn acknowledge(&self) {
        self.with(|end| {
            let Some(executed) = end.executed.checked_sub(1) else {
                return;
            };
            end.executed = executed;
            let mut request = end.requests.pop_front().expect("it was executed");
            if let Work::Read(buf, parts) = &mut request.work {
                for (part, bytes) in parts.iter().zip(&request.found) {
                    buf.bytes_mut()[part.start..][..bytes.len()].copy_from_slice(bytes);
                }
            }
            let Some(token) = request.token else {
                return;
            };
            let closes = match request.work {
                Work::Close(number) => Some(number),
                _ => None,
            };
            let ended = Done::Ended {
                token,
                is_ok: true,
                memory: request.into_memory(),
            };
            end.done.push_back((ended, closes));
        });
    }

    /// The first message that has arrived is told.
    pub fn deliver(&self) {
        self.with(|end| {
            let told = end.arrived.pop_front();
            end.done.extend(told.map(|done| (done, None)));
        });
    }

    /// The connection fails at this end with a status: everything posted ends.
    pub fn fail(&self, status: i32, text: &'static str) {
        self.with(|end| end.fail(status, text));
    }

    /// The connection is over at this end: everything posted ends as flushed.
    pub fn flush_all(&self) {
        self.fail(FLUSHED_STATUS, FLUSHED);
    }

    /// Carries out the next request at once, with all that follows.
    pub(super) fn step(&self, peer: &Self) -> bool {
        match self.execute(peer) {
            Step::Executed(is_message) => {
                self.acknowledge();
                if is_message {
                    peer.deliver();
                }
                true
            }
            Step::Failed => true,
            Step::Idle | Step::Waits | Step::Lost => false,
        }
    }
}

/// Carries out a request at the other end. Errors: status and words for the requester, and the
/// status of the other end.
fn carry_out(request: &mut Request, other: &mut End) -> Result<(), (i32, &'static str, i32)> {
    let refused = (10, "remote access error", FLUSHED_STATUS);
    match &mut request.work {
        Work::Open(_) | Work::Close(_) => unreachable!("they concern this end alone"),
        Work::Send(message, invalidate, data) => {
            let behind = data.as_ref().map(bytes_of_data).unwrap_or_default();
            let message = [&message[..], &behind].concat();
            if message.len() > other.sizes.receive_bytes {
                return Err((9, "remote invalid request error", 1));
            }
            if let Some(key) = *invalidate
                && !other.invalidate(key)
            {
                return Err(refused);
            }
            other.take_message(&message, *invalidate);
        }
        Work::Write(memory, parts) => {
            let bytes = bytes_of(memory);
            for part in parts.iter() {
                let reached = other.reached(part.remote, Access::Write).ok_or(refused)?;
                let from = &bytes[part.start..][..part.bytes as usize];
                reached.write(from).ok_or(refused)?;
            }
        }
        Work::Read(_, parts) => {
            for part in parts.iter() {
                let reached = other.reached(part.remote, Access::Read).ok_or(refused)?;
                let mut found = vec![0; part.bytes as usize];
                reached.read(&mut found).ok_or(refused)?;
                request.found.push(found);
            }
        }
    }
    Ok(())
}

/// The bytes of a range of memory.
pub(super) fn bytes_of_data(data: &Data) -> Vec<u8> {
    bytes_of(&data.memory)[data.start..][..data.bytes as usize].to_vec()
}

fn bytes_of(memory: &Memory) -> Vec<u8> {
    match memory {
        Memory::Buf(buf) => buf.bytes().to_vec(),
        Memory::Lent(lent) => {
            let mut bytes = vec![0; lent.len()];
            lent.copy_to(&mut bytes);
            bytes
        }
    }
}

const FLUSHED_STATUS: i32 = 5;
const FLUSHED: &str = "Work Request Flushed Error";

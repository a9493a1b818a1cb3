//! Queue pairs in memory, for tests and simulators.
//!
//! [`link`] makes both ends of a connection. Nothing moves by itself: [`SimulatedPair::step`]
//! executes the next request of one end, so the caller decides about delay and about the order of
//! the two directions. The rules are those of reliable connections. Requests of one end are
//! executed in order. A message without a receive waits. A wrong key, a message that is too long,
//! or a fault that the caller plants ends the connection at both ends, and everything posted ends
//! as failed.

mod window;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::rc::Rc;

use fabrix_rt::{Buf, Shard};
use sys_rdma::{Access, Done, Memory, Part, Unsent, Why, WorkFailure};

use self::window::Window;
use super::pair::Pair;

/// One end of a connection in memory.
pub struct SimulatedPair {
    link: Rc<RefCell<Link>>,
    me: usize,
    /// Messages that were taken, by slot.
    messages: Vec<Vec<u8>>,
}

/// Sizes of one end.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedSizes {
    /// Requests that have not ended.
    pub requests: usize,
    /// Receives.
    pub receives: usize,
    /// Receives that have memory at the start.
    pub first_receives: usize,
    /// Bytes of a receive.
    pub receive_bytes: usize,
    /// RDMA READs at the same time.
    pub reads: usize,
}

/// Both ends of a connection whose ends have the same sizes.
#[must_use]
pub fn link(sizes: [SimulatedSizes; 2]) -> (SimulatedPair, SimulatedPair) {
    let ends = sizes.map(End::new);
    let link = Rc::new(RefCell::new(Link { ends }));
    let end = |me| SimulatedPair {
        link: Rc::clone(&link),
        me,
        messages: vec![Vec::new(); sizes[me].receives],
    };
    (end(0), end(1))
}

struct Link {
    ends: [End; 2],
}

struct End {
    sizes: SimulatedSizes,
    /// Memory that the other end reaches, by key.
    exposed: BTreeMap<u32, Vec<u8>>,
    /// By number.
    windows: BTreeMap<u32, Window>,
    /// Windows that were opened so far. Each opening has a key of its own.
    openings: u32,
    slots: Vec<Vec<u8>>,
    prepared_receives: Vec<u32>,
    receives: VecDeque<u32>,
    posted: BTreeSet<u32>,
    prepared: Vec<Request>,
    requests: VecDeque<Request>,
    done: VecDeque<Done>,
    is_closed: bool,
}

struct Request {
    work: Work,
    /// Entries of the send queue.
    entries: usize,
    token: u64,
}

enum Work {
    Send(Vec<u8>, Option<u32>, Option<Memory>),
    Open(u32),
    Close(u32),
    Write(Memory, Vec<Part>),
    Read(Buf, Vec<Part>),
}

impl Request {
    fn reads(&self) -> usize {
        match &self.work {
            Work::Read(_, parts) => parts.len(),
            Work::Send(..) | Work::Open(_) | Work::Close(_) | Work::Write(..) => 0,
        }
    }

    fn into_memory(self) -> Option<Memory> {
        match self.work {
            Work::Open(_) | Work::Close(_) => None,
            Work::Send(_, _, memory) => memory,
            Work::Write(memory, _) => Some(memory),
            Work::Read(buf, _) => Some(Memory::Buf(buf)),
        }
    }
}

impl End {
    fn new(sizes: SimulatedSizes) -> Self {
        Self {
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
            done: VecDeque::new(),
            is_closed: false,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().chain(&self.prepared)
    }

    fn entries(&self) -> usize {
        self.all().map(|request| request.entries).sum()
    }

    /// The connection has failed: everything posted ends.
    fn fail(&mut self, status: i32, text: &'static str) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        self.done
            .push_back(Done::Failed(WorkFailure { status, text }));
        let requests = self.requests.drain(..).chain(self.prepared.drain(..));
        for request in requests {
            let token = request.token;
            self.done.push_back(Done::Ended {
                token,
                is_ok: false,
                memory: request.into_memory(),
            });
        }
        self.receives.clear();
        self.posted.clear();
    }
}

impl SimulatedPair {
    /// Lets the other end reach these bytes with a key.
    pub fn expose(&self, key: u32, bytes: Vec<u8>) {
        self.end(|end| end.exposed.insert(key, bytes));
    }

    /// The bytes behind a key. None: there is no such key any more.
    #[must_use]
    pub fn exposed(&self, key: u32) -> Option<Vec<u8>> {
        self.end(|end| end.exposed.get(&key).cloned())
    }

    /// Executes the next request of this end. False: there is none, or its message waits for a
    /// receive of the other end.
    pub fn step(&self) -> bool {
        self.step_of(self.me)
    }

    /// The same for the other end.
    pub fn step_peer(&self) -> bool {
        self.step_of(1 - self.me)
    }

    fn step_of(&self, end: usize) -> bool {
        let mut link = self.link.borrow_mut();
        let [first, second] = &mut link.ends;
        let (mine, other) = match end {
            0 => (first, second),
            _ => (second, first),
        };
        if mine.is_closed || other.is_closed {
            return false;
        }
        let is_send = matches!(
            mine.requests.front().map(|request| &request.work),
            Some(Work::Send(..))
        );
        if is_send && other.receives.is_empty() {
            return false;
        }
        let Some(mut request) = mine.requests.pop_front() else {
            return false;
        };
        if let Work::Open(number) | Work::Close(number) = request.work {
            mine.change_window(number, &request);
            return true;
        }
        match execute(&mut request.work, other) {
            Ok(()) => mine.done.push_back(Done::Ended {
                token: request.token,
                is_ok: true,
                memory: request.into_memory(),
            }),
            Err((status, text, at_other)) => {
                mine.requests.push_front(request);
                mine.fail(status, text);
                other.fail(at_other, FLUSHED);
            }
        }
        true
    }

    /// Breaks the connection: the next request of this end fails with this status.
    pub fn break_with(&self, status: i32, text: &'static str) {
        let mut link = self.link.borrow_mut();
        for (index, end) in link.ends.iter_mut().enumerate() {
            match index == self.me {
                true => end.fail(status, text),
                false => end.fail(FLUSHED_STATUS, FLUSHED),
            }
        }
    }

    /// Receives that the device of this end has.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.end(|end| end.receives.len())
    }

    /// Requests of this end that are posted.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.end(|end| end.requests.len())
    }

    fn end<T>(&self, act: impl FnOnce(&mut End) -> T) -> T {
        act(&mut self.link.borrow_mut().ends[self.me])
    }

    /// Prepares a request of so many entries.
    fn prepare(&self, entries: usize, work: Work, token: u64) -> Result<(), Unsent> {
        let request = Request {
            work,
            entries,
            token,
        };
        self.end(|end| {
            let reads: usize = end.all().map(Request::reads).sum();
            let too_many = reads > 0 && request.reads() > 0;
            let too_many = too_many && reads + request.reads() > end.sizes.reads;
            let why = match () {
                () if end.is_closed => Why::Closed,
                () if too_many || end.entries() + entries > end.sizes.requests => Why::Full,
                () => {
                    end.prepared.push(request);
                    return Ok(());
                }
            };
            let memory = request.into_memory();
            Err(Unsent { why, memory })
        })
    }
}

/// Carries out a request at the other end. Errors: status and words for the requester, and the
/// status of the other end.
fn execute(work: &mut Work, other: &mut End) -> Result<(), (i32, &'static str, i32)> {
    let refused = (10, "remote access error", FLUSHED_STATUS);
    match work {
        Work::Open(_) | Work::Close(_) => unreachable!("they concern this end alone"),
        Work::Send(message, invalidate, _) => {
            if message.len() > other.sizes.receive_bytes {
                return Err((9, "remote invalid request error", 1));
            }
            if let Some(key) = *invalidate
                && !other.invalidate(key)
            {
                return Err(refused);
            }
            let slot = other.receives.pop_front().expect("the caller has looked");
            other.posted.remove(&slot);
            other.slots[slot as usize].clone_from(message);
            other.done.push_back(Done::Received {
                slot,
                bytes: message.len(),
                invalidated: *invalidate,
            });
        }
        Work::Write(memory, parts) => {
            let bytes = bytes_of(memory);
            for part in parts.iter() {
                let reached = other.reached(part.remote, Access::Write).ok_or(refused)?;
                let from = &bytes[part.start..][..part.bytes as usize];
                reached.write(from).ok_or(refused)?;
            }
        }
        Work::Read(buf, parts) => {
            for part in parts.iter() {
                let reached = other.reached(part.remote, Access::Read).ok_or(refused)?;
                let to = &mut buf.bytes_mut()[part.start..][..part.bytes as usize];
                reached.read(to).ok_or(refused)?;
            }
        }
    }
    Ok(())
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

impl Pair for SimulatedPair {
    fn receives(&self) -> u32 {
        let count = self.end(|end| end.slots.len());
        u32::try_from(count).expect("few")
    }

    fn add_receives(&mut self, _: &mut Shard) -> io::Result<()> {
        self.end(|end| end.slots.resize(end.sizes.receives, Vec::new()));
        Ok(())
    }

    fn post_receive(&mut self, slot: u32) {
        self.end(|end| {
            assert!(
                (slot as usize) < end.slots.len(),
                "slot {slot} has no memory"
            );
            assert!(end.posted.insert(slot), "slot {slot} is posted already");
            end.prepared_receives.push(slot);
        });
    }

    fn message(&self, slot: u32, bytes: usize) -> &[u8] {
        let link = self.link.borrow();
        let end = &link.ends[self.me];
        assert!(!end.posted.contains(&slot), "slot {slot} is posted");
        &self.messages[slot as usize][..bytes]
    }

    fn send(&mut self, message: &[u8], invalidate: Option<u32>, token: u64) -> Result<(), Unsent> {
        self.prepare(1, Work::Send(message.to_vec(), invalidate, None), token)
    }

    fn write(&mut self, memory: Memory, parts: &[Part], token: u64) -> Result<(), Unsent> {
        self.prepare(parts.len(), Work::Write(memory, parts.to_vec()), token)
    }

    fn read(&mut self, buf: Buf, parts: &[Part], token: u64) -> Result<(), Unsent> {
        assert!(buf.is_unique(), "a buffer to be filled is shared");
        self.prepare(parts.len(), Work::Read(buf, parts.to_vec()), token)
    }

    fn room(&self) -> usize {
        self.end(|end| end.sizes.requests - end.entries())
    }

    fn sends_in_progress(&self) -> usize {
        self.end(|end| end.all().count())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end(|end| {
            end.receives.extend(end.prepared_receives.drain(..));
            end.requests.extend(end.prepared.drain(..));
        });
        Ok(())
    }

    fn next_done(&mut self) -> Option<Done> {
        let done = self.end(|end| end.done.pop_front())?;
        if let Done::Received { slot, .. } = done {
            let index = slot as usize;
            self.messages[index] = self.end(|end| std::mem::take(&mut end.slots[index]));
        }
        Some(done)
    }

    fn disconnect(&mut self) {
        self.break_with(FLUSHED_STATUS, FLUSHED);
    }
}

/// All access to the memory of this end is over.
impl Drop for SimulatedPair {
    fn drop(&mut self) {
        self.disconnect();
        self.end(|end| {
            end.done.clear();
            end.windows.clear();
        });
    }
}

const FLUSHED_STATUS: i32 = 5;
const FLUSHED: &str = "Work Request Flushed Error";

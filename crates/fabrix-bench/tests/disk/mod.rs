//! A memory disk that returns wrong data, fails, stalls or is busy on a test's demand, and records
//! its requests.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabrix_bench::{Config, Job, Results, RunError, Rw, run};
use fabrix_block::{
    Channel, Deallocate, Device, Geometry, Identity, OpenError, OpenErrorKind, Operation, Payload,
    Request, Status, Submit,
};
use fabrix_rt::{Buf, Completion, Loan, Nanos, Shard, Task, TaskId, Token};

/// Block size in bytes, and default request size.
pub const BLOCK: usize = 4096;

/// A recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Number of earlier requests in the same direction.
    pub number: usize,
    pub write: bool,
    pub lba: u64,
    /// Number of blocks. 0 for a flush, which counts as a write.
    pub blocks: u32,
}

impl Seen {
    fn overlaps(self, other: Self) -> bool {
        let end = |seen: Self| seen.lba + u64::from(seen.blocks);
        (self.write || other.write) && self.lba < end(other) && other.lba < end(self)
    }
}

/// The disk's handling of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Honest,
    /// Do nothing and answer with this status.
    Answer(Status),
    /// Execute the request at another block.
    At(u64),
    /// Read zeroes.
    Zeroes,
    /// Flip a bit of the data that is read.
    Flip(usize),
    /// Execute correctly, but keep a reference to the buffer after the answer, like a disk that
    /// still sends from it.
    Keep,
    /// Never answer.
    Silence,
    /// Execute correctly, and answer after a delay.
    Stall(Duration),
}

/// Time of the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Within `submit`.
    AtOnce,
    /// At the end of the turn. More requests than this at once are answered `Busy`.
    Later(usize),
}

type Script = dyn Fn(Seen) -> Act + Send + Sync;

/// The test disk.
pub struct TestDisk {
    geometry: Geometry,
    identity: Identity,
    manner: Manner,
    script: Arc<Script>,
    state: Arc<Mutex<State>>,
    opens: bool,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    seen: Vec<Seen>,
    numbers: [usize; 2],
    most_in_flight: usize,
    overlaps: usize,
}

impl TestDisk {
    pub fn new(
        blocks: u64,
        manner: Manner,
        script: impl Fn(Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        let geometry = Geometry {
            deallocate: Deallocate::Zeroes,
            ..Geometry::new(4096, blocks)
        };
        let bytes = vec![0; usize::try_from(blocks).expect("a small disk") * BLOCK];
        Self {
            geometry,
            identity: Identity::derive("test", "test", "test disk"),
            manner,
            script: Arc::new(script),
            state: Arc::new(Mutex::new(State {
                bytes,
                ..State::default()
            })),
            opens: true,
        }
    }

    pub fn honest(blocks: u64, manner: Manner) -> Self {
        Self::new(blocks, manner, |_| Act::Honest)
    }

    #[allow(
        dead_code,
        reason = "not every test file needs a disk that does not open"
    )]
    pub fn closed(mut self) -> Self {
        self.opens = false;
        self
    }

    /// The recorded requests without the first read.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.lock().expect("no panic in the disk").seen[1..].to_vec()
    }

    /// The whole content of the disk.
    pub fn bytes(&self) -> Vec<u8> {
        self.state
            .lock()
            .expect("no panic in the disk")
            .bytes
            .clone()
    }

    /// The same disk with initial content.
    pub fn with(self, bytes: impl Fn(usize) -> u8) -> Self {
        let mut state = self.state.lock().expect("no panic in the disk");
        let all = state.bytes.iter_mut().enumerate();
        all.for_each(|(at, byte)| *byte = bytes(at));
        drop(state);
        self
    }

    pub fn most_in_flight(&self) -> usize {
        self.state
            .lock()
            .expect("no panic in the disk")
            .most_in_flight
    }

    /// Number of requests that met another request in flight on the same block, at least one of
    /// them a write.
    pub fn overlaps(&self) -> usize {
        self.state.lock().expect("no panic in the disk").overlaps
    }
}

impl Device for TestDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        if !self.opens {
            return Err(OpenError::new(
                OpenErrorKind::NotFound,
                "test disk: it is not there",
            ));
        }
        let waiting = Rc::new(RefCell::new(Vec::new()));
        let later = Rc::new(RefCell::new(Later {
            waiting: Rc::clone(&waiting),
            stalled: None,
        }));
        let task = shard.add(Rc::clone(&later) as Rc<RefCell<dyn Task>>);
        let (script, state) = (Arc::clone(&self.script), Arc::clone(&self.state));
        Ok(Box::new(TestChannel {
            manner: self.manner,
            script,
            state,
            waiting,
            task,
            later,
            silent: Vec::new(),
            kept: VecDeque::new(),
        }))
    }
}

type Waiting = Rc<RefCell<Vec<(Seen, Token, Completion)>>>;

/// A task that answers at the end of the turn.
struct Later {
    waiting: Waiting,
    /// The single answer that is delayed further.
    stalled: Option<(Token, Completion)>,
}

impl Task for Later {
    fn completed(&mut self, _: &mut Shard, _: u32, _: Completion) {}

    fn expired(&mut self, shard: &mut Shard, _: u32) {
        if let Some((token, completion)) = self.stalled.take() {
            shard.complete(token, completion);
        }
    }

    fn flush(&mut self, shard: &mut Shard) {
        for (_, token, completion) in self.waiting.borrow_mut().drain(..) {
            shard.complete(token, completion);
        }
    }
}

struct TestChannel {
    manner: Manner,
    script: Arc<Script>,
    state: Arc<Mutex<State>>,
    waiting: Waiting,
    task: TaskId,
    later: Rc<RefCell<Later>>,
    silent: Vec<Loan>,
    kept: VecDeque<Buf>,
}

impl Channel for TestChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if matches!(self.manner, Manner::Later(most) if self.waiting.borrow().len() >= most) {
            return Submit::Busy(request);
        }
        let token = request.token;
        let (seen, act, status, loan) = self
            .state
            .lock()
            .expect("no panic in the disk")
            .serve(request, &*self.script);
        if let (Act::Keep, Loan::Buf(buf)) = (act, &loan) {
            self.kept.push_back(buf.clone());
            self.kept.truncate(100);
        }
        if act == Act::Silence {
            self.silent.push(loan);
            return Submit::Pending;
        }
        if let Act::Stall(time) = act {
            let completion = Completion {
                result: status.to_result(),
                loan,
            };
            self.later.borrow_mut().stalled = Some((token, completion));
            let wake = Token {
                task: self.task,
                slot: 0,
            };
            let until = shard.now().0 + u64::try_from(time.as_nanos()).expect("a short stall");
            shard.set_timer(wake, Nanos(until));
            return Submit::Pending;
        }
        if self.manner == Manner::AtOnce {
            return Submit::Done(status, loan);
        }
        let mut waiting = self.waiting.borrow_mut();
        let mut state = self.state.lock().expect("no panic in the disk");
        state.overlaps += waiting
            .iter()
            .filter(|(other, ..)| other.overlaps(seen))
            .count();
        waiting.push((
            seen,
            token,
            Completion {
                result: status.to_result(),
                loan,
            },
        ));
        state.most_in_flight = state.most_in_flight.max(waiting.len());
        shard.flush_later(self.task);
        Submit::Pending
    }
}

impl State {
    fn serve(&mut self, request: Request<'_>, script: &Script) -> (Seen, Act, Status, Loan) {
        let write = request.operation != Operation::Read;
        let number = self.numbers[usize::from(write)];
        self.numbers[usize::from(write)] += 1;
        let seen = Seen {
            number,
            write,
            lba: request.lba,
            blocks: request.blocks,
        };
        self.seen.push(seen);
        let act = script(seen);
        if request.operation == Operation::Flush {
            let status = match act {
                Act::Answer(status) => status,
                _ => Status::Ok,
            };
            return (seen, act, status, Loan::None);
        }
        let lba = if let Act::At(lba) = act {
            lba
        } else {
            request.lba
        };
        let start = usize::try_from(lba).expect("a small disk") * BLOCK;
        let place = start..start + request.blocks as usize * BLOCK;
        let length = place.len();
        if request.operation == Operation::Deallocate {
            self.bytes[place].fill(0);
            return (seen, act, Status::Ok, Loan::None);
        }
        let Payload::Owned(mut buf) = request.payload else {
            panic!("the benchmark owns its buffers")
        };
        match act {
            Act::Answer(status) => return (seen, act, status, Loan::Buf(buf)),
            Act::Zeroes => buf.bytes_mut()[..length].fill(0),
            _ if write => self.bytes[place].copy_from_slice(&buf.bytes()[..length]),
            _ => buf.bytes_mut()[..length].copy_from_slice(&self.bytes[place]),
        }
        if let Act::Flip(bit) = act {
            buf.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
        }
        (seen, act, Status::Ok, Loan::Buf(buf))
    }
}

/// A job with a fixed number of requests, so that tests do not depend on time.
pub fn job(rw: Rw, number_ios: u64) -> Job {
    Job {
        rw,
        number_ios: Some(number_ios),
        iodepth: 4,
        runtime: Duration::from_secs(60),
        ramp: Duration::ZERO,
        ..Job::default()
    }
}

/// Runs a job on one disk without progress reports.
pub fn try_run(disk: &Arc<TestDisk>, job: &Job, config: &Config) -> Result<Results, RunError> {
    run(
        &[Arc::clone(disk) as Arc<dyn Device>],
        job,
        config,
        &mut |_| {},
    )
}

/// Runs a job that must succeed.
pub fn results(disk: &Arc<TestDisk>, job: &Job) -> Results {
    try_run(disk, job, &Config::default()).expect("the job can be run")
}

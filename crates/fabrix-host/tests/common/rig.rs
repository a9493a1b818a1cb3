//! A user of a disk: a shard on the test's thread, a task that stores completions, and waits with a
//! deadline.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fabrix_block::{Channel, Device, Operation, Payload, Request, Status, Submit};
use fabrix_host::{Nqn, Options};
use fabrix_rt::{
    Buf, Completion, Control, Engine, Loan, Shard, ShardConfig, SpinPolicy, Task, TaskId, Token,
};
use fabrix_sim::Place;

/// What the user of a disk was told.
#[derive(Clone, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub fn all(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }

    pub fn say(&self, word: &str) -> bool {
        self.all().iter().any(|note| note.contains(word))
    }
}

/// Options with short times, and where the notes go.
pub fn options(engine: Engine) -> (Options, Notes) {
    options_at(&Place::machine(), engine)
}

/// The same, in the world of this thread.
pub fn options_in_world(place: &Place) -> (Options, Notes) {
    options_at(place, Engine::Auto)
}

fn options_at(place: &Place, engine: Engine) -> (Options, Notes) {
    let notes = Notes::default();
    let kept = notes.clone();
    let host = Nqn::new("nqn.2014-08.org.example:host").expect("an NQN");
    let options = Options {
        engine,
        control: place.control(),
        bringup_timeout: Duration::from_secs(5),
        notify: Arc::new(move |_, note| kept.0.lock().expect("no panic").push(note.to_owned())),
        ..Options::new(host, [0x11; 16])
    };
    (options, notes)
}

/// Nothing that a test waits for takes so long, not even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for something outside of the shard.
pub fn within(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what} did not happen");
        std::thread::yield_now();
    }
}

#[derive(Default)]
struct User {
    endings: VecDeque<(u32, Completion)>,
}

impl Task for User {
    fn completed(&mut self, _: &mut Shard, slot: u32, completion: Completion) {
        self.endings.push_back((slot, completion));
    }
}

/// The first answer to a request.
#[derive(Debug)]
pub enum Asked {
    Done(Status, Loan),
    Pending,
    /// The buffer that came with it.
    Busy(Option<Buf>),
}

pub struct Rig {
    place: Place,
    control: Arc<dyn Control>,
    pub shard: Shard,
    pub channel: Option<Box<dyn Channel>>,
    user: Rc<RefCell<User>>,
    task: TaskId,
}

impl Rig {
    pub fn new(engine: Engine, disk: &dyn Device) -> Self {
        Self::with_spin(engine, disk, SpinPolicy::default())
    }

    pub fn with_spin(engine: Engine, disk: &dyn Device, spin: SpinPolicy) -> Self {
        let config = ShardConfig {
            engine,
            spin,
            ..ShardConfig::default()
        };
        Self::at(&Place::machine(), config, disk)
    }

    /// A user in the world of this thread.
    pub fn in_world(place: &Place, disk: &dyn Device) -> Self {
        Self::at(place, ShardConfig::default(), disk)
    }

    fn at(place: &Place, config: ShardConfig, disk: &dyn Device) -> Self {
        let config = ShardConfig {
            arena_bytes: 256 << 20,
            ..config
        };
        let control = place.control();
        let mut shard = control.shard(config).expect("a shard");
        let user = Rc::new(RefCell::new(User {
            endings: VecDeque::with_capacity(4096),
        }));
        let task = shard.add(Rc::clone(&user) as Rc<RefCell<dyn Task>>);
        let channel = disk.open(&mut shard).expect("opening waits for nothing");
        Self {
            place: place.clone(),
            control,
            shard,
            channel: Some(channel),
            user,
            task,
        }
    }

    pub fn ask(
        &mut self,
        slot: u32,
        operation: Operation,
        (lba, blocks): (u64, u32),
        payload: Payload<'_>,
    ) -> Asked {
        let token = Token {
            task: self.task,
            slot,
        };
        let request = Request {
            operation,
            lba,
            blocks,
            payload,
            token,
        };
        let channel = self.channel.as_mut().expect("the channel is open");
        match channel.submit(&mut self.shard, request) {
            Submit::Done(status, loan) => Asked::Done(status, loan),
            Submit::Pending => Asked::Pending,
            Submit::Busy(request) => Asked::Busy(match request.payload {
                Payload::Owned(buf) => Some(buf),
                _ => None,
            }),
        }
    }

    /// An ending that has come.
    pub fn ending(&mut self) -> Option<(u32, Status, Loan)> {
        let (slot, completion) = self.user.borrow_mut().endings.pop_front()?;
        Some((
            slot,
            Status::from_result(completion.result),
            completion.loan,
        ))
    }

    /// The next ending, however long that takes.
    pub fn next(&mut self) -> (u32, Status, Loan) {
        let began = self.now();
        loop {
            if let Some(ending) = self.ending() {
                return ending;
            }
            let waited = self.now() - began;
            assert!(waited < PATIENCE, "a request does not end");
            self.turn(Duration::from_millis(50));
        }
    }

    /// Asks and waits for the answer.
    pub fn call(
        &mut self,
        operation: Operation,
        blocks: (u64, u32),
        payload: Payload<'_>,
    ) -> (Status, Loan) {
        match self.ask(u32::MAX, operation, blocks, payload) {
            Asked::Done(status, loan) => (status, loan),
            Asked::Pending => {
                let (slot, status, loan) = self.next();
                assert_eq!(slot, u32::MAX, "another request ended");
                (status, loan)
            }
            Asked::Busy(_) => panic!("busy without a request in progress"),
        }
    }

    pub fn write(&mut self, lba: u64, data: &[u8]) -> Status {
        let blocks = u32::try_from(data.len() / 512).expect("small");
        let write = Operation::Write { durable: false };
        self.call(write, (lba, blocks), Payload::Borrowed(data)).0
    }

    pub fn read(&mut self, lba: u64, blocks: u32) -> Result<Vec<u8>, Status> {
        match self.call(Operation::Read, (lba, blocks), Payload::Lend) {
            (Status::Ok, Loan::Buf(buf)) => Ok(buf.bytes()[..blocks as usize * 512].to_vec()),
            (status, _) => Err(status),
        }
    }

    /// Turns until something is so.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let began = self.now();
        while !is_so(self) {
            assert!(self.now() - began < PATIENCE, "{what} did not happen");
            self.turn(Duration::from_millis(10));
        }
    }

    /// Turns for so long.
    pub fn turn_for(&mut self, length: Duration) -> usize {
        let end = self.now() + length;
        let mut turns = 0;
        while self.now() < end {
            self.turn(end.saturating_sub(self.now()));
            turns += 1;
        }
        turns
    }

    fn turn(&mut self, at_most: Duration) {
        self.control.turn(&mut self.shard, at_most);
    }

    /// The time at its place.
    pub fn now(&self) -> Duration {
        self.place.now()
    }

    pub fn buf(&mut self, bytes: usize, fill: u8) -> Buf {
        let mut buf = self.shard.take_buf(bytes).expect("memory");
        buf.bytes_mut().fill(fill);
        buf
    }
}

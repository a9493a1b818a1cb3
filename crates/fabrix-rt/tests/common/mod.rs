//! What the tests of shards share: a task that remembers what it was told, and one body run over
//! both drivers.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "a module of several test programs, none uses all of it"
)]

use std::any::Any;
use std::cell::RefCell;
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use fabrix_rt::{
    Buf, Completion, Engine, Gather, Loan, Op, Shard, ShardConfig, Socket, Task, TaskId, Token,
    Wait, engine,
};

/// Remembers everything it is told.
#[derive(Default)]
pub struct Recorder {
    pub completions: Vec<(u32, Completion)>,
    pub expired: Vec<u32>,
    pub messages: Vec<Box<dyn Any + Send>>,
    pub flushes: usize,
}

impl Task for Recorder {
    fn completed(&mut self, _: &mut Shard, slot: u32, completion: Completion) {
        self.completions.push((slot, completion));
    }
    fn expired(&mut self, _: &mut Shard, slot: u32) {
        self.expired.push(slot);
    }
    fn flush(&mut self, _: &mut Shard) {
        self.flushes += 1;
    }
    fn message(&mut self, _: &mut Shard, message: Box<dyn Any + Send>) {
        self.messages.push(message);
    }
}

/// A shard with one recorder on it.
pub struct Bench {
    pub shard: Shard,
    pub recorder: Rc<RefCell<Recorder>>,
    pub task: TaskId,
}

impl Bench {
    pub fn new(engine: Engine) -> Self {
        Self::with(ShardConfig {
            engine,
            arena_bytes: 64 << 20,
            ..Default::default()
        })
    }

    pub fn with(config: ShardConfig) -> Self {
        let mut shard = Shard::new(config).expect("a shard");
        let recorder = Rc::new(RefCell::new(Recorder::default()));
        let task = shard.add(recorder.clone());
        Self {
            shard,
            recorder,
            task,
        }
    }

    pub fn token(&self, slot: u32) -> Token {
        Token {
            task: self.task,
            slot,
        }
    }

    pub fn start(&mut self, slot: u32, op: Op) {
        let token = self.token(slot);
        self.shard.start(token, op);
    }

    pub fn buf(&mut self, bytes: usize) -> Buf {
        self.shard.take_buf(bytes).expect("room in the arena")
    }

    /// Turns until the recorder satisfies `done`; ten seconds are a failure.
    pub fn turn_until(&mut self, done: impl Fn(&Recorder) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !done(&self.recorder.borrow()) {
            assert!(Instant::now() < deadline, "nothing came");
            self.shard.turn(Wait::AtMost(Duration::from_secs(1)));
        }
    }

    /// Waits for the ending of a slot and takes it.
    pub fn ending(&mut self, slot: u32) -> Completion {
        self.turn_until(|recorder| recorder.completions.iter().any(|(found, _)| *found == slot));
        let mut recorder = self.recorder.borrow_mut();
        let at = recorder
            .completions
            .iter()
            .position(|(found, _)| *found == slot);
        recorder.completions.remove(at.expect("just seen")).1
    }

    /// The same for an operation that gives a buffer back.
    pub fn ending_with_buf(&mut self, slot: u32) -> (i32, Buf) {
        let completion = self.ending(slot);
        match completion.loan {
            Loan::Buf(buf) => (completion.result, buf),
            other => panic!("{other:?} instead of a buffer"),
        }
    }

    /// The same for a send.
    pub fn ending_with_gather(&mut self, slot: u32) -> (i32, Box<Gather>) {
        let completion = self.ending(slot);
        match completion.loan {
            Loan::Gather(gather) => (completion.result, gather),
            other => panic!("{other:?} instead of a gather"),
        }
    }

    /// Turns without waiting a few times, for what must not happen.
    pub fn settle(&mut self) {
        for _ in 0..5 {
            self.shard.turn(Wait::Never);
        }
    }
}

/// Two connected streams.
pub fn pair() -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
    let (far, _) = listener.accept().expect("just connected");
    (Socket::from(near), far)
}

/// Whether this machine lets us use an engine; says so when not.
pub fn has(engine: Engine) -> bool {
    match engine {
        Engine::IoUring => match engine::probe() {
            Ok(_) => true,
            Err(refused) => {
                eprintln!("skipped: {refused}");
                false
            }
        },
        _ => true,
    }
}

/// Runs one body as two tests.
#[macro_export]
macro_rules! on_both_drivers {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn on_io_uring() {
                if $crate::common::has(fabrix_rt::Engine::IoUring) {
                    super::$name(fabrix_rt::Engine::IoUring);
                }
            }
            #[test]
            fn on_epoll() {
                super::$name(fabrix_rt::Engine::Epoll);
            }
        }
    )+};
}

/// Bytes that differ from their neighbours and repeat late.
pub fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes)
        .map(|at| u8::try_from((at * 7 + at / 251) % 251).expect("below 251") ^ seed)
        .collect()
}

//! A kernel that answers as a test tells it to, and remembers what it was asked.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use fabrix_rt::driver::{Driver, Ending, Submission, Until};
use fabrix_rt::{Completion, Nanos, Op, Registered, Shard, TaskId};

use super::{FrontEnd, config};

/// What a scripted kernel was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Read {
        start: usize,
        bytes: usize,
        offset: u64,
    },
    Write {
        source: Vec<u8>,
        offset: u64,
        durable: bool,
    },
    ReadRegistered {
        memory: Registered,
        offset: u64,
    },
    WriteRegistered {
        memory: Registered,
        offset: u64,
        durable: bool,
    },
    Sync,
    Allocate {
        how: fabrix_rt::Allocate,
        offset: u64,
        bytes: u64,
    },
}

/// A kernel that gives scripted results, and full ones when the script has ended.
#[derive(Clone, Default)]
pub(crate) struct Kernel {
    script: Rc<RefCell<VecDeque<i32>>>,
    asked: Rc<RefCell<Vec<Asked>>>,
    /// Whether answers are held back.
    silent: Rc<RefCell<bool>>,
    waiting: Rc<RefCell<VecDeque<Submission>>>,
}

impl Kernel {
    pub(crate) fn front_end(&self) -> FrontEnd {
        let shard = Shard::with_driver(&config(), Box::new(self.clone())).expect("a shard");
        FrontEnd::on(shard)
    }

    pub(crate) fn will_answer(&self, results: &[i32]) {
        self.script.borrow_mut().extend(results);
    }

    pub(crate) fn be_silent(&self, silent: bool) {
        *self.silent.borrow_mut() = silent;
    }

    pub(crate) fn was_asked(&self) -> Vec<Asked> {
        self.asked.borrow_mut().split_off(0)
    }
}

impl Driver for Kernel {
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Ending>,
        _until: Until,
    ) -> Nanos {
        self.waiting.borrow_mut().extend(submissions.drain(..));
        while !*self.silent.borrow() {
            let Some((token, op)) = self.waiting.borrow_mut().pop_front() else {
                break;
            };
            let (asked, full) = asked(&op);
            self.asked.borrow_mut().push(asked);
            let result = self.script.borrow_mut().pop_front().unwrap_or(full);
            endings.push((
                token,
                Completion {
                    result,
                    loan: op.into_loan(),
                },
            ));
        }
        Nanos::now()
    }

    fn forget(&mut self, _task: TaskId) {}

    fn in_flight(&self) -> usize {
        self.waiting.borrow().len()
    }
}

fn asked(op: &Op) -> (Asked, i32) {
    let full = |bytes: usize| i32::try_from(bytes).expect("a small operation");
    match op {
        Op::Read {
            start,
            bytes,
            offset,
            ..
        } => (
            Asked::Read {
                start: *start,
                bytes: *bytes,
                offset: *offset,
            },
            full(*bytes),
        ),
        Op::Write {
            buf,
            start,
            bytes,
            offset,
            durable,
            ..
        } => {
            let source = buf.bytes()[*start..*start + *bytes].to_vec();
            (
                Asked::Write {
                    source,
                    offset: *offset,
                    durable: *durable,
                },
                full(*bytes),
            )
        }
        Op::ReadRegistered { memory, offset, .. } => (
            Asked::ReadRegistered {
                memory: *memory,
                offset: *offset,
            },
            full(memory.bytes as usize),
        ),
        Op::WriteRegistered {
            memory,
            offset,
            durable,
            ..
        } => (
            Asked::WriteRegistered {
                memory: *memory,
                offset: *offset,
                durable: *durable,
            },
            full(memory.bytes as usize),
        ),
        Op::Sync { .. } => (Asked::Sync, 0),
        Op::Allocate {
            how, offset, bytes, ..
        } => (
            Asked::Allocate {
                how: *how,
                offset: *offset,
                bytes: *bytes,
            },
            0,
        ),
        other => panic!("a disk asked for {other:?}"),
    }
}

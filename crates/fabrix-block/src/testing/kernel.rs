//! A scripted kernel: it returns the results that a test has set and records the operations.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use fabrix_rt::driver::{Completed, Driver, Submission, Until};
use fabrix_rt::{Completion, Nanos, Op, Registered, Shard, TaskId};

use super::{FrontEnd, config};

/// An operation recorded by the scripted kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KernelCall {
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

/// A kernel that returns scripted results, and full success after the end of the script.
#[derive(Clone, Default)]
pub(crate) struct Kernel {
    script: Rc<RefCell<VecDeque<i32>>>,
    calls: Rc<RefCell<Vec<KernelCall>>>,
    /// Whether results are held back.
    held: Rc<RefCell<bool>>,
    waiting: Rc<RefCell<VecDeque<Submission>>>,
}

impl Kernel {
    pub(crate) fn front_end(&self) -> FrontEnd {
        let shard = Shard::with_driver(&config(), Box::new(self.clone())).expect("a shard");
        FrontEnd::on(shard)
    }

    pub(crate) fn script_results(&self, results: &[i32]) {
        self.script.borrow_mut().extend(results);
    }

    pub(crate) fn hold_results(&self, held: bool) {
        *self.held.borrow_mut() = held;
    }

    pub(crate) fn take_calls(&self) -> Vec<KernelCall> {
        self.calls.borrow_mut().split_off(0)
    }
}

impl Driver for Kernel {
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Completed>,
        _until: Until,
    ) -> Nanos {
        self.waiting.borrow_mut().extend(submissions.drain(..));
        while !*self.held.borrow() {
            let Some((token, op)) = self.waiting.borrow_mut().pop_front() else {
                break;
            };
            let (call, full) = call_of(&op);
            self.calls.borrow_mut().push(call);
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

fn call_of(op: &Op) -> (KernelCall, i32) {
    let full = |bytes: usize| i32::try_from(bytes).expect("a small operation");
    match op {
        Op::Read {
            start,
            bytes,
            offset,
            ..
        } => (
            KernelCall::Read {
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
                KernelCall::Write {
                    source,
                    offset: *offset,
                    durable: *durable,
                },
                full(*bytes),
            )
        }
        Op::ReadRegistered { memory, offset, .. } => (
            KernelCall::ReadRegistered {
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
            KernelCall::WriteRegistered {
                memory: *memory,
                offset: *offset,
                durable: *durable,
            },
            full(memory.bytes as usize),
        ),
        Op::Sync { .. } => (KernelCall::Sync, 0),
        Op::Allocate {
            how, offset, bytes, ..
        } => (
            KernelCall::Allocate {
                how: *how,
                offset: *offset,
                bytes: *bytes,
            },
            0,
        ),
        other => panic!("a disk asked for {other:?}"),
    }
}

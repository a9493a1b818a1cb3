//! What the users of a world know together: the model of the reservations, and the checker of the
//! blocks. Both learn here when a command begins, what its answer means, and when it is lost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::model::{Id, Model};
use super::rules::Verdict;
use crate::checker::{Checker, ReadId, Value, WriteId};
use crate::peer::{Action, Answer, Change, HostId};
use crate::workload;

/// What all users of a world know.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) model: Rc<RefCell<Model>>,
    pub(crate) checker: Rc<RefCell<Checker>>,
    /// Writes that have not ended.
    writes: Rc<RefCell<BTreeMap<WriteId, Writing>>>,
}

/// A write that has not ended.
struct Writing {
    host: HostId,
    blocks: Range<u64>,
    /// A preemption has aborted it, and a reservation keeps it out if it arrives only now.
    is_fenced: bool,
}

/// What the model and the checker know of a command in progress.
pub(crate) enum Open {
    Read {
        access: Id,
        read: ReadId,
        blocks: Range<u64>,
    },
    Write {
        access: Id,
        write: WriteId,
        blocks: Range<u64>,
    },
    /// A change, with the writes that it fences if it aborts them.
    Change {
        id: Id,
        fenced: Vec<WriteId>,
    },
    Report(Id),
}

impl Shared {
    /// No reservation, and a disk of zeroes.
    pub(crate) fn new(blocks: u64) -> Self {
        Self {
            model: Rc::new(RefCell::new(Model::new())),
            checker: Rc::new(RefCell::new(Checker::new(blocks))),
            writes: Rc::default(),
        }
    }

    /// How often the target was killed.
    pub(crate) fn kills(&self) -> u64 {
        self.model.borrow().kills()
    }

    /// A report of keys begins.
    pub(crate) fn report_begins(&self) -> Open {
        Open::Report(self.model.borrow_mut().report_begins())
    }

    /// A change of reservations begins.
    pub(crate) fn change_begins(&self, change: Change) -> Open {
        let id = self.model.borrow_mut().change_begins(change);
        let fenced = match change.action {
            Action::Preempt { abort: true, .. } => self.writes.borrow().keys().copied().collect(),
            _ => Vec::new(),
        };
        self.resume_writes();
        Open::Change { id, fenced }
    }

    /// A read begins.
    pub(crate) fn read_begins(&self, host: HostId, blocks: Range<u64>) -> Open {
        let access = self.model.borrow_mut().access_begins(host, false);
        let read = self.checker.borrow_mut().read_begins(blocks.clone());
        Open::Read {
            access,
            read,
            blocks,
        }
    }

    /// A write begins. Result: the value that it writes, and the command in progress.
    pub(crate) fn write_begins(&self, host: HostId, blocks: Range<u64>) -> (Value, Open) {
        let access = self.model.borrow_mut().access_begins(host, true);
        let mut checker = self.checker.borrow_mut();
        let value = checker.next_value();
        let write = checker.write_begins(value, blocks.clone());
        let writing = Writing {
            host,
            blocks: blocks.clone(),
            is_fenced: false,
        };
        self.writes.borrow_mut().insert(write, writing);
        let open = Open::Write {
            access,
            write,
            blocks,
        };
        (value, open)
    }

    /// A command was answered.
    ///
    /// # Errors
    /// The answer contradicts the model or the checker.
    pub(crate) fn ends(&self, open: Open, answer: Answer) -> Result<(), String> {
        match open {
            Open::Change { id, fenced } => {
                let ended = self.change_ends(id, &fenced, answer);
                self.resume_writes();
                ended
            }
            Open::Report(id) => self.report_ends(id, answer),
            Open::Read {
                access,
                read,
                blocks,
            } => self.read_ends(access, read, blocks, answer),
            Open::Write {
                access,
                write,
                blocks,
            } => self.write_ends(access, write, blocks, answer),
        }
    }

    fn change_ends(&self, id: Id, fenced: &[WriteId], answer: Answer) -> Result<(), String> {
        let mut model = self.model.borrow_mut();
        let verdict = match answer {
            Answer::Done(_) => Verdict::Done,
            Answer::Conflict => Verdict::Conflict,
            Answer::Invalid => Verdict::Invalid,
            Answer::NotStored => return model.change_never_happens(id),
            Answer::Aborted => {
                model.change_is_over(id);
                return Ok(());
            }
            other => {
                return Err(format!(
                    "a change of reservations was answered with {other:?}"
                ));
            }
        };
        let victims = model.change_ends(id, verdict)?;
        for write in fenced {
            let mut writes = self.writes.borrow_mut();
            if let Some(writing) = writes.get_mut(write)
                && !writing.is_fenced
                && victims.contains(&writing.host)
                && !model.may_write_after(writing.host, id)
            {
                let mut checker = self.checker.borrow_mut();
                checker.is_over(*write, writing.blocks.clone());
                writing.is_fenced = true;
            }
        }
        Ok(())
    }

    /// A fenced write that is still on its way may happen as soon as no reservation forbids it.
    fn resume_writes(&self) {
        let model = self.model.borrow();
        let mut writes = self.writes.borrow_mut();
        for (write, writing) in writes.iter_mut() {
            if writing.is_fenced && model.may_write(writing.host) {
                let mut checker = self.checker.borrow_mut();
                checker.write_resumes(*write, writing.blocks.clone());
                writing.is_fenced = false;
            }
        }
    }

    fn report_ends(&self, id: Id, answer: Answer) -> Result<(), String> {
        let mut model = self.model.borrow_mut();
        match answer {
            Answer::Keys(keys, kind) => model.report_ends(id, &keys, kind),
            // A preemption aborts reports, too.
            Answer::Aborted => {
                model.report_is_lost(id);
                Ok(())
            }
            other => Err(format!("a report of keys was answered with {other:?}")),
        }
    }

    fn read_ends(
        &self,
        access: Id,
        read: ReadId,
        blocks: Range<u64>,
        answer: Answer,
    ) -> Result<(), String> {
        let mut model = self.model.borrow_mut();
        let mut checker = self.checker.borrow_mut();
        match answer {
            Answer::Done(bytes) => {
                model.access_ends(access, true)?;
                let values = workload::values(&bytes, blocks)?;
                let ended = checker.read_ends(read, &values);
                return ended.map_err(|wrong| wrong.to_string());
            }
            Answer::Conflict => model.access_ends(access, false)?,
            Answer::Aborted | Answer::Again => model.access_is_lost(access),
            other => return Err(format!("a read was answered with {other:?}")),
        }
        checker.read_fails(read);
        Ok(())
    }

    fn write_ends(
        &self,
        access: Id,
        write: WriteId,
        blocks: Range<u64>,
        answer: Answer,
    ) -> Result<(), String> {
        let mut model = self.model.borrow_mut();
        let mut checker = self.checker.borrow_mut();
        self.writes.borrow_mut().remove(&write);
        match answer {
            Answer::Done(_) => {
                checker.write_ends(write, blocks, false);
                model.access_ends(access, true)
            }
            Answer::Conflict => {
                model.access_ends(access, false)?;
                checker.write_never_happens(write, blocks)
            }
            // The disk has carried it out, or never does.
            Answer::Aborted => {
                model.access_is_lost(access);
                checker.is_over(write, blocks);
                Ok(())
            }
            Answer::Again => {
                model.access_is_lost(access);
                checker.write_never_happens(write, blocks)
            }
            other => Err(format!("a write was answered with {other:?}")),
        }
    }

    /// The connection of a command is lost: it may happen until its time is over.
    pub(crate) fn is_lost(&self, open: &Open) {
        let mut model = self.model.borrow_mut();
        let mut checker = self.checker.borrow_mut();
        match open {
            Open::Read { access, read, .. } => {
                model.access_is_lost(*access);
                checker.read_fails(*read);
            }
            Open::Write {
                access,
                write,
                blocks,
            } => {
                model.access_is_lost(*access);
                checker.write_fails(*write, blocks.clone(), false);
            }
            Open::Report(id) => model.report_is_lost(*id),
            Open::Change { .. } => {}
        }
    }

    /// The time of a lost command is over: it has happened by now, or it never does.
    pub(crate) fn is_over(&self, open: Open) {
        match open {
            Open::Change { id, .. } => {
                self.model.borrow_mut().change_is_over(id);
                self.resume_writes();
            }
            Open::Write { write, blocks, .. } => {
                self.writes.borrow_mut().remove(&write);
                self.checker.borrow_mut().is_over(write, blocks);
            }
            Open::Read { .. } | Open::Report(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::Protocol;

    fn change(shared: &Shared, host: HostId, key: u64, action: Action) {
        let open = shared.change_begins(Change {
            host,
            protocol: Protocol::Nvme,
            key,
            action,
        });
        let ended = shared.ends(open, Answer::Done(Vec::new()));
        assert_eq!(ended, Ok(()), "{action:?}");
    }

    fn reads(shared: &Shared, value: Value) -> bool {
        let mut checker = shared.checker.borrow_mut();
        let read = checker.read_begins(0..1);
        checker.read_ends(read, &[value]).is_ok()
    }

    /// Host 0 preempts host 1, which has a write on its way, and aborts it.
    fn preempted() -> (Shared, Value) {
        let shared = Shared::new(1);
        for (host, new) in [(0, 1), (1, 2)] {
            let persist = false;
            change(&shared, host, 0, Action::Register { new, persist });
        }
        let (value, _) = shared.write_begins(1, 0..1);
        change(&shared, 0, 1, Action::Acquire(0));
        let preempt = Action::Preempt {
            victim: 2,
            kind: 0,
            abort: true,
        };
        change(&shared, 0, 1, preempt);
        assert!(reads(&shared, 0), "the write had not happened");
        (shared, value)
    }

    #[test]
    fn a_write_that_a_preemption_has_aborted_does_not_happen_while_it_is_kept_out() {
        let (shared, value) = preempted();
        assert!(!reads(&shared, value));
    }

    #[test]
    fn a_write_that_arrives_when_the_reservation_is_gone_may_happen() {
        let (shared, value) = preempted();
        change(&shared, 0, 1, Action::Release(0));
        assert!(reads(&shared, value));
    }
}

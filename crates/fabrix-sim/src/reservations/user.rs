//! The user of a peer: changes reservations, reads and writes at random, and tells the model and
//! the checker what came of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use fabrix_rt::{Completion, Nanos, Shard, Task, TaskId, Token};

use super::model::{Id, Model};
use super::rules::{Action, Change, HostId, Verdict};
use crate::checker::{Checker, ReadId, WriteId};
use crate::choices::Choices;
use crate::hosts::Protocol;
use crate::images::BLOCK_BYTES;
use crate::peer::{Answer, Ask, Event, Lost, Peer};
use crate::report::Report;
use crate::trace::{self, Entry};
use crate::workload;

/// What a user does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Commands in all.
    pub(crate) requests: u64,
    /// Commands at once.
    pub(crate) depth: usize,
    /// Blocks of the disk.
    pub(crate) blocks: u64,
    /// Longest pause before a command.
    pub(crate) pause: Duration,
    /// Hosts of the world.
    pub(crate) hosts: usize,
    /// Whether the target can store reservations.
    pub(crate) persists: bool,
}

/// What all users of a world know.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) model: Rc<RefCell<Model>>,
    pub(crate) checker: Rc<RefCell<Checker>>,
    /// Writes that may still happen.
    pub(crate) writes: Rc<RefCell<BTreeMap<WriteId, Writing>>>,
}

/// A write that may still happen.
pub(crate) struct Writing {
    host: HostId,
    blocks: Range<u64>,
}

/// The user. It runs on a shard of its host.
pub(crate) struct User {
    task: TaskId,
    host: HostId,
    protocol: Protocol,
    peer: Box<dyn Peer>,
    shared: Shared,
    choices: Choices,
    wish: Wish,
    is_up: bool,
    /// The last sign of life of the target, or the begin of the attempt to connect.
    heard_at: Nanos,
    losses: u64,
    begun: u64,
    ended: u64,
    failed: u64,
    /// The key that the host believes to have.
    key: u64,
    slots: Vec<Slot>,
    /// Commands without an answer, with the time from which they happen no more.
    lost: Vec<(Nanos, Open)>,
    faults: Vec<String>,
}

/// One command at a time.
enum Slot {
    Pausing,
    /// It cannot be sent now.
    Waiting(Running),
    Running(Running),
    Done,
}

struct Running {
    ask: Ask,
    open: Open,
    since: Nanos,
    /// How often the target had been killed before.
    kills: u64,
}

impl Running {
    fn entry(&self, host: HostId, what: &str) -> Entry {
        let entry = |ask: &str| Entry::new(name(host), format!("{what} {ask}"));
        match (&self.ask, &self.open) {
            (Ask::Read(blocks), _) => entry("a read").blocks(blocks.clone()),
            (Ask::Write(blocks, _), Open::Write { write, .. }) => {
                let entry = entry("a write").blocks(blocks.clone());
                entry.values(&[write.value])
            }
            (Ask::Write(blocks, _), _) => entry("a write").blocks(blocks.clone()),
            (Ask::Change(change), _) => entry(&format!("{change:?}")),
            (Ask::Report, _) => entry("a report"),
        }
    }
}

/// A host in words.
fn name(host: HostId) -> String {
    format!("host {}", host + 1)
}

/// What the model and the checker know of a command in progress.
#[derive(Clone)]
enum Open {
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

impl User {
    /// Starts a user on a shard.
    pub(crate) fn start(
        shard: &mut Shard,
        (host, is_nvme, peer): (HostId, bool, Box<dyn Peer>),
        shared: Shared,
        choices: Choices,
        wish: Wish,
    ) -> Rc<RefCell<Self>> {
        let task = shard.reserve();
        let user = Rc::new(RefCell::new(Self {
            task,
            host,
            protocol: if is_nvme {
                Protocol::Nvme
            } else {
                Protocol::Iscsi
            },
            peer,
            shared,
            choices,
            wish,
            is_up: false,
            heard_at: shard.now(),
            losses: 0,
            begun: 0,
            ended: 0,
            failed: 0,
            key: 0,
            slots: (0..wish.depth).map(|_| Slot::Pausing).collect(),
            lost: Vec::new(),
            faults: Vec::new(),
        }));
        shard.install(task, Rc::clone(&user) as Rc<RefCell<_>>);
        let mut it = user.borrow_mut();
        it.connect(shard);
        it.wait(shard, TICK_SLOT, TICK);
        for slot in 0..wish.depth {
            it.pause(shard, slot);
        }
        drop(it);
        user
    }

    /// Ends the user, and its connections.
    pub(crate) fn leave(shard: &mut Shard, user: &Rc<RefCell<Self>>) {
        let mut it = user.borrow_mut();
        it.peer.close();
        let task = it.task;
        drop(it);
        shard.remove(task);
    }

    /// Whether every command has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended == self.wish.requests
    }

    /// Adds what came of the user.
    pub(crate) fn report(&self, report: &mut Report) {
        report.ended += self.ended;
        report.failed += self.failed;
        report.losses += self.losses;
        report.faults.extend(self.faults.iter().cloned());
        if !self.has_ended() {
            let missing = self.wish.requests - self.ended;
            report
                .faults
                .push(format!("{missing} commands of a host have not ended"));
        }
    }

    fn connect(&mut self, shard: &mut Shard) {
        self.heard_at = shard.now();
        self.peer.connect(shard, self.task);
    }

    fn wait(&self, shard: &mut Shard, slot: u32, time: Duration) {
        let token = Token {
            task: self.task,
            slot,
        };
        let at = shard.now() + time;
        shard.set_timer(token, at);
    }

    fn pause(&mut self, shard: &mut Shard, slot: usize) {
        let most = u64::try_from(self.wish.pause.as_nanos()).expect("a short time");
        let pause = Duration::from_nanos(self.choices.below(most + 1));
        self.slots[slot] = Slot::Pausing;
        self.wait(shard, u32::try_from(slot).expect("few"), pause);
    }

    fn submit(&mut self, shard: &mut Shard, slot: usize) {
        if self.begun == self.wish.requests {
            self.slots[slot] = Slot::Done;
            return;
        }
        if !self.is_up || (slot == 0 && self.lost_changes() > 1) {
            return self.wait(shard, u32::try_from(slot).expect("few"), NOT_NOW);
        }
        self.begun += 1;
        let (ask, open) = match slot {
            0 => self.draw_change(),
            _ => self.draw_access(),
        };
        let running = Running {
            ask,
            open,
            since: shard.now(),
            kills: self.shared.model.borrow().kills(),
        };
        self.send(shard, slot, running);
    }

    fn send(&mut self, shard: &mut Shard, slot: usize, running: Running) {
        let number = u16::try_from(slot).expect("few");
        if self.peer.send(shard, number, &running.ask) {
            trace::note(|| running.entry(self.host, "begins"));
            self.slots[slot] = Slot::Running(running);
        } else {
            self.slots[slot] = Slot::Waiting(running);
            self.wait(shard, number.into(), NOT_NOW);
        }
    }

    /// Changes of which nobody knows whether they happen.
    fn lost_changes(&self) -> usize {
        let changes = self.lost.iter();
        let changes = changes.filter(|(_, open)| matches!(open, Open::Change { .. }));
        changes.count()
    }

    fn draw_change(&mut self) -> (Ask, Open) {
        if self.choices.once_in(5) {
            let id = self.shared.model.borrow_mut().report_begins();
            return (Ask::Report, Open::Report(id));
        }
        let action = self.draw_action();
        let key = match self.choices.once_in(12) {
            true => 77,
            false => self.key,
        };
        let change = Change {
            host: self.host,
            protocol: self.protocol,
            key,
            action,
        };
        match action {
            Action::Register { new, .. }
            | Action::Replace { new, .. }
            | Action::Ignore { new, .. } => self.key = new,
            _ => {}
        }
        let id = self.shared.model.borrow_mut().change_begins(change);
        let fenced = match action {
            Action::Preempt { abort: true, .. } => {
                self.shared.writes.borrow().keys().copied().collect()
            }
            _ => Vec::new(),
        };
        (Ask::Change(change), Open::Change { id, fenced })
    }

    fn draw_action(&mut self) -> Action {
        let persist = self.wish.persists && !self.choices.once_in(4);
        // Hosts share a key now and then.
        let own = self.host as u64 + 1;
        let new = self.choices.one_of(&[own, own, 10 + own, 9]);
        let kind = self.choices.index(6);
        match self.choices.below(16) {
            _ if self.key == 0 => Action::Register { new, persist },
            0..3 => Action::Register { new, persist },
            3 => Action::Replace { new, persist },
            4..6 => Action::Ignore { new, persist },
            6 => Action::Unregister { persist },
            7..10 => Action::Acquire(kind),
            10 => Action::Release(kind),
            11 => Action::Clear,
            _ => {
                let other = self.choices.index(self.wish.hosts) as u64 + 1;
                let victim = self.choices.one_of(&[other, other, 10 + other, 9, 0]);
                let abort = !self.choices.once_in(3);
                Action::Preempt {
                    victim,
                    kind,
                    abort,
                }
            }
        }
    }

    fn draw_access(&mut self) -> (Ask, Open) {
        let length = self.choices.between(1, 2);
        let first = self.choices.below(self.wish.blocks - length + 1);
        let blocks = first..first + length;
        let writes = !self.choices.once_in(3);
        let access = self
            .shared
            .model
            .borrow_mut()
            .access_begins(self.host, writes);
        let mut checker = self.shared.checker.borrow_mut();
        if !writes {
            let read = checker.read_begins(blocks.clone());
            let open = Open::Read {
                access,
                read,
                blocks: blocks.clone(),
            };
            return (Ask::Read(blocks), open);
        }
        let value = checker.next_value();
        let write = checker.write_begins(value, blocks.clone());
        let writing = Writing {
            host: self.host,
            blocks: blocks.clone(),
        };
        self.shared.writes.borrow_mut().insert(write, writing);
        let bytes = usize::try_from(length).expect("short") * BLOCK_BYTES as usize;
        let mut data = vec![0; bytes];
        workload::fill(&mut data, value, first);
        let open = Open::Write {
            access,
            write,
            blocks: blocks.clone(),
        };
        (Ask::Write(blocks, data), open)
    }

    fn heard(&mut self, shard: &mut Shard, event: Event) {
        self.heard_at = shard.now();
        match event {
            Event::Ready => self.is_up = true,
            Event::Alive => {}
            Event::Ended(slot, answer) => self.end(shard, slot.into(), answer),
        }
    }

    fn end(&mut self, shard: &mut Shard, slot: usize, answer: Answer) {
        let Slot::Running(running) = std::mem::replace(&mut self.slots[slot], Slot::Pausing) else {
            return self.faults.push(format!("slot {slot} ended twice"));
        };
        trace::note(|| match &answer {
            Answer::Done(_) => running.entry(self.host, "is done with"),
            other => running.entry(self.host, &format!("gets {other:?} for")),
        });
        let is_access = matches!(running.open, Open::Read { .. } | Open::Write { .. });
        if answer == Answer::Again && !is_access {
            self.slots[slot] = Slot::Waiting(running);
            return self.wait(shard, u32::try_from(slot).expect("few"), AGAIN);
        }
        self.ended += 1;
        self.failed += u64::from(!matches!(answer, Answer::Done(_) | Answer::Keys(..)));
        let outcome = match running.open {
            Open::Change { id, fenced } => self.change_ends(id, &fenced, answer),
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
        };
        if let Err(fault) = outcome {
            trace::note(|| Entry::new(trace::CHECKER, fault.clone()));
            self.faults.push(fault);
        }
        self.pause(shard, slot);
    }

    fn change_ends(&mut self, id: Id, fenced: &[WriteId], answer: Answer) -> Result<(), String> {
        let mut model = self.shared.model.borrow_mut();
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
            let mut writes = self.shared.writes.borrow_mut();
            if let Some(writing) = writes.get(write)
                && victims.contains(&writing.host)
                && !model.may_write_after(writing.host, id)
            {
                let mut checker = self.shared.checker.borrow_mut();
                checker.is_over(*write, writing.blocks.clone());
                writes.remove(write);
            }
        }
        Ok(())
    }

    fn report_ends(&mut self, id: Id, answer: Answer) -> Result<(), String> {
        let mut model = self.shared.model.borrow_mut();
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
        &mut self,
        access: Id,
        read: ReadId,
        blocks: Range<u64>,
        answer: Answer,
    ) -> Result<(), String> {
        let mut model = self.shared.model.borrow_mut();
        let mut checker = self.shared.checker.borrow_mut();
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
        &mut self,
        access: Id,
        write: WriteId,
        blocks: Range<u64>,
        answer: Answer,
    ) -> Result<(), String> {
        let mut model = self.shared.model.borrow_mut();
        let mut checker = self.shared.checker.borrow_mut();
        self.shared.writes.borrow_mut().remove(&write);
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

    /// The connection is lost: nobody knows how the commands in progress end.
    fn lose(&mut self, shard: &mut Shard) {
        trace::note(|| Entry::new(name(self.host), "has lost its connection"));
        self.peer.close();
        self.losses += u64::from(self.is_up);
        self.is_up = false;
        self.heard_at = shard.now();
        let kills = self.shared.model.borrow().kills();
        for slot in 0..self.slots.len() {
            let state = std::mem::replace(&mut self.slots[slot], Slot::Pausing);
            let running = match state {
                Slot::Running(running) | Slot::Waiting(running) => running,
                other => {
                    self.slots[slot] = other;
                    continue;
                }
            };
            (self.ended, self.failed) = (self.ended + 1, self.failed + 1);
            let is_dead = running.kills != kills;
            let until = shard.now() + if is_dead { Duration::ZERO } else { OVER };
            self.lost(until, running.open);
            self.pause(shard, slot);
        }
        self.bury(shard.now());
        let delay = Duration::from_millis(self.choices.between(10, 500));
        self.wait(shard, CONNECT_SLOT, delay);
    }

    fn lost(&mut self, until: Nanos, open: Open) {
        let mut model = self.shared.model.borrow_mut();
        let mut checker = self.shared.checker.borrow_mut();
        match &open {
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
                checker.write_fails(*write, blocks.clone());
            }
            Open::Report(id) => model.report_is_lost(*id),
            Open::Change { .. } => {}
        }
        self.lost.push((until, open));
    }

    /// Commands without an answer happen no more after a time: the target has dropped their
    /// connection.
    fn bury(&mut self, now: Nanos) {
        let (over, lost) = std::mem::take(&mut self.lost)
            .into_iter()
            .partition(|(until, _)| *until <= now);
        self.lost = lost;
        let over: Vec<_> = over;
        for (_, open) in over {
            match open {
                Open::Change { id, .. } => self.shared.model.borrow_mut().change_is_over(id),
                Open::Write { write, blocks, .. } => {
                    self.shared.writes.borrow_mut().remove(&write);
                    self.shared.checker.borrow_mut().is_over(write, blocks);
                }
                Open::Read { .. } | Open::Report(_) => {}
            }
        }
    }

    /// Looks after the connection.
    fn tick(&mut self, shard: &mut Shard) {
        self.wait(shard, TICK_SLOT, TICK);
        self.bury(shard.now());
        let oldest = self.slots.iter().filter_map(|slot| match slot {
            Slot::Running(running) | Slot::Waiting(running) => Some(running.since),
            Slot::Pausing | Slot::Done => None,
        });
        let is_stuck = oldest
            .min()
            .is_some_and(|since| since + PATIENCE < shard.now());
        let is_silent = self.heard_at + SILENCE < shard.now();
        if is_stuck || is_silent {
            return self.lose(shard);
        }
        if self.is_up {
            self.peer.keep_alive();
        }
    }

    /// Takes what the peer has heard, and sends what waits.
    fn go_on(&mut self, shard: &mut Shard) {
        loop {
            let went_on = match self.peer.next(shard) {
                Ok(Some(event)) => {
                    self.heard(shard, event);
                    continue;
                }
                Ok(None) => self.peer.flush(shard),
                Err(Lost) => Err(Lost),
            };
            if went_on.is_err() {
                self.lose(shard);
            }
            return;
        }
    }
}

impl Task for User {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        if self.peer.completed(slot, completion).is_err() {
            return self.lose(shard);
        }
        self.go_on(shard);
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        match slot {
            TICK_SLOT => self.tick(shard),
            CONNECT_SLOT => self.connect(shard),
            _ => {
                let slot = usize::try_from(slot).expect("an index");
                match std::mem::replace(&mut self.slots[slot], Slot::Pausing) {
                    Slot::Pausing => self.submit(shard, slot),
                    Slot::Waiting(running) => self.send(shard, slot, running),
                    // A timer from before the connection was lost.
                    other => self.slots[slot] = other,
                }
            }
        }
        self.go_on(shard);
    }
}

const TICK_SLOT: u32 = 1000;
const CONNECT_SLOT: u32 = 1001;
/// How often a user looks after its connection, and sends a keep-alive.
const TICK: Duration = Duration::from_secs(1);
/// A target that says nothing for this time is gone.
const SILENCE: Duration = Duration::from_secs(6);
/// A command without an answer for this time costs the connection.
const PATIENCE: Duration = Duration::from_secs(25);
/// The pause before a command that cannot be sent now.
const NOT_NOW: Duration = Duration::from_millis(50);
/// The pause before a command is sent again.
const AGAIN: Duration = Duration::from_millis(5);
/// The target drops the connection of a silent host, and the disk ends its requests, within this
/// time.
const OVER: Duration = Duration::from_secs(90);

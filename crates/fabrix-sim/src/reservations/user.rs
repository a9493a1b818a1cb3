//! The user of a peer: sends the commands that it draws, a few at a time, and looks after the
//! connection.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fabrix_rt::{Completion, Nanos, Shard, Task, TaskId, Token};

use super::draw::{Commands, Wish};
use super::shared::{Open, Shared};
use crate::choices::Choices;
use crate::hosts::Protocol;
use crate::peer::{Answer, Ask, Event, HostId, Lost, Peer};
use crate::report::Report;
use crate::trace::{self, Entry};

/// The user. It runs on a shard of its host.
pub(crate) struct User {
    task: TaskId,
    peer: Box<dyn Peer>,
    shared: Shared,
    commands: Commands,
    is_up: bool,
    /// The last sign of life of the target, or the begin of the attempt to connect.
    heard_at: Nanos,
    losses: u64,
    begun: u64,
    ended: u64,
    failed: u64,
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
    /// Its number among the commands of the host. The first one is 1.
    number: u64,
    ask: Ask,
    open: Open,
    since: Nanos,
    /// How often the target had been killed before.
    kills: u64,
}

impl Running {
    fn entry(&self, host: HostId, what: &str) -> Entry {
        let entry =
            |ask: &str| Entry::new(name(host), format!("{what} {ask}")).request(self.number);
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
            peer,
            commands: Commands {
                host,
                protocol: if is_nvme {
                    Protocol::Nvme
                } else {
                    Protocol::Iscsi
                },
                shared: shared.clone(),
                choices,
                wish,
                key: 0,
            },
            shared,
            is_up: false,
            heard_at: shard.now(),
            losses: 0,
            begun: 0,
            ended: 0,
            failed: 0,
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
        self.ended == self.commands.wish.requests
    }

    /// Adds what came of the user.
    pub(crate) fn report(&self, report: &mut Report) {
        report.ended += self.ended;
        report.failed += self.failed;
        report.losses += self.losses;
        report.faults.extend(self.faults.iter().cloned());
        if !self.has_ended() {
            let missing = self.commands.wish.requests - self.ended;
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
        let pause = self.commands.pause();
        self.slots[slot] = Slot::Pausing;
        self.wait(shard, u32::try_from(slot).expect("few"), pause);
    }

    fn submit(&mut self, shard: &mut Shard, slot: usize) {
        if self.begun == self.commands.wish.requests {
            self.slots[slot] = Slot::Done;
            return;
        }
        if !self.is_up || (slot == 0 && self.lost_changes() > 1) {
            return self.wait(shard, u32::try_from(slot).expect("few"), NOT_NOW);
        }
        self.begun += 1;
        let (ask, open) = match slot {
            0 => self.commands.change(),
            _ => self.commands.access(),
        };
        let running = Running {
            number: self.begun,
            ask,
            open,
            since: shard.now(),
            kills: self.shared.kills(),
        };
        self.send(shard, slot, running);
    }

    fn send(&mut self, shard: &mut Shard, slot: usize, running: Running) {
        let number = u16::try_from(slot).expect("few");
        if self.peer.send(shard, number, &running.ask) {
            trace::note(|| running.entry(self.commands.host, "begins"));
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
            Answer::Done(_) => running.entry(self.commands.host, "is done with"),
            other => running.entry(self.commands.host, &format!("gets {other:?} for")),
        });
        let is_access = matches!(running.open, Open::Read { .. } | Open::Write { .. });
        if answer == Answer::Again && !is_access {
            self.slots[slot] = Slot::Waiting(running);
            return self.wait(shard, u32::try_from(slot).expect("few"), AGAIN);
        }
        self.ended += 1;
        self.failed += u64::from(!matches!(answer, Answer::Done(_) | Answer::Keys(..)));
        if let Err(fault) = self.shared.ends(running.open, answer) {
            trace::note(|| Entry::new(trace::CHECKER, fault.clone()));
            self.faults.push(fault);
        }
        self.pause(shard, slot);
    }

    /// The connection is lost: nobody knows how the commands in progress end.
    fn lose(&mut self, shard: &mut Shard) {
        trace::note(|| Entry::new(name(self.commands.host), "has lost its connection"));
        self.peer.close();
        self.losses += u64::from(self.is_up);
        self.is_up = false;
        self.heard_at = shard.now();
        let kills = self.shared.kills();
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
            self.shared.is_lost(&running.open);
            self.lost.push((until, running.open));
            self.pause(shard, slot);
        }
        self.bury(shard.now());
        let delay = self.commands.pause_to_connect();
        self.wait(shard, CONNECT_SLOT, delay);
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
            self.shared.is_over(open);
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

//! `serve --gateway-group`: several gateways serve the same images of Ceph, each ANA group by one
//! of them at a time.
//!
//! [`fabrix_gateways::Gateway`] decides, `actions` does what it says at the cluster and at the
//! exports, and `neighbours` notices at once when the process of another gateway ends. A thread of
//! this module runs all of that. Hosts are served without it.

mod actions;
mod checks;
mod neighbours;
mod start;

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fabrix_gateways::{Action, BEAT, Gateway, Outcome};
use fabrix_rbd::GroupStore;

use self::neighbours::Neighbours;
pub(crate) use self::start::{Group, Wanted};
use crate::locks::lock;
use crate::log::{self, Level};
use crate::served::Served;

/// What the thread of a group is told.
pub(crate) enum Event {
    /// The state has changed.
    Changed,
    /// The process of another gateway has ended: its address for neighbours.
    Ended(SocketAddr),
    /// The user wants this gateway to serve an ANA group.
    Want(u32),
    /// The program is about to end.
    Leave,
}

/// The running member of a group.
pub(crate) struct Member {
    events: SyncSender<Event>,
    /// Ends with the thread.
    running: Mutex<Receiver<Never>>,
}

/// What is never sent.
pub(crate) enum Never {}

impl Member {
    /// Gives everything to the other gateways. Waits for that, [`LEAVE_WITHIN`] at most.
    pub(crate) fn leave(&self) {
        let until = Instant::now() + LEAVE_WITHIN;
        // The thread may be in an action that waits for the cluster, and hear nothing.
        while let Err(TrySendError::Full(_)) = self.events.try_send(Event::Leave) {
            if Instant::now() >= until {
                break;
            }
            thread::sleep(BEAT / 10);
        }
        let left = until.saturating_duration_since(Instant::now());
        let running = lock(&self.running);
        if let Err(RecvTimeoutError::Timeout) = running.recv_timeout(left) {
            log::warn(format_args!(
                "the gateway group was not left in order: the others take over when they miss this gateway"
            ));
        }
    }
}

/// Longest time to leave a group. The others take over from who has not left.
const LEAVE_WITHIN: Duration = Duration::from_secs(8);

/// What the thread of a group has.
struct Thread {
    gateway: Gateway,
    store: Arc<GroupStore>,
    served: Arc<Served>,
    neighbours: Neighbours,
    events: Receiver<Event>,
    /// The time of the machine begins here.
    began: Instant,
    /// Dropped at the end of the thread.
    _running: SyncSender<Never>,
    /// What was said last of something that has failed, so that it is said once.
    said: String,
}

impl Thread {
    fn run(mut self) {
        loop {
            self.gateway.hosts_are_connected(self.served.has_hosts());
            match self.gateway.next(self.now()) {
                Ok(Action::Leave) => return,
                Ok(Action::Wait(until)) => {
                    self.wait(until.saturating_sub(self.now()));
                    let now = self.now();
                    self.gateway.ended(Outcome::Done, now);
                }
                Ok(action) => self.act(&action),
                Err(refusal) => {
                    self.refused(&refusal);
                    self.wait(BEAT);
                    self.gateway.look_again();
                }
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits for an event. What has come meanwhile is heard with it.
    fn wait(&mut self, at_most: Duration) {
        match self.events.recv_timeout(at_most) {
            Ok(event) => self.told(&event),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        while let Ok(event) = self.events.try_recv() {
            self.told(&event);
        }
    }

    fn told(&mut self, event: &Event) {
        match event {
            Event::Changed => self.gateway.look_again(),
            Event::Ended(neighbour) => {
                self.gateway.peer_ended(&neighbour.to_string());
                self.gateway.look_again();
            }
            Event::Want(group) => self.gateway.want(*group),
            Event::Leave => self.gateway.leave(),
        }
    }

    /// Does an action, and lets hosts and other gateways know what follows from it.
    fn act(&mut self, action: &Action) {
        let before = self.gateway.serving().clone();
        let outcome = self.carry_out(action);
        let now = self.now();
        self.gateway.ended(outcome, now);
        if before != *self.gateway.serving() {
            self.say_what_is_served(action);
        }
        if matches!(action, Action::Write(..)) {
            self.neighbours.ring();
        }
        self.follow_state();
    }

    /// Brings what the state says to hosts and to the neighbours.
    fn follow_state(&mut self) {
        let (Some(state), seat) = (self.gateway.state(), self.gateway.seat()) else {
            return;
        };
        self.neighbours.follow(state);
        if let Err(failure) = self.served.follow_group(state, seat) {
            let sentence = format!("hosts cannot be told of the gateways: {failure}");
            self.say_once(sentence);
        }
    }

    fn say_what_is_served(&self, action: &Action) {
        let groups: Vec<String> = self.gateway.serving().iter().map(u32::to_string).collect();
        let groups = match groups.is_empty() {
            true => "no ANA group".to_owned(),
            false => format!("ANA group {}", groups.join(", ")),
        };
        let why = match action {
            Action::GiveUp => ": the cluster is away, or has shut this gateway out",
            _ => "",
        };
        log::say(
            Level::Info,
            format_args!("this gateway serves {groups}{why}"),
        );
    }

    fn say_once(&mut self, sentence: String) {
        if self.said != sentence {
            log::warn(&sentence);
            self.said = sentence;
        }
    }
}

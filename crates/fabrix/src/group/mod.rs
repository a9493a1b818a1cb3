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
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
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
    events: Sender<Event>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Member {
    /// Gives everything to the other gateways. Waits for that, [`LEAVE_WITHIN`] at most.
    pub(crate) fn leave(&self) {
        let _ended = self.events.send(Event::Leave);
        if let Some(thread) = lock(&self.thread).take() {
            let _panicked = thread.join();
        }
    }
}

/// Longest time to leave a group. The others take over from who has not left.
const LEAVE_WITHIN: Duration = Duration::from_secs(8);

/// What the thread of a group has.
struct Thread {
    gateway: Gateway,
    store: GroupStore,
    served: Arc<Served>,
    neighbours: Neighbours,
    events: Receiver<Event>,
    /// The time of the machine begins here.
    began: Instant,
    /// When the group has to be left.
    leave_by: Option<Instant>,
    /// What was said last of something that has failed, so that it is said once.
    said: String,
}

impl Thread {
    fn run(mut self) {
        while self.leave_by.is_none_or(|until| Instant::now() < until) {
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
        log::warn(format_args!(
            "the gateway group was not left in order: the others take over when they miss this gateway"
        ));
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits for an event.
    fn wait(&mut self, at_most: Duration) {
        match self.events.recv_timeout(at_most) {
            Ok(event) => self.told(&event),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
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
            Event::Leave => {
                self.leave_by = Some(Instant::now() + LEAVE_WITHIN);
                self.gateway.leave();
            }
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

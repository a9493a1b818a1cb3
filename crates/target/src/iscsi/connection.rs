//! One connection of an initiator, from accept to the last byte; it is a session of its own.
//!
//! Knows the life of a connection: a login, then a session with commands or a discovery session, then ending. What
//! commands do is in `session`. An unknown peer has a deadline, a small buffer, and no disk.

use std::any::Any;
use std::cell::RefCell;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU16;
use std::rc::Rc;
use std::time::Duration;

use fabrix_proto::iscsi::login::{Admission, Auth, Grant};
use fabrix_proto::iscsi::pdu::LoginStatus;
use fabrix_proto::iscsi::target::{Event, Scope, Target, TargetLimits};
use fabrix_proto::{Nanos, Slot};
use fabrix_rt::{Completion, Shard, Socket, Task, TaskId, TimerId, Token};
use fabrix_transport::{Ended, Stream, StreamSlots, pass};

use super::session::{DISK_SLOTS, Desk, Session};
use super::sessions::Entering;
use super::units::PORTAL_GROUP_TAG;
use crate::Notice;
use crate::disk::{ERRAND_AGAIN, Stop};
use crate::local::{Local, Told};
use crate::registry::Place;

/// The connection's own slots of its task.
const STREAM: StreamSlots = StreamSlots {
    receive: 0,
    send: 1,
};
const DEADLINE: u32 = 2;
const RETRY: u32 = 3;
const ENTER: u32 = 4;
const ERRANDS: u32 = 5;

/// Events taken at once: then other connections have their turn.
const EVENTS_AT_ONCE: usize = 128;
/// How soon a request is tried again that a disk had no room for, when no ending of our own will wake us.
const RETRY_AFTER: Duration = Duration::from_millis(1);
/// How soon a login looks again whether the session that it replaces has ended; the login's deadline bounds it.
const ENTER_AFTER: Duration = Duration::from_millis(5);
/// Data of one write: twice the longest transfer, because COMPARE AND WRITE has two halves.
const WRITE_BYTES_MAX: u32 = 2 << 20;
/// Writes that came whole and are not longer are handed out where they were received.
const INLINE_BYTES_MAX: u32 = 8 << 10;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Open,
    /// Answers what it has begun, and refuses what comes.
    Draining,
    /// Has said goodbye; what still comes is dropped.
    Parting,
    /// Closed; waits for the kernel and the disks to be done.
    Ending,
    /// Nothing is left of it.
    Gone,
}

/// The task of one connection.
pub(crate) struct Connection {
    task: TaskId,
    stream: Stream<Target>,
    local: Rc<Local>,
    session: Option<Box<Session>>,
    /// The session's number, from the moment the login may succeed.
    tsih: Option<NonZeroU16>,
    phase: Phase,
    peer: Option<SocketAddr>,
    deadline: Option<TimerId>,
    retrying: bool,
    leaving: bool,
    /// A timer will look at what takes more than one turn.
    errands_awaited: bool,
    /// Events may be waiting in the stream that were not taken yet.
    has_more: bool,
}

impl Connection {
    /// Takes over an accepted connection.
    pub(crate) fn adopt(shard: &mut Shard, stream: TcpStream, local: &Rc<Local>) {
        let peer = stream.peer_addr().ok();
        // Answers leave when they are ready: one send carries all of a turn.
        let _only_slower = stream.set_nodelay(true);
        let socket = Socket::from(stream);
        let task = shard.reserve();
        let login = local.shared.deadlines.connect.as_millis();
        let limits = TargetLimits {
            max_write_bytes: WRITE_BYTES_MAX,
            max_inline_bytes: INLINE_BYTES_MAX,
            login_ms: u64::try_from(login).unwrap_or(u64::MAX),
            ..TargetLimits::default()
        };
        let machine = Target::new(limits, pass::crc32c, Nanos(shard.now().0));
        let slots = usize::from(limits.slots());
        let mut stream = Stream::new(machine, socket, task, STREAM, slots);
        stream.limit_backlog();
        let connection = Rc::new(RefCell::new(Self {
            task,
            stream,
            local: Rc::clone(local),
            session: None,
            tsih: None,
            phase: Phase::Open,
            peer,
            deadline: None,
            retrying: false,
            leaving: false,
            errands_awaited: false,
            has_more: false,
        }));
        local.joined(task);
        shard.install(task, Rc::clone(&connection) as Rc<RefCell<dyn Task>>);
        let mut connection = connection.borrow_mut();
        connection.watch(shard);
        connection.flush(shard);
    }

    /// Takes events until none is left, the peer does not read its answers, or others should have their turn.
    fn take_events(&mut self, shard: &mut Shard) {
        self.has_more = false;
        for _ in 0..EVENTS_AT_ONCE {
            if self.phase >= Phase::Parting {
                return;
            }
            if self.stream.backlogged() {
                break;
            }
            match self.stream.next() {
                Ok(Some(event)) => self.event(shard, event),
                Ok(None) => return,
                Err(ended) => return self.ended(shard, ended),
            }
        }
        self.has_more = true;
    }

    fn event(&mut self, shard: &mut Shard, event: Event) {
        match event {
            Event::Authorize => self.authorize(shard),
            Event::LoginFailed(refusal) => {
                self.local.shared.notice(&Notice::Refused {
                    peer: self.peer,
                    why: refusal.sentence.to_owned(),
                });
                self.part(shard);
            }
            Event::LoggedIn => self.logged_in(),
            Event::Silent => self.end(shard),
            Event::SendTargets(scope) => self.name_targets(&scope),
            Event::Logout(_) => {
                self.leaving = true;
                if let Some((session, mut desk)) = self.at_work(shard) {
                    session.abort_all(&mut desk);
                }
                self.leave_if_asked(shard);
            }
            event => self.session_event(shard, &event),
        }
    }

    /// What concerns commands.
    fn session_event(&mut self, shard: &mut Shard, event: &Event) {
        let draining = self.phase == Phase::Draining;
        let Some((session, mut desk)) = self.at_work(shard) else {
            return debug_assert!(false, "only sessions have commands");
        };
        let desk = &mut desk;
        match *event {
            Event::Command { slot, .. } if draining => session.refuse(desk, slot),
            Event::Command {
                slot,
                cdb,
                lun,
                transfer,
                intact,
                ..
            } => session.command(desk, slot, (&cdb, lun), transfer, intact),
            Event::Fetched { slot, intact } => session.fetched(desk, slot, intact),
            Event::Released { slot } => {
                session.released(desk, slot);
                self.leave_if_asked(shard);
            }
            Event::TaskManagement {
                id,
                function,
                lun,
                referenced,
            } => session.manage(desk, id, (function, lun), referenced),
            _ => {}
        }
    }

    /// The session, and what it works with.
    fn at_work<'a>(&'a mut self, shard: &'a mut Shard) -> Option<(&'a mut Session, Desk<'a>)> {
        let session = self.session.as_deref_mut()?;
        let desk = Desk {
            shard,
            stream: &mut self.stream,
            local: &self.local,
            task: self.task,
        };
        Some((session, desk))
    }

    /// Somebody wants to log in.
    fn authorize(&mut self, shard: &mut Shard) {
        let Some(leading) = self.stream.machine().leading() else {
            return;
        };
        let (units, anybody) = self.local.units();
        let known = leading.target.as_deref();
        let is_ours = known.is_none_or(|name| name == units.target.name.to_ascii_lowercase());
        let place = self.local.place(self.task);
        let admission = if !anybody {
            Admission::Refuse(LoginStatus::FORBIDDEN)
        } else if !is_ours {
            Admission::Refuse(LoginStatus::NOT_FOUND)
        } else if self.phase != Phase::Open {
            Admission::Refuse(LoginStatus::UNAVAILABLE)
        } else {
            match self.local.shared.sessions.enter(leading, place) {
                Entering::Entered(tsih) => {
                    self.tsih = Some(tsih);
                    Admission::Admit(Grant {
                        tsih,
                        portal_group_tag: PORTAL_GROUP_TAG,
                        auth: Auth::None,
                    })
                }
                Entering::Full => Admission::Refuse(LoginStatus::OUT_OF_RESOURCES),
                Entering::Occupied(older) => return self.replace(shard, &older),
            }
        };
        let (machine, mut out) = self.stream.speak();
        if let Some(event) = machine.admit(admission, &mut out) {
            self.event(shard, event);
        }
    }

    /// Tells the session that stands in the way to end, and comes back. A mailbox that is full is told the next time.
    fn replace(&mut self, shard: &mut Shard, older: &Place) {
        let _told_again = older.shard.send(older.task, Box::new(Told::Close));
        let token = Token {
            task: self.task,
            slot: ENTER,
        };
        let at = shard.now() + ENTER_AFTER;
        shard.set_timer(token, at);
    }

    fn logged_in(&mut self) {
        let Some(session) = self.stream.machine().session() else {
            return;
        };
        let (leading, tsih) = (&session.leading, session.tsih);
        self.local.shared.notice(&Notice::LoggedIn {
            initiator: leading.initiator.to_string(),
            session: tsih.get(),
            peer: self.peer,
        });
        if !leading.discovery {
            let (units, _) = self.local.units();
            let slots = usize::from(TargetLimits::default().slots());
            let place = self.local.place(self.task);
            self.session = Some(Box::new(Session::new(place, leading, units, slots)));
        }
    }

    /// SendTargets: one target, at all addresses where it listens, the one that was reached first.
    fn name_targets(&mut self, scope: &Scope) {
        let (units, _) = self.local.units();
        let name = &units.target.name;
        let wanted = match scope {
            Scope::All | Scope::Session => true,
            Scope::Named(wanted) => **wanted == *name,
        };
        let here = self.stream.socket().local_addr().ok();
        let mut portals: Vec<SocketAddr> = here.into_iter().collect();
        for mut portal in self.local.portals() {
            if let Some(here) = here.filter(|_| portal.ip().is_unspecified()) {
                portal.set_ip(here.ip());
            }
            if !portals.contains(&portal) {
                portals.push(portal);
            }
        }
        let texts: Vec<_> = portals
            .iter()
            .map(|portal| format!("{portal},{PORTAL_GROUP_TAG}"))
            .collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let named = wanted.then_some((name.as_str(), &texts[..]));
        let (machine, mut out) = self.stream.speak();
        machine.answer_targets(named, &mut out);
    }

    /// Answers a logout when nothing is in progress any more.
    fn leave_if_asked(&mut self, shard: &mut Shard) {
        if !self.leaving || self.phase >= Phase::Parting || self.stream.machine().slots_in_use() > 0
        {
            return;
        }
        let (machine, mut out) = self.stream.speak();
        machine.answer_logout(&mut out);
        self.part(shard);
    }

    /// Sets the deadline that the machine asks for; one that is ending has another.
    fn watch(&mut self, shard: &mut Shard) {
        if self.phase == Phase::Open {
            let at = self.stream.machine().deadline();
            self.set_deadline(shard, fabrix_rt::Nanos(at.0));
        }
    }

    fn set_deadline(&mut self, shard: &mut Shard, at: fabrix_rt::Nanos) {
        let token = Token {
            task: self.task,
            slot: DEADLINE,
        };
        let timer = shard.set_timer(token, at);
        if let Some(earlier) = self.deadline.replace(timer) {
            shard.cancel_timer(earlier);
        }
    }

    /// Nothing more comes from the stream.
    fn ended(&mut self, shard: &mut Shard, ended: Ended) {
        match ended {
            Ended::Closed | Ended::Socket(_) => self.end(shard),
            Ended::Violation(violation) => {
                self.local.shared.notice(&Notice::Violation {
                    peer: self.peer,
                    what: violation.to_string(),
                });
                self.part(shard);
            }
        }
    }

    /// Lets the goodbye out and drops what still comes.
    fn part(&mut self, shard: &mut Shard) {
        self.phase = Phase::Parting;
        self.stream.discard();
        self.await_parting(shard);
        shard.flush_later(self.task);
    }

    /// From now on the peer has to do its part in time.
    fn await_parting(&mut self, shard: &mut Shard) {
        let at = shard.now() + self.local.shared.deadlines.parting;
        self.set_deadline(shard, at);
    }

    /// Finishes what has begun, then closes.
    fn drain(&mut self, shard: &mut Shard) {
        if self.phase != Phase::Open {
            return;
        }
        self.phase = Phase::Draining;
        self.await_parting(shard);
        shard.flush_later(self.task);
    }

    /// Whether what a draining connection waits for is not its initiator's part.
    fn waits_for_others(&self) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|it| it.at_disk > 0 || it.is_stalled() || it.has_errands())
    }

    /// Closes; the task goes when the kernel and the disks have given back what is theirs.
    fn end(&mut self, shard: &mut Shard) {
        if self.phase < Phase::Ending {
            self.phase = Phase::Ending;
            self.stream.close();
            if let Some(session) = &mut self.session {
                session.give_up();
            }
        }
        self.leave_when_quiet(shard);
    }

    fn leave_when_quiet(&mut self, shard: &mut Shard) {
        let at_disk = self.session.as_ref().map_or(0, |session| session.at_disk);
        if self.phase != Phase::Ending || !self.stream.is_quiet() || at_disk > 0 {
            return;
        }
        self.phase = Phase::Gone;
        if let Some(timer) = self.deadline.take() {
            shard.cancel_timer(timer);
        }
        if let Some(mut session) = self.session.take() {
            session.leave();
        }
        if let Some(tsih) = self.tsih.take() {
            self.local.shared.sessions.leave(tsih);
            self.local.shared.notice(&Notice::LoggedOut {
                session: tsih.get(),
            });
        }
        self.local.left(self.task);
        shard.remove(self.task);
    }

    fn disk_answered(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let slot = Slot(u16::try_from(slot - DISK_SLOTS).expect("the slot came from a slot"));
        if let Some((session, mut desk)) = self.at_work(shard) {
            session.disk_answered(&mut desk, slot, completion);
        }
        if self.phase == Phase::Draining {
            // The initiator's part, to read the answer, begins only now.
            self.await_parting(shard);
        }
        self.leave_if_asked(shard);
    }

    /// Tries again what a busy disk refused, unless nobody waits for it any more.
    fn retry(&mut self, shard: &mut Shard) {
        self.retrying = false;
        if self.phase >= Phase::Parting {
            return;
        }
        if let Some((session, mut desk)) = self.at_work(shard) {
            session.retry(&mut desk);
        }
        shard.flush_later(self.task);
    }

    /// Makes sure that what a busy disk refused is tried again.
    fn arrange_retry(&mut self, shard: &mut Shard) {
        let stalled = self.session.as_ref().is_some_and(|it| it.is_stalled());
        if stalled && !self.retrying {
            self.retrying = true;
            let token = Token {
                task: self.task,
                slot: RETRY,
            };
            let at = shard.now() + RETRY_AFTER;
            shard.set_timer(token, at);
        }
    }

    /// Makes sure that what takes more than one turn is looked at again.
    fn arrange_errands(&mut self, shard: &mut Shard) {
        let has_errands = self.session.as_ref().is_some_and(|it| it.has_errands());
        if has_errands && !self.errands_awaited {
            self.errands_awaited = true;
            let token = Token {
                task: self.task,
                slot: ERRANDS,
            };
            let at = shard.now() + ERRAND_AGAIN;
            shard.set_timer(token, at);
        }
    }

    /// Looks at what takes more than one turn, unless nobody waits for it any more.
    fn run_errands(&mut self, shard: &mut Shard) {
        self.errands_awaited = false;
        if self.phase >= Phase::Parting {
            return;
        }
        if let Some((session, mut desk)) = self.at_work(shard) {
            session.run_errands(&mut desk);
        }
        self.leave_if_asked(shard);
        shard.flush_later(self.task);
    }

    /// Another connection wants commands of this one to end.
    fn stop(&mut self, shard: &mut Shard, stop: Stop) {
        if let Some((session, mut desk)) = self.at_work(shard) {
            session.stop(&mut desk, stop);
        }
        self.leave_if_asked(shard);
        if self.phase < Phase::Ending {
            shard.flush_later(self.task);
        }
    }

    /// The machine's time has come: a login took too long, or an initiator is to be pinged.
    fn tick(&mut self, shard: &mut Shard) {
        let now = Nanos(shard.now().0);
        let (machine, mut out) = self.stream.speak();
        if let Some(event) = machine.tick(now, &mut out) {
            self.event(shard, event);
        }
        self.watch(shard);
        shard.flush_later(self.task);
    }

    /// The session sees what its shard serves now; one that may no more be here ends.
    fn serve(&mut self, shard: &mut Shard) {
        let (units, anybody) = self.local.units();
        if !anybody {
            return self.end(shard);
        }
        if let Some(session) = &mut self.session {
            session.serve(units);
        }
    }
}

impl Task for Connection {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let outcome = match slot {
            slot if slot == STREAM.receive => self.stream.received(completion),
            slot if slot == STREAM.send => self.stream.sent(completion),
            slot => {
                self.disk_answered(shard, slot, completion);
                Ok(())
            }
        };
        match outcome {
            Ok(()) if self.has_more => {}
            Ok(()) => self.take_events(shard),
            Err(_) => self.end(shard),
        }
        if self.phase >= Phase::Ending {
            self.leave_when_quiet(shard);
        } else {
            shard.flush_later(self.task);
        }
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        match slot {
            RETRY => self.retry(shard),
            ERRANDS => self.run_errands(shard),
            ENTER if self.phase == Phase::Open && self.tsih.is_none() => {
                self.authorize(shard);
                shard.flush_later(self.task);
            }
            ENTER => {}
            _ => {
                self.deadline = None;
                match self.phase {
                    Phase::Open => self.tick(shard),
                    Phase::Draining if self.waits_for_others() => self.await_parting(shard),
                    _ => self.end(shard),
                }
            }
        }
    }

    fn flush(&mut self, shard: &mut Shard) {
        if self.has_more {
            self.take_events(shard);
        }
        if self.phase >= Phase::Ending {
            return;
        }
        if self.stream.flush(shard).is_err() {
            return self.end(shard);
        }
        if self.has_more && !self.stream.backlogged() {
            shard.flush_later(self.task);
        }
        self.arrange_retry(shard);
        self.arrange_errands(shard);
        let busy = self.stream.machine().slots_in_use() > 0;
        if self.phase == Phase::Draining && !busy && self.stream.is_drained() {
            self.end(shard);
        }
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let message = match message.downcast::<Stop>() {
            Ok(stop) => return self.stop(shard, *stop),
            Err(other) => other,
        };
        match message.downcast_ref() {
            Some(Told::Drain) => self.drain(shard),
            Some(Told::Close) => self.end(shard),
            Some(Told::Served) => self.serve(shard),
            Some(Told::Quiesced | Told::Announced | Told::Noticed) => {}
            None => debug_assert!(false, "connections are told these things only"),
        }
    }
}

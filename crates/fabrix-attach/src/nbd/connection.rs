//! One NBD client, from the greeting to the end of its connection. `disk` submits its requests and
//! sends the answers.

mod disk;

use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fabrix_proto::nbd::server::{Event, Server};
use fabrix_rt::{Completion, Shard, Socket, Task, TaskId, TimerId, Token};
use fabrix_transport::{Connection as _, Ended, Stream, StreamSlots};

use super::{Common, ConnectionMessage};
use crate::FrontEndEvent;
use crate::job::Job;
use crate::work::Work;

const STREAM: StreamSlots = StreamSlots {
    receive: 0,
    send: 1,
};
const DEADLINE: u32 = 2;
const RETRY: u32 = 3;
/// Completions of the disk: this number plus the slot number.
const DISK_SLOTS: u32 = 16;

/// Largest number of requests in progress per connection.
const SLOTS: u16 = 128;
/// Time limit for the negotiation.
const NEGOTIATION: Duration = Duration::from_secs(10);
/// Largest number of events handled per turn, so that other tasks can run.
const EVENTS_AT_ONCE: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ConnectionState {
    Open,
    /// The client has sent NBD_CMD_DISC. Requests in progress are still answered.
    Disconnecting,
    /// Closed, while the kernel or the disk still has requests.
    Draining,
    Removed,
}

pub(super) struct Connection {
    task: TaskId,
    stream: Stream<Server>,
    common: Rc<Common>,
    work: Work<Job>,
    state: ConnectionState,
    deadline: Option<TimerId>,
    has_more: bool,
}

impl Connection {
    /// Starts a connection with negotiation.
    pub(super) fn adopt(shard: &mut Shard, socket: Socket, common: &Rc<Common>) {
        let task = shard.reserve();
        let machine = Server::new(common.export.borrow().clone(), SLOTS);
        let mut stream = Stream::new(machine, socket, task, STREAM, usize::from(SLOTS));
        let (machine, mut out) = stream.speak();
        machine.greet(&mut out);
        let token = Token {
            task,
            slot: DEADLINE,
        };
        let at = shard.now() + NEGOTIATION;
        let deadline = Some(shard.set_timer(token, at));
        Self::begin(shard, task, stream, deadline, common);
    }

    /// Starts a connection without negotiation, for the kernel's client.
    pub(super) fn adopt_begun(shard: &mut Shard, socket: Socket, common: &Rc<Common>) {
        let task = shard.reserve();
        let machine = Server::begun(common.export.borrow().clone(), SLOTS);
        let stream = Stream::new(machine, socket, task, STREAM, usize::from(SLOTS));
        Self::begin(shard, task, stream, None, common);
    }

    fn begin(
        shard: &mut Shard,
        task: TaskId,
        mut stream: Stream<Server>,
        deadline: Option<TimerId>,
        common: &Rc<Common>,
    ) {
        stream.set_answering();
        let mut connection = Self {
            task,
            stream,
            common: Rc::clone(common),
            work: Work::new(SLOTS, Token { task, slot: RETRY }),
            state: ConnectionState::Open,
            deadline,
            has_more: false,
        };
        connection.common.connection_started(task);
        connection.take_events(shard);
        shard.flush_later(task);
        shard.install(task, Rc::new(RefCell::new(connection)));
    }

    fn take_events(&mut self, shard: &mut Shard) {
        self.has_more = false;
        for _ in 0..EVENTS_AT_ONCE {
            if self.state != ConnectionState::Open {
                return;
            }
            if self.stream.backlogged() || self.stream.machine().is_full() {
                break;
            }
            match self.next_event() {
                Ok(Some(event)) => self.event(shard, event),
                Ok(None) => return,
                Err(ended) => return self.ended(shard, &ended),
            }
        }
        self.has_more = true;
    }

    /// The next event. Further pieces of a long request come before newly received requests.
    fn next_event(&mut self) -> Result<Option<Event>, Ended> {
        match self.stream.speak().0.piece() {
            None => self.stream.next(),
            piece => Ok(piece),
        }
    }

    fn event(&mut self, shard: &mut Shard, event: Event) {
        match event {
            Event::Long => {}
            Event::Ready => {
                if let Some(timer) = self.deadline.take() {
                    shard.cancel_timer(timer);
                }
            }
            Event::Command {
                slot,
                command,
                offset,
                bytes,
            } => self.command(shard, slot, command, offset, bytes),
            Event::Data { slot } => self.data(shard, slot),
            Event::Goodbye => {
                self.state = ConnectionState::Disconnecting;
                shard.flush_later(self.task);
            }
        }
    }

    fn ended(&mut self, shard: &mut Shard, ended: &Ended) {
        if let Ended::Violation(violation) = ended {
            (self.common.on_event)(FrontEndEvent::Violation(violation.sentence().to_owned()));
        }
        self.end(shard);
    }

    fn end(&mut self, shard: &mut Shard) {
        if self.state < ConnectionState::Draining {
            self.state = ConnectionState::Draining;
            self.stream.close();
            for slot in self.work.slots() {
                self.work.give_up(slot);
            }
        }
        self.remove_when_idle(shard);
    }

    fn remove_when_idle(&mut self, shard: &mut Shard) {
        if self.state != ConnectionState::Draining
            || !self.stream.is_quiet()
            || self.work.is_at_disk()
        {
            return;
        }
        self.state = ConnectionState::Removed;
        if let Some(timer) = self.deadline.take() {
            shard.cancel_timer(timer);
        }
        self.common.connection_ended(self.task);
        shard.remove(self.task);
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
            // A client that closes without NBD_CMD_DISC needs no more answers.
            Err(_) => self.end(shard),
            Ok(()) if self.has_more => {}
            Ok(()) => self.take_events(shard),
        }
        if self.state >= ConnectionState::Draining {
            self.remove_when_idle(shard);
        } else {
            shard.flush_later(self.task);
        }
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        if slot == RETRY {
            self.work.timer_expired();
            if self.state < ConnectionState::Draining {
                self.retry(shard);
                shard.flush_later(self.task);
            }
        } else {
            self.deadline = None;
            self.end(shard);
        }
    }

    fn flush(&mut self, shard: &mut Shard) {
        if self.has_more {
            self.take_events(shard);
        }
        if self.state >= ConnectionState::Draining {
            return;
        }
        if self.stream.flush(shard).is_err() {
            return self.end(shard);
        }
        let may_go_on = !self.stream.backlogged() && !self.stream.machine().is_full();
        if self.has_more && may_go_on {
            shard.flush_later(self.task);
        }
        let idle = self.stream.machine().in_progress() == 0;
        if self.state == ConnectionState::Disconnecting && idle && self.stream.is_drained() {
            self.end(shard);
        }
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        match message
            .downcast::<ConnectionMessage>()
            .map(|message| *message)
        {
            Ok(ConnectionMessage::Close) => self.end(shard),
            Ok(ConnectionMessage::Resized(bytes)) => self.stream.speak().0.resized(bytes),
            Err(_) => debug_assert!(false, "a connection gets its own messages only"),
        }
    }
}

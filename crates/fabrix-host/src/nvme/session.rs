//! A session with one controller, seen from one shard: an admin queue and I/O queues.
//!
//! Implements [`Protocol`] for NVMe. The parts are: `bringup`, `keep_alive`, `events`, `resets`,
//! `transfer` and `fused`.

use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::Slot;
use fabrix_proto::nvme::ana::AnaState;
use fabrix_proto::nvme::bringup::{Bringup, Facts};
use fabrix_proto::nvme::queue::HostEvent;
use fabrix_proto::nvme::spec::CompletionEntry;
use fabrix_rt::{Nanos, Shard, TaskId, Token};
use fabrix_transport::Ended;

use super::plan::{self, Plan};
use super::queue::{Command, NvmeLink};
use crate::connection::InFlight;
use crate::multipath::link::AssociationName;
use crate::session::{self, LastWords, Protocol, Types};
use crate::{ConnectError, ConnectErrorKind};

/// Answer to a command: its completion entry, the number of data bytes received, and whether their
/// digest was right.
pub(super) type Answer<'a> = (&'a CompletionEntry, u32, bool);

/// State of an NVMe session.
#[derive(Default)]
pub(crate) struct Nvme {
    /// Bring-up of each queue. None: the queue is connected.
    pub(super) bringups: Vec<Option<Bringup>>,
    /// Properties of the controller, as last read.
    pub(super) facts: Option<Arc<Facts>>,
    /// State of the disk's ANA group, as last read. None: nothing was read.
    pub(super) ana: Option<AnaState>,
    /// The ANA log page is asked for.
    pub(super) is_reading_states: bool,
    /// Resets of other controllers that are not answered.
    pub(super) resets: u8,
    /// Answers to requests until the last tick, and the time of that tick.
    pub(super) traffic: (u64, Nanos),
}

/// A session with a controller.
pub(crate) type Session<L> = session::Session<Nvme, L>;

impl Types for Nvme {
    type Plan = Plan;
    type Found = Arc<Facts>;
    type Command = Command;
}

impl<L: NvmeLink> Protocol<L> for Nvme {
    const KEEP_ALIVE: &'static str = "Keep Alive";
    const QUIESCE_TIMEOUT: &'static str = "the target ends its queues and does not close them";

    fn open(session: &mut Session<L>, shard: &mut Shard) -> Result<(), ConnectError> {
        let admin = Bringup::new(plan::config(&session.plan));
        session.open_queue(shard, admin, plan::ADMIN_SLOTS)
    }

    #[inline(always)]
    fn event(session: &mut Session<L>, shard: &mut Shard, index: usize, event: HostEvent) {
        match event {
            HostEvent::Ready => session.step(shard, index),
            HostEvent::Completed {
                slot,
                data_bytes,
                intact,
            } => {
                let entry = session.connections[index].entry();
                session.answered(shard, (index, slot), (&entry, data_bytes, intact));
            }
            HostEvent::Terminated => {
                let sentence = session.connections[index].termination();
                session.disconnect_with(shard, ConnectErrorKind::Protocol, sentence);
            }
        }
    }

    fn step(session: &mut Session<L>, shard: &mut Shard) {
        session.step(shard, 0);
    }

    fn too_slow(session: &Session<L>, within: Duration) -> ConnectError {
        session.too_slow(within)
    }

    fn error_prefix(index: usize) -> String {
        format!("I/O connection {index}: ")
    }

    fn end_error(session: &mut Session<L>, index: usize, ended: &Ended) -> ConnectError {
        let queue = match index {
            0 => "the admin connection".to_owned(),
            index => format!("I/O connection {index}"),
        };
        match ended {
            Ended::Closed => {
                let sentence = format!("{queue} was closed by the target");
                ConnectError::new(ConnectErrorKind::Closed, sentence)
            }
            Ended::Socket(errno) => ConnectError::socket(&queue, -errno),
            Ended::Rdma(failure) if !session.connections[index].is_connected() => {
                ConnectError::rdma_not_connected(failure)
            }
            Ended::Rdma(failure) => ConnectError::rdma_lost(&queue, failure),
            Ended::Violation(violation) => {
                session.terminating = Some((index, LastWords::Termination));
                let sentence = format!("{queue}: the target broke the protocol: {violation}");
                ConnectError::new(ConnectErrorKind::Protocol, sentence)
            }
        }
    }

    fn tick_period(session: &Session<L>) -> Option<Duration> {
        // Two ticks in a period count the answers, so that the controller gets a command in each.
        let parts = if session.is_renewed_by_traffic() {
            2
        } else {
            1
        };
        session.keep_alive_period().map(|period| period / parts)
    }

    /// A controller without keep-alive reports KAS 0.
    fn has_keep_alive(session: &Session<L>) -> bool {
        let facts = session.protocol.facts.as_ref();
        facts.is_some_and(|facts| facts.controller.keep_alive_unit_ms.is_some())
    }

    /// The controller notices within two keep-alive timeouts, or three if every command restarts
    /// its timer, and quiesces within CQT. Source: TP4129 (KATO corrections and clarifications).
    fn quiet_within(session: &Session<L>) -> Duration {
        let timeouts = 2 + u32::from(session.is_renewed_by_traffic());
        let facts = session.protocol.facts.as_ref();
        let quiesce = facts.map_or(0, |facts| facts.controller.quiesce_ms);
        session.keep_alive_timeout() * timeouts + Duration::from_millis(quiesce.into())
    }

    const REPLACES: bool = false;

    fn association(session: &Session<L>) -> Option<AssociationName> {
        session.controller_name()
    }

    fn end_association(
        session: &mut Session<L>,
        shard: &mut Shard,
        lost: &AssociationName,
        answer: Token,
    ) -> bool {
        session.reset_other(shard, lost, answer)
    }

    fn keep_alive(session: &mut Session<L>, shard: &mut Shard) {
        session.count_traffic(shard.now());
        // A group leaves this state by itself, and the event may be lost.
        if session.protocol.ana == Some(AnaState::Change) {
            session.read_states_again(shard);
        }
        if session.is_keep_alive_due(shard.now()) && session.keep_alive.is_answered {
            session.send_keep_alive(shard);
        }
    }

    fn disconnected(session: &mut Session<L>) -> bool {
        session.protocol.bringups.clear();
        session.protocol.is_reading_states = false;
        session.protocol.resets = 0;
        false
    }
}

impl<L: NvmeLink> Session<L> {
    /// A session that carries out a plan.
    pub(super) fn from_plan(task: TaskId, plan: Plan) -> Self {
        let expected = plan.expected.as_ref();
        let capacity =
            expected.map_or(0, |disk| usize::from(disk.queues) * usize::from(disk.slots));
        let target = (plan.address, expected.is_some());
        let options = Arc::clone(&plan.options);
        Self::new((task, capacity), target, &options, (plan, Nvme::default()))
    }

    /// Processes the answer of a command. Nearly always it is the command of a request.
    #[inline(always)]
    fn answered(&mut self, shard: &mut Shard, at: (usize, Slot), answer: Answer<'_>) {
        if !self.request_answered(shard, at, answer) {
            self.other_answered(shard, at, answer);
        }
    }

    #[inline(never)]
    fn other_answered(&mut self, shard: &mut Shard, at: (usize, Slot), answer: Answer<'_>) {
        let ((index, slot), (entry, data_bytes, intact)) = (at, answer);
        let (content, data) = self.connections[index].take(slot);
        let bytes = data.as_ref().map_or(&[][..], |buf| buf.bytes());
        let bytes = bytes.get(..data_bytes as usize).unwrap_or(bytes);
        match content {
            Some(InFlight::Other(Command::Session)) => {
                self.connections[index].free(slot);
                self.session_answered(shard, index, entry, bytes, intact);
            }
            Some(InFlight::Other(Command::Reset(token))) => {
                self.connections[index].free(slot);
                self.reset_answered(shard, token, entry);
            }
            Some(InFlight::Other(Command::Event(step))) => {
                self.connections[index].free(slot);
                self.event_answered(shard, step, entry, bytes);
            }
            Some(content) => self.half_answered(shard, at, content, data, entry),
            None => debug_assert!(false, "the machine completes only commands that were sent"),
        }
    }

    /// Processes the answer of a command of the bring-up, or of a keep-alive.
    fn session_answered(
        &mut self,
        shard: &mut Shard,
        index: usize,
        entry: &CompletionEntry,
        data: &[u8],
        intact: bool,
    ) {
        if !intact {
            let sentence = "data of the controller does not match its digest";
            return self.disconnect_with(shard, ConnectErrorKind::Protocol, sentence);
        }
        let Some(bringup) = &mut self.protocol.bringups[index] else {
            return self.keep_alive_completed(shard, entry);
        };
        match bringup.answered(*entry, data, session::now(shard)) {
            Ok(()) => self.step(shard, index),
            Err(error) => self.disconnect(shard, ConnectError::from(error)),
        }
    }
}

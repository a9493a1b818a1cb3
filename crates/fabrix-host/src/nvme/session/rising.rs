//! How a session comes up: a connection for each queue, the admin queue first, and a bring-up on
//! each.
//!
//! A part of `session`.

use std::sync::Arc;

use fabrix_proto::nvme::bringup::{Bringup, Facts, Step};
use fabrix_proto::nvme::queue::HostTransfer;
use fabrix_proto::nvme::spec::SubmissionEntry;
use fabrix_rt::{Nanos, Shard};

use super::Session;
use super::keep_alive::KeepAlive;
use crate::nvme::queue::{Carried, Link, Queue};
use crate::nvme::{bring, plan};
use crate::outage::State;
use crate::probe::Outcome;
use crate::timers::Timer;
use crate::wire::{Position, Route};
use crate::{ConnectError, ConnectErrorKind};

impl<L: Link> Session<L> {
    /// Opens one more connection; false: the session is lost.
    pub(super) fn open_queue(&mut self, shard: &mut Shard, bringup: Bringup, slots: u16) -> bool {
        let position = Position {
            attempt: self.attempt,
            index: self.queues.len(),
        };
        let route = Route {
            to: self.plan.address,
            from: self.plan.options.local,
        };
        let what = (&*self.plan.options, slots);
        match Queue::open(shard, self.reconnection.task, position, route, what) {
            Ok(queue) => {
                self.queues.push(queue);
                self.bringups.push(Some(bringup));
                true
            }
            Err(error) => {
                self.lose(shard, ConnectError::no_socket(&error));
                false
            }
        }
    }

    /// Takes the next step of a queue's bring-up.
    pub(super) fn step(&mut self, shard: &mut Shard, index: usize) {
        let now = bring::now(shard);
        let Some(step) = self.bringups[index]
            .as_mut()
            .map(|bringup| bringup.next(now))
        else {
            return;
        };
        match step {
            Step::Send {
                mut entry,
                data_out,
                data_in_bytes,
            } => {
                let data = data_out.as_deref().map(<[u8; 1024]>::as_slice);
                let queue = &mut self.queues[index];
                if !send(shard, queue, &mut entry, data, data_in_bytes) {
                    let sentence = "this shard has no memory for a command";
                    self.lose(shard, ConnectError::new(ConnectErrorKind::Local, sentence));
                }
            }
            Step::Wait { until } if until.0 < u64::MAX => {
                self.reconnection.timers.set(
                    shard,
                    self.reconnection.task,
                    Timer::Step,
                    Nanos(until.0),
                );
            }
            Step::Wait { .. } => {}
            Step::Ready(facts) => self.up(shard, index, *facts),
        }
    }

    /// A queue is up: the admin queue brings the others, the last of them makes the session live.
    fn up(&mut self, shard: &mut Shard, index: usize, facts: Facts) {
        self.bringups[index] = None;
        if index == 0 {
            let expected = self.plan.expected.clone();
            let checked = expected.map_or(Ok(()), |seen| seen.check(&self.plan.options, &facts));
            if let Err(error) = checked {
                self.tell_if_smaller(&facts);
                return self.lose(shard, error);
            }
            let facts = Arc::new(facts);
            self.facts = Some(Arc::clone(&facts));
            if self.plan.expected.is_some() && !self.open_io_queues(shard, &facts) {
                return;
            }
        } else {
            self.queues[index].set_in_capsule(facts.controller.in_capsule_bytes);
        }
        if self.reconnection.state == State::Rising && self.bringups.iter().all(Option::is_none) {
            self.live(shard);
        }
    }

    /// Connects the I/O queues; false: the session is lost.
    fn open_io_queues(&mut self, shard: &mut Shard, facts: &Facts) -> bool {
        let options = Arc::clone(&self.plan.options);
        let slots = bring::io_slots(&options, facts);
        (1..=bring::io_queues(&options, facts)).all(|queue_id| {
            let entries = u32::from(slots) + 1;
            let config = plan::config(&self.plan);
            let bringup = Bringup::io_queue(config, facts.controller.clone(), queue_id, entries);
            self.open_queue(shard, bringup, slots)
        })
    }

    fn live(&mut self, shard: &mut Shard) {
        self.reconnection.connected(shard);
        if let Some(facts) = &self.facts {
            self.outcome = Outcome::Ready(Arc::clone(facts));
        }
        self.keep_alive = KeepAlive::begin(shard.now());
        self.arm_tick(shard);
        self.watch(shard);
        self.send_waiting(shard);
    }

    /// Bring-up has had its time: who has not answered what.
    pub(super) fn too_slow(&mut self, shard: &mut Shard) {
        let most = self.plan.options.bringup_timeout;
        let index = self.bringups.iter().position(Option::is_some).unwrap_or(0);
        let (queue, bringup) = (&self.queues[index], &self.bringups[index]);
        let error = match bringup {
            _ if !queue.is_connected() => ConnectError::new(
                ConnectErrorKind::Timeout,
                format!(
                    "no connection within {most:?}: check the address, the network and firewalls in between"
                ),
            ),
            Some(bringup) if queue.is_initialized() => ConnectError::from(bringup.no_answer()),
            _ => ConnectError::new(ConnectErrorKind::Timeout, L::not_a_target(most)),
        };
        self.lose(shard, error);
    }
}

/// Sends a command of our own; false when there is no memory or no slot for it.
fn send(
    shard: &mut Shard,
    queue: &mut Queue<impl Link>,
    entry: &mut SubmissionEntry,
    data_out: Option<&[u8]>,
    data_in_bytes: u32,
) -> bool {
    let (transfer, bytes) = match data_out {
        Some(data) => {
            let bytes = u32::try_from(data.len()).expect("Connect has 1024 bytes of data");
            (HostTransfer::Write { bytes }, bytes)
        }
        None => (
            HostTransfer::Read {
                bytes: data_in_bytes,
            },
            data_in_bytes,
        ),
    };
    let mut data = None;
    if bytes > 0 {
        let Some(mut buf) = shard.take_buf(bytes as usize) else {
            return false;
        };
        if let Some(source) = data_out {
            buf.bytes_mut().copy_from_slice(source);
        }
        data = Some((buf, 0));
    }
    queue
        .send(shard.now(), entry, transfer, data, Carried::Own)
        .is_some()
}

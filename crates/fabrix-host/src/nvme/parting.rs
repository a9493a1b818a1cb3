//! How a session leaves its controller: lost, or wanted by nobody any more.
//!
//! The second part of `session`. What becomes of requests meanwhile, and when the next try is, is
//! `outage`'s.

use fabrix_rt::Shard;
use fabrix_transport::Ended;

use super::queue::Link;
use super::session::Session;
use crate::ConnectError;
use crate::outage::{PARTING, State};
use crate::timers::Timer;

impl<L: Link> Session<L> {
    /// The controller is lost: everything of it is closed, and requests wait for the next one.
    pub(crate) fn lose(&mut self, shard: &mut Shard, error: ConnectError) {
        if self.reconnection.lose(shard, &error) {
            self.outcome.fail(error);
            self.fall(shard, State::Falling);
        }
    }

    fn fall(&mut self, shard: &mut Shard, to: State) {
        self.reconnection.fall(shard, to);
        for (index, queue) in self.queues.iter_mut().enumerate() {
            if self.parting == Some(index) {
                queue.link().part(shard);
            } else {
                queue.close();
            }
        }
        match self.parting {
            Some(index) if self.queues[index].link().has_parted() => self.part_now(shard),
            Some(_) => self.reconnection.set_timer(shard, Timer::Part, PARTING),
            None => {}
        }
        self.rest_when_quiet(shard);
    }

    /// An operation of a falling session has ended.
    pub(crate) fn fallen(
        &mut self,
        shard: &mut Shard,
        index: usize,
        completed: &Result<(), Ended>,
    ) {
        if self.parting == Some(index) {
            self.queues[index].link().part(shard);
            if completed.is_err() || self.queues[index].link().has_parted() {
                self.part_now(shard);
            }
        } else {
            // It may have connected just now.
            self.queues[index].close();
        }
        self.rest_when_quiet(shard);
    }

    /// A goodbye was said, or has had its time.
    pub(crate) fn part_now(&mut self, shard: &mut Shard) {
        self.reconnection.timers.cancel(shard, Timer::Part);
        if let Some(index) = self.parting.take()
            && let Some(queue) = self.queues.get_mut(index)
        {
            queue.link().shut();
        }
    }

    /// Nobody uses this session any more: what is still in progress is aborted, and the session
    /// goes.
    pub(crate) fn over(&mut self, shard: &mut Shard) {
        if self.reconnection.state != State::Over {
            self.fall(shard, State::Over);
        }
    }

    /// Once the kernel has given everything back, requests are collected and the next try is
    /// arranged.
    fn rest_when_quiet(&mut self, shard: &mut Shard) {
        if self.parting.is_some() || !self.queues.iter().all(|queue| queue.is_quiet()) {
            return;
        }
        for mut queue in std::mem::take(&mut self.queues) {
            while let Some((request, status)) = queue.abandon() {
                self.reconnection.collect(shard, request, status);
            }
        }
        self.bringups.clear();
        self.reconnection.rest(shard);
    }
}

//! The pool of a disk on one shard: the task that divides requests among the paths, and repeats
//! those that come back without an answer.
//!
//! Knows the state of its paths and the requests in progress. Does not know sockets or protocols.
//! `unsettled` says which requests must wait, `proofs` who is asked to let them go, `path` what is
//! known of a path. `follow` opens and closes paths as they join and leave.

mod follow;
mod prove;

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::{
    Channel, Geometry, OpenError, Operation, Request as BlockRequest, Status, Submit,
};
use fabrix_rt::{Completion, Nanos, Remote, Shard, Task, TaskId, TimerId, Token};

use super::MOST_PATHS;
use super::link::{Fate, is_proof};
use super::path::Path;
use super::policy::{Selector, View};
use super::proofs::Proofs;
use super::roster::Roster;
use super::switches::{PathSwitches, Switched};
use super::table::{Entry, Table};
use super::unsettled::Unsettled;
use crate::request::{Data, Request, finish};

/// What a pool needs besides its paths.
pub(super) struct Setup {
    pub(super) geometry: Geometry,
    pub(super) selector: Selector,
    /// Requests whose fate is unknown wait until they cannot be executed any more.
    pub(super) is_safe: bool,
    pub(super) roster: Arc<Roster>,
    /// Most time that requests wait while no path can be used.
    pub(super) patience: Duration,
}

/// The paths and requests of a disk on one shard.
pub(super) struct Pool {
    task: TaskId,
    setup: Setup,
    /// Paths by their numbers. None: the number is free. It never shrinks, because the selector
    /// knows places in it.
    paths: Vec<Option<Path>>,
    requests: Table,
    /// Requests to be sent, in their order.
    waiting: VecDeque<u32>,
    unsettled: Unsettled,
    proofs: Proofs,
    /// When the last path was lost. None: a path can be used, or the first attempts are made.
    lost_at: Option<Nanos>,
    /// When the first of the requests came back that targets have not executed. None: one was
    /// answered since.
    refused_at: Option<Nanos>,
    timers: [Option<TimerId>; 3],
    /// Its key among those that are told of switches.
    key: usize,
    is_closing: bool,
}

/// The timers of a pool: slots of its task behind [`NEWS`].
#[derive(Clone, Copy)]
enum Timer {
    /// Requests whose fate was unknown may be repeated.
    Settle,
    /// No path can be used for too long.
    Fail,
    /// A path may take requests again.
    Retry,
}

/// Task slots from here on are no requests: news of a path, then timers.
const NEWS: u32 = 1 << 16;
/// Task slots from here on are answers to questions for proofs, by their number.
const PROOFS: u32 = 1 << 17;

/// Message to a pool whose channel was dropped.
struct ChannelClosed;

/// A channel of the disk on the pool's shard.
struct PoolChannel {
    pool: Rc<RefCell<Pool>>,
    task: TaskId,
    remote: Remote,
}

/// Opens a pool on a shard, with all paths that the disk has.
///
/// # Errors
/// A path cannot be opened.
pub(super) fn open(shard: &mut Shard, setup: Setup) -> Result<Box<dyn Channel>, OpenError> {
    let task = shard.reserve();
    let key = setup.roster.switches().joined(shard.remote(), task);
    let mut pool = Pool {
        task,
        setup,
        paths: Vec::with_capacity(MOST_PATHS),
        requests: Table::new(MOST_REQUESTS),
        waiting: VecDeque::with_capacity(usize::from(MOST_REQUESTS)),
        unsettled: Unsettled::new(MOST_REQUESTS),
        proofs: Proofs::default(),
        lost_at: None,
        refused_at: None,
        timers: [None; 3],
        key,
        is_closing: false,
    };
    if let Err(error) = pool.open_paths(shard) {
        pool.setup.roster.switches().left(key);
        shard.remove(task);
        return Err(error);
    }
    let pool = Rc::new(RefCell::new(pool));
    shard.install(task, Rc::clone(&pool) as Rc<RefCell<dyn Task>>);
    let remote = shard.remote();
    Ok(Box::new(PoolChannel { pool, task, remote }))
}

impl Channel for PoolChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: BlockRequest<'a>) -> Submit<'a> {
        self.pool.borrow_mut().submit(shard, request)
    }
}

impl Drop for PoolChannel {
    fn drop(&mut self) {
        // With a full mailbox the pool ends with the next news of a path.
        let _ = self.remote.send(self.task, Box::new(ChannelClosed));
        if let Ok(mut pool) = self.pool.try_borrow_mut() {
            pool.is_closing = true;
        }
    }
}

impl Pool {
    fn submit<'a>(&mut self, shard: &mut Shard, mut request: BlockRequest<'a>) -> Submit<'a> {
        if let Some(status) = self.refusal(shard, &request) {
            return request.done(status);
        }
        if self.requests.is_full() {
            return Submit::Busy(request);
        }
        let Some(data) = Data::take(shard, &mut request, &self.setup.geometry) else {
            return match self.requests.is_empty() {
                true => request.done(Status::NotReady),
                false => Submit::Busy(request),
            };
        };
        let bytes = request.bytes(&self.setup.geometry);
        let entry = Entry::new(Request::new(&request, data), bytes);
        let slot = self.requests.insert(entry);
        self.waiting.push_back(slot);
        self.send_waiting(shard);
        Submit::Pending
    }

    /// The status of a request that no path has to see.
    fn refusal(&self, shard: &Shard, request: &BlockRequest<'_>) -> Option<Status> {
        if let Some(status) = request.refusal(&self.setup.geometry) {
            return Some(status);
        }
        if request.blocks == 0 && request.operation != Operation::Flush {
            return Some(Status::Ok);
        }
        self.is_lost_too_long(shard).then_some(Status::NotReady)
    }

    fn is_lost_too_long(&self, shard: &Shard) -> bool {
        let patience = self.setup.patience;
        self.lost_at
            .is_some_and(|at| shard.now().since(at) >= patience)
    }

    /// Sends the waiting requests that may go, as long as a path takes them.
    fn send_waiting(&mut self, shard: &mut Shard) {
        let mut index = 0;
        while let Some(slot) = self.waiting.get(index).copied() {
            if !self.unsettled.lets_go(self.requests.request(slot)) {
                index += 1;
                continue;
            }
            if !self.send(shard, slot) {
                break;
            }
            self.waiting.remove(index);
        }
        let up = self.paths.iter().flatten();
        let up = up.filter(|path| self.is_open(path));
        let resumes_at = up.map(Path::resumes_at).min();
        if let Some(at) = resumes_at.filter(|_| index < self.waiting.len()) {
            self.set_timer(shard, Timer::Retry, at);
        }
    }

    /// Sends a request on the path of the policy. False: no path takes it now.
    fn send(&mut self, shard: &mut Shard, slot: u32) -> bool {
        let bytes = self.requests.entry(slot).bytes;
        while let Some(index) = self.pick(bytes, shard.now()) {
            let entry = self.requests.entry(slot);
            entry.path = index;
            entry.sent_at = shard.now();
            let request = entry.lend(Token {
                task: self.task,
                slot,
            });
            let path = path_of(&mut self.paths, index);
            let Some(channel) = &mut path.channel else {
                return false;
            };
            match channel.submit(shard, request) {
                Submit::Pending => {
                    path.began(bytes);
                    return true;
                }
                Submit::Busy(request) => {
                    entry.take_back(request.payload.into_loan());
                    path.is_full(shard.now() + RETRY);
                }
                Submit::Done(status, loan) => {
                    entry.take_back(loan);
                    self.finish(shard, slot, status);
                    return true;
                }
            }
        }
        false
    }

    /// Whether a path takes requests, as far as target and administrator say.
    fn is_open(&self, path: &Path) -> bool {
        path.is_up() && !self.switches().is_failed(path.index)
    }

    fn pick(&mut self, bytes: u64, now: Nanos) -> Option<usize> {
        let mut views = [View::default(); MOST_PATHS];
        for path in self.paths.iter().flatten() {
            let view = &mut views[path.index];
            *view = path.view(now);
            view.is_usable &= !self.switches().is_failed(path.index);
        }
        let views = &mut views[..self.paths.len()];
        if let Some(preferred) = self.switches().preferred() {
            prefer(views, preferred);
        }
        self.setup.selector.pick(views, bytes, now)
    }

    fn switches(&self) -> &PathSwitches {
        self.setup.roster.switches()
    }

    fn finish(&mut self, shard: &mut Shard, slot: u32, status: Status) {
        let entry = self.requests.remove(slot);
        finish(shard, entry.request, status);
    }

    /// A path has ended a request.
    fn ended(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        let now = shard.now();
        let entry = self.requests.entry(slot);
        entry.take_back(completion.loan);
        let path = path_of(&mut self.paths, entry.path);
        path.ended(entry, now);
        let (until, is_leaving) = (path.link.quiet_at(), path.is_leaving);
        let fate = Fate::from_result(completion.result);
        match fate {
            None => {
                self.refused_at = None;
                self.finish(shard, slot, Status::from_result(completion.result));
            }
            Some(_) if self.is_closing => self.finish(shard, slot, Status::Aborted),
            Some(Fate::Unknown)
                if self.setup.is_safe && entry.request.operation.writes() && now < until =>
            {
                let of = (entry.path, path.link.association());
                self.unsettled.add((slot, of), &entry.request, until);
                self.prove(shard);
                self.settle_later(shard);
            }
            Some(Fate::Unknown) => self.waiting.push_front(slot),
            Some(Fate::NotExecuted) => self.not_executed(shard, slot),
        }
        if is_leaving {
            self.follow(shard);
        }
    }

    /// A path has not executed a request. If it is up, its target executes none now.
    fn not_executed(&mut self, shard: &mut Shard, slot: u32) {
        let now = shard.now();
        let path = path_of(&mut self.paths, self.requests.entry(slot).path);
        if path.is_up() {
            path.refuses(now + REFUSED);
            let since = *self.refused_at.get_or_insert(now);
            if now.since(since) >= self.setup.patience {
                return self.finish(shard, slot, Status::NotReady);
            }
        }
        self.waiting.push_front(slot);
    }

    /// A path has a connection, or has lost it, or its target serves the disk otherwise. Or paths
    /// have joined, have left or were switched.
    fn news(&mut self, shard: &mut Shard) {
        self.follow(shard);
        let mut paths = self.paths.iter().flatten();
        if paths.any(|path| self.is_open(path)) {
            self.lost_at = None;
            self.cancel(shard, Timer::Fail);
        } else if self.lost_at.is_none() {
            self.lost_at = Some(shard.now());
            self.set_timer(shard, Timer::Fail, shard.now() + self.setup.patience);
        }
        let connected = self.paths.iter().flatten();
        for path in connected.filter(|path| path.is_connected()) {
            self.unsettled.settled_by(path.index, path.link.quiet_at());
        }
        self.prove(shard);
        self.settle(shard);
    }

    /// Requests whose time is over are sent again.
    fn settle(&mut self, shard: &mut Shard) {
        while let Some(slot) = self.unsettled.next_settled(shard.now()) {
            self.waiting.push_front(slot);
        }
        self.settle_later(shard);
        self.follow(shard);
        self.send_waiting(shard);
    }

    fn settle_later(&mut self, shard: &mut Shard) {
        if let Some(at) = self.unsettled.next_at() {
            self.set_timer(shard, Timer::Settle, at);
        }
    }

    /// Ends all requests that no path has.
    fn fail_waiting(&mut self, shard: &mut Shard, status: Status) {
        while let Some(slot) = self.unsettled.take_any() {
            self.finish(shard, slot, status);
        }
        while let Some(slot) = self.waiting.pop_front() {
            self.finish(shard, slot, status);
        }
    }

    /// Ends all paths. Those of their requests that are in progress end as aborted.
    fn close(&mut self, shard: &mut Shard) {
        self.is_closing = true;
        self.paths.iter_mut().flatten().for_each(Path::close);
        self.fail_waiting(shard, Status::Aborted);
        self.leave_if_idle(shard);
    }

    fn leave_if_idle(&mut self, shard: &mut Shard) {
        if self.is_closing && self.requests.is_empty() {
            for timer in [Timer::Settle, Timer::Fail, Timer::Retry] {
                self.cancel(shard, timer);
            }
            self.switches().left(self.key);
            shard.remove(self.task);
        }
    }

    fn set_timer(&mut self, shard: &mut Shard, timer: Timer, at: Nanos) {
        self.cancel(shard, timer);
        let slot = NEWS + 1 + timer as u32;
        let token = Token {
            task: self.task,
            slot,
        };
        self.timers[timer as usize] = Some(shard.set_timer(token, at));
    }

    fn cancel(&mut self, shard: &mut Shard, timer: Timer) {
        if let Some(id) = self.timers[timer as usize].take() {
            shard.cancel_timer(id);
        }
    }
}

impl Task for Pool {
    fn completed(&mut self, shard: &mut Shard, slot: u32, completion: Completion) {
        if slot < NEWS {
            self.ended(shard, slot, completion);
            self.send_waiting(shard);
        } else if slot == NEWS {
            self.news(shard);
        } else if let Ok(number) = u16::try_from(slot.wrapping_sub(PROOFS)) {
            self.proof_answered(shard, number, is_proof(completion.result));
        }
        if self.is_closing {
            self.close(shard);
        }
    }

    fn expired(&mut self, shard: &mut Shard, slot: u32) {
        let timer = [Timer::Settle, Timer::Fail, Timer::Retry]
            .into_iter()
            .find(|timer| NEWS + 1 + *timer as u32 == slot);
        if let Some(timer) = timer {
            self.timers[timer as usize] = None;
        }
        match timer {
            Some(Timer::Settle) => self.settle(shard),
            Some(Timer::Fail) if self.is_lost_too_long(shard) => {
                self.fail_waiting(shard, Status::NotReady);
            }
            Some(Timer::Retry) => self.send_waiting(shard),
            Some(Timer::Fail) | None => {}
        }
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        if message.is::<ChannelClosed>() {
            self.close(shard);
        } else if message.is::<Switched>() {
            self.news(shard);
        }
    }
}

/// The path of a number that has one. A path stays until its requests have ended.
fn path_of(paths: &mut [Option<Path>], number: usize) -> &mut Path {
    let path = paths[number].as_mut();
    path.expect("a path stays until its requests have ended")
}

/// Makes a path the only optimized one, if it can be used.
fn prefer(views: &mut [View], preferred: usize) {
    if views.get(preferred).is_some_and(|view| view.is_usable) {
        for (index, view) in views.iter_mut().enumerate() {
            view.is_optimized = index == preferred;
        }
    }
}

/// Requests of a disk's user in progress on one shard.
const MOST_REQUESTS: u16 = 1024;
/// 1 ms: a path without room is tried again, if none of its requests ends before.
const RETRY: Duration = Duration::from_millis(1);
/// 100 ms: the rest of a path whose target does not execute requests now.
const REFUSED: Duration = Duration::from_millis(100);

//! What an administrator wants of the paths of a disk. All shards read it, and the pools on them
//! are told of each change.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fabrix_rt::{Remote, TaskId};

use super::MOST_PATHS;

/// The switches of a disk's paths. Paths are counted from 0.
#[derive(Debug, Default)]
pub struct PathSwitches {
    /// A bit for each path that gets no requests.
    failed: AtomicU32,
    /// The path that gets all requests while it can be used, counted from 1. 0: the policy decides.
    preferred: AtomicUsize,
    pools: Mutex<Vec<Listener>>,
}

/// A pool that is told of changes.
#[derive(Debug)]
struct Listener {
    key: usize,
    remote: Remote,
    task: TaskId,
}

/// Message to a pool: a switch has changed, or a path has joined or left.
pub(super) struct Switched;

impl PathSwitches {
    /// Takes a path out of use, or puts it back. Requests in progress there go on.
    pub fn set_failed(&self, path: usize, is_failed: bool) {
        let bit = bit(path);
        match is_failed {
            true => self.failed.fetch_or(bit, Ordering::Relaxed),
            false => self.failed.fetch_and(!bit, Ordering::Relaxed),
        };
        self.tell();
    }

    /// All requests take this path while it can be used. None: the policy decides.
    pub fn prefer(&self, path: Option<usize>) {
        let number = path.map_or(0, |path| path + 1);
        self.preferred.store(number, Ordering::Relaxed);
        self.tell();
    }

    /// Whether a path was taken out of use.
    #[must_use]
    pub fn is_failed(&self, path: usize) -> bool {
        self.failed.load(Ordering::Relaxed) & bit(path) != 0
    }

    /// The path that all requests take while it can be used.
    #[must_use]
    pub fn preferred(&self) -> Option<usize> {
        self.preferred.load(Ordering::Relaxed).checked_sub(1)
    }

    /// A path has left: another one of its number begins without switches.
    pub(super) fn forget(&self, path: usize) {
        self.failed.fetch_and(!bit(path), Ordering::Relaxed);
        let number = path + 1;
        let (none, order) = (0, Ordering::Relaxed);
        let _others_stay = self.preferred.compare_exchange(number, none, order, order);
    }

    /// Tells a pool of changes until [`left`](Self::left) gets the result.
    pub(super) fn joined(&self, remote: Remote, task: TaskId) -> usize {
        let mut pools = self.pools();
        let key = pools.last().map_or(0, |last| last.key + 1);
        pools.push(Listener { key, remote, task });
        key
    }

    pub(super) fn left(&self, key: usize) {
        self.pools().retain(|listener| listener.key != key);
    }

    /// A pool with a full mailbox learns of the change with its next news.
    pub(super) fn tell(&self) {
        for listener in self.pools().iter() {
            let _ = listener.remote.send(listener.task, Box::new(Switched));
        }
    }

    fn pools(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// No bit for a path that a disk cannot have.
fn bit(path: usize) -> u32 {
    match path < MOST_PATHS {
        true => 1 << path,
        false => 0,
    }
}

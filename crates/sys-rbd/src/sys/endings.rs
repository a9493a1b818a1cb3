//! Endings of requests, on their way from librbd's threads to a shard.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabrix_rt::{Poller, Waitable, counter};

/// Wakes the shard of some [`Requests`](crate::Requests) when one of them has ended.
pub struct Endings(pub(super) Arc<Shared>);

/// What librbd's threads and the shard share.
pub(super) struct Shared {
    /// Requests that have ended: the address of the completion, and the result.
    ended: Mutex<Vec<(usize, i64)>>,
    /// Their number, to be looked at without the lock.
    count: AtomicUsize,
    /// The shard sleeps, or is about to.
    is_asleep: AtomicBool,
    /// The counter of the kernel by which the shard wakes.
    event: fs::File,
}

impl Shared {
    /// Room for the endings of so many requests. The memory is allocated here.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(super) fn new(most: u16) -> io::Result<Arc<Self>> {
        let event = counter::new()?;
        Ok(Arc::new(Self {
            ended: Mutex::new(Vec::with_capacity(most.into())),
            count: AtomicUsize::new(0),
            is_asleep: AtomicBool::new(false),
            event,
        }))
    }

    /// A request has ended. Runs on a thread of librbd.
    pub(super) fn add(&self, completion: usize, result: i64) {
        self.ended().push((completion, result));
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            // A full counter wakes as well.
            let _full = (&self.event).write(&1_u64.to_ne_bytes());
        }
    }

    /// The next ending, in any order.
    pub(super) fn take(&self) -> Option<(usize, i64)> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let taken = self.ended().pop()?;
        self.count.fetch_sub(1, Ordering::SeqCst);
        Some(taken)
    }

    fn ended(&self) -> MutexGuard<'_, Vec<(usize, i64)>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Poller for Endings {
    fn waitable(&self) -> Waitable<'_> {
        self.0.event.as_fd()
    }

    fn is_ready(&self) -> bool {
        self.0.count.load(Ordering::SeqCst) > 0
    }

    fn arm(&self) {
        // The read fails if the counter is zero already.
        let _empty = (&self.0.event).read(&mut [0; 8]);
        self.0.is_asleep.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(endings: &Endings) -> bool {
        matches!((&endings.0.event).read(&mut [0; 8]), Ok(8))
    }

    #[test]
    fn a_shard_that_sleeps_is_woken_once_and_one_that_is_awake_is_not() {
        let endings = Endings(Shared::new(4).expect("a counter"));
        endings.0.add(1, 0);
        assert!(endings.is_ready() && !is_readable(&endings));
        endings.arm();
        assert!(
            endings.is_ready(),
            "what came before is seen by the last look"
        );
        endings.0.add(2, -5);
        assert!(is_readable(&endings));
        endings.0.add(3, 0);
        assert!(!is_readable(&endings));
        let mut taken: Vec<_> = std::iter::from_fn(|| endings.0.take()).collect();
        taken.sort_unstable();
        assert_eq!(taken, [(1, 0), (2, -5), (3, 0)]);
        assert!(!endings.is_ready());
    }
}

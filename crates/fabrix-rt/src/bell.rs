//! The bell of a shard, which wakes it when another thread has sent something.
//!
//! Ringing does not enter the kernel while the shard is busy or spins. No wake-up is lost: the
//! sender first sets `rung` and then reads `asleep`; the shard first sets `asleep` and then reads
//! `rung`. All four are SeqCst and so in one total order, in which at least one of the two reads
//! comes after the other's write.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::platform::Event;

/// Wakes a shard that waits in the kernel.
#[derive(Debug)]
pub(crate) struct Bell {
    rung: AtomicBool,
    asleep: AtomicBool,
    stop: AtomicBool,
    event: Event,
}

impl Bell {
    /// Errors: no descriptor is free.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            rung: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            event: Event::new()?,
        })
    }

    /// Says that there is something to read, and wakes the shard if it sleeps.
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.event.signal();
        }
    }

    /// Whether the bell was rung since the last [`Bell::answer`]. A driver that spins looks here.
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }

    /// Whether the bell was rung since the last answer; forgets it. The shard asks once per turn,
    /// before it reads.
    pub(crate) fn answer(&self) -> bool {
        self.is_rung() && self.rung.swap(false, Ordering::SeqCst)
    }

    /// Keeps the bell rung: the shard has not read everything in this turn.
    pub(crate) fn keep_ringing(&self) {
        self.rung.store(true, Ordering::SeqCst);
    }

    /// Asks the shard to end its loop.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether the shard was asked to stop; forgets it.
    pub(crate) fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::Acquire)
    }

    /// Says that the shard is about to wait in the kernel. False: the bell was rung, so it must not
    /// wait.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        if self.rung.load(Ordering::SeqCst) {
            self.wake_up();
            return false;
        }
        true
    }

    /// Says that the shard is awake again.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Readable when a sleeping shard was rung.
    pub(crate) fn event(&self) -> &Event {
        &self.event
    }
}

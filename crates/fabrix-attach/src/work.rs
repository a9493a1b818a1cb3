//! The requests of a front end by slot: at the disk, or waiting because the disk was busy.

use std::mem;

use fabrix_rt::{Buf, Shard, Token};

use crate::job::RETRY_AFTER;

/// The requests of a front end that have not ended.
pub(crate) struct Work<C> {
    entries: Vec<Entry<C>>,
    at_disk: usize,
    stalled: usize,
    /// First slot of the next retry. A request of many pieces therefore lets the others continue.
    retry_from: usize,
    timer: Token,
    timer_is_set: bool,
}

/// State of a slot.
#[derive(Default)]
enum Entry<C> {
    #[default]
    Free,
    /// Receiving the data of a write.
    Receiving(C),
    AtDisk(C),
    /// Waiting because the disk was busy, with the data of a write.
    Stalled(C, Option<Buf>),
}

impl<C> Work<C> {
    /// A table of `slots` free slots. `timer` is the token of the retry timer.
    pub(crate) fn new(slots: impl Into<usize>, timer: Token) -> Self {
        let mut work = Self {
            entries: Vec::new(),
            at_disk: 0,
            stalled: 0,
            retry_from: 0,
            timer,
            timer_is_set: false,
        };
        work.grow(slots.into());
        work
    }

    /// Adds free slots.
    pub(crate) fn grow(&mut self, slots: usize) {
        let all = self.entries.len() + slots;
        self.entries.resize_with(all, Entry::default);
    }

    /// All slots.
    pub(crate) fn slots(&self) -> std::ops::Range<u16> {
        0..u16::try_from(self.entries.len()).expect("some hundreds")
    }

    /// Whether the disk has a request.
    pub(crate) fn is_at_disk(&self) -> bool {
        self.at_disk > 0
    }

    /// Keeps a write until its data has arrived.
    pub(crate) fn receive(&mut self, slot: u16, call: C) {
        self.entries[usize::from(slot)] = Entry::Receiving(call);
    }

    /// Takes a write whose data has arrived.
    pub(crate) fn received(&mut self, slot: u16) -> Option<C> {
        match mem::take(&mut self.entries[usize::from(slot)]) {
            Entry::Receiving(call) => Some(call),
            _ => None,
        }
    }

    /// Keeps a request until the disk has answered it.
    pub(crate) fn submitted(&mut self, slot: u16, call: C) {
        self.at_disk += 1;
        self.entries[usize::from(slot)] = Entry::AtDisk(call);
    }

    /// The request that the disk has in a slot.
    pub(crate) fn at_disk(&mut self, slot: u16) -> Option<&mut C> {
        match &mut self.entries[usize::from(slot)] {
            Entry::AtDisk(call) => Some(call),
            _ => None,
        }
    }

    /// Takes a request that the disk has answered.
    pub(crate) fn answered(&mut self, slot: u16) -> Option<C> {
        let Entry::AtDisk(call) = mem::take(&mut self.entries[usize::from(slot)]) else {
            debug_assert!(
                false,
                "a completion for slot {slot}, which is not at the disk"
            );
            return None;
        };
        self.at_disk -= 1;
        Some(call)
    }

    /// Keeps a request for a retry, and sets the timer.
    pub(crate) fn stall(&mut self, shard: &mut Shard, slot: u16, call: C, data: Option<Buf>) {
        self.stalled += 1;
        self.entries[usize::from(slot)] = Entry::Stalled(call, data);
        self.retry_later(shard);
    }

    /// Sets the timer. Its expiry goes to [`Self::timer_expired`].
    pub(crate) fn retry_later(&mut self, shard: &mut Shard) {
        if !mem::replace(&mut self.timer_is_set, true) {
            shard.set_timer(self.timer, shard.now() + RETRY_AFTER);
        }
    }

    /// Begins a retry: the caller submits what [`Self::next_stalled`] returns.
    pub(crate) fn timer_expired(&mut self) {
        self.timer_is_set = false;
    }

    /// Takes the next stalled request with its data. None: no request is left, or the last one was
    /// stalled again.
    pub(crate) fn next_stalled(&mut self) -> Option<(u16, C, Option<Buf>)> {
        if self.stalled == 0 || self.timer_is_set {
            return None;
        }
        for _ in self.slots() {
            let slot = self.retry_from;
            self.retry_from = (slot + 1) % self.entries.len();
            match mem::take(&mut self.entries[slot]) {
                Entry::Stalled(call, data) => {
                    self.stalled -= 1;
                    return Some((u16::try_from(slot).ok()?, call, data));
                }
                other => self.entries[slot] = other,
            }
        }
        None
    }

    /// Frees a slot unless its request is at the disk. Returns the request.
    pub(crate) fn give_up(&mut self, slot: u16) -> Option<C> {
        let entry = &mut self.entries[usize::from(slot)];
        if matches!(entry, Entry::AtDisk(_)) {
            return None;
        }
        match mem::take(entry) {
            Entry::Stalled(call, _) => {
                self.stalled -= 1;
                Some(call)
            }
            Entry::Receiving(call) => Some(call),
            Entry::Free | Entry::AtDisk(_) => None,
        }
    }
}

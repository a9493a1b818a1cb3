//! Work that waits for room in a queue pair.
//!
//! A queue pair takes a fixed number of requests, and fewer RDMA READs at the same time. Work
//! without room waits in the order of its coming, and begins when earlier requests have ended.
//! Answers and RDMA READs wait apart, because a READ that waits for other READs must not hold up an
//! answer.

use std::collections::VecDeque;

/// Work that waits for room. `W`: what is to be begun.
pub(crate) struct Waiting<W> {
    reads: VecDeque<W>,
    answers: VecDeque<W>,
}

impl<W> Waiting<W> {
    /// Nothing waits. Each list has room for so many.
    pub(crate) fn new(slots: u16) -> Self {
        let slots = usize::from(slots);
        Self {
            reads: VecDeque::with_capacity(slots),
            answers: VecDeque::with_capacity(slots),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        self.answers.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.answers.is_empty()
    }

    /// Number of answers that wait.
    pub(crate) fn answers(&self) -> usize {
        self.answers.len()
    }

    fn list(&mut self, is_read: bool) -> &mut VecDeque<W> {
        match is_read {
            true => &mut self.reads,
            false => &mut self.answers,
        }
    }
}

/// One end of a connection that begins work at its queue pair.
pub(crate) trait Begin {
    /// What is to be begun.
    type Work;

    /// What waits for room.
    fn waiting(&mut self) -> &mut Waiting<Self::Work>;

    /// Whether the work is an RDMA READ.
    fn is_read(work: &Self::Work) -> bool;

    /// Begins a work. Returns it if there is no room.
    fn try_begin(&mut self, work: Self::Work) -> Option<Self::Work>;

    /// Begins a work, behind those of its kind that wait.
    fn begin(&mut self, work: Self::Work) {
        let is_read = Self::is_read(&work);
        if !self.waiting().list(is_read).is_empty() {
            return self.waiting().list(is_read).push_back(work);
        }
        if let Some(work) = self.try_begin(work) {
            self.waiting().list(is_read).push_back(work);
        }
    }

    /// Begins what has waited, as far as there is room now.
    fn begin_waiting(&mut self) {
        for is_read in [false, true] {
            while let Some(work) = self.waiting().list(is_read).pop_front() {
                if let Some(work) = self.try_begin(work) {
                    self.waiting().list(is_read).push_front(work);
                    break;
                }
            }
        }
    }
}

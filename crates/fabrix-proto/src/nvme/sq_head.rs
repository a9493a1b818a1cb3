//! SQHD: how far the controller is through a submission queue.
//!
//! Source: NVM Express Base Specification 2.1, "Submission Queue Flow Control".

/// The head of a submission queue.
///
/// It advances when a command ends, and not when it arrives. So the size of the queue limits the
/// commands in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct SqHead {
    is_used: bool,
    entries: u32,
    head: u16,
}

impl SqHead {
    /// The head of a queue before its Connect command: flow control, and the largest size.
    pub(super) const fn new() -> Self {
        Self {
            is_used: true,
            entries: u16::MAX as u32 + 1,
            head: 0,
        }
    }

    /// Sets the size of the queue as a plain count.
    pub(super) fn set_entries(&mut self, entries: u32) {
        self.entries = entries.max(1);
    }

    /// Sets whether SQ flow control is used.
    pub(super) fn set_used(&mut self, is_used: bool) {
        self.is_used = is_used;
    }

    /// Whether SQ flow control is used.
    pub(super) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Advances SQHD for an answer, and returns it: FFFFh without flow control. The host may send
    /// one more command then.
    #[inline(always)]
    pub(super) fn advance(&mut self) -> u16 {
        if !self.is_used {
            return u16::MAX;
        }
        let next = (u32::from(self.head) + 1) % self.entries;
        self.head = u16::try_from(next).unwrap_or(0);
        self.head
    }
}

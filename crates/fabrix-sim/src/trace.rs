//! What happened in the world of this thread, in order, when somebody wants to know.
//!
//! The record belongs to the thread and not to the world: after a panic in a world it is still
//! there.

use std::cell::{Cell, RefCell};
use std::fmt;

use fabrix_rt::Nanos;

thread_local! {
    static NOW: Cell<Nanos> = const { Cell::new(Nanos(0)) };
    static RECORD: RefCell<Option<Record>> = const { RefCell::new(None) };
}

/// What happened in a run.
#[derive(Debug, Default)]
pub struct Record {
    /// In order.
    pub entries: Vec<Entry>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    at: Nanos,
    who: String,
    what: String,
    /// Number of a planned fault.
    fault: Option<u64>,
}

/// Begins to record what happens in worlds of this thread.
pub fn start() {
    RECORD.set(Some(Record::default()));
}

/// Ends the recording. Empty: none was started.
pub fn take() -> Record {
    RECORD.take().unwrap_or_default()
}

/// Sets the time of what happens from now on.
pub(crate) fn set_time(now: Nanos) {
    NOW.set(now);
}

/// Records an entry, which is made only if somebody wants to know it.
pub(crate) fn note(entry: impl FnOnce() -> Entry) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            let mut entry = entry();
            entry.at = NOW.get();
            record.entries.push(entry);
        }
    });
}

impl Entry {
    /// `what` has happened to `who`, or was done by it.
    pub(crate) fn new(who: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            at: Nanos(0),
            who: who.into(),
            what: what.into(),
            fault: None,
        }
    }

    /// Adds the number of the planned fault.
    pub(crate) fn fault(mut self, number: u64) -> Self {
        self.fault = Some(number);
        self
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.at.0 / 1_000_000_000, self.at.0 % 1_000_000_000);
        write!(f, "{seconds}.{:06} s  ", rest / 1_000)?;
        if let Some(number) = self.fault {
            write!(f, "fault {number}: ")?;
        }
        write!(f, "{}: {}", self.who, self.what)
    }
}

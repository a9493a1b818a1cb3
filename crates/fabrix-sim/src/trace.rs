//! What happens in the world of this thread, in order, when somebody wants to know.
//!
//! The record belongs to the thread and not to the world: after a panic in a world it is still
//! there.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::ops::Range;

use fabrix_block::Status;
use fabrix_rt::Nanos;

use crate::capture::{Capture, Segment};
use crate::run::Cut;

thread_local! {
    static NOW: Cell<Nanos> = const { Cell::new(Nanos(0)) };
    static RECORD: RefCell<Option<Record>> = const { RefCell::new(None) };
}

/// What happened in a run.
#[derive(Debug, Default)]
pub struct Record {
    /// In order.
    pub entries: Vec<Entry>,
    capture: Capture,
    /// Most requests that a host had to submit.
    pub(crate) requests: u64,
    /// Numbers of the hosts that the world can do without, and that are there.
    pub(crate) hosts: BTreeSet<u64>,
    /// Those that the run leaves out.
    hosts_left_out: BTreeSet<u64>,
    /// Faults that the world plans.
    faults_planned: u64,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    at: Nanos,
    who: String,
    what: String,
    /// Number of the request at its host.
    request: Option<u64>,
    blocks: Option<Range<u64>>,
    /// Numbers of writes: those that it writes, expects or reads.
    values: Vec<u64>,
    status: Option<Status>,
    /// Number of a planned fault.
    fault: Option<u64>,
}

/// Begins to record what happens in worlds of this thread.
pub(crate) fn start() {
    RECORD.set(Some(Record::default()));
}

/// Ends the recording. Empty: none was started.
pub(crate) fn take() -> Record {
    RECORD.take().unwrap_or_default()
}

/// Whether somebody wants to know what happens.
pub(crate) fn is_on() -> bool {
    RECORD.with_borrow(Option::is_some)
}

/// Sets the time of what happens from now on.
pub(crate) fn set_time(now: Nanos) {
    NOW.set(now);
}

/// Records an entry, which is made only if somebody wants to know it.
pub(crate) fn note(entry: impl FnOnce() -> Entry) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            let at = NOW.get();
            record.entries.push(Entry { at, ..entry() });
        }
    });
}

/// Records that a segment arrives.
pub(crate) fn note_segment(from: SocketAddr, to: SocketAddr, segment: Segment<'_>) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            record.segment(from, to, segment);
        }
    });
}

/// Records how many requests a host has to submit.
pub(crate) fn note_requests(requests: u64) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            record.requests = record.requests.max(requests);
        }
    });
}

/// Records a host that the world can do without, and whether it is there.
pub(crate) fn note_host(number: u64, is_there: bool) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            let hosts = match is_there {
                true => &mut record.hosts,
                false => &mut record.hosts_left_out,
            };
            hosts.insert(number);
        }
    });
}

/// Records that the world plans the fault with this number, and has planned those before.
pub(crate) fn note_planned(number: u64) {
    RECORD.with_borrow_mut(|record| {
        if let Some(record) = record {
            record.faults_planned = number;
        }
    });
}

impl Record {
    fn segment(&mut self, from: SocketAddr, to: SocketAddr, segment: Segment<'_>) {
        let at = NOW.get();
        self.capture.add(at, from, to, segment);
        let what = match segment {
            Segment::Bytes(_) => return,
            Segment::Syn => "SYN arrives",
            Segment::Fin => "FIN arrives",
            Segment::Rst => "RST arrives",
        };
        let entry = Entry::new(format!("{CONNECTION} {from} -> {to}:"), what);
        self.entries.push(Entry { at, ..entry });
    }

    /// What has arrived, as a file of the format pcap.
    pub fn capture(&self) -> &[u8] {
        self.capture.file()
    }

    /// Numbers of the planned faults that happened.
    pub(crate) fn faults(&self) -> BTreeSet<u64> {
        self.entries
            .iter()
            .filter_map(|entry| entry.fault)
            .collect()
    }

    /// What a cut names and this world does not have, in a sentence.
    pub fn misses(&self, cut: &Cut) -> Option<String> {
        let hosts: BTreeSet<u64> = self.hosts.union(&self.hosts_left_out).copied().collect();
        let named = cut.hosts.iter().flatten();
        if let Some(host) = named.into_iter().find(|host| !hosts.contains(host)) {
            return Some(match hosts.last() {
                Some(last) => format!("there is no host {host}; --hosts knows 1 to {last} here"),
                None => "this world cannot do without any of its hosts".to_owned(),
            });
        }
        let fault = cut.faults.as_ref().and_then(BTreeSet::last)?;
        (*fault > self.faults_planned || cut.faults.iter().flatten().any(|fault| *fault == 0)).then(
            || {
                format!(
                    "there is no planned fault {fault}; these are {}",
                    self.faults_planned
                )
            },
        )
    }

    /// The planned faults that happened, and what happened before something was wrong.
    pub fn in_words(&self) -> String {
        let faults = lines(self.entries.iter().filter(|entry| entry.fault.is_some()));
        let last = self.last_in_words();
        match faults.is_empty() {
            true => format!("what happened before:\n{last}"),
            false => format!("planned faults:\n{faults}what happened before:\n{last}"),
        }
    }

    /// What happened before something was wrong, one on each line: to the block that was wrong, or
    /// else to anything.
    fn last_in_words(&self) -> String {
        let wrong = self.entries.iter().position(|entry| entry.who == CHECKER);
        let end = wrong.map_or(self.entries.len(), |index| index + 1);
        let blocks = wrong.and_then(|index| self.entries[index].blocks.clone());
        let concerns = |entry: &&Entry| match (&blocks, &entry.blocks) {
            // A flush concerns every block.
            (Some(wrong), Some(blocks)) => blocks.is_empty() || blocks.contains(&wrong.start),
            (Some(_), None) => !entry.who.starts_with(CONNECTION),
            (None, _) => true,
        };
        let last = self.entries[..end].iter().rev().filter(concerns);
        let last: Vec<_> = last.take(LINES_MAX).collect();
        let last = last.into_iter().rev();
        lines(last)
    }

    /// A JSON object on each line.
    pub fn json_lines(&self) -> String {
        let entries = self.entries.iter();
        entries.fold(String::new(), |lines, entry| lines + &entry.json() + "\n")
    }
}

impl Entry {
    /// `what` has happened to `who`, or was done by it. Both are ASCII.
    pub(crate) fn new(who: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            who: who.into(),
            what: what.into(),
            ..Self::default()
        }
    }

    /// Adds the number of the request at its host.
    pub(crate) fn request(mut self, number: u64) -> Self {
        self.request = Some(number);
        self
    }

    /// Adds the blocks that it concerns. None: it is a flush, and concerns all.
    pub(crate) fn blocks(mut self, blocks: Range<u64>) -> Self {
        self.blocks = Some(blocks);
        self
    }

    /// Adds numbers of writes.
    pub(crate) fn values(mut self, values: &[u64]) -> Self {
        self.values = values.to_vec();
        self
    }

    /// Adds how it ended.
    pub(crate) fn status(mut self, status: Status) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds the number of the planned fault.
    pub(crate) fn fault(mut self, number: u64) -> Self {
        self.fault = Some(number);
        self
    }

    fn json(&self) -> String {
        // What Rust quotes and escapes in ASCII is JSON.
        let mut line = format!(
            "{{\"ns\":{},\"who\":{:?},\"what\":{:?}",
            self.at.0, self.who, self.what
        );
        let mut add = |name: &str, value: &dyn fmt::Debug| {
            let _ = write!(line, ",\"{name}\":{value:?}");
        };
        if let Some(request) = &self.request {
            add("request", request);
        }
        if let Some(blocks) = self.blocks.as_ref().filter(|blocks| !blocks.is_empty()) {
            add("lba", &blocks.start);
            add("blocks", &(blocks.end - blocks.start));
        }
        if !self.values.is_empty() {
            add("values", &self.values);
        }
        if let Some(status) = self.status {
            add("status", &format!("{status:?}"));
        }
        if let Some(number) = self.fault {
            add("fault", &number);
        }
        line + "}"
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.at.0 / 1_000_000_000, self.at.0 % 1_000_000_000);
        write!(f, "{seconds}.{:06} s  ", rest / 1_000)?;
        if let Some(number) = self.fault {
            write!(f, "fault {number}: ")?;
        }
        write!(f, "{} {}", self.who, self.what)?;
        if let Some(number) = self.request {
            write!(f, " ({number})")?;
        }
        match &self.blocks {
            Some(_) if self.who == CHECKER => {}
            Some(blocks) if blocks.end == blocks.start + 1 => {
                write!(f, ", block {}", blocks.start)?
            }
            Some(blocks) if !blocks.is_empty() => {
                write!(f, ", blocks {} to {}", blocks.start, blocks.end - 1)?;
            }
            _ => {}
        }
        if !self.values.is_empty() {
            write!(f, ", values {:?}", self.values)?;
        }
        match self.status {
            Some(status) => write!(f, ": {status:?}"),
            None => Ok(()),
        }
    }
}

fn lines<'a>(entries: impl Iterator<Item = &'a Entry>) -> String {
    entries.fold(String::new(), |lines, entry| {
        lines + &format!("  {entry}\n")
    })
}

/// Who tells what is wrong.
pub(crate) const CHECKER: &str = "checker:";
/// Begins the name of a connection.
const CONNECTION: &str = "connection";
/// More lines hide what matters.
const LINES_MAX: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(second: u64, entry: Entry) -> Entry {
        let at = Nanos(second * 1_000_000_000);
        Entry { at, ..entry }
    }

    #[test]
    fn an_entry_is_a_line_of_json_and_a_sentence() {
        let entry = entry(
            2,
            Entry::new("host 10.1.0.4", "ends the \"read\"").blocks(3..5),
        );
        let entry = entry.values(&[7, 0]).status(Status::Ok);
        assert_eq!(
            entry.json(),
            "{\"ns\":2000000000,\"who\":\"host 10.1.0.4\",\"what\":\"ends the \\\"read\\\"\",\
             \"lba\":3,\"blocks\":2,\"values\":[7, 0],\"status\":\"Ok\"}"
        );
        assert_eq!(
            entry.to_string(),
            "2.000000 s  host 10.1.0.4 ends the \"read\", blocks 3 to 4, values [7, 0]: Ok"
        );
    }

    #[test]
    fn only_what_concerns_the_wrong_block_is_told() {
        let entries = vec![
            entry(1, Entry::new("host a", "writes").blocks(0..4)),
            entry(2, Entry::new("host b", "writes").blocks(4..8)),
            entry(3, Entry::new("world:", "a reset").fault(2)),
            entry(3, Entry::new("connection a -> b:", "SYN arrives")),
            entry(4, Entry::new(CHECKER, "it is wrong").blocks(3..4)),
            entry(5, Entry::new("host a", "reads").blocks(3..4)),
        ];
        let record = Record {
            entries,
            ..Record::default()
        };
        assert_eq!(
            record.last_in_words(),
            "  1.000000 s  host a writes, blocks 0 to 3\n  3.000000 s  fault 2: world: a reset\n  \
             4.000000 s  checker: it is wrong\n"
        );
        assert_eq!(record.faults(), [2].into());
    }

    #[test]
    fn nothing_is_recorded_unless_it_was_asked_for() {
        note(|| unreachable!("nobody wants to know"));
        assert!(take().entries.is_empty());
        start();
        note(|| Entry::new("somebody", "acts"));
        assert_eq!(take().entries.len(), 1);
        assert!(take().entries.is_empty());
    }
}

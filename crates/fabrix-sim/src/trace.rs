//! What happens in the world of this thread, in order, when somebody wants to know.
//!
//! The record belongs to the thread and not to the world: after a panic in a world it is still
//! there.

mod entry;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;

use fabrix_rt::Nanos;

pub use self::entry::Entry;
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
        if hosts.is_empty() && cut.hosts.is_some() {
            return Some("this world cannot do without any of its hosts".to_owned());
        }
        let mut named = cut.hosts.iter().flatten();
        if let Some(host) = named.find(|host| !hosts.contains(host)) {
            let all = hosts.len();
            return Some(format!(
                "there is no host {host} among the {all} of this world"
            ));
        }
        let all = self.faults_planned;
        let mut named = cut.faults.iter().flatten();
        let fault = named.find(|fault| !(1..=all).contains(*fault))?;
        Some(format!(
            "there is no fault {fault} among the {all} that this world plans"
        ))
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
    fn what_a_cut_names_and_is_not_there_is_told() {
        let record = Record {
            hosts: [1, 3].into(),
            hosts_left_out: [2].into(),
            faults_planned: 4,
            ..Record::default()
        };
        let misses = |hosts: &[u64], faults: &[u64]| {
            record.misses(&Cut {
                hosts: Some(hosts.iter().copied().collect()),
                faults: Some(faults.iter().copied().collect()),
                ..Cut::default()
            })
        };
        assert_eq!(misses(&[2, 3], &[1, 4]), None);
        for (hosts, faults, named) in [
            (&[1, 9][..], &[][..], "no host 9"),
            (&[], &[0, 1], "no fault 0"),
            (&[], &[5], "no fault 5"),
        ] {
            let sentence = misses(hosts, faults).expect(named);
            assert!(sentence.contains(named), "{sentence}");
        }
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

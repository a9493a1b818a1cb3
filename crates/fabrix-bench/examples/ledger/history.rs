//! Reads the ledger: the allowed contents of every address, and the verdict of a check.

use std::collections::BTreeMap;
use std::fs::read_to_string;

/// The allowed contents of one address.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// Sequence number that must be on the medium at least.
    durable: u64,
    /// Whether a flush has covered the block since the last check.
    was_flushed: bool,
    /// Last acknowledged sequence number.
    acknowledged: u64,
    /// Sequence numbers attempted after the durable one.
    later: Vec<u64>,
}

/// The content of a ledger.
#[derive(Default)]
pub(crate) struct Past {
    pub(crate) blocks: BTreeMap<u64, History>,
    /// Addresses with acknowledged writes since the last flush.
    unflushed: Vec<u64>,
    pub(crate) last_sequence: u64,
}

impl Past {
    pub(crate) fn read(path: &str, may_miss: bool) -> Result<Self, String> {
        match read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|line| format!("{path} has a line `{line}`")),
            Err(error) if may_miss && error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            Err(error) => Err(format!("cannot read {path}: {error}")),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut past = Self::default();
        for line in text.lines() {
            past.take(line).ok_or_else(|| line.to_owned())?;
        }
        Ok(past)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let step = words.next()?;
        if step == "flush" {
            for lba in self.unflushed.drain(..) {
                self.blocks.entry(lba).or_default().flush();
            }
            return Some(());
        }
        let lba = words.next()?.parse().ok()?;
        let sequence = words.next()?.parse().ok()?;
        self.last_sequence = self.last_sequence.max(sequence);
        let history = self.blocks.entry(lba).or_default();
        match step {
            "try" => history.later.push(sequence),
            "ack" => {
                history.acknowledged = sequence;
                self.unflushed.push(lba);
            }
            "found" => *history = History::found(sequence),
            _ => return None,
        }
        Some(())
    }
}

impl History {
    fn found(sequence: u64) -> Self {
        Self {
            durable: sequence,
            acknowledged: sequence,
            ..Self::default()
        }
    }

    /// A flush makes all earlier acknowledged writes durable, because the writer waits for each
    /// write.
    fn flush(&mut self) {
        if self.durable != self.acknowledged {
            self.durable = self.acknowledged;
            self.was_flushed = true;
            self.later.retain(|&later| later > self.acknowledged);
        }
    }
}

/// The result of a check.
#[derive(Default)]
pub(crate) struct Counts {
    flushed: u64,
    lost: u64,
    wrong: u64,
    later_new: u64,
    later_old: u64,
    /// Sentence about the first violation.
    pub(crate) first: Option<String>,
}

impl Counts {
    /// Judges one block. `found` is its sequence number, or None if it is not a test block.
    pub(crate) fn count(&mut self, lba: u64, history: &History, found: Option<u64>) {
        let durable = history.durable;
        self.flushed += u64::from(history.was_flushed);
        let later = history.acknowledged != durable;
        match found {
            Some(found) if found == durable || history.later.contains(&found) => {
                // A write that was never acknowledged counts as neither new nor old.
                self.later_new += u64::from(later && found >= history.acknowledged);
                self.later_old += u64::from(later && found < history.acknowledged);
            }
            Some(found) if found < durable => {
                self.lost += 1;
                let lost =
                    format!("lba {lba}: write {durable} was flushed, and write {found} is there");
                self.first.get_or_insert(lost);
            }
            Some(found) => {
                self.wrong += 1;
                let wrong = format!("lba {lba}: write {found} is there, which was never tried");
                self.first.get_or_insert(wrong);
            }
            None => {
                self.wrong += 1;
                let wrong = format!("lba {lba}: what is there is no block that was ever written");
                self.first.get_or_insert(wrong);
            }
        }
    }

    pub(crate) fn sentence(&self) -> String {
        format!(
            "flushed: {} blocks, {} lost; acknowledged later: {} blocks, {} new, {} old; wrong: {}",
            self.flushed,
            self.lost,
            self.later_new + self.later_old,
            self.later_new,
            self.later_old,
            self.wrong,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::NEVER;

    /// The result of a check of the only block, LBA 7, with content `found`.
    fn verdict(ledger: &str, found: Option<u64>) -> Counts {
        let past = Past::parse(ledger).expect("well formed");
        let mut counts = Counts::default();
        counts.count(7, &past.blocks[&7], found);
        counts
    }

    const FLUSHED: &str = "try 7 1\nack 7 1\nflush\n";

    #[test]
    fn what_was_flushed_must_be_there() {
        let kept = verdict(FLUSHED, Some(1));
        assert!(kept.first.is_none() && kept.flushed == 1);
        assert_eq!(verdict(FLUSHED, Some(NEVER)).lost, 1);
    }

    #[test]
    fn what_came_later_is_old_or_new() {
        let ledger = FLUSHED.to_owned() + "try 7 2\nack 7 2\n";
        assert_eq!(verdict(&ledger, Some(1)).later_old, 1);
        assert_eq!(verdict(&ledger, Some(2)).later_new, 1);
        assert_eq!(verdict(&ledger, Some(NEVER)).lost, 1);
        assert_eq!(verdict(&ledger, Some(3)).wrong, 1);
        assert_eq!(verdict(&ledger, None).wrong, 1);
    }

    #[test]
    fn a_write_that_was_only_tried_may_be_there() {
        let ledger = FLUSHED.to_owned() + "try 7 2\n";
        for found in [1, 2] {
            let counts = verdict(&ledger, Some(found));
            assert!(counts.first.is_none() && counts.later_new + counts.later_old == 0);
        }
    }

    #[test]
    fn what_a_check_has_found_is_the_old_from_then_on() {
        let ledger = FLUSHED.to_owned() + "try 7 2\nack 7 2\nfound 7 1\nflush\n";
        assert!(verdict(&ledger, Some(1)).first.is_none());
        assert_eq!(verdict(&ledger, Some(2)).wrong, 1);
    }

    #[test]
    fn sequences_go_on_where_the_ledger_ends() {
        let past = Past::parse("try 7 1\nack 7 1\ntry 8 2\n").expect("well formed");
        assert_eq!(past.last_sequence, 2);
        assert!(Past::parse("ack 7\n").is_err());
    }
}

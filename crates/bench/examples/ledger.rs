//! Writes blocks and keeps a ledger of what the disk acknowledged; later says whether the disk kept its word.
//!
//! ```text
//! ledger write DISK LEDGER [--seconds N] [--until FILE] [--seed N] [--first MIB] [--size MIB] [--flush-every WRITES]
//! ledger check DISK LEDGER
//! ```
//! It writes until the time is over, or until FILE is there. The ledger lies where the disk's power does not reach. It
//! has a line for each step: `try LBA SEQUENCE` before a write, `ack LBA SEQUENCE` once it is acknowledged, `flush`
//! once a flush is, and `found LBA SEQUENCE` for what a check has read after the power came back. What was acknowledged
//! before the last acknowledged flush must be there; of what came later, the disk may have any write that was tried, or
//! what was there before; never anything else.
//!
//! A block is made from its address and its sequence alone, so that a check compares every byte. Knows nothing of
//! Fabrix: a disk is whatever Linux opens with `O_DIRECT`.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, read_to_string};
use std::io::{Error, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Bytes of a block; an LBA counts these, whatever the disk's own blocks are.
const BLOCK: usize = 4096;
/// Blocks that a check reads at a time: what is written begins and ends at a MiB, so a piece never ends after it.
const PIECE: usize = 32;
const BLOCKS_PER_MIB: u64 = (1 << 20) / BLOCK as u64;
/// `O_DIRECT` on x86 and most others: no page cache between us and the disk.
const O_DIRECT: i32 = 0x4000;
/// What every block of ours begins with.
const MAGIC: u64 = u64::from_le_bytes(*b"ledger01");
/// The sequence of a block that was never written.
const NEVER: u64 = 0;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["write", disk, ledger, ref options @ ..] => {
            Options::parse(options).and_then(|options| write(disk, ledger, &options))
        }
        ["check", disk, ledger] => check(disk, ledger),
        _ => Err("usage: ledger write DISK LEDGER [OPTIONS], or ledger check DISK LEDGER".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("ledger: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// What to write.
struct Options<'a> {
    seconds: u64,
    until: Option<&'a Path>,
    seed: u64,
    first_lba: u64,
    blocks: u64,
    flush_every: u64,
}

impl<'a> Options<'a> {
    fn parse(words: &[&'a str]) -> Result<Self, String> {
        let mut options = Self {
            seconds: 10,
            until: None,
            seed: 1,
            first_lba: 0,
            blocks: 16 * BLOCKS_PER_MIB,
            flush_every: 16,
        };
        for pair in words.chunks(2) {
            if let ["--until", file] = pair {
                options.until = Some(Path::new(*file));
                continue;
            }
            let number = pair.get(1).and_then(|word| word.parse::<u64>().ok());
            let number = number.ok_or_else(|| format!("{} needs a number", pair[0]))?;
            match pair[0] {
                "--seconds" => options.seconds = number,
                "--seed" => options.seed = number,
                "--first" => options.first_lba = number * BLOCKS_PER_MIB,
                "--size" => options.blocks = number * BLOCKS_PER_MIB,
                "--flush-every" => options.flush_every = number,
                other => return Err(format!("there is no option `{other}`")),
            }
        }
        if options.blocks == 0 || options.flush_every == 0 {
            return Err("--size and --flush-every count from one".to_owned());
        }
        Ok(options)
    }
}

/// Writes until it is enough; an I/O error ends it too, and is a failure.
fn write(disk: &str, ledger: &str, options: &Options<'_>) -> Result<(), String> {
    let past = Past::read(ledger, true)?;
    let disk = Disk::open(disk, true)?;
    let cannot = |error: Error| format!("cannot write {ledger}: {error}");
    let mut ledger = OpenOptions::new()
        .create(true)
        .append(true)
        .open(ledger)
        .map_err(cannot)?;
    let mut random = options.seed;
    let mut memory = Memory::new(1);
    let (mut acknowledged, mut flushes) = (0_u64, 0_u64);
    let until = Instant::now() + Duration::from_secs(options.seconds);
    let mut sequence = past.last_sequence;
    let mut step = || -> Result<(), String> {
        sequence += 1;
        let lba = options.first_lba + next(&mut random) % options.blocks;
        // One system call a line: a kill cannot leave half of one.
        let mut note = |line: String| ledger.write_all(line.as_bytes()).map_err(cannot);
        note(format!("try {lba} {sequence}\n"))?;
        fill(memory.blocks(), lba, sequence);
        disk.write(lba, memory.blocks())?;
        note(format!("ack {lba} {sequence}\n"))?;
        acknowledged += 1;
        if acknowledged.is_multiple_of(options.flush_every) {
            disk.flush()?;
            note("flush\n".to_owned())?;
            flushes += 1;
        }
        Ok(())
    };
    let mut ended = Ok(());
    let enough = || Instant::now() >= until || options.until.is_some_and(Path::exists);
    while ended.is_ok() && !enough() {
        ended = step();
    }
    println!("acknowledged: {acknowledged} writes, {flushes} flushes");
    ended
}

/// Reads all that the ledger names, says how much of it is there, and notes what was found for the next check.
fn check(disk: &str, ledger: &str) -> Result<(), String> {
    let past = Past::read(ledger, false)?;
    let disk = Disk::open(disk, false)?;
    let mut memory = Memory::new(PIECE);
    let mut counts = Counts::default();
    let mut found = String::new();
    let mut piece = None;
    for (&lba, history) in &past.blocks {
        let first = lba - lba % PIECE as u64;
        if piece.replace(first) != Some(first) {
            disk.read(first, memory.blocks())?;
        }
        let mut blocks = (first..).zip(memory.blocks().chunks_exact(BLOCK));
        let (_, block) = blocks
            .find(|block| block.0 == lba)
            .expect("it is in the piece");
        let sequence = sequence_of(block, lba);
        counts.count(lba, history, sequence);
        if let Some(sequence) = sequence {
            found += &format!("found {lba} {sequence}\n");
        }
    }
    println!("{}", counts.sentence());
    if let Some(first) = counts.first {
        return Err(first);
    }
    let cannot = |error: Error| format!("cannot write {ledger}: {error}");
    let mut ledger = OpenOptions::new()
        .append(true)
        .open(ledger)
        .map_err(cannot)?;
    ledger.write_all(found.as_bytes()).map_err(cannot)
}

/// What a check has seen.
#[derive(Default)]
struct Counts {
    flushed: u64,
    lost: u64,
    wrong: u64,
    later_new: u64,
    later_old: u64,
    /// The first of what must not be.
    first: Option<String>,
}

impl Counts {
    /// `found` is the sequence that the block carries, or none if it is no block of ours.
    fn count(&mut self, lba: u64, history: &History, found: Option<u64>) {
        let durable = history.durable;
        self.flushed += u64::from(history.was_flushed);
        let later = history.acknowledged != durable;
        match found {
            Some(found) if found == durable || history.later.contains(&found) => {
                // A write that was never acknowledged counts as neither.
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

    fn sentence(&self) -> String {
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

/// What may be at one address.
#[derive(Debug, Default, PartialEq, Eq)]
struct History {
    /// The sequence that is certainly on the medium.
    durable: u64,
    /// Whether it was flushed since the last check.
    was_flushed: bool,
    /// The last one that was acknowledged.
    acknowledged: u64,
    /// Those that were tried after the durable one.
    later: Vec<u64>,
}

/// The ledger, read.
#[derive(Default)]
struct Past {
    blocks: BTreeMap<u64, History>,
    /// What was acknowledged since the last flush.
    unflushed: Vec<u64>,
    last_sequence: u64,
}

impl Past {
    fn read(path: &str, may_miss: bool) -> Result<Self, String> {
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

    /// The writer waits for each write, so all that was acknowledged before is on the medium.
    fn flush(&mut self) {
        if self.durable != self.acknowledged {
            self.durable = self.acknowledged;
            self.was_flushed = true;
            self.later.retain(|&later| later > self.acknowledged);
        }
    }
}

/// A disk without a cache of Linux before it.
struct Disk {
    file: File,
    name: String,
}

impl Disk {
    fn open(name: &str, writes: bool) -> Result<Self, String> {
        let file = OpenOptions::new()
            .read(true)
            .write(writes)
            .custom_flags(O_DIRECT)
            .open(name)
            .map_err(|error| format!("cannot open {name}: {error}"))?;
        let name = name.to_owned();
        Ok(Self { file, name })
    }

    fn write(&self, lba: u64, block: &[u8]) -> Result<(), String> {
        self.file
            .write_all_at(block, lba * BLOCK as u64)
            .map_err(|error| format!("{}: cannot write lba {lba}: {error}", self.name))
    }

    fn read(&self, lba: u64, blocks: &mut [u8]) -> Result<(), String> {
        self.file
            .read_exact_at(blocks, lba * BLOCK as u64)
            .map_err(|error| format!("{}: cannot read lba {lba}: {error}", self.name))
    }

    fn flush(&self) -> Result<(), String> {
        self.file
            .sync_data()
            .map_err(|error| format!("{}: cannot flush: {error}", self.name))
    }
}

/// Blocks at an address that `O_DIRECT` accepts.
struct Memory {
    bytes: Vec<u8>,
    start: usize,
}

impl Memory {
    fn new(blocks: usize) -> Self {
        let bytes = vec![0; (blocks + 1) * BLOCK];
        let start = bytes.as_ptr().align_offset(BLOCK);
        Self { bytes, start }
    }

    fn blocks(&mut self) -> &mut [u8] {
        let end = self.bytes.len() - BLOCK + self.start;
        &mut self.bytes[self.start..end]
    }
}

/// The block of this address and sequence: both, and bytes that follow from them.
fn fill(block: &mut [u8], lba: u64, sequence: u64) {
    let mut random = lba.rotate_left(32) ^ sequence;
    let words = [MAGIC, lba, sequence].into_iter();
    let words = words.chain(std::iter::repeat_with(|| next(&mut random)));
    for (bytes, word) in block.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// The sequence of a block of ours that belongs to this address and is whole; `NEVER` if all of it is zero.
fn sequence_of(block: &[u8], lba: u64) -> Option<u64> {
    if block.iter().all(|&byte| byte == 0) {
        return Some(NEVER);
    }
    let sequence = u64::from_le_bytes(block[16..24].try_into().ok()?);
    let mut expected = vec![0; BLOCK];
    fill(&mut expected, lba, sequence);
    (block == expected).then_some(sequence)
}

/// The next of a row of numbers that look random (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a check says of the only block, lba 7, when it carries `found`.
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
    fn a_block_is_known_only_at_its_own_address_and_whole() {
        let mut block = vec![0; BLOCK];
        assert_eq!(sequence_of(&block, 7), Some(NEVER));
        fill(&mut block, 7, 9);
        assert_eq!(sequence_of(&block, 7), Some(9));
        assert_eq!(sequence_of(&block, 8), None);
        block[BLOCK - 1] ^= 1;
        assert_eq!(sequence_of(&block, 7), None);
    }

    #[test]
    fn sequences_go_on_where_the_ledger_ends() {
        let past = Past::parse("try 7 1\nack 7 1\ntry 8 2\n").expect("well formed");
        assert_eq!(past.last_sequence, 2);
        assert!(Past::parse("ack 7\n").is_err());
    }
}

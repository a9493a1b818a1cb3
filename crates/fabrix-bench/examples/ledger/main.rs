//! Writes blocks and keeps a ledger of the acknowledged writes. A later check tells whether the
//! disk has kept its promises.
//!
//! ```text
//! ledger write DISK LEDGER [--seconds N] [--until FILE] [--seed N]
//!       [--first MIB] [--size MIB] [--flush-every WRITES]
//! ledger check DISK LEDGER
//! ```
//! The writer stops when the time is over or when FILE exists. The ledger must be on a disk that
//! does not lose power in the test. It has one line per step:
//!
//! - `try LBA SEQUENCE` before a write,
//! - `ack LBA SEQUENCE` after its acknowledgement,
//! - `flush` after the acknowledgement of a flush,
//! - `found LBA SEQUENCE` for a block that a check has read.
//!
//! Writes acknowledged before the last acknowledged flush must be on the disk. For later writes the
//! disk may hold any attempted content, or the previous one. Any other content is an error.
//!
//! A block's content follows from its address and sequence number, so a check compares every byte.
//! The program knows nothing of Fabrix. It works on everything that Linux opens with `O_DIRECT`.

mod disk;
mod history;

use std::fs::OpenOptions;
use std::io::{Error, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use disk::{BLOCK, BLOCKS_PER_MIB, Disk, Memory, PIECE, fill, next, sequence_of};
use history::{Counts, Past};

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

/// Options of the writer.
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

/// Writes until the end condition is reached or an I/O fails.
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
        // One system call per line, so that a killed writer leaves no partial line.
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

/// Reads all blocks named in the ledger, prints the verdict, and appends the found contents for the
/// next check.
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

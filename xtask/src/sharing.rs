//! Cache lines that move between two shards of a target: an I/O must move none.
//!
//! Two processors that take a line from each other wait for it each time. A machine with as few
//! processors as shards cannot show that as time, so moves are counted.
//! `crates/fabrix-target/examples/shards.rs` lets two shards read from one disk in turns, and
//! valgrind's lackey writes every access to memory into a file. A line moves when one shard uses
//! what the other one has written since, or writes what the other one uses; once in a turn at most.
//! Stacks do not count, because each thread has its own.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;

use crate::process::{command, target_folder};

const LINE_BYTES: u64 = 64;
/// A run takes a few seconds, and more on a busy machine.
const SECONDS_MAX: &str = "180";
/// The mark that says that the reads begin. Accesses before it do not count.
const BEGINNING: usize = 3;
/// Around the address that a thread names: its stack below, and its thread-local memory above.
const STACK_BELOW_BYTES: u64 = 256 << 10;
const STACK_ABOVE_BYTES: u64 = 16 << 10;

/// How often lines moved while each of two shards answered so many reads of 4 KiB.
///
/// # Errors
/// The program or valgrind failed, or took longer than [`SECONDS_MAX`].
pub(crate) fn moves(program: &Path, depth: &str, commands: u32) -> Result<u64, String> {
    let trace = target_folder()?.join("shards.trace");
    let mut log_file = std::ffi::OsString::from("--log-file=");
    log_file.push(&trace);
    // coreutils' timeout ends both.
    let mut traced = command("timeout");
    traced.args(["--foreground", "--kill-after=10", SECONDS_MAX, "valgrind"]);
    traced.args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no"]);
    traced.arg(log_file).arg(program);
    traced.args([depth, &commands.to_string()]);
    // With a backtrace, a panic reads all debug information. That takes minutes under lackey.
    traced.env("RUST_BACKTRACE", "0");
    let ended = traced
        .output()
        .map_err(|error| format!("cannot start valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    let said = said.trim_end();
    match ended.status.code() {
        Some(0) => {}
        Some(124 | 137) => {
            let late = format!("two shards under valgrind did not end within {SECONDS_MAX} s");
            return Err(format!("{late}: {said}"));
        }
        _ => return Err(format!("the shards ended with {}: {said}", ended.status)),
    }
    let mut watch = Watch::new(said)?;
    let opened = File::open(&trace);
    let opened = opened.map_err(|error| format!("cannot read {}: {error}", trace.display()))?;
    watch.read(BufReader::with_capacity(1 << 20, opened));
    let _only_takes_room = fs::remove_file(&trace);
    match watch.used.contains(&0) {
        true => Err("the trace shows no turns of both shards".to_owned()),
        false => Ok(watch.moves),
    }
}

/// The numbers of the line `NAME: NUMBER NUMBER ...`.
fn numbers(said: &str, name: &str) -> Result<[u64; 4], String> {
    let line = said.lines().find_map(|line| line.strip_prefix(name));
    let words = line.unwrap_or_default().trim_start_matches(':');
    let numbers: Vec<u64> = words.split(' ').flat_map(str::parse).collect();
    let numbers = numbers.try_into();
    numbers.map_err(|_| format!("the shards did not say four {name}: {said}"))
}

/// One access to memory.
struct Access {
    writes: bool,
    at: u64,
    bytes: u64,
}

impl Access {
    /// From ` L 1ffeffe7e0,8`, with S for a store or M for both; not from a fetched instruction.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let (kind, place) = line.strip_prefix(' ')?.split_once(' ')?;
        let (at, bytes) = place.trim_end().split_once(',')?;
        Some(Self {
            writes: match kind {
                "L" => false,
                "S" | "M" => true,
                _ => return None,
            },
            at: u64::from_str_radix(at, 16).ok()?,
            bytes: bytes.parse().ok()?,
        })
    }
}

/// The shards that have a line in their caches; only one when it was written since.
#[derive(Clone, Copy, Default)]
struct Held {
    by: [bool; 2],
    written: bool,
    /// The turn in which the line moved last. A shard that reads it first and then writes it moves
    /// it once.
    moved_in: u64,
}

/// The trace so far.
struct Watch {
    /// A store to one of the first two begins that shard's turn, to the third ends it; a store to
    /// the fourth begins the reads.
    marks: [u64; 4],
    /// The stacks of both shards' threads and of the main one, and the main one's own memory.
    stacks: [Range<u64>; 4],
    begun: bool,
    /// The shard whose turn it is. The other threads wait meanwhile.
    shard: Option<usize>,
    /// Number of the turn.
    turn: u64,
    /// Accesses of each shard.
    used: [u64; 2],
    lines: HashMap<u64, Held>,
    moves: u64,
}

impl Watch {
    /// With the addresses that the program says.
    fn new(said: &str) -> Result<Self, String> {
        Ok(Self {
            marks: numbers(said, "marks")?,
            stacks: numbers(said, "stacks")?.map(|at| {
                at.saturating_sub(STACK_BELOW_BYTES)..at.saturating_add(STACK_ABOVE_BYTES)
            }),
            begun: false,
            shard: None,
            turn: 0,
            used: [0; 2],
            lines: HashMap::new(),
            moves: 0,
        })
    }

    fn read(&mut self, mut trace: impl BufRead) {
        let mut line = Vec::new();
        while matches!(trace.read_until(b'\n', &mut line), Ok(1..)) {
            if let Some(access) = Access::parse(&line) {
                self.see(&access);
            }
            line.clear();
        }
    }

    fn see(&mut self, access: &Access) {
        if let Some(mark) = self.marks.iter().position(|mark| *mark == access.at) {
            self.turn += 1;
            self.shard = (self.begun && mark < self.used.len()).then_some(mark);
            self.begun |= mark == BEGINNING;
            return;
        }
        let Some(shard) = self.shard else { return };
        if self.stacks.iter().any(|stack| stack.contains(&access.at)) {
            return;
        }
        self.used[shard] += 1;
        let last = access.at.saturating_add(access.bytes.saturating_sub(1));
        for line in access.at / LINE_BYTES..=last / LINE_BYTES {
            self.use_line(line, shard, access.writes);
        }
    }

    fn use_line(&mut self, line: u64, shard: usize, writes: bool) {
        let held = self.lines.entry(line).or_default();
        let by_the_other = held.by[1 - shard];
        let moves = by_the_other && (writes || (held.written && !held.by[shard]));
        if moves && held.moved_in != self.turn {
            self.moves += 1;
            held.moved_in = self.turn;
        }
        if writes {
            held.by = [false; 2];
        }
        held.by[shard] = true;
        held.written = writes || (held.written && !moves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both shards turn once, with these accesses between the marks.
    fn moves_of(first: &str, second: &str) -> u64 {
        let said = "marks: 64 128 192 256\nstacks: 1048576 2097152 3145728 4194304\n";
        let mut watch = Watch::new(said).expect("well formed");
        let trace = format!(
            "==1== Lackey\n S 40,8\n S 5000,8\n S 80,8\n S 5000,8\n S c0,8\n S 100,8\n S 40,8\n\
             {first} S c0,8\n S 5000,8\n S 80,8\n{second} S c0,8\n"
        );
        watch.read(trace.as_bytes());
        watch.moves
    }

    #[test]
    fn a_line_moves_to_who_reads_or_writes_what_the_other_wrote() {
        assert_eq!(moves_of(" L 5000,8\n", " L 5000,8\nI  5000,3\n"), 0);
        assert_eq!(moves_of(" S 5000,8\n", " L 5038,8\n L 5000,8\n"), 1);
        assert_eq!(moves_of(" M 5000,8\n", " L 5000,8\n M 5000,8\n"), 1);
        assert_eq!(moves_of(" S 503c,8\n", " L 5000,1\n L 5040,1\n"), 2);
        assert_eq!(moves_of(" S 5000,8\n", " L 5040,8\n"), 0);
    }

    #[test]
    fn a_stack_is_its_threads_own() {
        assert_eq!(moves_of(" S 100000,8\n", " S 100000,8\n"), 0);
        assert_eq!(moves_of(" S 2fff00,8\n", " S 2fff00,8\n"), 0);
        assert_eq!(moves_of(" S 180000,8\n", " S 180000,8\n"), 1);
    }
}

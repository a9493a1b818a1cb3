//! Cache lines that move between two shards of a target: none may do so for an I/O.
//!
//! Two processors that take a line from each other wait for it each time, which a machine with as
//! few processors as shards cannot show as time. So it is counted:
//! `crates/fabrix-target/examples/shards.rs` lets two shards read from one disk in turns,
//! valgrind's lackey writes down every access to memory, and a line moves when one shard uses what
//! the other one has written since, or writes what the other one uses; once in a turn at most.
//! Stacks are left out, for each thread has its own.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::process::command;

const LINE_BYTES: u64 = 64;
/// A run takes a few seconds, and more on a machine that has other things to do.
const SECONDS_MAX: &str = "180";
/// Which mark says that the reads begin; what was before is not looked at.
const BEGINNING: usize = 3;
/// Around what a thread named on its stack: its stack, and what belongs to the thread above it.
const STACK_BELOW_BYTES: u64 = 256 << 10;
const STACK_ABOVE_BYTES: u64 = 16 << 10;

/// How often lines moved while each of two shards answered so many reads of 4 KiB.
///
/// # Errors
/// The program or valgrind did not do what is expected of them, or took longer than
/// [`SECONDS_MAX`].
pub(crate) fn moves(program: &Path, depth: &str, commands: u32) -> Result<u64, String> {
    let running = traced(program, depth, commands).spawn();
    let mut running = running.map_err(|error| format!("cannot start valgrind: {error}"))?;
    let input = running.stdin.take().expect("it was asked for");
    let trace = running.stdout.take().expect("it was asked for");
    let said = running.stderr.take().expect("it was asked for");
    let (tell, told) = channel();
    let watching = thread::spawn(move || watch(trace, &told));
    let said = begin(said, input, &tell);
    let status = running.wait();
    ended_well(status.map_err(|error| format!("valgrind: {error}"))?, said)?;
    let watch = watching.join().map_err(|_| "the trace cannot be read")?;
    watch
        .filter(|watch| watch.used.iter().all(|used| *used > 0))
        .map(|watch| watch.lines.moves)
        .ok_or_else(|| "the trace shows no turns of both shards".to_owned())
}

/// The trace goes to standard output, what the program says to standard error. coreutils' timeout
/// ends both.
fn traced(program: &Path, depth: &str, commands: u32) -> Command {
    let mut traced = command("timeout");
    traced.args(["--foreground", "--kill-after=10", SECONDS_MAX, "valgrind"]);
    traced.args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no"]);
    traced.arg("--log-fd=1");
    traced.arg(program).args([depth, &commands.to_string()]);
    // Who panics reads all debug information for a backtrace: minutes, when every access is written
    // down.
    traced.env("RUST_BACKTRACE", "0");
    traced
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    traced
}

/// Tells the watching thread the places that the program names, and then the program to begin;
/// gives what it says until its end.
fn begin(said: impl Read, mut input: impl Write, tell: &Sender<Places>) -> Result<String, String> {
    let mut said = BufReader::new(said);
    let told = Places::read(&mut said);
    let told = told.map(|places| drop(tell.send(places)));
    // A program that does not read it has ended, and has said why.
    let _ = writeln!(input, "go");
    drop(input);
    let mut rest = String::new();
    said.read_to_string(&mut rest)
        .map_err(|error| format!("cannot read what the shards say: {error}"))?;
    told.map_err(|error| format!("{error}: {}", rest.trim_end()))?;
    Ok(rest)
}

fn ended_well(status: ExitStatus, said: Result<String, String>) -> Result<(), String> {
    if matches!(status.code(), Some(124 | 137)) {
        let said = said.unwrap_or_else(|error| error);
        return Err(format!(
            "two shards under valgrind did not end within {SECONDS_MAX} s: {}",
            said.trim_end()
        ));
    }
    let said = said?;
    match status.success() {
        true => Ok(()),
        false => Err(format!(
            "the shards ended with {status}: {}",
            said.trim_end()
        )),
    }
}

/// Reads the trace to its end. What comes before the places are known is not looked at.
fn watch(trace: impl Read, told: &Receiver<Places>) -> Option<Watch> {
    let mut trace = BufReader::with_capacity(1 << 20, trace);
    let mut watch = None;
    let mut line = Vec::new();
    while matches!(trace.read_until(b'\n', &mut line), Ok(1..)) {
        watch = watch.or_else(|| told.try_recv().ok().map(Watch::new));
        if let (Some(watch), Some(access)) = (&mut watch, Access::parse(&line)) {
            watch.see(&access);
        }
        line.clear();
    }
    watch
}

/// Addresses that the program tells.
struct Places {
    /// A store to one of the first two begins that shard's turn, to the third ends it; to the
    /// fourth begins the reads.
    marks: [u64; 4],
    /// The stacks of both shards' threads and of the main one, and what else is the main one's own.
    stacks: [Range<u64>; 4],
}

impl Places {
    fn read(output: &mut impl BufRead) -> Result<Self, String> {
        let marks = numbers(output, "marks")?;
        let stacks = numbers(output, "stacks")?;
        Ok(Self {
            marks,
            stacks: stacks.map(|at: u64| {
                at.saturating_sub(STACK_BELOW_BYTES)..at.saturating_add(STACK_ABOVE_BYTES)
            }),
        })
    }
}

/// The numbers of a line `NAME: NUMBER NUMBER ...`.
fn numbers<const N: usize>(output: &mut impl BufRead, name: &str) -> Result<[u64; N], String> {
    let mut line = String::new();
    let _read = output
        .read_line(&mut line)
        .map_err(|error| format!("cannot read what the shards say: {error}"))?;
    let numbers = line.trim_end().strip_prefix(name).map(|rest| {
        let words = rest.trim_start_matches(':').split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    });
    numbers
        .and_then(|numbers: Vec<u64>| numbers.try_into().ok())
        .ok_or_else(|| format!("the shards said `{}`, not {N} {name}", line.trim_end()))
}

/// One access to memory.
#[derive(Debug, PartialEq, Eq)]
struct Access {
    writes: bool,
    at: u64,
    bytes: u64,
}

impl Access {
    /// From ` L 1ffeffe7e0,8`, and S for a store or M for both. Fetches of instructions are not
    /// looked at.
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

/// A shard's turn: nobody else uses anything before it is over.
#[derive(Clone, Copy)]
struct Turn {
    shard: usize,
    /// From 1 on, and every turn has another.
    number: u64,
}

/// Whose turn it is, and what both have used.
struct Watch {
    places: Places,
    begun: bool,
    turn: Option<Turn>,
    turns: u64,
    /// Accesses of each shard.
    used: [u64; 2],
    lines: Lines,
}

impl Watch {
    fn new(places: Places) -> Self {
        Self {
            places,
            begun: false,
            turn: None,
            turns: 0,
            used: [0; 2],
            lines: Lines::default(),
        }
    }

    fn see(&mut self, access: &Access) {
        if let Some(mark) = self.places.marks.iter().position(|mark| *mark == access.at) {
            self.turns += 1;
            self.turn = (self.begun && mark < self.used.len()).then_some(Turn {
                shard: mark,
                number: self.turns,
            });
            self.begun |= mark == BEGINNING;
            return;
        }
        let is_of_a_stack = |stack: &Range<u64>| stack.contains(&access.at);
        let Some(turn) = self.turn else { return };
        if self.places.stacks.iter().any(is_of_a_stack) {
            return;
        }
        self.used[turn.shard] += 1;
        let last = access.at.saturating_add(access.bytes.saturating_sub(1));
        for line in access.at / LINE_BYTES..=last / LINE_BYTES {
            self.lines.used(line, turn, access.writes);
        }
    }
}

/// In whose caches the lines would be, as far as these accesses say.
#[derive(Default)]
struct Lines {
    held: HashMap<u64, Held>,
    moves: u64,
}

/// The shards that have a line; only one when it was written since.
#[derive(Clone, Copy, Default)]
struct Held {
    by: [bool; 2],
    written: bool,
    /// The number of the turn in which it moved last: whoever reads it first and then writes it
    /// takes it once.
    moved_in: u64,
}

impl Lines {
    fn used(&mut self, line: u64, Turn { shard, number }: Turn, writes: bool) {
        let held = self.held.entry(line).or_default();
        let by_the_other = held.by[1 - shard];
        let moves = by_the_other && (writes || (held.written && !held.by[shard]));
        if moves && held.moved_in != number {
            self.moves += 1;
            held.moved_in = number;
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
    use std::os::unix::process::ExitStatusExt;

    /// Both shards turn once, with these accesses between the marks.
    fn moves_of(first: &str, second: &str) -> u64 {
        let mut said =
            "marks: 64 128 192 256\nstacks: 1048576 2097152 3145728 4194304\n".as_bytes();
        let (tell, told) = channel();
        tell.send(Places::read(&mut said).expect("well formed"))
            .expect("received below");
        let trace = format!(
            "==1== Lackey\n S 40,8\n S 5000,8\n S 80,8\n S 5000,8\n S c0,8\n S 100,8\n S 40,8\n\
             {first} S c0,8\n S 5000,8\n S 80,8\n{second} S c0,8\n"
        );
        let watch = watch(trace.as_bytes(), &told).expect("places were told");
        watch.lines.moves
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

    #[test]
    fn a_program_that_ends_badly_is_told_with_what_it_said() {
        let (tell, _told) = channel();
        let failure = begin("\nno socket\n".as_bytes(), Vec::new(), &tell);
        let failure = failure.expect_err("no places");
        assert!(failure.ends_with(": no socket"), "{failure}");
        let ended = |code: i32, said: &str| {
            ended_well(ExitStatus::from_raw(code << 8), Ok(said.to_owned()))
        };
        assert_eq!(ended(0, "a shard: 1 operations\n"), Ok(()));
        let late = ended(124, "so far\n").expect_err("killed");
        assert!(late.ends_with("did not end within 180 s: so far"), "{late}");
        let panicked = ended(101, "why\n").expect_err("not 0");
        assert!(panicked.ends_with("exit status: 101: why"), "{panicked}");
    }
}

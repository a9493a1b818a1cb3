//! Instructions per command, counted and compared with what they were: of the protocol machines,
//! and of the loop of a target's shard around them; what that loop asks of the kernel; and cache
//! lines that move between two shards.
//!
//! A count does not depend on the machine's mood, so a small loss is seen at once that no timing on
//! shared processors would show. It does depend on the compiler: `counts.txt` names the one it was
//! made with, and under another one nothing is compared. The work is `counted.rs` and `turn.rs` of
//! `crates/fabrix-target/examples`; the driver of the second is simulated. valgrind counts. What a
//! run costs besides its commands falls out, because each figure is the difference of a longer and
//! a shorter run.

use crate::interop::install_tool;
use crate::process::{cargo, command, cores, output, root, run, side_by_side, target_folder};
use crate::sharing;
use crate::summary::{Counts, Stop};
use std::fs;
use std::path::{Path, PathBuf};

const FILE: &str = "xtask/counts.txt";
const WORKS: [&str; 3] = ["read-4k", "write-4k", "write-128k"];
/// Depths at which reads of 4 KiB pass a shard. Cache lines are counted at the first.
const DEPTHS: [&str; 2] = ["1", "32"];
/// Multiples of every depth.
const SHORT: u32 = 3200;
const LONG: u32 = 6400;
/// The same where every access to memory is written down.
const SHORT_TRACED: u32 = 40;
const LONG_TRACED: u32 = 80;
/// More than this above what was recorded is a loss that somebody has to explain, or to record.
const RISE_PERCENT: u64 = 5;

/// Counts, prints, and compares with the file.
pub(crate) fn check() -> Result<Counts, Stop> {
    let text = fs::read_to_string(root().join(FILE))
        .map_err(|error| format!("cannot read {FILE}: {error}"))?;
    let recorded = Recorded::parse(&text)?;
    let compiler = compiler()?;
    if recorded.compiler != compiler {
        return Err(Stop::Skipped(format!(
            "{FILE} was made with `{}`, and this is `{compiler}`: `cargo xtask count --record` makes it anew",
            recorded.compiler
        )));
    }
    install_tool("valgrind").map_err(Stop::Skipped)?;
    let counts = count_all()?;
    for (work, count) in &counts {
        println!("{work:28} {count}");
    }
    recorded.judge(&counts)?;
    println!("none has risen by more than {RISE_PERCENT} %");
    Ok(Counts::default())
}

/// Counts, and writes the file.
pub(crate) fn record() -> Result<(), String> {
    install_tool("valgrind")?;
    let mut text = format!("{HEAD}compiler: {}\n", compiler()?);
    for (work, count) in count_all()? {
        text += &format!("{work}: {count}\n");
    }
    fs::write(root().join(FILE), &text).map_err(|error| format!("cannot write {FILE}: {error}"))?;
    print!("{text}");
    Ok(())
}

const HEAD: &str = "\
# Made by `cargo xtask count --record`. `cargo xtask test` fails when a number rises by more than 5 %: explain the rise
# in the commit that records it.
# read-..., write-...: instructions per command of the NVMe/TCP machines, host and target together.
# shard-...: instructions per 4 KiB read on a target's shard, at depth 1 and 32, with a simulated driver.
# operations-..., submits-...: what the shard asks of the kernel for 1000 such reads, and the turns that ask for any.
# lines-moved-...: how often a cache line moves between two shards that read from one disk.
";

/// What the file says.
#[derive(Debug, PartialEq, Eq)]
struct Recorded {
    compiler: String,
    counts: Vec<(String, u64)>,
}

impl Recorded {
    fn parse(text: &str) -> Result<Self, String> {
        let mut recorded = Self {
            compiler: String::new(),
            counts: Vec::new(),
        };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match line.split_once(": ") {
                Some(("compiler", name)) => name.clone_into(&mut recorded.compiler),
                Some((work, count)) => {
                    let count = count.parse().map_err(|_| format!("{FILE}: `{line}`"))?;
                    recorded.counts.push((work.to_owned(), count));
                }
                None => return Err(format!("{FILE}: `{line}` is not `name: count`")),
            }
        }
        Ok(recorded)
    }

    fn judge(&self, counts: &[(String, u64)]) -> Result<(), String> {
        for (work, count) in counts {
            let before = self.counts.iter().find(|(name, _)| name == work);
            let (_, before) = before.ok_or_else(|| format!("{FILE} has no `{work}`"))?;
            if count * 100 > before * (100 + RISE_PERCENT) {
                return Err(format!(
                    "{work} is {count}, and was {before}: explain it, and record it with \
                     `cargo xtask count --record`"
                ));
            }
        }
        Ok(())
    }
}

fn compiler() -> Result<String, String> {
    Ok(output(command("rustc").arg("--version"))?.trim().to_owned())
}

fn count_all() -> Result<Vec<(String, u64)>, String> {
    let programs = examples()?;
    let example = |name: &str| programs.join(name);
    let works: Vec<_> = WORKS.map(|work| (example("counted"), work)).into();
    let reads: Vec<_> = DEPTHS.map(|depth| (example("turn"), depth)).into();
    let items = [works, reads].concat();
    let runs = side_by_side(&items, cores(), |_, (program, work)| {
        Difference::of(program, work)
    });
    let mut counts = Vec::new();
    for ((_, work), run) in items.iter().zip(runs) {
        let run = run?;
        let instructions = run.per(1, Run::instructions)?;
        if WORKS.contains(work) {
            counts.push(((*work).to_owned(), instructions));
            continue;
        }
        counts.push((format!("shard-read-4k-{work}"), instructions));
        let operations = run.per(1000, |run| run.printed("operations"))?;
        counts.push((format!("operations-per-1000-reads-{work}"), operations));
        let submits = run.per(1000, |run| run.printed("submitting-turns"))?;
        counts.push((format!("submits-per-1000-reads-{work}"), submits));
    }
    let moves = moves_per_read(&example("shards"))?;
    counts.push((format!("lines-moved-per-read-{}", DEPTHS[0]), moves));
    Ok(counts)
}

/// Both shards' reads count. Whole moves, to the nearest: a shard that has its answers reads on
/// until the other one has them too.
fn moves_per_read(shards: &Path) -> Result<u64, String> {
    let moves = |commands| sharing::moves(shards, DEPTHS[0], commands);
    let more = moves(LONG_TRACED)?.saturating_sub(moves(SHORT_TRACED)?);
    let reads = u64::from(2 * (LONG_TRACED - SHORT_TRACED));
    Ok((more + reads / 2) / reads)
}

/// Builds the examples that are counted; gives their folder. All are of one package: an example
/// builds what its package's tests need, and here that is little beyond what is counted.
fn examples() -> Result<PathBuf, String> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--release"]);
    build.args(["--package", "fabrix-target"]);
    for name in ["counted", "turn", "shards"] {
        build.args(["--example", name]);
    }
    run(&mut build)?;
    Ok(target_folder()?.join("release/examples"))
}

/// A shorter and a longer run of the same work.
struct Difference([Run; 2]);

impl Difference {
    fn of(program: &Path, work: &str) -> Result<Self, String> {
        let [short, long] = [SHORT, LONG].map(|commands| Run::of(program, work, commands));
        Ok(Self([short?, long?]))
    }

    /// The number that so many commands add.
    fn per(
        &self,
        commands: u64,
        number: impl Fn(&Run) -> Result<u64, String>,
    ) -> Result<u64, String> {
        let [short, long] = &self.0;
        let more = number(long)?.saturating_sub(number(short)?);
        Ok(more * commands / u64::from(LONG - SHORT))
    }
}

/// What one run said: valgrind, and the program itself.
struct Run {
    valgrind: String,
    program: String,
}

impl Run {
    fn of(program: &Path, work: &str, commands: u32) -> Result<Self, String> {
        let mut valgrind = command("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        valgrind.arg(program).args([work, &commands.to_string()]);
        let ended = valgrind
            .output()
            .map_err(|error| format!("cannot start valgrind: {error}"))?;
        Ok(Self {
            valgrind: String::from_utf8_lossy(&ended.stderr).into_owned(),
            program: String::from_utf8_lossy(&ended.stdout).into_owned(),
        })
    }

    fn instructions(&self) -> Result<u64, String> {
        // ==1453== Collected : 3791508
        let collected = self.valgrind.split_once("Collected : ");
        let number = collected.and_then(|(_, rest)| rest.lines().next()?.trim().parse().ok());
        number.ok_or_else(|| format!("valgrind counted nothing: {}", self.valgrind))
    }

    /// The number in a line `NAME: NUMBER`.
    fn printed(&self, name: &str) -> Result<u64, String> {
        let mut lines = self.program.lines();
        let number = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        number
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| format!("no {name} in: {}{}", self.program, self.valgrind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# why\ncompiler: rustc 1.0\nread-4k: 1000\n";

    #[test]
    fn a_rise_of_more_than_five_percent_is_refused_and_a_fall_is_not() {
        let recorded = Recorded::parse(TEXT).expect("well formed");
        let judge = |work: &str, count| recorded.judge(&[(work.to_owned(), count)]);
        assert_eq!(judge("read-4k", 1050), Ok(()));
        assert_eq!(judge("read-4k", 500), Ok(()));
        let rise = judge("read-4k", 1051).expect_err("too much");
        assert!(rise.contains("1051") && rise.contains("1000"), "{rise}");
        assert!(judge("write-4k", 1).is_err());
        assert!(Recorded::parse("read-4k: many\n").is_err());
    }

    #[test]
    fn a_longer_run_less_a_shorter_one_is_what_the_commands_cost() {
        let run = |instructions: u64, operations: u64| Run {
            valgrind: format!("==1== Events : Ir\n==1== Collected : {instructions}\n"),
            program: format!("operations: {operations}\n"),
        };
        let difference = Difference([run(1_000_000, 6_400), run(4_200_000, 12_800)]);
        assert_eq!(difference.per(1, Run::instructions), Ok(1000));
        assert_eq!(
            difference.per(1000, |run| run.printed("operations")),
            Ok(2000)
        );
        assert!(difference.per(1000, |run| run.printed("turns")).is_err());
    }
}

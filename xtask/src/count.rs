//! Instructions per command of the protocol machines, counted and compared with what they were.
//!
//! A count does not depend on the machine's mood, so a small loss is seen at once that no timing on shared processors
//! would show. It does depend on the compiler: `counts.txt` names the one it was made with, and under another one
//! nothing is compared. The work is `crates/proto/examples/counted.rs`; valgrind counts. What a run costs besides its
//! commands falls out, because each figure is the difference of a longer and a shorter run.

use crate::interop::install_tool;
use crate::no_os::target_folder;
use crate::process::{cargo, command, output, root, run};
use std::fs;
use std::path::Path;

const FILE: &str = "xtask/counts.txt";
const WORKS: [&str; 3] = ["read-4k", "write-4k", "write-128k"];
/// Multiples of the depth of the example.
const SHORT: u32 = 3200;
const LONG: u32 = 6400;
/// More than this above what was recorded is a loss that somebody has to explain, or to record.
const RISE_PERCENT: u64 = 5;

/// What one comparison says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Held,
    /// Nothing was compared, and why.
    NotCompared(String),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Held => write!(f, "none has risen by more than {RISE_PERCENT} %"),
            Self::NotCompared(why) => write!(f, "not compared: {why}"),
        }
    }
}

/// Counts, prints, and compares with the file.
///
/// # Errors
/// A count has risen, or nothing can be counted.
pub(crate) fn check() -> Result<Outcome, String> {
    let text = fs::read_to_string(root().join(FILE))
        .map_err(|error| format!("cannot read {FILE}: {error}"))?;
    let recorded = Recorded::parse(&text)?;
    let compiler = compiler()?;
    if recorded.compiler != compiler {
        let why = format!(
            "{FILE} was made with `{}`, and this is `{compiler}`: `cargo xtask count --record` makes it anew",
            recorded.compiler
        );
        return Ok(Outcome::NotCompared(why));
    }
    if let Err(why) = install_tool("valgrind") {
        return Ok(Outcome::NotCompared(why));
    }
    let counts = count_all()?;
    for (work, count) in &counts {
        println!("{work:12} {count} instructions per command, host and target together");
    }
    recorded.judge(&counts)?;
    Ok(Outcome::Held)
}

/// Counts, and writes the file.
///
/// # Errors
/// Nothing can be counted, or the file cannot be written.
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
# Instructions per command of the NVMe/TCP machines, host and target together, made by `cargo xtask count --record`.
# `cargo xtask test` fails when one rises by more than 5 %: explain the rise in the commit that records it.
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

    fn judge(&self, counts: &[(&str, u64)]) -> Result<(), String> {
        for (work, count) in counts {
            let before = self.counts.iter().find(|(name, _)| name == work);
            let (_, before) = before.ok_or_else(|| format!("{FILE} has no `{work}`"))?;
            if count * 100 > before * (100 + RISE_PERCENT) {
                return Err(format!(
                    "{work} takes {count} instructions per command, and took {before}: explain it, and record it \
                     with `cargo xtask count --record`"
                ));
            }
        }
        Ok(())
    }
}

fn compiler() -> Result<String, String> {
    Ok(output(command("rustc").arg("--version"))?.trim().to_owned())
}

fn count_all() -> Result<Vec<(&'static str, u64)>, String> {
    let example = ["--package", "fabrix-proto", "--example", "counted"];
    run(cargo()
        .args(["build", "--quiet", "--release"])
        .args(example))?;
    let program = target_folder()?.join("release/examples/counted");
    let per_command = |work| -> Result<_, String> {
        let (short, long) = (count(&program, work, SHORT)?, count(&program, work, LONG)?);
        Ok((work, long.saturating_sub(short) / u64::from(LONG - SHORT)))
    };
    WORKS.into_iter().map(per_command).collect()
}

/// Instructions of one whole run.
fn count(program: &Path, work: &str, commands: u32) -> Result<u64, String> {
    let mut valgrind = command("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    valgrind.arg(program).args([work, &commands.to_string()]);
    let ended = valgrind
        .output()
        .map_err(|error| format!("cannot start valgrind: {error}"))?;
    let said = String::from_utf8_lossy(&ended.stderr);
    collected(&said).ok_or_else(|| format!("valgrind counted nothing: {said}"))
}

/// The number in `==1453== Collected : 3791508`.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# why\ncompiler: rustc 1.0\nread-4k: 1000\n";

    #[test]
    fn a_rise_of_more_than_five_percent_is_refused_and_a_fall_is_not() {
        let recorded = Recorded::parse(TEXT).expect("well formed");
        assert_eq!(recorded.compiler, "rustc 1.0");
        assert_eq!(recorded.judge(&[("read-4k", 1050)]), Ok(()));
        assert_eq!(recorded.judge(&[("read-4k", 500)]), Ok(()));
        let rise = recorded.judge(&[("read-4k", 1051)]).expect_err("too much");
        assert!(rise.contains("1051") && rise.contains("1000"), "{rise}");
        assert!(recorded.judge(&[("write-4k", 1)]).is_err());
    }

    #[test]
    fn a_file_of_another_form_is_refused() {
        assert!(Recorded::parse("read-4k: many\n").is_err());
        assert!(Recorded::parse("read-4k\n").is_err());
    }

    #[test]
    fn finds_the_count_in_what_valgrind_says() {
        assert_eq!(
            collected("==1== Events    : Ir\n==1== Collected : 3791508\n"),
            Some(3_791_508)
        );
        assert_eq!(collected("no such tool"), None);
    }
}

//! Runs worlds: `fabrix-sim WORLD FIRST END TWICE [OPTIONS]`. `cargo xtask sim` starts it, and says
//! what the options mean.
//!
//! WORLD is a name, or `all`: then each seed names its world. FIRST and END are the first seed and
//! the first that is not run. Seeds below TWICE run twice, and both runs have to agree. The first
//! seed that is wrong is the last one. With `--folder` it is shrunk first, and the folder gets a
//! trace of the smallest run.
//!
//! The exit status is 0 if all worlds are right, 1 if one is wrong, and 2 if the words are.

mod arguments;
mod watchdog;

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::time::Duration;

use fabrix_sim::{Attempt, Cut, Kind, Source, WORLDS, attempt, of_bytes, shrink};

use self::arguments::Arguments;
use self::watchdog::Watchdog;

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(sentence) => {
            eprintln!("fabrix-sim: {sentence}");
            ExitCode::from(2)
        }
    }
}

/// False: a world is wrong.
fn run() -> Result<bool, String> {
    let words = std::env::args_os().skip(1).map(|word| {
        let word = word.into_string();
        word.map_err(|word| format!("{word:?} is not UTF-8"))
    });
    let words = words.collect::<Result<Vec<_>, _>>()?;
    let arguments = Arguments::parse(&words)?;
    let watchdog = Watchdog::start(LONGEST, |again| {
        eprintln!("again: {again}");
        eprintln!("  no end after {LONGEST:?}: the product may loop in a turn of a shard");
        process::exit(1);
    });
    if let Some(path) = &arguments.bytes {
        let world = World::of_file(path)?;
        watchdog.begins(&world.again(&arguments.cut));
        return world.run(&arguments, false);
    }
    for seed in arguments.first..arguments.end {
        let world = World::of_seed(&arguments.world, seed)?;
        watchdog.begins(&world.again(&arguments.cut));
        if !world.run(&arguments, seed < arguments.twice)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A world to run.
struct World {
    kind: &'static Kind,
    source: Source,
    /// The options that name it.
    options: String,
    /// Name of its files.
    name: String,
}

impl World {
    fn of_seed(name: &str, seed: u64) -> Result<Self, String> {
        let kind = fabrix_sim::find(name, seed).ok_or_else(|| {
            let names: Vec<_> = WORLDS.iter().map(|kind| kind.name).collect();
            let names = names.join(", ");
            format!("there is no world `{name}`; write all, {names}")
        })?;
        Ok(Self {
            kind,
            source: Source::Seed(seed),
            options: format!("--world {} --seed {seed}", kind.name),
            name: format!("{}-{seed}", kind.name),
        })
    }

    fn of_file(path: &str) -> Result<Self, String> {
        let bytes = fs::read(path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let (kind, source) = of_bytes(&bytes);
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Ok(Self {
            kind,
            source,
            options: format!("--bytes {}", quoted(path)),
            name: format!("bytes-{:016x}", hasher.finish()),
        })
    }

    /// The command that runs it again.
    fn again(&self, cut: &Cut) -> String {
        format!("cargo xtask sim {}{cut}", self.options)
    }

    /// Runs it, and tells what is wrong. False: something is.
    fn run(&self, arguments: &Arguments, twice: bool) -> Result<bool, String> {
        let run = |recorded| attempt(self.kind, &self.source, &arguments.cut, recorded);
        let mut ran = run(arguments.records());
        if twice && run(false).report.digest != ran.report.digest {
            ran.report
                .faults
                .push("two runs of this seed differ".to_owned());
        }
        if !ran.report.faults.is_empty() {
            self.tell(arguments, &ran)?;
            return Ok(false);
        }
        if let Some(sentence) = ran.record.misses(&arguments.cut) {
            return Err(sentence);
        }
        if arguments.tells {
            say(&format!("world {}: {}", self.kind.name, ran.report))?;
        }
        self.write(arguments, &ran, false)?;
        Ok(true)
    }

    /// Tells what is wrong, in the smallest run of it if the whole world ran.
    fn tell(&self, arguments: &Arguments, ran: &Attempt) -> Result<(), String> {
        let is_whole = arguments.cut == Cut::default();
        let shrunk = arguments.folder.as_ref().filter(|_| is_whole);
        let shrunk = shrunk.and_then(|_| shrink(self.kind, &self.source));
        let whole = (&arguments.cut, ran);
        let (cut, smallest) = shrunk.as_ref().map_or(whole, |it| (&it.cut, &it.attempt));
        eprintln!("again: {}", self.again(cut));
        for fault in &smallest.report.faults {
            eprintln!("  {fault}");
        }
        if let Some(shrunk) = &shrunk {
            eprintln!("{shrunk}");
            eprintln!("the whole world: {}", ran.report.faults[0]);
        }
        if arguments.folder.is_some() {
            eprintln!("{}", smallest.report);
            eprint!("{}", smallest.record.in_words());
        }
        self.write(arguments, smallest, true)
    }

    /// Writes what happened into the files that were asked for. Of a world that is wrong, all.
    fn write(&self, arguments: &Arguments, ran: &Attempt, wrong: bool) -> Result<(), String> {
        let record = &ran.record;
        let folder = arguments.folder.as_ref().map(Path::new);
        let file = |ending| Some(folder?.join(format!("{}.{ending}", self.name)));
        if let Some(path) = file("jsonl").filter(|_| arguments.trace || wrong) {
            write("trace", &path, record.json_lines().as_bytes())?;
        }
        let named = arguments.pcap.as_ref().map(PathBuf::from);
        match named.or_else(|| file("pcap").filter(|_| wrong)) {
            Some(path) => write("wire", &path, record.capture()),
            None => Ok(()),
        }
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "/._-+=:@%".contains(it);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Prints a line of data.
fn say(line: &str) -> Result<(), String> {
    writeln!(io::stdout(), "{line}").map_err(|error| format!("cannot print: {error}"))
}

/// Writes a file, and tells where it is.
fn write(what: &str, path: &Path, content: &[u8]) -> Result<(), String> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = folder.and_then(|()| fs::write(path, content));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    eprintln!("{what}: {}", path.display());
    Ok(())
}

/// A world takes some milliseconds, and is shrunk for 10 s at most.
const LONGEST: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_as_a_shell_reads_it() {
        assert_eq!(quoted("/tmp/crash-1.bin"), "/tmp/crash-1.bin");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}

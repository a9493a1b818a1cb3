//! The proof that the simulator can see: plants each mistake into a copy of the sources, and looks
//! for the first seed whose world is wrong.
//!
//! The copy and what is built of it stay below the target folder, so that each mistake builds only
//! the crates that change. Every seed that finds a mistake is run without the mistake too, and must
//! be right there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::planted::Mistake;
use crate::process::{cargo, command, cores, output, root, side_by_side, target_folder};
use crate::summary::{Counts, Stop};

/// Finds the mistakes with `name` in their names.
pub(super) fn run(name: &str) -> Result<Counts, Stop> {
    let mut mistakes = Mistake::all()?;
    mistakes.retain(|mistake| mistake.name.contains(name));
    if mistakes.is_empty() {
        return Err(format!("no planted mistake has `{name}` in its name").into());
    }
    let copy = Copy::make()?;
    let sound = copy.build_sound()?;
    eprintln!("without a mistake: {SOUND_SEEDS} seeds");
    if let Some(wrong) = first_wrong(&sound, "all", SOUND_SEEDS) {
        let sentence = format!("the product is wrong without a mistake: {wrong:?}");
        return Err(Stop::Failed(sentence));
    }
    let mut rows = Vec::new();
    let mut failed = 0;
    for (number, mistake) in (1..).zip(&mistakes) {
        eprintln!("{number} of {}: {}", mistakes.len(), mistake.name);
        let began = Instant::now();
        let program = copy.build_with(mistake)?;
        let built = began.elapsed();
        let began = Instant::now();
        let found = first_wrong(&program, &mistake.world, SEEDS);
        let seed = found.as_ref().map(|found| found.seed);
        if let Some(wrong) = seed.and_then(|seed| one_wrong(&sound, &mistake.world, seed)) {
            let sentence = format!("the product is wrong without a mistake: {wrong:?}");
            return Err(Stop::Failed(sentence));
        }
        let seconds = began.elapsed().as_secs_f64();
        let sentence = found.map_or_else(|| "NOT FOUND".to_owned(), |found| found.fault);
        let seed = seed.map_or_else(|| format!("none of {SEEDS}"), |seed| seed.to_string());
        failed += usize::from(sentence == "NOT FOUND");
        let row = format!(
            "{:46} {:12} {seed:>12} {seconds:6.1} s",
            mistake.name, mistake.world
        );
        println!("{row}  {sentence}");
        rows.push(format!("{row} {:6.1} s", built.as_secs_f64()));
    }
    let head = ["mistake", "world", "first seed", "search", "build"];
    println!(
        "\n{:46} {:12} {:>12} {:>8} {:>8}",
        head[0], head[1], head[2], head[3], head[4]
    );
    rows.iter().for_each(|row| println!("{row}"));
    Ok(Counts {
        passed: mistakes.len() - failed,
        failed,
        ..Counts::default()
    })
}

/// A seed that is wrong.
#[derive(Debug)]
struct Wrong {
    seed: u64,
    /// The first fault, as a sentence.
    fault: String,
}

/// The first seed of a world that is wrong, of so many. Every processor runs seeds.
fn first_wrong(program: &Path, world: &str, seeds: u64) -> Option<Wrong> {
    let first = AtomicU64::new(u64::MAX);
    let portions: Vec<u64> = (0..seeds).step_by(PORTION).collect();
    let found = side_by_side(&portions, cores(), |_, start| {
        // A portion below a wrong one is run to its end: its seeds come first.
        if *start > first.load(Ordering::Relaxed) {
            return None;
        }
        let end = seeds.min(start + PORTION as u64);
        let wrong = wrong_of(program, world, *start, end)?;
        first.fetch_min(*start, Ordering::Relaxed);
        Some(wrong)
    });
    found.into_iter().flatten().next()
}

fn one_wrong(program: &Path, world: &str, seed: u64) -> Option<Wrong> {
    wrong_of(program, world, seed, seed + 1)
}

fn wrong_of(program: &Path, world: &str, start: u64, end: u64) -> Option<Wrong> {
    // coreutils' timeout: a mistake may keep a world from ending.
    let mut worlds = command("timeout");
    worlds
        .args(["--kill-after=1", SECONDS_MAX])
        .arg(program)
        .arg(world);
    worlds.args([start, end, 0].map(|number| number.to_string()));
    output(&mut worlds).err().map(|said| parse(&said, start))
}

/// The first wrong seed in what a portion that begins with `start` has said.
fn parse(said: &str, start: u64) -> Wrong {
    let lines: Vec<&str> = said.lines().collect();
    let again = lines.iter().position(|line| line.starts_with("again: "));
    let seed = again.and_then(|at| lines[at].rsplit(' ').next()?.parse().ok());
    let (Some(at), Some(seed)) = (again, seed) else {
        // The process ended without a word: the portion has the seed.
        let fault = format!("the simulator itself ended: {}", said.trim_end());
        return Wrong { seed: start, fault };
    };
    let fault = lines.get(at + 1).map_or("", |line| line.trim());
    let fault = fault.to_owned();
    Wrong { seed, fault }
}

/// A copy of the sources below the target folder.
struct Copy {
    sources: PathBuf,
    built: PathBuf,
}

impl Copy {
    /// Copies what has changed since the last time.
    fn make() -> Result<Self, String> {
        let folder = target_folder()?.join("planted");
        let copy = Self {
            sources: folder.join("sources"),
            built: folder.join("built"),
        };
        let mut list = command("git");
        list.args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]);
        let listed = output(&mut list)?;
        let mut files: BTreeSet<PathBuf> = listed.split_terminator('\0').map(Into::into).collect();
        files.retain(|path| root().join(path).is_file());
        remove_others(&copy.sources, &copy.sources, &files)?;
        for path in &files {
            let from = root().join(path);
            let text = fs::read(&from).map_err(|error| format!("{}: {error}", from.display()))?;
            write(&copy.sources.join(path), &text)?;
        }
        Ok(copy)
    }

    /// The program without a mistake.
    fn build_sound(&self) -> Result<PathBuf, String> {
        let sound = self.built.join("sound");
        fs::copy(self.build()?, &sound)
            .map_err(|error| format!("cannot write {}: {error}", sound.display()))?;
        Ok(sound)
    }

    /// The program with a mistake. Afterwards the copy is as it was.
    fn build_with(&self, mistake: &Mistake) -> Result<PathBuf, String> {
        let planted = mistake.planted_in(&self.sources)?;
        for file in &planted {
            write(&file.path, file.after.as_bytes())?;
        }
        let built = self.build();
        for file in &planted {
            write(&file.path, file.before.as_bytes())?;
        }
        built.map_err(|why| format!("{} does not compile: {why}", mistake.name))
    }

    fn build(&self) -> Result<PathBuf, String> {
        let mut build = cargo();
        build.args(["build", "--quiet", "--package", "fabrix-sim"]);
        build
            .arg("--manifest-path")
            .arg(self.sources.join("Cargo.toml"));
        output(build.arg("--target-dir").arg(&self.built))?;
        Ok(self.built.join("debug/fabrix-sim"))
    }
}

/// Writes a file unless it has this content: cargo builds again what is newer.
fn write(path: &Path, content: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    let folder = path.parent().expect("a file is in a folder");
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(path, content));
    written.map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Removes the files below `folder` that are not listed by their paths from `root`.
fn remove_others(root: &Path, folder: &Path, listed: &BTreeSet<PathBuf>) -> Result<(), String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(());
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            remove_others(root, &path, listed)?;
        } else if !listed.contains(path.strip_prefix(root).unwrap_or(&path)) {
            let removed = fs::remove_file(&path);
            removed.map_err(|error| format!("cannot remove {}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// Seeds of one process.
const PORTION: usize = 20;
/// A portion that takes longer never ends. It takes a second on a machine with other work.
const SECONDS_MAX: &str = "120";
/// A mistake has to be found below this seed.
const SEEDS: u64 = 5_000;
/// Seeds that run without a mistake.
const SOUND_SEEDS: u64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wrong_seed_is_named_with_its_first_fault() {
        let said = "`fabrix-sim both 20 40 0` ended with exit status: 1\n\
            again: cargo xtask sim --world both --seed 23\n  block 3 is wrong\n  so is 4\n";
        let wrong = parse(said, 20);
        assert_eq!((wrong.seed, &*wrong.fault), (23, "block 3 is wrong"));
    }

    #[test]
    fn a_program_that_ended_without_a_word_is_named_with_what_it_said() {
        let wrong = parse("`fabrix-sim` ended with signal: 6\nabort\n", 20);
        assert!(
            wrong.seed == 20 && wrong.fault.contains("signal: 6"),
            "{wrong:?}"
        );
    }
}

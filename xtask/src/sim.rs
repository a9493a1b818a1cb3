//! Simulated worlds (`crates/fabrix-sim`): many seeds, on all processors.

mod planted;
mod prove;

use std::time::Instant;

use crate::process::{
    cargo, command, cores, output, run as run_program, side_by_side, target_folder,
};
use crate::summary::{Counts, Stop};

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// One world
    #[arg(long, value_name = "NAME", default_value = "all")]
    world: String,
    /// One seed, with what came of it
    #[arg(long)]
    seed: Option<u64>,
    /// First seed, and the first that is not run
    #[arg(long, value_name = "A..B", value_parser = parse_seeds, conflicts_with = "seed")]
    seeds: Option<(u64, u64)>,
    /// Plants mistakes into a copy of the product, and finds each: all, or those with NAME in their
    /// names
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    #[arg(conflicts_with_all = ["world", "seed", "seeds"])]
    prove: Option<String>,
}

fn parse_seeds(text: &str) -> Result<(u64, u64), String> {
    let pair = text.split_once("..");
    let pair = pair.and_then(|(first, end)| Some((first.parse().ok()?, end.parse().ok()?)));
    pair.filter(|(first, end)| first < end)
        .ok_or_else(|| "write the first seed and the first that is not run: 0..1000".to_owned())
}

impl Options {
    /// What `cargo xtask test` runs.
    pub(crate) fn of_test() -> Self {
        Self {
            world: "all".to_owned(),
            seed: None,
            seeds: Some((0, 10_000)),
            prove: None,
        }
    }

    /// What `cargo xtask test --all` runs besides.
    pub(crate) fn of_proof() -> Self {
        Self {
            prove: Some(String::new()),
            ..Self::of_test()
        }
    }
}

/// Runs worlds. The first seeds run twice, and both runs have to agree.
pub(crate) fn run(options: &Options) -> Result<Counts, Stop> {
    if let Some(name) = &options.prove {
        return prove::run(name);
    }
    let mut build = cargo();
    build.args(["build", "--quiet", "--package", "fabrix-sim"]);
    run_program(&mut build)?;
    let program = target_folder()?.join("debug/fabrix-sim");
    let worlds = |first: u64, end: u64| {
        let mut worlds = command(&program);
        worlds.arg(&options.world);
        worlds.args([first, end, TWICE].map(|number| number.to_string()));
        worlds
    };
    if let Some(seed) = options.seed {
        run_program(&mut worlds(seed, seed + 1))?;
        return Ok(passed(1));
    }
    let (first, end) = options.seeds.unwrap_or((0, 1_000));
    let began = Instant::now();
    let starts: Vec<u64> = (first..end).step_by(PORTION).collect();
    let outcomes = side_by_side(&starts, cores(), |_, start| {
        let portion = end.min(start + PORTION as u64);
        output(&mut worlds(*start, portion))
    });
    let wrong: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    for portion in &wrong {
        println!("{portion}");
    }
    println!(
        "{} seeds in {:.0} s",
        end - first,
        began.elapsed().as_secs_f64()
    );
    match wrong.len() {
        0 => Ok(passed(end - first)),
        several => {
            let sentence = format!("something is wrong in {several} portions of {PORTION} seeds");
            Err(Stop::Failed(sentence))
        }
    }
}

/// The counts of seeds whose worlds are right.
fn passed(seeds: u64) -> Counts {
    Counts {
        passed: usize::try_from(seeds).unwrap_or(usize::MAX),
        ..Counts::default()
    }
}

/// Seeds of one process.
const PORTION: usize = 100;
/// Every seed below this one runs twice.
const TWICE: u64 = 200;

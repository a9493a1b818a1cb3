//! Runs worlds: `fabrix-sim WORLD FIRST END TWICE`. WORLD is a name, or `all`: then each seed names
//! its world. FIRST and END are the first seed and the first that is not run. Seeds below TWICE run
//! twice, and both runs have to agree. `cargo xtask sim` starts it.

use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use fabrix_sim::{Cut, Kind, Report, Run, WORLDS, trace};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, [first, end, twice])) = parse(&words) else {
        eprintln!(
            "fabrix-sim: write a world, the first seed, the first that is not run, and below which seeds run twice"
        );
        return ExitCode::from(2);
    };
    let mut wrong = 0;
    for seed in first..end {
        let Some(kind) = fabrix_sim::find(name, seed) else {
            let names: Vec<_> = WORLDS.iter().map(|kind| kind.name).collect();
            let names = names.join(", ");
            eprintln!("fabrix-sim: there is no world `{name}`; write all, {names}");
            return ExitCode::from(2);
        };
        let faults = faults(kind, seed, seed < twice, end - first == 1);
        if !faults.is_empty() {
            wrong += 1;
            eprintln!("again: cargo xtask sim --world {} --seed {seed}", kind.name);
            for fault in faults {
                eprintln!("  {fault}");
            }
        }
    }
    if wrong == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn parse(words: &[String]) -> Option<(&str, [u64; 3])> {
    let (name, numbers) = words.split_first()?;
    let numbers: Vec<u64> = numbers
        .iter()
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    Some((name, numbers.try_into().ok()?))
}

/// What is wrong in the world of a seed.
fn faults(kind: &Kind, seed: u64, twice: bool, tell: bool) -> Vec<String> {
    if tell {
        trace::start();
    }
    let report = match run(kind, seed) {
        Ok(report) => report,
        Err(fault) => return vec![fault],
    };
    if tell {
        println!("{report}");
        for entry in trace::take().entries {
            println!("  {entry}");
        }
    }
    let mut faults = report.faults;
    if twice {
        match run(kind, seed) {
            Ok(second) if second.digest == report.digest => {}
            Ok(_) => faults.push("two runs of this seed differ".to_owned()),
            Err(fault) => faults.push(fault),
        }
    }
    faults
}

/// Runs a world. A panic in it is a fault.
fn run(kind: &Kind, seed: u64) -> Result<Report, String> {
    panic::catch_unwind(AssertUnwindSafe(|| {
        (kind.run)(&Run::of_seed(seed, Cut::default()))
    }))
    .map_err(|_| "a panic, see above".to_owned())
}

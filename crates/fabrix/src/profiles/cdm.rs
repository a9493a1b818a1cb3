//! The eight numbers of CrystalDiskMark, with its tests and its order: all reads, all writes, then
//! the mix. Each test has one uncounted run and several counted ones, of which the best is the
//! score. The median is shown beside it, because the best run hides the spread.

mod card;
pub(crate) mod policies;
pub(crate) mod test;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fabrix_bench::contents::{Base, Contents};
use fabrix_bench::{Counted, Job, Rw};
use fabrix_block::spec::Size;

use crate::cli::bench::args::{CdmArgs, CdmPreset};
use crate::cli::bench::publish::check_place;
use crate::cli::bench::session::{Disk, Session};
use crate::failure::Failure;
use crate::report::sheet::{Cell, Drawing, Figure, Report, Run, Shown, Table};
use fabrix_block::spec::without_secrets;
use test::{Test, test};

/// The tests of a preset, in order. Source: CrystalDiskMark's settings dialogue, versions 8 and 9.
fn tests(preset: CdmPreset) -> Vec<Test> {
    let (seq1m_q8, seq1m_q1) = (test(false, 1024, 8, 1), test(false, 1024, 1, 1));
    let (rnd_q32, rnd_q1) = (test(true, 4, 32, 1), test(true, 4, 1, 1));
    match preset {
        CdmPreset::Default => vec![seq1m_q8, seq1m_q1, rnd_q32, rnd_q1],
        CdmPreset::Nvme => vec![
            seq1m_q8,
            test(false, 128, 32, 1),
            test(true, 4, 32, 16),
            rnd_q1,
        ],
        CdmPreset::Peak => vec![seq1m_q8, rnd_q32],
        CdmPreset::Real => vec![seq1m_q1, rnd_q1],
        CdmPreset::Demo => vec![seq1m_q8],
    }
}

/// The tests that the command line asks for.
fn tests_of(args: &CdmArgs) -> Vec<Test> {
    match args.tests.is_empty() {
        true => tests(args.preset),
        false => args.tests.clone(),
    }
}

/// Reads, writes and the mix: each with its name and its percentage of reads. None: reads only.
fn kinds_of(args: &CdmArgs) -> Vec<(&'static str, Option<u8>)> {
    let mix = args.mix.map(|mix| ("Mix", Some(mix)));
    [("Read", None), ("Write", Some(0))]
        .into_iter()
        .chain(mix)
        .collect()
}

impl Test {
    fn job(self, write: Option<u8>, args: &CdmArgs, bytes: u64) -> Job {
        let rwmixread = write.map_or(100, u32::from);
        let kind = match rwmixread {
            100 => "read",
            0 => "write",
            _ => "mix",
        };
        Job {
            name: format!("{} {kind}", self.name()),
            rw: Rw::new(self.random, rwmixread),
            random_map: false,
            rwmixread,
            contents: Contents {
                base: match args.zero_fill {
                    true => Base::Zeroes,
                    false => Base::Random,
                },
                ..Contents::default()
            },
            block_bytes: self.block_bytes,
            iodepth: self.queues,
            numjobs: self.threads,
            size: Some(bytes),
            runtime: args.runtime,
            ramp: Duration::ZERO,
            ..Job::default()
        }
    }
}

/// Score of a test: the best and the median run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Score {
    mb_per_s: f64,
    median_mb_per_s: f64,
    iops: f64,
    /// Smallest mean latency of the runs.
    latency_us: f64,
}

impl Score {
    fn of(run: &Run) -> Self {
        let bandwidth = run.spread(|repeat| repeat.bw_bytes);
        Self {
            mb_per_s: bandwidth.max / 1e6,
            median_mb_per_s: bandwidth.median / 1e6,
            iops: run.spread(|repeat| repeat.iops).max,
            latency_us: run.spread(|repeat| repeat.mean_us).min,
        }
    }
}

/// Scores of a test: reads, writes and the mix.
struct Line {
    test: Test,
    scores: [Option<Score>; 3],
}

pub(crate) fn run(args: &CdmArgs) -> Result<ExitCode, Failure> {
    args.card.as_deref().map_or(Ok(()), check_place)?;
    if let Some(policies) = &args.policies {
        return policies::run(args, policies);
    }
    let [bytes] = args.size[..] else {
        return Err(Failure::usage(
            "--size: one size, or --policies for a table of several",
        ));
    };
    let mut session = Session::begin(&args.common)?;
    let disk = session.open(&args.uri)?;
    disk.check_size(Some(bytes))?;
    let (tests, kinds) = (tests_of(args), kinds_of(args));
    for test in &tests {
        let checked = test.job(None, args, bytes).check_on(disk.device.geometry());
        checked.map_err(|error| Failure::usage(format!("{}: {error}", disk.uri)))?;
    }
    session.guard(std::slice::from_ref(&disk))?;
    session.plan(
        tests.len() * kinds.len() * (args.count as usize + 1) + 1,
        args.runtime,
    );
    let mut notes = vec![format!(
        "the score is the best of {} and the latency the least mean; the median stands beside it. MB/s is \
         10^6 bytes",
        Counted(args.count.into(), "run")
    )];
    if args.zero_fill {
        notes.push(
            "writes have zeroes: a disk that compresses or deduplicates is fast with them".into(),
        );
    }
    notes.extend(session.fill(&disk, Some(bytes)));
    let mut lines: Vec<Line> = tests
        .into_iter()
        .map(|test| Line {
            test,
            scores: [None; 3],
        })
        .collect();
    let mut runs = Vec::new();
    for (column, (_, write)) in kinds.into_iter().enumerate() {
        if write.is_some() && disk.device.geometry().read_only {
            continue;
        }
        for line in &mut lines {
            let Some(run) = score(
                &mut session,
                &disk,
                &line.test.job(write, args, bytes),
                args,
            ) else {
                break;
            };
            line.scores[column] = Some(Score::of(&run));
            runs.push(run);
        }
    }
    if runs.is_empty() && session.is_over() {
        return session.nothing();
    }
    let text = text((args, bytes), &lines);
    let card = card::draw(&without_secrets(&args.uri), (args, bytes), &lines);
    if let Some(path) = &args.card {
        save(path, &card)?;
    }
    let report = Report {
        profile: "cdm".into(),
        title: format!("{}: the eight numbers", without_secrets(&args.uri)),
        lead: "the tests and the scoring of CrystalDiskMark".into(),
        notes,
        tables: vec![table(&lines, args)],
        figures: vec![figure(&lines)],
        runs,
        ..Report::default()
    };
    let code = session.finish_as(&text, report)?;
    if let Some(directory) = &args.common.report {
        save(&directory.join("card.svg"), &card)?;
    }
    Ok(code)
}

fn save(path: &Path, card: &str) -> Result<(), Failure> {
    std::fs::write(path, card).map_err(Failure::at(path))
}

/// Runs one test: an uncounted run, the counted runs, and the pause.
fn score(session: &mut Session, disk: &Disk, job: &Job, args: &CdmArgs) -> Option<Run> {
    session.measure(disk, job, 1)?;
    let run = session.measure(disk, job, args.count)?;
    let until = std::time::Instant::now() + args.interval;
    while std::time::Instant::now() < until && !session.stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20).min(args.interval));
    }
    Some(run)
}

/// The report in CrystalDiskMark's usual text form.
fn text((args, bytes): (&CdmArgs, u64), lines: &[Line]) -> String {
    let mut text = String::from(
        "* MB/s = 1,000,000 bytes/s, KiB = 1024 bytes; score: best run (median in brackets)\n",
    );
    for (column, head) in [(0, "[Read]"), (1, "[Write]"), (2, "[Mix]")] {
        if lines.iter().all(|line| line.scores[column].is_none()) {
            continue;
        }
        text += &format!("\n{head}\n");
        for line in lines {
            let Some(score) = line.scores[column] else {
                continue;
            };
            let test = line.test;
            let kind = if test.random { "RND" } else { "SEQ" };
            text += &format!(
                "  {kind} {:>5} KiB (Q={:>3}, T={:>2}): {:>10.3} MB/s ({:>10.3}) [{:>10.1} IOPS] <{:>9.2} us>\n",
                test.block_bytes >> 10,
                test.queues,
                test.threads,
                score.mb_per_s,
                score.median_mb_per_s,
                score.iops,
                score.latency_us
            );
        }
    }
    let mix = args
        .mix
        .map_or_else(String::new, |mix| format!(", mix R{mix}/W{}", 100 - mix));
    let preset = match args.tests.is_empty() {
        true => format!("{:?}", args.preset),
        false => "Custom".to_owned(),
    };
    text + &format!(
        "\nPreset: {preset}{mix}\n  Test: {} (x{}) on {}\n  Time: measure {} s / interval {} s\n    By: fabrix {}\n",
        Size(bytes),
        args.count,
        without_secrets(&args.uri),
        args.runtime.as_secs_f64(),
        args.interval.as_secs_f64(),
        env!("CARGO_PKG_VERSION")
    )
}

fn table(lines: &[Line], args: &CdmArgs) -> Table {
    let kinds: &[&str] = if args.mix.is_some() {
        &["Read", "Write", "Mix"]
    } else {
        &["Read", "Write"]
    };
    let heads = kinds
        .iter()
        .flat_map(|kind| ["MB/s", "median", "IOPS", "mean us"].map(|head| (*kind, head)));
    let mut table = Table::new("scores", "Scores", [("", "test")].into_iter().chain(heads));
    for line in lines {
        let mut row = vec![Cell::text(line.test.name())];
        for score in line.scores.iter().take(kinds.len()) {
            let figure =
                |of: fn(&Score) -> f64, shown| Cell::optional(score.as_ref().map(of), shown);
            row.push(figure(|score| score.mb_per_s, Shown::Fixed(2)));
            row.push(figure(|score| score.median_mb_per_s, Shown::Fixed(2)));
            row.push(figure(|score| score.iops, Shown::Grouped));
            row.push(figure(|score| score.latency_us, Shown::Time));
        }
        table.push(row);
    }
    table
}

fn figure(lines: &[Line]) -> Figure {
    let values = |line: &Line| {
        line.scores
            .iter()
            .map(|score| score.map(|score| score.mb_per_s))
            .collect()
    };
    Figure {
        name: "scores".into(),
        title: "Scores".into(),
        unit: "MB/s, best of the runs; more is better".into(),
        drawing: Drawing::Bars {
            time: false,
            series: ["Read", "Write", "Mix"].map(str::to_owned).into(),
            groups: lines
                .iter()
                .map(|line| (line.test.name(), values(line)))
                .collect(),
        },
    }
}

#[cfg(test)]
mod test_names {
    use super::*;

    #[test]
    fn the_presets_are_those_of_the_dialogue() {
        let names = |preset| {
            tests(preset)
                .into_iter()
                .map(Test::name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(CdmPreset::Default),
            ["SEQ1M Q8T1", "SEQ1M Q1T1", "RND4K Q32T1", "RND4K Q1T1"]
        );
        assert_eq!(
            names(CdmPreset::Nvme),
            ["SEQ1M Q8T1", "SEQ128K Q32T1", "RND4K Q32T16", "RND4K Q1T1"]
        );
    }

    #[test]
    fn own_tests_are_written_like_the_names_of_the_others() {
        for text in ["SEQ128K Q32T1", "seq128k-q32t1", "SEQ128KQ32T1"] {
            assert_eq!(Test::parse(text), Ok(test(false, 128, 32, 1)), "{text}");
        }
        assert_eq!(
            Test::parse("RND4K-Q32T16").map(Test::name).as_deref(),
            Ok("RND4K Q32T16")
        );
        assert_eq!(
            Test::parse("SEQ8M-Q1T1").map(Test::name).as_deref(),
            Ok("SEQ8M Q1T1")
        );
        for wrong in ["", "SEQ1M", "SEQ1MQ8", "4K-Q1T1", "RNDxQ1T1", "RND4K-Q1Tx"] {
            let error = Test::parse(wrong).expect_err(wrong);
            assert!(error.contains("write SEQ1M-Q8T1"), "{error}");
        }
    }

    #[test]
    fn the_score_is_the_best_run_and_the_least_latency() {
        let mut run = crate::report::sheet::Run {
            name: String::new(),
            disk: String::new(),
            results: fabrix_bench::Results {
                others: Vec::new(),
                job: Job::default(),
                jobs: Vec::new(),
                aggregate: Default::default(),
                cpu: Default::default(),
                series: Vec::new(),
                recorded: fabrix_bench::results::Recorded::default(),
                steady: None,
            },
            repeats: Vec::new(),
            target_cores: None,
            missed: None,
            group: 0,
            written: None,
        };
        run.repeats = [(1.0, 9.0), (3.0, 7.0), (2.0, 8.0)]
            .map(|(times, mean_us)| crate::report::sheet::Repeat {
                iops: times,
                bw_bytes: times * 1e6,
                mean_us,
            })
            .into();
        let expected = Score {
            mb_per_s: 3.0,
            median_mb_per_s: 2.0,
            iops: 3.0,
            latency_us: 7.0,
        };
        assert_eq!(Score::of(&run), expected);
    }
}

//! The tests of CrystalDiskMark on a disk with several paths, under one policy after the other:
//! policies down, tests across.

use std::process::ExitCode;
use std::str::FromStr;

use fabrix_bench::Counted;
use fabrix_block::Spec;
use fabrix_block::spec::{Disk as SpecDisk, Size, without_secrets};
use fabrix_host::multipath::Policy;

use super::{Score, Test, kinds_of, score, tests_of};
use crate::cli::bench::args::CdmArgs;
use crate::cli::bench::session::{Disk, Session};
use crate::failure::Failure;
use crate::report::sheet::{Cell, Drawing, Figure, Report, Run, Shown, Table};

/// The policies to compare, as the command line names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Policies {
    /// Each path alone, and the policies that use all of them.
    All,
    These(Vec<Policy>),
}

impl FromStr for Policies {
    type Err = String;

    /// `all`, or policies with commas between them.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            text => text
                .split(',')
                .map(str::parse)
                .collect::<Result<_, _>>()
                .map(Self::These),
        }
    }
}

impl Policies {
    /// The policies for a disk with so many paths.
    fn of(&self, paths: usize) -> Vec<Policy> {
        let shared = [
            Policy::RoundRobin(1000),
            Policy::RoundRobin(1),
            Policy::QueueDepth,
            Policy::ServiceTime,
            Policy::Latency,
        ];
        match self {
            Self::All => (0..paths).map(Policy::Fixed).chain(shared).collect(),
            Self::These(policies) => policies.clone(),
        }
    }
}

/// A policy and a size, with the scores of each kind and test.
struct Line {
    policy: String,
    bytes: u64,
    scores: Vec<Option<Score>>,
}

pub(super) fn run(args: &CdmArgs, policies: &Policies) -> Result<ExitCode, Failure> {
    let policies = policies.of(paths_of(&args.uri)?);
    let (tests, kinds) = (tests_of(args), kinds_of(args));
    let mut session = Session::begin(&args.common)?;
    let mut disk = session.open_under(&args.uri, policies[0])?;
    let most = args.size.iter().copied().max();
    disk.check_size(most)?;
    session.guard(std::slice::from_ref(&disk))?;
    let measured = policies.len() * args.size.len() * tests.len() * kinds.len();
    session.plan(measured * (args.count as usize + 1) + 1, args.runtime);
    let mut notes = vec![format!(
        "each figure is the best of {}; a path's number is its place in the list, counted from 0",
        Counted(args.count.into(), "run")
    )];
    notes.extend(session.fill(&disk, most));
    let (mut lines, mut runs) = (Vec::new(), Vec::new());
    for policy in policies {
        if session.is_over() {
            break;
        }
        drop(disk);
        disk = session.open_under(&args.uri, policy)?;
        for bytes in args.size.iter().copied() {
            let (line, of_line) = measure(&mut session, &disk, (&tests, &kinds), (args, bytes));
            lines.push(line);
            runs.extend(of_line);
        }
    }
    session.finish(Report {
        profile: "cdm".into(),
        title: format!("{}: its policies", without_secrets(&args.uri)),
        lead: "the tests of CrystalDiskMark under one policy after the other".into(),
        notes,
        tables: tables(&lines, &tests, &kinds),
        figures: vec![figure(&lines, &tests, &kinds)],
        runs,
        ..Report::default()
    })
}

/// Number of paths of the disk.
fn paths_of(uri: &str) -> Result<usize, Failure> {
    match Spec::parse(uri).map_err(Failure::usage)?.disk {
        SpecDisk::Multipath { paths, .. } => Ok(paths.len()),
        _ => Err(Failure::usage(format!(
            "--policies: {} has one path; write multipath:(URI,URI)",
            without_secrets(uri)
        ))),
    }
}

/// All kinds and tests on a disk whose label is its policy.
fn measure(
    session: &mut Session,
    disk: &Disk,
    (tests, kinds): (&[Test], &[(&str, Option<u8>)]),
    (args, bytes): (&CdmArgs, u64),
) -> (Line, Vec<Run>) {
    let (mut scores, mut runs) = (Vec::new(), Vec::new());
    for (_, write) in kinds {
        for test in tests {
            let job = test.job(*write, args, bytes);
            let run = match disk.takes(&job) && !session.is_over() {
                true => score(session, disk, &job, args),
                false => None,
            };
            scores.push(run.as_ref().map(Score::of));
            runs.extend(run);
        }
    }
    let line = Line {
        policy: disk.label.clone(),
        bytes,
        scores,
    };
    (line, runs)
}

/// A table for each measure.
fn tables(lines: &[Line], tests: &[Test], kinds: &[(&str, Option<u8>)]) -> Vec<Table> {
    type Measure = (&'static str, &'static str, fn(&Score) -> f64, Shown);
    let measures: [Measure; 3] = [
        (
            "policies-mb",
            "MB/s",
            |score| score.mb_per_s,
            Shown::Fixed(2),
        ),
        ("policies-iops", "IOPS", |score| score.iops, Shown::Grouped),
        (
            "policies-latency",
            "mean us",
            |score| score.latency_us,
            Shown::Time,
        ),
    ];
    let names: Vec<String> = tests.iter().map(|test| test.name()).collect();
    let heads = kinds
        .iter()
        .flat_map(|(kind, _)| names.iter().map(move |name| (*kind, name.as_str())));
    let heads: Vec<(&str, &str)> = [("", "policy"), ("", "size")]
        .into_iter()
        .chain(heads)
        .collect();
    let table = |(name, title, of, shown): Measure| {
        let mut table = Table::new(name, &format!("Policies: {title}"), heads.iter().copied());
        for line in lines {
            let mut row = vec![
                Cell::text(&line.policy),
                Cell::text(Size(line.bytes).to_string()),
            ];
            row.extend(
                line.scores
                    .iter()
                    .map(|score| Cell::optional(score.as_ref().map(of), shown)),
            );
            table.push(row);
        }
        table
    };
    measures.into_iter().map(table).collect()
}

fn figure(lines: &[Line], tests: &[Test], kinds: &[(&str, Option<u8>)]) -> Figure {
    let series = kinds.iter().flat_map(|(kind, _)| {
        tests
            .iter()
            .map(move |test| format!("{} {}", test.name(), kind.to_lowercase()))
    });
    let group = |line: &Line| {
        let scores = line
            .scores
            .iter()
            .map(|score| score.map(|score| score.mb_per_s));
        (
            format!("{}, {}", line.policy, Size(line.bytes)),
            scores.collect(),
        )
    };
    Figure {
        name: "policies".into(),
        title: "Policies".into(),
        unit: "MB/s, best of the runs; more is better".into(),
        drawing: Drawing::Bars {
            time: false,
            series: series.collect(),
            groups: lines.iter().map(group).collect(),
        },
    }
}

#[cfg(test)]
mod test_policies {
    use super::*;

    #[test]
    fn all_policies_are_each_path_alone_and_those_that_use_every_path() {
        let names = |text: &str| {
            let policies: Policies = text.parse().expect(text);
            policies
                .of(2)
                .iter()
                .map(Policy::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(names("fixed:1,round-robin:7"), ["fixed:1", "round-robin:7"]);
        let all = names("all");
        assert_eq!(
            all[..4],
            ["fixed:0", "fixed:1", "round-robin:1000", "round-robin:1"]
        );
        let wrong = "fastest".parse::<Policies>().expect_err("no policy");
        assert!(wrong.contains("`fastest` is not a policy"), "{wrong}");
    }
}

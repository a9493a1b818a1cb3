//! DiskSpd's words on disks: its flags, its text and its XML. And the set of workloads with which a published test
//! measured four striped drives, locally and through a file share: `bench diskspd set URI...`.

mod flags;
mod output;
mod xml;

use std::process::ExitCode;
use std::time::Duration;

use fabrix_bench::{Job, Rw};

use super::published;
use crate::cli::bench::args::{WordsArgs, shown};
use crate::cli::bench::session::{Disk, Session, Step};
use crate::failure::Failure;
use crate::report::sheet::{Cell, Drawing, Figure, Report, Run, Shown, Table};
use crate::report::views;
use flags::Flags;

pub(crate) fn run(args: &WordsArgs) -> Result<ExitCode, Failure> {
    if args.words.first().is_some_and(|word| word == "set") {
        return set(args);
    }
    let flags = Flags::parse(&args.words).map_err(Failure::usage)?;
    let mut session = Session::begin(&args.common())?;
    let opened = flags
        .targets
        .iter()
        .map(|target| session.open(&flags.uri(target)));
    let disks = opened.collect::<Result<Vec<Disk>, _>>()?;
    if flags.percent_write > 0 {
        session.guard(&disks)?;
    }
    if let Some(every) = flags.interval {
        session.config.progress_every = every;
    }
    session.plan(1, flags.duration + flags.warm_up);
    let job = flags.job();
    let parts: Vec<Step<'_>> = disks.iter().map(|disk| Step::new(disk, &job)).collect();
    let Some(runs) = session.together(&parts, 1) else {
        return session.nothing();
    };
    let text = match flags.xml {
        true => xml::results(&flags, &runs),
        false => output::text(&flags, &args.words, &runs),
    };
    let report = Report {
        profile: "diskspd".into(),
        title: format!("diskspd {}", shown(&args.words)),
        lead: "DiskSpd's words; MiB/s is 2^20 bytes, as DiskSpd counts".into(),
        ..views::sheet(runs)
    };
    session.finish_as(&text, report)
}

/// The published set: name, random, bytes, depth, whether it writes too, seconds.
const SET: [(&str, bool, u32, u32, bool, u64); 5] = [
    ("sequential 128K Q56", false, 128 << 10, 56, true, 10),
    ("random 4K Q56", true, 4 << 10, 56, true, 10),
    ("sequential 1M Q1", false, 1 << 20, 1, true, 10),
    ("random 4K Q1", true, 4 << 10, 1, true, 10),
    ("sequential 4M Q56 peak", false, 4 << 20, 56, false, 20),
];

/// The set on one disk or several, as they are and after they were filled.
fn set(args: &WordsArgs) -> Result<ExitCode, Failure> {
    let (mut seconds, mut uris) = (None, Vec::new());
    for word in &args.words[1..] {
        match word.strip_prefix("-d") {
            Some(number) => seconds = Some(flags::seconds("-d", number).map_err(Failure::usage)?),
            None if word.starts_with('-') => {
                return Err(Failure::usage(format!(
                    "{word}: the set takes -d and disks"
                )));
            }
            None => uris.push(word.clone()),
        }
    }
    if uris.is_empty() {
        return Err(Failure::usage(
            "which disk: fabrix bench diskspd set URI...",
        ));
    }
    let mut session = Session::begin(&args.common())?;
    let disks = uris
        .iter()
        .map(|uri| session.open(uri))
        .collect::<Result<Vec<Disk>, _>>()?;
    session.guard(&disks)?;
    let labels: Vec<&str> = disks.iter().map(|disk| disk.label.as_str()).collect();
    let mut report = Report {
        profile: "diskspd".into(),
        title: format!("{}: the published DiskSpd set", labels.join(", ")),
        lead: "DiskSpd workloads of a published test of four striped drives over 100 GbE; columns in MB/s \
         (10^6)".into(),
        ..Report::default()
    };
    session.plan(
        SET.len() * 4 * disks.len(),
        seconds.unwrap_or(Duration::from_secs(10)),
    );
    let states: &[&str] = &["as it is", "filled before"];
    let heads: Vec<String> = disks
        .iter()
        .flat_map(|disk| {
            states
                .iter()
                .map(move |state| format!("{}, {state}", disk.label))
        })
        .collect();
    let columns = heads
        .iter()
        .flat_map(|head| ["MB/s", "IOPS"].map(|name| (head.as_str(), name)));
    let mut table = Table::new(
        "set",
        "The set",
        [("", "workload")].into_iter().chain(columns),
    );
    let names: Vec<String> = SET
        .iter()
        .flat_map(|(name, .., writes, _)| {
            let kinds: &[&str] = if *writes {
                &["read", "write"]
            } else {
                &["read"]
            };
            kinds.iter().map(move |kind| format!("{name} {kind}"))
        })
        .collect();
    let mut found: Vec<Vec<Option<Run>>> = names.iter().map(|_| Vec::new()).collect();
    for disk in &disks {
        for state in states {
            if *state == "filled before" {
                report.notes.extend(session.fill(disk, None));
            }
            for (row, name) in found.iter_mut().zip(&names) {
                let job = set_job(name, disk, seconds);
                row.push(session.measure_taken(disk, &job, 1));
            }
        }
    }
    let mut groups = Vec::new();
    for (name, row) in names.iter().zip(found) {
        let cells = row.iter().flat_map(|run| {
            let of = |of: fn(&Run) -> f64| run.as_ref().map(of);
            [
                Cell::optional(of(|run| run.bw_bytes() / 1e6), Shown::Fixed(2)),
                Cell::optional(of(Run::iops), Shown::Grouped),
            ]
        });
        table.push([Cell::text(name)].into_iter().chain(cells).collect());
        groups.push((
            name.clone(),
            row.iter()
                .map(|run| run.as_ref().map(|run| run.bw_bytes() / 1e6))
                .collect(),
        ));
        report.runs.extend(row.into_iter().flatten());
    }
    report.tables.push(table);
    published::find("diskspd-100gbe")?.join(&mut report.tables);
    report.figures.push(Figure {
        name: "set".into(),
        title: "The set".into(),
        unit: "MB/s; more is better".into(),
        drawing: Drawing::Bars {
            series: heads,
            groups,
        },
    });
    session.finish(report)
}

/// The job of a line of the set; requests longer than the disk takes become as long as it takes.
fn set_job(name: &str, disk: &Disk, seconds: Option<Duration>) -> Job {
    let line = SET
        .iter()
        .find(|line| name.starts_with(line.0))
        .expect("names are made of the set");
    let (_, random, bytes, depth, _, usual) = *line;
    let write = name.ends_with("write");
    let rw = match (random, write) {
        (true, false) => Rw::RandRead,
        (true, true) => Rw::RandWrite,
        (false, false) => Rw::Read,
        (false, true) => Rw::Write,
    };
    Job {
        name: name.to_owned(),
        rw,
        block_bytes: bytes.min(disk.device.geometry().max_transfer_bytes),
        iodepth: depth,
        runtime: seconds.unwrap_or_else(|| Duration::from_secs(usual)),
        ramp: Duration::ZERO,
        ..Job::default()
    }
}

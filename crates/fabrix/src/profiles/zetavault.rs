//! Native against fabric after Zetavault's article: random reads and writes of 1K, 4K, 16K and 64K
//! with 1, 2 and 4 workers of depth 32, averaged over several repeats.

use std::process::ExitCode;
use std::time::Duration;

use fabrix_bench::{Counted, Job, Rw};

use super::published;
use crate::cli::bench::args::SweepArgs;
use crate::cli::bench::session::{Disk, Session};
use crate::failure::Failure;
use crate::report::sheet::{Cell, Drawing, Figure, Report, Run, Shown, Table};
use fabrix_block::spec::without_secrets;

const SIZES: [(&str, u32); 4] = [
    ("1K", 1 << 10),
    ("4K", 4 << 10),
    ("16K", 16 << 10),
    ("64K", 64 << 10),
];
const WORKERS: [u32; 3] = [1, 2, 4];
const IODEPTH: u32 = 32;
/// Number and duration of the repeats: by default, and in the article.
const USUAL: (u32, Duration) = (3, Duration::from_millis(500));
const PUBLISHED: (u32, Duration) = (20, Duration::from_secs(2));

pub(crate) fn run(args: &SweepArgs) -> Result<ExitCode, Failure> {
    let published = published::requested(&args.table)?;
    let (mut session, disks) = Session::sweep(args)?;
    let (count, runtime) = match args.as_published {
        true => PUBLISHED,
        false => (
            args.count.unwrap_or(USUAL.0),
            args.runtime.unwrap_or(USUAL.1),
        ),
    };
    let steps = 2 * SIZES.len() * WORKERS.len() * disks.len() * count as usize + 2;
    session.plan(steps, runtime + args.step.ramp);
    let mut report = Report {
        profile: "zetavault".into(),
        title: format!(
            "{}: 1, 2 and 4 workers of depth 32",
            without_secrets(&args.uri)
        ),
        lead: "the method of Zetavault's article on NVMe native against NVMe over fabrics".into(),
        notes: vec![format!(
            "each figure is the mean of {} of {} s; the article's is that of 20 runs of 2 s (--as-published)",
            Counted(count.into(), "run"),
            runtime.as_secs_f64()
        )],
        ..Report::default()
    };
    if !args.table.no_fill {
        report.notes.extend(session.fill(&disks[0], args.step.size));
    }
    let block = disks
        .iter()
        .map(|disk| disk.device.geometry().block_bytes)
        .max()
        .unwrap_or(512);
    if block > 1 << 10 {
        report.notes.push(format!(
            "no requests of 1K: the disk's block is {block} bytes (try ,block=512)"
        ));
    }
    for workers in WORKERS {
        for rw in [Rw::RandRead, Rw::RandWrite] {
            let base = Job {
                rw,
                runtime,
                ramp: args.step.ramp,
                numjobs: workers,
                iodepth: IODEPTH,
                size: args.step.size,
                ..Job::default()
            };
            let sizes: Vec<_> = SIZES
                .into_iter()
                .filter(|(_, bytes)| *bytes >= block)
                .collect();
            square(&mut session, &disks, &base, &sizes, count, &mut report);
        }
    }
    if let Some(published) = published {
        for table in &mut report.tables {
            // `read-1w` and `4K` in our table correspond to `read 4K 1w` in the article.
            let heading = table.name.clone();
            let (kind, workers) = heading.split_once('-').unwrap_or_default();
            published.beside(table, |size| format!("{kind} {size} {workers}"));
        }
        published.join(&mut report.tables);
    }
    session.finish(report)
}

/// One heading of the article: a direction with a number of workers.
fn square(
    session: &mut Session,
    disks: &[Disk],
    base: &Job,
    sizes: &[(&str, u32)],
    count: u32,
    report: &mut Report,
) {
    if session.is_over() {
        return;
    }
    let kind = if base.rw.writes() { "write" } else { "read" };
    let workers = base.numjobs;
    let heads = ["MB/s", "IOPS", "mean us"]
        .into_iter()
        .flat_map(|head| disks.iter().map(move |disk| (head, disk.label.as_str())));
    let name = format!("{kind}-{workers}w");
    let title = format!("Random {kind}, {}", Counted(workers.into(), "worker"));
    let mut table = Table::new(&name, &title, [("", "size")].into_iter().chain(heads));
    let megabytes = |run: &Run| run.spread(|repeat| repeat.bw_bytes).mean / 1e6;
    let rate = |run: &Run| run.spread(|repeat| repeat.iops).mean;
    let (mut iops, mut bandwidth) = (Vec::new(), Vec::new());
    for (size, block_bytes) in sizes {
        let job = Job {
            name: format!("{kind} {size} {workers}w"),
            block_bytes: *block_bytes,
            ..base.clone()
        };
        let runs: Vec<Option<Run>> = disks
            .iter()
            .map(|disk| session.measure_taken(disk, &job, count))
            .collect();
        if session.is_over() {
            report.runs.extend(runs.into_iter().flatten());
            return;
        }
        let cells = |of: fn(&Run) -> f64, shown| {
            runs.iter()
                .map(move |run| Cell::optional(run.as_ref().map(of), shown))
                .collect::<Vec<_>>()
        };
        let mut row = vec![Cell::text(*size)];
        row.extend(cells(megabytes, Shown::Fixed(1)));
        row.extend(cells(rate, Shown::Grouped));
        row.extend(cells(
            |run| run.spread(|repeat| repeat.mean_us).mean,
            Shown::Time,
        ));
        table.push(row);
        let bars = |of: fn(&Run) -> f64| {
            let values = runs.iter().map(|run| run.as_ref().map(of)).collect();
            ((*size).to_owned(), values)
        };
        iops.push(bars(rate));
        bandwidth.push(bars(megabytes));
        report.runs.extend(runs.into_iter().flatten());
    }
    report.tables.push(table);
    let figure = |name: String, unit: &str, groups| Figure {
        name,
        title: title.clone(),
        unit: format!("{unit}; more is better"),
        drawing: Drawing::Bars {
            time: false,
            series: disks.iter().map(|disk| disk.label.clone()).collect(),
            groups,
        },
    };
    report.figures.extend([
        figure(format!("{name}-bw"), "MB/s", bandwidth),
        figure(name, "IOPS", iops),
    ]);
}

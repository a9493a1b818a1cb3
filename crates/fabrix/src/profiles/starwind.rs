//! The comparison of a disk locally, over loopback and over the network, after StarWind's article
//! on its NVMe-oF initiator. It searches the best numjobs x iodepth with 4k random reads, runs 13
//! workloads with that setting, and repeats them with one request at a time for the latencies.

use std::process::ExitCode;
use std::time::Duration;

use fabrix_bench::workloads::{Reading, thirteen};
use fabrix_bench::{Counted, Job, Rw};

use super::published;
use crate::cli::bench::args::SweepArgs;
use crate::cli::bench::session::{Disk, Session};
use crate::failure::Failure;
use crate::report::sheet::{Axis, Cell, Curve, Drawing, Figure, Report, Run, Shown, Table};
use crate::report::views;
use fabrix_block::spec::without_secrets;

const DEPTHS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const JOBS: [u32; 4] = [1, 2, 4, 8];
/// Fraction of the best result that makes a setting good enough.
const ENOUGH: f64 = 0.95;
/// Duration of each measurement: by default, and in the article.
const USUAL: Duration = Duration::from_secs(1);
const PUBLISHED: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &SweepArgs) -> Result<ExitCode, Failure> {
    let published = published::requested(&args.table)?;
    let (mut session, disks) = Session::sweep(args)?;
    let (runtime, reading) = match args.as_published {
        true => (PUBLISHED, Reading::JobFile),
        false => (args.runtime.unwrap_or(USUAL), Reading::Names),
    };
    let count = args.count.unwrap_or(1);
    let steps = DEPTHS.len() * JOBS.len() + 26 * disks.len() * count as usize + 2;
    session.plan(steps, runtime + args.step.ramp);
    let mut report = Report {
        profile: "starwind".into(),
        title: format!(
            "{}: best setting, 13 workloads, latencies",
            without_secrets(&args.uri)
        ),
        lead: "the method of StarWind's article on its NVMe-oF initiator".into(),
        notes: notes(runtime, reading),
        ..Report::default()
    };
    if !args.table.no_fill {
        report.notes.extend(session.fill(&disks[0], args.step.size));
    }
    let base = Job {
        runtime,
        ramp: args.step.ramp,
        size: args.step.size,
        ..Job::default()
    };
    let setting = search(&mut session, &disks[0], &base, &mut report);
    if let Some((numjobs, iodepth)) = setting {
        let title = format!("13 workloads, numjobs={numjobs} iodepth={iodepth}");
        let jobs = |numjobs, iodepth| {
            with(
                thirteen(reading, numjobs, iodepth, runtime, args.step.ramp),
                args.step.size,
            )
        };
        matrix(
            &mut session,
            &disks,
            &jobs(numjobs, iodepth),
            count,
            ("workloads", &title),
            &mut report,
        );
        let title = "Latency: one request at a time, numjobs=1 iodepth=1";
        matrix(
            &mut session,
            &disks,
            &jobs(1, 1),
            count,
            ("latency", title),
            &mut report,
        );
    }
    if let Some(published) = published {
        published.join(&mut report.tables);
    }
    session.finish(report)
}

fn with(mut jobs: Vec<Job>, size: Option<u64>) -> Vec<Job> {
    jobs.iter_mut().for_each(|job| job.size = size);
    jobs
}

fn notes(runtime: Duration, reading: Reading) -> Vec<String> {
    let said = match reading {
        Reading::Names => {
            "50write is half writes and 70% write is 70 % writes, as the names say; the article's job file \
             makes fio write \
             only and read 70 % (--as-published does the same)"
        }
        Reading::JobFile => {
            "50write writes only and 70% write reads 70 %, as the article's job file makes fio do"
        }
    };
    vec![
        format!(
            "each measurement lasted {} s; the article's lasted 60 s (--as-published)",
            runtime.as_secs_f64()
        ),
        said.to_owned(),
        "MiB/s is what the article prints as MB/s".to_owned(),
    ]
}

/// The search: its table and figure, and the good-enough setting with the fewest requests in
/// flight.
fn search(
    session: &mut Session,
    disk: &Disk,
    base: &Job,
    report: &mut Report,
) -> Option<(u32, u32)> {
    let names: Vec<String> = JOBS.iter().map(|jobs| jobs.to_string()).collect();
    let columns = [("", "4k random read")].into_iter().chain(
        names
            .iter()
            .map(|name| ("IOPS with so many threads", name.as_str())),
    );
    let mut table = Table::new("search", &format!("The search on {}", disk.label), columns);
    let mut found: Vec<Point> = Vec::new();
    for iodepth in DEPTHS {
        let mut row = vec![Cell::text(format!("depth {iodepth}"))];
        for numjobs in JOBS {
            let job = Job {
                name: format!("4k rnd read {iodepth} Oio, {}", threads(numjobs)),
                rw: Rw::RandRead,
                numjobs,
                iodepth,
                ..base.clone()
            };
            let run = session.measure(disk, &job, 1);
            row.push(Cell::optional(run.as_ref().map(Run::iops), Shown::Grouped));
            found.extend(run.as_ref().map(|run| Point {
                numjobs,
                iodepth,
                iops: run.iops(),
                mean_us: run.mean_us(),
            }));
            report.runs.extend(run);
        }
        table.push(row);
    }
    let knee = *knee(&found)?;
    let (numjobs, iodepth) = (knee.numjobs, knee.iodepth);
    report.notes.push(format!(
        "the knee: numjobs={numjobs} iodepth={iodepth} makes {:.0} IOPS, at least {:.0} % of the best with the least \
         in flight",
        knee.iops,
        ENOUGH * 100.0
    ));
    report.tables.push(table);
    let figure = |name: &str, title: &str, unit: &str, up: Axis, of: fn(&Point) -> f64| Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        unit: format!("{unit}; the ring is the setting taken, numjobs x iodepth"),
        drawing: Drawing::Lines {
            across: Axis::log("iodepth"),
            up,
            lines: curves(&found, &knee, of),
        },
    };
    report.figures.extend([
        figure(
            "search",
            "The search",
            "4k random reads: IOPS against depth",
            Axis::linear("IOPS"),
            |point| point.iops,
        ),
        figure(
            "search-latency",
            "The search: what more in flight costs",
            "mean latency against depth",
            Axis::time("latency"),
            |point| point.mean_us,
        ),
    ]);
    (!session.is_over()).then_some((numjobs, iodepth))
}

fn threads(jobs: u32) -> Counted<'static> {
    Counted(jobs.into(), "thread")
}

/// One setting of the search and its result.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    numjobs: u32,
    iodepth: u32,
    iops: f64,
    mean_us: f64,
}

/// The good-enough setting with the fewest requests in flight, and among those the one with the
/// fewest threads.
fn knee(found: &[Point]) -> Option<&Point> {
    let best = found.iter().map(|point| point.iops).fold(0.0, f64::max);
    let enough = found.iter().filter(|point| point.iops >= best * ENOUGH);
    enough.min_by_key(|point| (point.numjobs * point.iodepth, point.numjobs))
}

/// One line per number of threads, with a mark at the knee.
fn curves(found: &[Point], knee: &Point, of: fn(&Point) -> f64) -> Vec<Curve> {
    let line = |jobs: u32| {
        let points: Vec<_> = found.iter().filter(|point| point.numjobs == jobs).collect();
        let at = points.iter().position(|point| *point == knee);
        let name = format!("the knee: {} x {}", knee.numjobs, knee.iodepth);
        Curve {
            name: threads(jobs).to_string(),
            mark: at.map(|at| (at, name)),
            points: points
                .iter()
                .map(|point| (f64::from(point.iodepth), of(point)))
                .collect(),
        }
    };
    JOBS.into_iter().map(line).collect()
}

/// Runs the workloads on every disk: the article's table, and a figure.
fn matrix(
    session: &mut Session,
    disks: &[Disk],
    jobs: &[Job],
    count: u32,
    (name, title): (&str, &str),
    report: &mut Report,
) {
    let heads = disks
        .iter()
        .flat_map(|disk| ["IOPS", "MiB/s", "mean us"].map(|head| (disk.label.as_str(), head)));
    let mut table = Table::new(name, title, [("", "workload")].into_iter().chain(heads));
    let latency = name == "latency";
    let mut groups = Vec::new();
    for job in jobs {
        let mut row = vec![Cell::text(&job.name)];
        let mut bars = Vec::new();
        for disk in disks {
            let run = session.measure_taken(disk, job, count);
            let figure = |of: fn(&Run) -> f64| run.as_ref().map(of);
            let mib = figure(|run| run.bw_bytes() / f64::from(1 << 20));
            row.push(Cell::optional(figure(Run::iops), Shown::Grouped));
            row.push(Cell::optional(mib, Shown::Fixed(2)));
            row.push(Cell::optional(figure(Run::mean_us), Shown::Time));
            bars.push(figure(if latency { Run::mean_us } else { Run::iops }));
            report.runs.extend(run);
        }
        if session.is_over() {
            break;
        }
        table.push(row);
        groups.push((job.name.clone(), bars));
    }
    let unit = if latency {
        "mean latency; less is better"
    } else {
        "IOPS; more is better"
    };
    report.figures.push(Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        unit: unit.to_owned(),
        drawing: Drawing::Bars {
            time: latency,
            series: disks.iter().map(|disk| disk.label.clone()).collect(),
            groups,
        },
    });
    if latency {
        let reads = report
            .runs
            .iter()
            .filter(|run| run.name == "4k random read");
        let reads: Vec<&Run> = reads.collect();
        // The runs with one request at a time come last.
        let alone = &reads[reads.len().saturating_sub(disks.len())..];
        let figure = views::tails(alone.iter().copied());
        report.figures.push(figure);
    }
    report.tables.push(table);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_the_least_in_flight_that_is_good_enough() {
        let point = |(numjobs, iodepth, iops): (u32, u32, f64)| Point {
            numjobs,
            iodepth,
            iops,
            mean_us: 1.0,
        };
        let found = [
            (1, 1, 50.0),
            (1, 16, 94.0),
            (1, 32, 96.0),
            (2, 8, 95.5),
            (4, 4, 97.0),
            (8, 128, 100.0),
        ]
        .map(point);
        let knee = knee(&found).expect("there are points");
        assert_eq!((knee.numjobs, knee.iodepth), (2, 8));
        let lines = curves(&found, knee, |point| point.iops);
        let marked: Vec<_> = lines.iter().map(|line| line.mark.clone()).collect();
        let mark = Some((0, "the knee: 2 x 8".to_owned()));
        assert_eq!(marked, [None, mark, None, None]);
        assert_eq!(lines[0].points, [(1.0, 50.0), (16.0, 94.0), (32.0, 96.0)]);
    }

    #[test]
    fn without_a_measurement_there_is_no_knee() {
        assert_eq!(knee(&[]), None);
    }
}

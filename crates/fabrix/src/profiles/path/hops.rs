//! The latency of a request split by location: in the host, on the wire, in the target, at the
//! disk, and back.
//!
//! The host sums the times at which requests pass it, and a Fabrix target does the same. The
//! differences of these sums are the parts (`docs/design/timing.md`). Other targets are measured
//! without the split.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_bench::{Counted, Job, Rw};
use fabrix_host::{Address, Options, Trace};
use fabrix_proto::nvme::timing::{Passed, SECONDS_MOST, TimingPage};

use crate::cli::bench::session::{Disk, Session};
use crate::profiles::loopback::Loopback;
use crate::report::sheet::{Cell, Drawing, Figure, Report, Run, Shown, Table};

/// The parts of a request's latency, in order.
const HOPS: [&str; 6] = [
    "host queue",
    "wire out",
    "target queue",
    "disk",
    "wire back",
    "host completion",
];

/// A disk whose target returns time sums.
pub(super) struct Way {
    pub(super) label: String,
    pub(super) address: Address,
    pub(super) options: Options,
    /// The target, if it runs in this process.
    pub(super) via: Option<Rc<Loopback>>,
}

/// Measures at the given depths and adds a table and a figure, or the reason why there is no split.
pub(super) fn split(
    session: &mut Session,
    way: &Way,
    (depths, base): (&[u32], &Job),
    report: &mut Report,
) {
    let mut found = Vec::new();
    for iodepth in depths {
        if session.is_over() {
            return;
        }
        let job = Job {
            name: format!("hops, depth {iodepth}"),
            rw: Rw::RandRead,
            iodepth: *iodepth,
            // Without a ramp, both ends count from the first request to the last.
            ramp: Duration::ZERO,
            ..base.clone()
        };
        match measure(session, way, &job) {
            Ok((parts, run)) => {
                found.push((format!("depth {iodepth}"), parts, run.mean_us()));
                report.runs.push(run);
            }
            Err(why) => {
                let note = format!("a request's time is not split by hop: {why}");
                return report.notes.push(note);
            }
        }
    }
    report.tables.push(table(&found));
    report.figures.push(figure(&found));
}

/// Runs the job and returns the parts in microseconds.
///
/// Errors: the reason why there are none, as a sentence.
fn measure(session: &mut Session, way: &Way, job: &Job) -> Result<([f64; 6], Run), String> {
    let trace = Arc::new(Trace::default());
    let options = Options {
        trace: Some(Arc::clone(&trace)),
        ..way.options.clone()
    };
    let remote = fabrix_host::connect(&way.address, &options).map(Arc::new);
    let remote = remote.map_err(|error| error.to_string())?;
    let runtime = u32::try_from(job.runtime.as_secs()).unwrap_or(u32::MAX);
    let ask = |seconds| {
        remote
            .time_commands(seconds)
            .map_err(|error| error.to_string())
    };
    let before = ask(runtime.saturating_add(MARGIN_S).min(SECONDS_MOST))?;
    let before = before.ok_or("the target does not return timestamps")?;
    let disk = Disk {
        label: way.label.clone(),
        uri: way.address.to_string(),
        device: remote.clone(),
        files: Vec::new(),
        via: way.via.clone(),
        around_cache: "",
    };
    let run = session.measure(&disk, job, 1);
    let after = ask(0)?;
    let (Some(run), Some(after)) = (run, after) else {
        return Err("it was not measured to its end".into());
    };
    Ok((parts(trace.passed(), &before, &after)?, run))
}

/// The parts of a request's latency in microseconds, from the sums of the host and those of the
/// target.
///
/// If both ends share a clock, the two directions of the wire are separated. Otherwise each gets
/// half of their sum.
///
/// Errors: a sentence when the sums belong to different requests.
fn parts(us: [Passed; 4], before: &TimingPage, after: &TimingPage) -> Result<[f64; 6], String> {
    let [submitted, sent, received, ended] = us;
    let since = |of: fn(&TimingPage) -> &Passed| of(after).since(of(before));
    let arrived = since(|page| &page.arrived);
    let (to_disk, from_disk) = (since(|page| &page.to_disk), since(|page| &page.from_disk));
    let answered = since(|page| &page.answered);
    let count = submitted.count.get();
    let all = [sent, received, ended, arrived, answered];
    if count == 0
        || all.iter().any(|place| place.count.get() != count)
        || to_disk.count != from_disk.count
    {
        return Err(format!(
            "{} made here, {} at the target; it is used by others, or requests were repeated",
            Counted(count, "request"),
            Counted(arrived.count.get(), "command")
        ));
    }
    let mean_us = |from: Passed, to: Passed| {
        let sum_ns = to.sum_ns.get().wrapping_sub(from.sum_ns.get());
        sum_ns.cast_signed() as f64 / count as f64 / 1e3
    };
    let target = mean_us(arrived, answered);
    let disk = mean_us(to_disk, from_disk);
    let wire = mean_us(sent, received) - target;
    let one_clock = before.clock != [0; 16] && Some(before.clock) == fabrix_rt::topology::boot_id();
    let out = if one_clock {
        mean_us(sent, arrived)
    } else {
        wire / 2.0
    };
    Ok([
        mean_us(submitted, sent),
        out,
        target - disk,
        disk,
        wire - out,
        mean_us(received, ended),
    ])
}

/// Depth, parts, and the latency measured by the benchmark.
type Split = (String, [f64; 6], f64);

fn table(found: &[Split]) -> Table {
    let columns = found.iter().map(|(depth, ..)| ("mean us", depth.as_str()));
    let mut table = Table::new(
        "hops",
        "Where one request's time goes",
        [("", "hop")].into_iter().chain(columns),
    );
    let row = |name: &str, of: &dyn Fn(&Split) -> f64| {
        let figures = found
            .iter()
            .map(|split| Cell::Number(of(split), Shown::Time));
        [Cell::text(name)]
            .into_iter()
            .chain(figures)
            .collect::<Vec<Cell>>()
    };
    for (index, name) in HOPS.iter().enumerate() {
        table.push(row(name, &|(_, parts, _)| parts[index]));
    }
    table.push(row("together", &|(_, parts, _)| parts.iter().sum()));
    table.push(row("as the benchmark saw it", &|(.., mean)| *mean));
    table
}

fn figure(found: &[Split]) -> Figure {
    Figure {
        name: "hops".into(),
        title: "Where one request's time goes".into(),
        unit: "mean latency; less is better".into(),
        drawing: Drawing::Stacks {
            series: HOPS.map(str::to_owned).into(),
            rows: found
                .iter()
                .map(|(depth, parts, _)| (depth.clone(), parts.map(|part| part.max(0.0)).into()))
                .collect(),
        },
    }
}

/// Time in seconds by which the timing feature outlives the run. It then expires by itself if this
/// process dies.
const MARGIN_S: u32 = 120;

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(count: u64, sum_ns: u64) -> Passed {
        Passed {
            count: count.into(),
            sum_ns: sum_ns.into(),
        }
    }

    /// Ten requests with parts of 1, 2, 4, 8, 16 and 32 us, with clocks `apart_ns` apart.
    fn ends(apart_ns: u64) -> ([Passed; 4], TimingPage) {
        let at = |us: u64| passed(10, 10 * us * 1000);
        let there = |us: u64| passed(10, (10 * us * 1000).wrapping_add(apart_ns.wrapping_mul(10)));
        let mut page = TimingPage::new(fabrix_rt::topology::boot_id().unwrap_or_default(), 0);
        (page.arrived, page.to_disk) = (there(3), there(5));
        (page.from_disk, page.answered) = (there(13), there(15));
        ([at(0), at(1), at(31), at(63)], page)
    }

    fn is(parts: [f64; 6], expected: [f64; 6]) {
        for (part, expected) in parts.into_iter().zip(expected) {
            assert!((part - expected).abs() < 1e-6, "{parts:?}");
        }
    }

    #[test]
    fn the_parts_are_the_differences_of_the_sums() {
        let (us, after) = ends(0);
        let before = TimingPage::new(after.clock, 0);
        let parts = parts(us, &before, &after).expect("they add up");
        is(parts, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]);
    }

    #[test]
    fn clocks_that_are_apart_leave_the_wire_in_one_piece() {
        let (us, mut after) = ends(u64::MAX / 3);
        after.clock = [7; 16];
        let before = TimingPage::new(after.clock, 0);
        let parts = parts(us, &before, &after).expect("they add up");
        is(parts, [1.0, 9.0, 4.0, 8.0, 9.0, 32.0]);
    }

    #[test]
    fn requests_of_others_are_noticed() {
        let (us, mut after) = ends(0);
        after.arrived.count = 11.into();
        let why = parts(us, &TimingPage::default(), &after).expect_err("one is not ours");
        assert!(
            why.contains("10 requests") && why.contains("11 commands"),
            "{why}"
        );
    }
}

//! The sweep of command sizes after A. Nezhinsky's report on stgt with a null backing store: 1 KiB to 1 MiB, 10
//! threads and 2, reads and writes, with the processors of both ends; two initiators; both directions at once; and the
//! chain in which one target exports what it reaches through another.
//!
//! sgp_dd's threads have one command in flight each and share one position: here that is one job of that depth. A disk
//! of this machine is served within this process and reached over loopback, so that the target's processor is seen.

use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use fabrix_bench::{Job, Rw};
use fabrix_block::Spec;
use fabrix_block::spec::{Disk as SpecDisk, Size};

use super::loopback::Loopback;
use super::published;
use crate::cli::bench::args::SweepArgs;
use crate::cli::bench::session::{Disk, Session};
use crate::failure::Failure;
use crate::report::sheet::{Axis, Cell, Curve, Drawing, Figure, Report, Run, Shown, Table};

const THREADS: [u32; 2] = [10, 2];
const KINDS: [(&str, Rw); 2] = [("READ", Rw::Read), ("WRITE", Rw::Write)];
const USUAL: Duration = Duration::from_millis(500);

pub(crate) fn run(args: &SweepArgs) -> Result<ExitCode, Failure> {
    let published = args.published.as_deref().map(published::find).transpose()?;
    let mut session = Session::begin(&args.common)?;
    let local = Spec::parse(&args.uri).is_ok_and(|spec| !matches!(spec.disk, SpecDisk::Remote(_)));
    if local && session.config.pin.is_empty() {
        session.config.pin = Loopback::load_cores();
    }
    let direct = session.open(&args.uri)?;
    session.guard(std::slice::from_ref(&direct))?;
    let disk = if local {
        session.over_loopback(&direct)?
    } else {
        direct.clone()
    };
    let runtime = args.runtime.unwrap_or(USUAL);
    let base = Job {
        runtime,
        ramp: args.ramp,
        size: args.size,
        ..Job::default()
    };
    let sizes = sizes(&disk);
    session.plan(sizes.len() * 6 + 12, runtime + args.ramp);
    let mut report = Report {
        profile: "stgt".into(),
        title: format!("{}: command sizes, both CPUs", disk.label),
        lead: "the method of A. Nezhinsky's report on stgt with sgp_dd, over NVMe/TCP instead of iSER".into(),
        notes: vec![
            format!("each figure was measured for {} s; MB/s is 10^6 bytes; CPU is percent of one \
             core", runtime.as_secs_f64()),
            "CPU tgt is known where the target runs in this process (a local disk is served so), and `-` \
             elsewhere".into(),
        ],
        ..Report::default()
    };
    if !args.no_fill {
        report.notes.extend(session.fill(&direct, args.size));
    }
    sweep(&mut session, &disk, &base, &sizes, &mut report);
    initiators(&mut session, &disk, &base, &mut report);
    both_ways(&mut session, &disk, &base, &mut report);
    chain(&mut session, &disk, &base, &sizes, &mut report)?;
    if let Some(published) = published {
        report.tables.push(published.table());
    }
    session.finish(report)
}

/// Powers of two that the disk takes in one request, 1 KiB to 1 MiB.
fn sizes(disk: &Disk) -> Vec<u32> {
    let geometry = disk.device.geometry();
    let fits = |size: &u32| *size >= geometry.block_bytes && *size <= geometry.max_transfer_bytes;
    (10..=20).map(|power| 1_u32 << power).filter(fits).collect()
}

fn job(base: &Job, rw: Rw, block_bytes: u32, iodepth: u32) -> Job {
    Job {
        name: format!("{rw} {} {iodepth} threads", Size(block_bytes.into())),
        rw,
        block_bytes,
        iodepth,
        ..base.clone()
    }
}

fn cpu(cores: Option<f64>) -> Cell {
    Cell::optional(cores.map(|cores| cores * 100.0), Shown::Fixed(0))
}

fn megabytes(run: Option<&Run>) -> Cell {
    Cell::optional(run.map(|run| run.bw_bytes() / 1e6), Shown::Fixed(2))
}

/// The sweep itself.
fn sweep(session: &mut Session, disk: &Disk, base: &Job, sizes: &[u32], report: &mut Report) {
    let groups: Vec<String> = KINDS
        .iter()
        .flat_map(|(kind, _)| THREADS.map(|threads| format!("{kind} {threads} threads")))
        .collect();
    let heads = groups
        .iter()
        .flat_map(|group| ["MB/s", "CPU ini", "CPU tgt"].map(|head| (group.as_str(), head)));
    let mut table = Table::new(
        "sweep",
        "Command sizes",
        [("", "KiB")].into_iter().chain(heads),
    );
    let mut lines: Vec<Curve> = groups
        .iter()
        .map(|name| Curve {
            name: name.clone(),
            ..Curve::default()
        })
        .collect();
    let mut heat = Vec::new();
    for size in sizes {
        let mut row = vec![Cell::text((size >> 10).to_string())];
        let mut field = Vec::new();
        for (index, (rw, threads)) in KINDS
            .iter()
            .flat_map(|(_, rw)| THREADS.map(|threads| (*rw, threads)))
            .enumerate()
        {
            let skip = rw.writes() && disk.device.geometry().read_only;
            let run = if skip {
                None
            } else {
                session.measure(disk, &job(base, rw, *size, threads), 1)
            };
            row.push(megabytes(run.as_ref()));
            row.push(cpu(run.as_ref().map(|run| run.results.cpu.job_cores)));
            row.push(cpu(run.as_ref().and_then(|run| run.target_cores)));
            field.push(run.as_ref().map(|run| run.bw_bytes() / 1e6));
            lines[index].points.extend(
                run.as_ref()
                    .map(|run| (f64::from(size >> 10), run.bw_bytes() / 1e6)),
            );
            report.runs.extend(run);
        }
        table.push(row);
        heat.push((format!("{} KiB", size >> 10), field));
        if session.is_over() {
            break;
        }
    }
    report.tables.push(table);
    let figure = |name: &str, drawing| Figure {
        name: name.to_owned(),
        title: "Command sizes".into(),
        unit: "MB/s; more is better".into(),
        drawing,
    };
    let (across, up) = (Axis::log("KiB"), Axis::linear("MB/s"));
    report
        .figures
        .push(figure("sweep", Drawing::Lines { across, up, lines }));
    report.figures.push(figure(
        "sweep-field",
        Drawing::Heat {
            columns: groups,
            rows: heat,
        },
    ));
}

/// One initiator and two, with the smallest commands.
fn initiators(session: &mut Session, disk: &Disk, base: &Job, report: &mut Report) {
    let Some(smallest) = sizes(disk).first().copied() else {
        return;
    };
    let heads = [
        ("", "initiators"),
        ("IOPS", "first"),
        ("IOPS", "second"),
        ("IOPS", "together"),
        ("CPU", "ini"),
        ("CPU", "tgt"),
    ];
    let title = format!(
        "Initiators at once: READ {}, 10 threads each",
        Size(smallest.into())
    );
    let mut table = Table::new("initiators", &title, heads);
    let job = job(base, Rw::Read, smallest, THREADS[0]);
    for count in [1, 2] {
        let parts = vec![(disk, &job); count];
        let Some(runs) = session.together(&parts, 1) else {
            break;
        };
        let iops = |at: usize| runs.get(at).map(Run::iops);
        table.push(vec![
            Cell::text(count.to_string()),
            Cell::optional(iops(0), Shown::Grouped),
            Cell::optional(iops(1), Shown::Grouped),
            Cell::Number(runs.iter().map(Run::iops).sum(), Shown::Grouped),
            cpu(Some(runs.iter().map(|run| run.results.cpu.job_cores).sum())),
            cpu(runs[0].target_cores),
        ]);
        report
            .runs
            .extend(runs.into_iter().enumerate().map(|(index, mut run)| {
                run.name = format!("{}, initiator {} of {count}", run.name, index + 1);
                run
            }));
    }
    report.tables.push(table);
}

/// Reads and writes at once: from one initiator, and from two.
fn both_ways(session: &mut Session, disk: &Disk, base: &Job, report: &mut Report) {
    let geometry = disk.device.geometry();
    if geometry.read_only {
        return;
    }
    let size = (256 << 10).min(geometry.max_transfer_bytes);
    let depth = THREADS[0];
    let heads = [
        ("", "mode"),
        ("MB/s", "READ"),
        ("MB/s", "WRITE"),
        ("CPU", "ini"),
        ("CPU", "tgt"),
    ];
    let mut table = Table::new(
        "directions",
        &format!("Both directions at once, {}", Size(size.into())),
        heads,
    );
    let (read, write) = (
        job(base, Rw::Read, size, depth),
        job(base, Rw::Write, size, depth),
    );
    let mut mixed = job(base, Rw::Mixed, size, depth * 2);
    mixed.name = format!("both ways {}, one initiator", Size(size.into()));
    let alone = [&read, &write].map(|job| session.measure(disk, job, 1));
    let sides = |read: Option<f64>, write: Option<f64>| {
        [read, write].map(|bytes| Cell::optional(bytes.map(|bytes| bytes / 1e6), Shown::Fixed(0)))
    };
    let mut row = vec![Cell::text("one direction at a time")];
    row.extend(sides(
        alone[0].as_ref().map(Run::bw_bytes),
        alone[1].as_ref().map(Run::bw_bytes),
    ));
    row.extend([
        cpu(alone[0].as_ref().map(|run| run.results.cpu.job_cores)),
        cpu(alone[0].as_ref().and_then(|run| run.target_cores)),
    ]);
    table.push(row);
    if let Some(run) = session.measure(disk, &mixed, 1) {
        let all = &run.results.aggregate;
        let mut row = vec![Cell::text("both, one initiator")];
        row.extend(sides(Some(all.read.bw_bytes), Some(all.write.bw_bytes)));
        row.extend([cpu(Some(run.results.cpu.job_cores)), cpu(run.target_cores)]);
        table.push(row);
        report.runs.push(run);
    }
    if let Some(runs) = session.together(&[(disk, &read), (disk, &write)], 1) {
        let mut row = vec![Cell::text("both, two initiators")];
        row.extend(sides(Some(runs[0].bw_bytes()), Some(runs[1].bw_bytes())));
        row.extend([
            cpu(Some(runs.iter().map(|run| run.results.cpu.job_cores).sum())),
            cpu(runs[0].target_cores),
        ]);
        table.push(row);
        report.runs.extend(runs.into_iter().map(|mut run| {
            run.name = format!("{}, with the other direction", run.name);
            run
        }));
    }
    report.runs.extend(alone.into_iter().flatten());
    report.tables.push(table);
}

/// The chain A to B to C: the disk is exported again by a target of this process, and measured through that.
fn chain(
    session: &mut Session,
    disk: &Disk,
    base: &Job,
    sizes: &[u32],
    report: &mut Report,
) -> Result<(), Failure> {
    if session.is_over() {
        return Ok(());
    }
    let middle = Loopback::serve(
        &disk.device,
        &session.args.remote,
        session.args.engine.engine,
    )?;
    let through = Disk {
        label: format!("{}, exported again", disk.label),
        uri: disk.uri.clone(),
        device: middle.device(),
        via: Some(Rc::new(middle)),
    };
    let mut table = Table::new(
        "chain",
        "The chain: a target that exports what it reaches through another",
        [("", "KiB"), ("MB/s", "READ"), ("MB/s", "WRITE")],
    );
    for size in sizes.iter().filter(|size| size.trailing_zeros() % 2 == 0) {
        let mut row = vec![Cell::text((size >> 10).to_string())];
        for (_, rw) in KINDS {
            let skip = rw.writes() && disk.device.geometry().read_only;
            let run = if skip {
                None
            } else {
                session.measure(&through, &job(base, rw, *size, THREADS[0]), 1)
            };
            row.push(megabytes(run.as_ref()));
            report.runs.extend(run);
        }
        table.push(row);
        if session.is_over() {
            break;
        }
    }
    report.tables.push(table);
    Ok(())
}

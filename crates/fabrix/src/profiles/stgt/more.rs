//! The report's further measurements: several initiators and devices, both directions, and a chain
//! in which a target exports a disk of another target.

use fabrix_bench::{Counted, Rw};
use fabrix_block::spec::Size;

use super::{KINDS, Plan, Stage, THREADS, cpu, kib, megabytes};
use crate::cli::bench::session::{Disk, Session, Step};
use crate::failure::Failure;
use crate::profiles::loopback::Transport;
use crate::report::sheet::{Cell, Report, Run, Shown, Table};

/// One and two initiators on one and two devices with the smallest commands: reads with 10 threads
/// each, writes with 2.
pub(super) fn initiators(session: &mut Session, stage: &Stage, plan: &Plan, report: &mut Report) {
    let Some(smallest) = plan.sizes.first().copied() else {
        return;
    };
    let groups = ["READ, 10 threads each", "WRITE, 2 threads each"];
    let columns = groups.into_iter().flat_map(|group| {
        ["first", "second", "together", "CPU ini", "CPU tgt"].map(|name| (group, name))
    });
    let title = format!(
        "Initiators and devices at once: IOPS with {}",
        Size(smallest.into())
    );
    let (name, title) = stage.name("initiators", &title);
    let heads = [("", "initiators"), ("", "devices")];
    let mut table = Table::new(&name, &title, heads.into_iter().chain(columns));
    let first = &stage.first;
    let one = [(1, vec![first]), (1, vec![first, first])];
    let two = stage.second.as_ref().map(|second| (2, vec![first, second]));
    for (devices, disks) in one.into_iter().chain(two) {
        let mut row = vec![
            Cell::text(disks.len().to_string()),
            Cell::text(devices.to_string()),
        ];
        for ((_, rw), threads) in KINDS.into_iter().zip(THREADS) {
            let job = plan.job(rw, smallest, threads);
            let steps: Vec<Step<'_>> = disks.iter().map(|disk| Step::new(disk, &job)).collect();
            let runs = match first.takes(&job) {
                true => session.together(&steps, 1).unwrap_or_default(),
                false => Vec::new(),
            };
            row.extend(side_by_side(&runs, devices));
            let count = runs.len();
            report
                .runs
                .extend(runs.into_iter().enumerate().map(|(index, mut run)| {
                    run.name = format!(
                        "{}, initiator {} of {count}, {}",
                        run.name,
                        index + 1,
                        Counted(devices as u64, "device")
                    );
                    run
                }));
        }
        table.push(row);
        if session.is_over() {
            break;
        }
    }
    report.tables.push(table);
}

/// The IOPS of each run and of all, and the processor use of both ends. Each device has its own
/// target.
fn side_by_side(runs: &[Run], devices: usize) -> [Cell; 5] {
    let iops = |at: usize| Cell::optional(runs.get(at).map(Run::iops), Shown::Grouped);
    let some = |figure: f64| (!runs.is_empty()).then_some(figure);
    let targets = runs.iter().take(devices).map(|run| run.target_cores);
    [
        iops(0),
        iops(1),
        Cell::optional(some(runs.iter().map(Run::iops).sum()), Shown::Grouped),
        cpu(some(initiators_cpu(runs))),
        cpu(targets.sum::<Option<f64>>().and_then(some)),
    ]
}

fn initiators_cpu(runs: &[Run]) -> f64 {
    runs.iter().map(|run| run.results.cpu.job_cores).sum()
}

/// Reads and writes at the same time, from one initiator and from two.
pub(super) fn both_ways(session: &mut Session, stage: &Stage, plan: &Plan, report: &mut Report) {
    let disk = &stage.first;
    let geometry = disk.device.geometry();
    if geometry.read_only || session.is_over() {
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
    let title = format!("Both directions at once, {}", Size(size.into()));
    let (name, title) = stage.name("directions", &title);
    let mut table = Table::new(&name, &title, heads);
    let (read, write) = (
        plan.job(Rw::Read, size, depth),
        plan.job(Rw::Write, size, depth),
    );
    let mut mixed = plan.job(Rw::Mixed, size, depth * 2);
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
    if let Some(runs) = session.together(&[Step::new(disk, &read), Step::new(disk, &write)], 1) {
        let mut row = vec![Cell::text("both, two initiators")];
        row.extend(sides(Some(runs[0].bw_bytes()), Some(runs[1].bw_bytes())));
        row.extend([cpu(Some(initiators_cpu(&runs))), cpu(runs[0].target_cores)]);
        table.push(row);
        report.runs.extend(runs.into_iter().map(|mut run| {
            run.name = format!("{}, with the other direction", run.name);
            run
        }));
    }
    report.runs.extend(alone.into_iter().flatten());
    report.tables.push(table);
}

/// The chain A to B to C: a target in this process exports the disk again, and the disk is measured
/// through it.
pub(super) fn chain(
    session: &mut Session,
    stage: &Stage,
    plan: &Plan,
    report: &mut Report,
) -> Result<(), Failure> {
    if session.is_over() {
        return Ok(());
    }
    let transport = stage.transport.unwrap_or(Transport::NvmeTcp);
    let through = Disk {
        label: format!("{}, exported again", stage.first.label),
        ..session.over_loopback(&stage.first, transport)?
    };
    let title = "The chain: a target that exports what it reaches through another";
    let (name, title) = stage.name("chain", title);
    let heads = [("", "KiB"), ("MB/s", "READ"), ("MB/s", "WRITE")];
    let mut table = Table::new(&name, &title, heads);
    for size in &plan.chain {
        let mut row = vec![kib(*size)];
        for (_, rw) in KINDS {
            let run = session.measure_taken(&through, &plan.job(rw, *size, THREADS[0]), 1);
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

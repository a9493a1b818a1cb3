//! The sweep of command sizes after A. Nezhinsky's report on stgt with a null backing store: 1 KiB
//! to 1 MiB, 10 threads and 2, reads and writes, with the processor use of both ends. `more` has
//! the other measurements of the report.
//!
//! sgp_dd's threads have one command in flight each and share one position, which equals one job of
//! that depth. Local disks are served in this process and accessed over loopback, first with
//! NVMe/TCP and then with iSCSI, so that the target's processor use is known. Without a disk, two
//! null disks are used.

mod more;

use std::process::ExitCode;
use std::time::Duration;

use fabrix_bench::{Job, Rw};
use fabrix_block::Spec;
use fabrix_block::spec::{Disk as SpecDisk, Size};

use super::loopback::Transport;
use super::published;
use crate::cli::bench::args::StgtArgs;
use crate::cli::bench::session::{Disk, Session};
use crate::failure::Failure;
use crate::report::sheet::{Axis, Cell, Curve, Drawing, Figure, Report, Run, Shown, Table};

const THREADS: [u32; 2] = [10, 2];
const KINDS: [(&str, Rw); 2] = [("READ", Rw::Read), ("WRITE", Rw::Write)];
/// The null disk of the report.
const NULL: &str = "null:1T,block=512";
/// Measured time and ramp of each measurement with `--quick`.
const QUICK: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(30)];

/// The disks, accessed in one way.
struct Stage {
    /// Suffix of its tables' names. Empty for the first stage.
    suffix: String,
    /// Transport, if known.
    transport: Option<Transport>,
    first: Disk,
    /// Disk for measurements with two devices.
    second: Option<Disk>,
}

/// Parameters of all measurements.
struct Plan {
    base: Job,
    sizes: Vec<u32>,
    /// Sizes for the measurement of the chain.
    chain: Vec<u32>,
}

pub(crate) fn run(args: &StgtArgs) -> Result<ExitCode, Failure> {
    let published = published::requested(&args.table)?;
    let mut session = Session::begin(&args.step.common)?;
    let uris: Vec<&str> = match args.uris.as_slice() {
        [] => vec![NULL, NULL],
        // Two instances of a null or RAM disk are possible.
        [only] if is_made_here(only) => vec![only, only],
        some => some.iter().map(String::as_str).collect(),
    };
    let local = uris.iter().all(|uri| !is_remote(uri));
    if local {
        session.leave_cores_to_targets();
    }
    let direct = uris.iter().map(|uri| session.open(uri));
    let direct = direct.collect::<Result<Vec<Disk>, Failure>>()?;
    let size = args.step.size;
    direct.iter().try_for_each(|disk| disk.check_size(size))?;
    session.guard(&direct)?;
    let stages = stages(&session, &direct, local)?;
    let plan = plan(args, &stages[0].first)?;
    let (runtime, ramp) = (plan.base.runtime, plan.base.ramp);
    let steps = stages.len() * (plan.sizes.len() * 4 + plan.chain.len() * 2 + 10);
    session.plan(steps, runtime + ramp);
    let mut report = Report {
        profile: "stgt".into(),
        title: format!("{}: command sizes, both CPUs", direct[0].label),
        lead: "the method of A. Nezhinsky's report on stgt with sgp_dd, over TCP instead of iSER".into(),
        notes: vec![
            format!("each figure was measured for {} s; MB/s is 10^6 bytes; CPU is percent of one \
             core", runtime.as_secs_f64()),
            "CPU tgt is known where the target runs in this process (local disks are served so), and `-` \
             elsewhere".into(),
        ],
        ..Report::default()
    };
    if !args.table.no_fill {
        for disk in &direct {
            report.notes.extend(session.fill(disk, args.step.size));
        }
    }
    for stage in &stages {
        sweep(&mut session, stage, &plan, &mut report);
        more::initiators(&mut session, stage, &plan, &mut report);
        more::both_ways(&mut session, stage, &plan, &mut report);
        more::chain(&mut session, stage, &plan, &mut report)?;
        if session.is_over() {
            break;
        }
    }
    report
        .tables
        .extend(published.map(|published| published.table()));
    session.finish(report)
}

fn is_remote(uri: &str) -> bool {
    Spec::parse(uri).is_ok_and(|spec| matches!(spec.disk, SpecDisk::Remote(_)))
}

fn is_made_here(uri: &str) -> bool {
    let made = |disk: &SpecDisk| matches!(disk, SpecDisk::Null { .. } | SpecDisk::Ram { .. });
    Spec::parse(uri).is_ok_and(|spec| made(&spec.disk))
}

/// The ways to access the disks: directly if one is remote, otherwise over loopback with both
/// protocols.
fn stages(session: &Session, direct: &[Disk], local: bool) -> Result<Vec<Stage>, Failure> {
    if !local {
        return Ok(vec![Stage {
            suffix: String::new(),
            transport: None,
            first: direct[0].clone(),
            second: direct.get(1).cloned(),
        }]);
    }
    let stage = |(transport, suffix): (Transport, &str)| {
        let second = direct.get(1);
        let second = second.map(|disk| session.over_loopback(disk, transport));
        Ok(Stage {
            suffix: suffix.to_owned(),
            transport: Some(transport),
            first: session.over_loopback(&direct[0], transport)?,
            second: second.transpose()?,
        })
    };
    let ways = [(Transport::NvmeTcp, ""), (Transport::Iscsi, "-iscsi")];
    ways.into_iter().map(stage).collect()
}

/// The request sizes: those given by the user, or powers of two that the disk supports.
fn plan(args: &StgtArgs, disk: &Disk) -> Result<Plan, Failure> {
    let geometry = disk.device.geometry();
    let (least, most) = (geometry.block_bytes, geometry.max_transfer_bytes);
    let fits = |size: &u32| (least..=most).contains(size);
    let step = if args.quick { 2 } else { 1 };
    let usual = (10..=20).step_by(step).map(|power| 1_u32 << power);
    let named = args.sizes.iter().map(|size| {
        let whole = u32::try_from(*size).ok().filter(fits);
        whole.filter(|size| size % least == 0).ok_or_else(|| {
            Failure::usage(format!(
                "--sizes {}: {} takes commands of {} to {}, in blocks of {least} bytes",
                Size(*size),
                disk.uri,
                Size(least.into()),
                Size(most.into())
            ))
        })
    });
    let sizes = match args.sizes.is_empty() {
        true => usual.filter(fits).collect(),
        false => named.collect::<Result<Vec<u32>, Failure>>()?,
    };
    // Every second size suffices to show the cost of an additional target.
    let even = |size: &u32| size.trailing_zeros().is_multiple_of(2) || !args.sizes.is_empty();
    let chain = sizes.iter().copied().filter(even).collect();
    let [runtime, ramp] = match args.quick {
        true => QUICK,
        false => [args.runtime, args.step.ramp],
    };
    Ok(Plan {
        base: Job {
            runtime,
            ramp,
            size: args.step.size,
            ..Job::default()
        },
        sizes,
        chain,
    })
}

impl Plan {
    fn job(&self, rw: Rw, block_bytes: u32, iodepth: u32) -> Job {
        Job {
            name: format!("{rw} {} {iodepth} threads", Size(block_bytes.into())),
            rw,
            block_bytes,
            iodepth,
            ..self.base.clone()
        }
    }
}

impl Stage {
    /// Name and title of a table or figure of this stage.
    fn name(&self, name: &str, title: &str) -> (String, String) {
        let over = self
            .transport
            .map_or_else(String::new, |transport| format!(", {transport}"));
        (format!("{name}{}", self.suffix), format!("{title}{over}"))
    }
}

/// A command size in KiB, as the name of a row.
fn kib(size: u32) -> Cell {
    Cell::text((f64::from(size) / 1024.0).to_string())
}

fn cpu(cores: Option<f64>) -> Cell {
    Cell::optional(cores.map(|cores| cores * 100.0), Shown::Fixed(0))
}

fn megabytes(run: Option<&Run>) -> Cell {
    Cell::optional(run.map(|run| run.bw_bytes() / 1e6), Shown::Fixed(2))
}

/// Runs the sweep.
fn sweep(session: &mut Session, stage: &Stage, plan: &Plan, report: &mut Report) {
    let groups: Vec<String> = KINDS
        .iter()
        .flat_map(|(kind, _)| THREADS.map(|threads| format!("{kind} {threads} threads")))
        .collect();
    let heads = groups
        .iter()
        .flat_map(|group| ["MB/s", "CPU ini", "CPU tgt"].map(|head| (group.as_str(), head)));
    let (name, title) = stage.name("sweep", "Command sizes");
    let mut table = Table::new(&name, &title, [("", "KiB")].into_iter().chain(heads));
    let mut lines: Vec<Curve> = groups
        .iter()
        .map(|name| Curve {
            name: name.clone(),
            ..Curve::default()
        })
        .collect();
    let mut heat = Vec::new();
    for size in &plan.sizes {
        let mut row = vec![kib(*size)];
        let mut field = Vec::new();
        for (index, (rw, threads)) in KINDS
            .iter()
            .flat_map(|(_, rw)| THREADS.map(|threads| (*rw, threads)))
            .enumerate()
        {
            let run = session.measure_taken(&stage.first, &plan.job(rw, *size, threads), 1);
            let rate = run.as_ref().map(|run| run.bw_bytes() / 1e6);
            row.push(megabytes(run.as_ref()));
            row.push(cpu(run.as_ref().map(|run| run.results.cpu.job_cores)));
            row.push(cpu(run.as_ref().and_then(|run| run.target_cores)));
            field.push(rate);
            let kib = f64::from(*size) / 1024.0;
            lines[index].points.extend(rate.map(|rate| (kib, rate)));
            report.runs.extend(run);
        }
        table.push(row);
        heat.push((format!("{} KiB", f64::from(*size) / 1024.0), field));
        if session.is_over() {
            break;
        }
    }
    report.tables.push(table);
    let figure = |name: &str, drawing| Figure {
        name: stage.name(name, "").0,
        title: title.clone(),
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

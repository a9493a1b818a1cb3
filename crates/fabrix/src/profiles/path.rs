//! Shows where the time goes: the same load on a null disk, on the disk, and through each layer
//! that a remote disk adds. The cost of a layer is the difference to the previous one. `hops` then
//! splits the latency of a request.

mod hops;
mod joined;

use std::process::ExitCode;
use std::sync::Arc;

use fabrix_bench::{Job, Rw};
use fabrix_block::Spec;
use fabrix_block::spec::Disk as SpecDisk;

use fabrix_host::Options;
use hops::Way;
use joined::Joined;

use super::loopback::Transport;
use crate::args::RemoteArgs;
use crate::cli::bench::args::PathArgs;
use crate::cli::bench::session::{Disk, Session};
use crate::failure::Failure;
use crate::host_names::host_options;
use crate::report::sheet::{Cell, Drawing, Figure, Report, Run, Shown, Table};
use crate::report::views;
use fabrix_block::spec::without_secrets;

/// Depths of the measurements: a single request, and a busy disk.
const DEPTHS: [u32; 2] = [1, 32];

pub(crate) fn run(args: &PathArgs) -> Result<ExitCode, Failure> {
    let mut session = Session::begin(&args.step.common)?;
    session.leave_cores_to_targets();
    let runtime = args.runtime;
    let layers = layers(&session, args)?;
    // The last layer reaches the disk itself. Layers that represent only a part of the path may be
    // smaller.
    let asked = layers.last().map(|disk| disk.check_size(args.step.size));
    asked.transpose()?;
    session.plan(
        (layers.len() + 1) * DEPTHS.len() + 1,
        runtime + args.step.ramp,
    );
    let mut report = Report {
        profile: "path".into(),
        title: format!("{}: where the time goes", without_secrets(&args.uri)),
        lead: "4k random reads at each layer; a layer's cost is the difference to the one before it".into(),
        notes: vec![
            format!("each measurement lasted {} s", runtime.as_secs_f64()),
            "CPU ini is the load generator's, with the host that reaches the disk; CPU tgt is the target's \
             where it runs here".into(),
            "NVMe/TCP in memory is what host and target say to each other for a read, without socket and data".into(),
        ],
        ..Report::default()
    };
    let heads = DEPTHS.map(|depth| format!("depth {depth}"));
    let columns = heads.iter().flat_map(|head| {
        [
            "mean us",
            "p99 us",
            "IOPS",
            "CPU ini us/IO",
            "CPU tgt us/IO",
        ]
        .map(|name| (head.as_str(), name))
    });
    let mut table = Table::new(
        "layers",
        "The layers",
        [("", "layer")]
            .into_iter()
            .chain(columns)
            .chain([("", "costs us")]),
    );
    let mut before = None;
    let mut costs: Vec<(String, f64)> = Vec::new();
    for disk in &layers {
        let mut row = vec![Cell::text(&disk.label)];
        let mut alone = None;
        for iodepth in DEPTHS {
            let job = Job {
                name: format!("depth {iodepth}"),
                rw: Rw::RandRead,
                iodepth,
                runtime,
                ramp: args.step.ramp,
                size: args
                    .step
                    .size
                    .map(|size| size.min(disk.device.geometry().bytes())),
                ..Job::default()
            };
            let run = session.measure(disk, &job, args.count);
            row.extend(figures(run.as_ref()));
            alone = alone.or_else(|| run.as_ref().map(Run::mean_us));
            report.runs.extend(run);
        }
        let cost = alone.map(|mean| mean - before.unwrap_or(0.0));
        row.push(Cell::optional(cost, Shown::Time));
        table.push(row);
        costs.extend(cost.map(|cost| (disk.label.clone(), cost)));
        before = alone;
        if session.is_over() {
            break;
        }
    }
    report.figures.push(stack(&costs));
    report.figures.push(views::tails(
        report.runs.iter().filter(|run| run.name == "depth 1"),
    ));
    report.tables.push(table);
    let base = Job {
        runtime,
        size: args.step.size,
        ..Job::default()
    };
    match way(&session, &args.uri, &layers)? {
        Some(way) => hops::split(&mut session, &way, (&DEPTHS, &base), &mut report),
        None => report.notes.push(NOT_SPLIT.into()),
    }
    session.finish(report)
}

/// The disk for the split of the latency: the given one, or our own over loopback.
fn way(session: &Session, uri: &str, layers: &[Disk]) -> Result<Option<Way>, Failure> {
    if let Some((address, options)) = session.opener.nvme(uri)? {
        return Ok(Some(Way {
            label: without_secrets(uri),
            address,
            options,
            via: None,
        }));
    }
    if Spec::parse(uri).is_ok_and(|spec| matches!(spec.disk, SpecDisk::Remote(_))) {
        return Ok(None);
    }
    let served = |disk: &Disk| Some((disk.label.clone(), disk.via.clone()?));
    let Some((label, via)) = layers.iter().find_map(served) else {
        return Ok(None);
    };
    let remote = &session.args.remote;
    Ok(Some(Way {
        label,
        address: via.address().clone(),
        options: Options {
            engine: session.args.engine.engine,
            ..host_options(remote.hostnqn.as_deref(), remote.hostid)?
        },
        via: Some(via),
    }))
}

/// The reason why there is no split.
const NOT_SPLIT: &str = "a request's time is not split by hop: only a target of ours returns timestamps, and only over \
                         NVMe/TCP";

fn figures(run: Option<&Run>) -> [Cell; 5] {
    [
        Cell::optional(run.map(Run::mean_us), Shown::Time),
        Cell::optional(run.and_then(|run| run.percentile_us(99.0)), Shown::Time),
        Cell::optional(run.map(Run::iops), Shown::Grouped),
        Cell::optional(run.and_then(Run::job_us_per_io), Shown::Fixed(2)),
        Cell::optional(run.and_then(Run::target_us_per_io), Shown::Fixed(2)),
    ]
}

/// The disks to measure. Each has one layer more than the previous one.
fn layers(session: &Session, args: &PathArgs) -> Result<Vec<Disk>, Failure> {
    let spec = Spec::parse(&args.uri).map_err(Failure::usage)?;
    let mut layers = Vec::new();
    let mut add = |label: &str, mut disk: Disk| {
        disk.label = label.to_owned();
        layers.push(disk);
    };
    add("the load generator alone (null:)", session.open("null:1G")?);
    let remote = matches!(spec.disk, SpecDisk::Remote(_));
    let base = session.open(if remote { "ram:256M" } else { &args.uri })?;
    add(
        if remote { "+ memory (ram:)" } else { &base.uri },
        base.clone(),
    );
    let served = |remote: &_| session.over_loopback_with(&base, Transport::NvmeTcp, remote);
    let in_memory = Disk {
        device: Joined::new(Arc::clone(&base.device)),
        ..base.clone()
    };
    add("+ NVMe/TCP in memory", in_memory);
    let plain = RemoteArgs::default();
    add("+ NVMe/TCP over loopback", served(&plain)?);
    if remote {
        add("+ network", session.open(&args.uri)?);
        return Ok(layers);
    }
    let header = RemoteArgs {
        hdr_digest: true,
        ..plain.clone()
    };
    add("+ header digest", served(&header)?);
    add(
        "+ data digest",
        served(&RemoteArgs {
            data_digest: true,
            ..header
        })?,
    );
    Ok(layers)
}

/// A figure with the accumulated costs of the layers.
pub(crate) fn stack(costs: &[(String, f64)]) -> Figure {
    let parts = |upto: usize| {
        let part = |(index, (_, cost)): (usize, &(String, f64))| {
            if index <= upto { cost.max(0.0) } else { 0.0 }
        };
        costs.iter().enumerate().map(part).collect::<Vec<f64>>()
    };
    Figure {
        name: "layers".into(),
        title: "What each layer costs".into(),
        unit: "mean latency of one request at a time; less is better".into(),
        drawing: Drawing::Stacks {
            series: costs.iter().map(|(name, _)| name.clone()).collect(),
            rows: costs
                .iter()
                .enumerate()
                .map(|(index, (name, _))| (name.clone(), parts(index)))
                .collect(),
        },
    }
}

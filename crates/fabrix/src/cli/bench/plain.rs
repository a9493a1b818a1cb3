//! `fabrix bench URI`: measures one job of the command line.

use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;

use fabrix_bench::arrivals::{Pacing, Rate};
use fabrix_bench::job::parse_split;
use fabrix_bench::steady::Steady;
use fabrix_bench::verify::Verify;
use fabrix_bench::{Job, RUNTIME_MAX};
use fabrix_block::Spec;
use fabrix_block::spec::parse_size;

use super::args::{PlainArgs, RateProcess, profiles};
use super::hold::hold;
use super::measure::{check, measure};
use super::plan::{Plan, Planned};
use super::session::Session;
use crate::failure::Failure;
use crate::profiles::job_file::Logs;
use fabrix_block::spec::without_secrets;

pub(crate) fn run(args: &PlainArgs) -> Result<ExitCode, Failure> {
    let uri = args.uri.as_deref().unwrap_or_default();
    if let Some(more) = &args.disk {
        return Err(Failure::usage(match Spec::parse(uri) {
            Ok(_) => format!(
                "{}: only a file of jobs takes a second word",
                without_secrets(more)
            ),
            Err(_) => format!(
                "`{}` is no profile, no disk and no file of jobs; the profiles are {}",
                without_secrets(uri),
                profiles()
            ),
        }));
    }
    let job = job(args)?;
    let session = Session::begin(&args.common)?;
    let disk = session.open(uri)?;
    if let Some(time) = args.hold {
        return hold(args, &disk.uri, &disk.device, time);
    }
    let prefix = args.write_logs.as_ref();
    let logs = prefix.map(|prefix| Logs::all(&prefix.to_string_lossy()));
    let logs = Logs {
        shared: true,
        ..logs.unwrap_or_default()
    };
    let plan = Plan {
        stages: vec![vec![Planned::new(disk, job, logs)]],
        count: args.count,
        log_every: args.log_every,
        forms: vec![args.common.output.into()],
        file: None,
        inputs: Vec::new(),
    };
    check(&session, &plan)?;
    measure(session, &plan)
}

fn job(args: &PlainArgs) -> Result<Job, Failure> {
    let block_bytes = u32::try_from(args.bs)
        .map_err(|_| Failure::usage(format!("--bs {}: an I/O has less than 4G", args.bs)))?;
    if args.verify && !args.rw.writes() {
        return Err(Failure::usage(format!(
            "--verify needs a job that writes, like --rw randwrite; what an earlier job wrote is checked by \
             fabrix bench --name=check --rw={} --verify=crc32c --filename=DISK",
            args.rw
        )));
    }
    let loops = args.loops.filter(|_| !args.time_based);
    let bounded = args.number_ios.is_some() || loops.is_some();
    let usual_runtime = if bounded {
        RUNTIME_MAX
    } else {
        Job::default().runtime
    };
    let split = args
        .bssplit
        .as_deref()
        .map(|text| parse_split(text, parse_size));
    let steady = args
        .steadystate
        .as_deref()
        .map(|text| Steady::parse(text, args.ss_dur, args.ss_ramp));
    let usual = Job::default();
    Ok(Job {
        name: args.rw.name().to_owned(),
        rw: args.rw,
        block_bytes,
        split: split
            .transpose()
            .map_err(Failure::usage)?
            .unwrap_or_default(),
        iodepth: args.iodepth,
        numjobs: args.numjobs,
        runtime: args.runtime.unwrap_or(usual_runtime),
        number_ios: args.number_ios,
        loops,
        ramp: args.ramp,
        rwmixread: args.rwmixread.into(),
        offset: args.offset,
        size: args.size,
        distribution: args.random_distribution.clone(),
        ranges: usual.ranges,
        align: usual.align,
        percent_random: usual.percent_random,
        verify: args.verify.then(|| Verify::fine(block_bytes)),
        steady: steady.transpose().map_err(Failure::usage)?,
        rate: args.rate_iops.map(|iops| Rate {
            iops: iops.into(),
            pacing: match args.rate_process {
                RateProcess::Poisson => Pacing::Poisson,
                RateProcess::Linear => Pacing::Fixed,
            },
        }),
        percentiles: args
            .percentile_list
            .clone()
            .map_or(usual.percentiles, |list| list.0),
        side_rates: usual.side_rates,
        bursts: usual.bursts,
        flow: usual.flow,
        offset_increment: usual.offset_increment,
        run_ios: usual.run_ios,
        run_is_identical: usual.run_is_identical,
        skip_bytes: usual.skip_bytes,
        io_bytes: usual.io_bytes,
        random_map: !args.norandommap,
        durable: usual.durable,
        flushes: usual.flushes,
        seed: args.randseed.unwrap_or_else(other_seed),
        continue_on_error: usual.continue_on_error,
        latency_target: usual.latency_target,
        max_latency: usual.max_latency,
        contents: args.contents.contents(),
    })
}

/// A seed that is another one for each run, and short enough to type.
pub(super) fn other_seed() -> u64 {
    RandomState::new().hash_one(0) >> 32
}

//! Keys for the course of a job: depth, time, stages, mix and processors.

use fabrix_bench::RUNTIME_MAX;

use super::Key;
use crate::profiles::job_file::numbers::{percent, switch, time, whole, word};
use crate::profiles::job_file::processors;

pub(super) const KEYS: &[Key] = &[
    Key::honoured(
        &["iodepth"],
        |section, value| {
            section.job.iodepth = whole(value, 1, section.kilo)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["numjobs"],
        |section, value| {
            section.job.numjobs = whole(value, 1, section.kilo)?;
            Ok(())
        },
        "each has an entry in the results, unless `group_reporting` joins them",
    ),
    Key::honoured(
        &["runtime", "timeout"],
        |section, value| {
            let limit = time(value)?;
            section.job.runtime = if limit.is_zero() { RUNTIME_MAX } else { limit };
            Ok(())
        },
        "0: no limit",
    ),
    Key::honoured(
        &["time_based"],
        |section, value| {
            section.time_based = switch(value)?;
            Ok(())
        },
        "without `runtime` it has no effect, as in fio",
    ),
    Key::honoured(
        &["ramp_time"],
        |section, value| {
            section.job.ramp = time(value)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["startdelay"],
        |section, value| {
            section.start_delay = time(value)?;
            if section.start_delay > RUNTIME_MAX {
                return Err(format!("`{value}` is longer than a year"));
            }
            Ok(())
        },
        "no range of times",
    ),
    Key::honoured(
        &["loops"],
        |section, value| {
            section.loops = whole(value, 1, section.kilo)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["stonewall", "wait_for_previous"],
        |section, value| {
            section.waits = switch(value)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["wait_for"],
        |section, value| {
            section.wait_for = Some(value.to_owned());
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["exitall"],
        |section, value| {
            section.exit_all = switch(value)?;
            Ok(())
        },
        "the first job that ends also ends those beside it, but not later stages",
    ),
    Key::honoured(
        &["exit_what"],
        |section, value| {
            let words = [("group", false), ("stonewall", false), ("all", true)];
            section.exits_run = word(value, &words)?;
            Ok(())
        },
        "`group` (the default) and `stonewall`: `exitall` ends the jobs that run beside it; `all`: later stages do not \
         run either",
    ),
    Key::honoured(
        &["rwmixread"],
        |section, value| {
            section.job.rwmixread = percent(value)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["rwmixwrite"],
        |section, value| {
            section.job.rwmixread = 100 - percent(value)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["cpus_allowed"],
        |section, value| {
            section.cpus = Some(processors::of_list(value)?);
            Ok(())
        },
        "each job is pinned to one of them in turn; all jobs need the same list",
    ),
    Key::honoured(
        &["cpumask"],
        |section, value| {
            section.cpus = Some(processors::of_mask(value)?);
            Ok(())
        },
        "the same as a number",
    ),
    Key::honoured(
        &["numa_cpu_nodes"],
        |section, value| {
            section.cpus = Some(processors::of_nodes(value, processors::NODES.as_ref())?);
            Ok(())
        },
        "all processors of these nodes",
    ),
];

//! Keys for groups, logs and figures of the results.

use super::Key;
use crate::args::values::parse_percentiles;
use crate::profiles::job_file::numbers::{switch, time, word};
use crate::report::sheet::Unified;

pub(super) const KEYS: &[Key] = &[
    Key::honoured(
        &["group_reporting"],
        |section, value| {
            section.group_reporting = switch(value)?;
            Ok(())
        },
        "all jobs up to the next `stonewall` or `new_group` are one entry with the name of the first; histograms are \
         added; rates are over the time from the first start to the last end, where fio takes the longest job's; with \
         `--count` each section stays an entry",
    ),
    Key::honoured(
        &["new_group"],
        |section, value| {
            section.begins_group = switch(value)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["unified_rw_reporting"],
        |_, value| Unified::parse(value).map(drop),
        "`mixed`: all directions in one entry `mixed`; `both`: that one too",
    ),
    Key::honoured(
        &["steadystate", "ss"],
        |section, value| {
            section.steady = Some(value.to_owned());
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["steadystate_duration", "ss_dur"],
        |section, value| {
            section.steady_window = time(value)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["steadystate_ramp_time", "ss_ramp"],
        |section, value| {
            section.steady_ramp = time(value)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["write_bw_log"],
        |section, value| section.logs.set("write_bw_log", value),
        "",
    ),
    Key::honoured(
        &["write_iops_log"],
        |section, value| section.logs.set("write_iops_log", value),
        "",
    ),
    Key::honoured(
        &["write_lat_log"],
        |section, value| section.logs.set("write_lat_log", value),
        "",
    ),
    Key::honoured(
        &["log_avg_msec"],
        |section, value| section.logs.set_interval(value, section.kilo),
        "without it the logs have a reading for every 500 ms, and not for every request",
    ),
    Key::honoured(
        &["per_job_logs"],
        |section, value| {
            section.logs.shared = !switch(value)?;
            Ok(())
        },
        "0: no number in the names of log files; jobs with one name share the file",
    ),
    Key::honoured(
        &["percentile_list"],
        |section, value| {
            section.job.percentiles = parse_percentiles(value)?.0;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["kb_base"],
        |section, value| {
            section.kilo = word(value, &[("1000", 1000), ("1024", 1024)])?;
            Ok(())
        },
        "",
    ),
];

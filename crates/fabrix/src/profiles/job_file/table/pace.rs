//! Keys for the pace of a job: rates, pauses, and what is on the medium before it goes on.

use std::time::Duration;

use super::Key;
use crate::profiles::job_file::numbers::{micros, size, switch, whole, word};

pub(super) const KEYS: &[Key] = &[
    Key::honoured(
        &["rate"],
        |section, value| {
            let kilo = section.kilo;
            section.rate_bytes = section.rates(value, |text| size(text, kilo))?;
            Ok(())
        },
        "bytes a second, for reads and, behind commas, for writes and trims",
    ),
    Key::honoured(
        &["rate_iops"],
        |section, value| {
            let kilo = section.kilo;
            section.rate_iops = section.rates(value, |text| whole(text, 0, kilo))?;
            Ok(())
        },
        "requests a second, for reads and, behind commas, for writes and trims; a direction without a rate runs freely",
    ),
    Key::honoured(
        &["rate_process"],
        |section, value| {
            section.poisson = word(value, &[("linear", false), ("poisson", true)])?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["io_submit_mode"],
        |_, value| word(value, &[("inline", ()), ("offload", ())]),
        "both submit alike: with a rate, requests start on time although others are in flight, as with fio's \
         `offload`; without a rate, a request starts when a place of `iodepth` is free",
    ),
    Key::honoured(
        &["rate_min", "ratemin"],
        |section, value| {
            let kilo = section.kilo;
            let [reads, writes, _] = section.rates(value, |text| size(text, kilo))?;
            section.least.bytes = [reads, writes];
            Ok(())
        },
        "bytes a second for reads and writes; a mean below fails the command at its end, with exit code 1",
    ),
    Key::honoured(
        &["rate_iops_min"],
        |section, value| {
            let kilo = section.kilo;
            let [reads, writes, _] = section.rates(value, |text| whole(text, 0, kilo))?;
            section.least.iops = [reads, writes];
            Ok(())
        },
        "as `rate_min`, in requests a second",
    ),
    Key::honoured(
        &["flow"],
        |section, value| {
            section.flow.weight = whole(value, 0, section.kilo)?;
            match section.flow.weight <= 1000 {
                true => Ok(()),
                false => Err(format!("`{value}` is above 1000")),
            }
        },
        "requests of jobs that run at once, in proportion to this weight; not together with a rate or `thinktime`",
    ),
    Key::honoured(
        &["flow_id"],
        |section, value| {
            section.flow.id = whole(value, 0, section.kilo)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["flow_sleep"],
        |section, value| {
            section.flow.sleep = Duration::from_micros(whole(value, 0, section.kilo)?);
            Ok(())
        },
        "20 us is the default",
    ),
    Key::honoured(
        &["latency_target"],
        |section, value| {
            section.latency.target = micros(value)?;
            Ok(())
        },
        "the depth goes from 1 up to `iodepth` while the latencies stay below, in fio's steps; the results are \
         those of the last window",
    ),
    Key::honoured(
        &["latency_window"],
        |section, value| {
            section.latency.window = micros(value)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["latency_percentile"],
        |section, value| {
            let percentile = value.parse();
            section.latency.percentile =
                percentile.map_err(|_| format!("`{value}` is not a number"))?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["latency_run"],
        |section, value| {
            section.latency.keeps_running = switch(value)?;
            Ok(())
        },
        "1: the job goes on to its end with the depth that keeps the target",
    ),
    Key::honoured(
        &["max_latency"],
        |section, value| {
            let mut parts = value.split(',').map(|text| micros(text.trim()));
            let reads = parts.next().unwrap_or(Ok(Duration::ZERO))?;
            let writes = parts.next().unwrap_or(Ok(reads))?;
            let trims = parts.next().unwrap_or(Ok(writes))?;
            let limit = |most: Duration| (!most.is_zero()).then_some(most);
            section.job.max_latency = [reads, writes, trims].map(limit);
            Ok(())
        },
        "a slower request ends the job, and the exit code is 1",
    ),
    Key::honoured(
        &["thinktime"],
        |section, value| {
            section.thinktime = micros(value)?;
            Ok(())
        },
        "a pause when `thinktime_blocks` requests have ended and none is in flight; not together with a rate",
    ),
    Key::honoured(
        &["thinktime_blocks"],
        |section, value| {
            section.thinktime_blocks = Some(whole(value, 1, section.kilo)?);
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["thinktime_blocks_type"],
        |section, value| {
            section.thinktime_by_issue = word(value, &[("complete", false), ("issue", true)])?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["thinktime_iotime"],
        |section, value| {
            let time = micros(value)?;
            section.thinktime_iotime = (!time.is_zero()).then_some(time);
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["sync"],
        |section, value| {
            let words = [
                ("0", false),
                ("none", false),
                ("1", true),
                ("sync", true),
                ("2", true),
                ("dsync", true),
            ];
            section.job.durable = word(value, &words)?;
            Ok(())
        },
        "each write is on the medium before it is answered (FUA), with every value but 0 and none",
    ),
    Key::honoured(
        &["fsync"],
        |section, value| {
            section.fsync = whole(value, 0, section.kilo)?;
            Ok(())
        },
        "a flush of the disk after so many writes; no other request starts before its end, and the results have its \
         latencies under `sync`",
    ),
    Key::honoured(
        &["fdatasync"],
        |section, value| {
            section.fdatasync = whole(value, 0, section.kilo)?;
            Ok(())
        },
        "the same flush as `fsync`",
    ),
    Key::honoured(
        &["end_fsync"],
        |section, value| {
            section.end_fsync = switch(value)?;
            Ok(())
        },
        "a flush at the end, within the measured time",
    ),
    Key::honoured(
        &["fsync_on_close"],
        |section, value| {
            section.fsync_on_close = switch(value)?;
            Ok(())
        },
        "as `end_fsync`",
    ),
];

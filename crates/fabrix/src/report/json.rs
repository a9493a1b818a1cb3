//! Runs and reports as JSON. The keys of a job are fio's.
//!
//! `jobs` has one entry for all jobs together, as in fio with `group_reporting`. The single jobs
//! are under `per_job`. Values that are not measured (`slat_ns`, short and dropped requests) are
//! present as zeroes, because programs for fio's output expect them. Values that fio does not have
//! (`verify`, `errors`, `cpu`) have additional keys. `schema` changes when a key changes its
//! meaning.

use fabrix_bench::arrivals::Pacing;
use fabrix_bench::contents::{Base, Contents};
use fabrix_bench::job::Job;
use fabrix_bench::latency::Latency;
use fabrix_bench::results::{JobResult, Results, Side};
use fabrix_bench::series::{Moved, Point};
use serde_json::{Map, Value, json};

use super::sheet::{Repeat, Report, Run};
use super::{Context, number};

/// Version of the keys.
const SCHEMA: u32 = 1;

/// The document of runs that were executed together, each as a fio job.
pub(crate) fn runs(runs: &[Run], context: &Context) -> Value {
    let each = runs
        .iter()
        .flat_map(|run| run.results.jobs.iter().map(|one| job(&run.results, one)));
    let mut document = document(context);
    document["jobs"] = runs.iter().map(whole_run).collect();
    document["per_job"] = each.collect();
    document["cpu"] = runs.first().map_or(Value::Null, |run| cpu(&run.results));
    document
}

/// The document of a report. `docs/BENCH.md` describes the keys.
pub(crate) fn report(report: &Report, context: &Context) -> Value {
    let run = |run: &Run| {
        json!({
            "name": run.name,
            "disk": run.disk,
            "jobs": [whole_run(run)],
            "per_job": run.results.jobs.iter().map(|one| job(&run.results, one)).collect::<Vec<_>>(),
            "cpu": cpu(&run.results),
            "target_cores": run.target_cores,
            "repeats": repeats(run),
        })
    };
    let mut document = document(context);
    document["profile"] = json!(report.profile);
    document["title"] = json!(report.title);
    document["lead"] = json!(report.lead);
    document["notes"] = json!(report.notes);
    document["warnings"] = json!(report.warnings);
    document["tables"] = json!(report.tables);
    document["runs"] = report.runs.iter().map(run).collect();
    document
}

pub(super) fn document(context: &Context) -> Value {
    json!({
        "schema": SCHEMA,
        "fabrix version": format!("fabrix-{}", context.version),
        "timestamp": context.timestamp,
        "time": number::moment(context.timestamp),
        "command": context.command,
        "machine": facts(context),
    })
}

/// All jobs of a run together, with the values that exist only for the whole run.
fn whole_run(run: &Run) -> Value {
    let results = &run.results;
    let mut value = job(results, &results.aggregate);
    value["disk"] = json!(run.disk);
    value["series"] = results.series.iter().map(point).collect();
    if let Some(steady) = &results.steady {
        value["steadystate"] = json!({
            "attained": u8::from(steady.at.is_some()),
            "at_ms": steady.at.map(|at| u64::try_from(at.as_millis()).unwrap_or(u64::MAX)),
            "percent": steady.percent.is_finite().then_some(steady.percent),
        });
    }
    if run.repeats.len() > 1 {
        value["repeats"] = repeats(run);
    }
    value
}

fn repeats(run: &Run) -> Value {
    let one = |repeat: &Repeat| {
        let mean = json!({ "mean": repeat.mean_us });
        json!({ "iops": repeat.iops, "bw_bytes": repeat.bw_bytes, "lat_us": mean })
    };
    run.repeats.iter().map(one).collect()
}

fn point(point: &Point) -> Value {
    let side =
        |side: &Moved| json!({ "ios": side.ios, "bytes": side.bytes, "mean_ns": side.mean_ns() });
    json!({
        "at_ms": u64::try_from(point.at.as_millis()).unwrap_or(u64::MAX),
        "span_ms": u64::try_from(point.span.as_millis()).unwrap_or(u64::MAX),
        "read": side(&point.sides[0]),
        "write": side(&point.sides[1]),
    })
}

/// The machine's facts as an object.
fn facts(context: &Context) -> Value {
    let pairs = context
        .facts
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)));
    Value::Object(pairs.collect::<Map<_, _>>())
}

fn job(results: &Results, one: &JobResult) -> Value {
    let cpu = &results.cpu;
    json!({
        "jobname": results.job.name,
        "groupid": 0,
        "error": i32::from(one.errors.total() > 0),
        "job options": options(&results.job),
        "read": side(&one.read),
        "write": side(&one.write),
        "trim": side(&Side::default()),
        "job_runtime": millis(one.total.runtime_ns),
        "usr_cpu": cpu.user_cores * 100.0,
        "sys_cpu": cpu.system_cores * 100.0,
        "total_err": one.errors.total(),
        "errors": errors(one),
        "busy": one.busy,
        "ended_early": one.ended_early,
        "verify": verify(one),
    })
}

/// The options with fio's names and in fio's string form.
fn options(job: &Job) -> Value {
    let mut options = Map::new();
    let mut set = |name: &str, value: String| {
        options.insert(name.into(), Value::String(value));
    };
    set("name", job.name.clone());
    set("rw", job.rw.name().into());
    if job.is_split() {
        set("bssplit", job.size_text());
    } else {
        set("bs", job.block_bytes.to_string());
    }
    set("random_distribution", job.distribution.text());
    set("iodepth", job.iodepth.to_string());
    set("numjobs", job.numjobs.to_string());
    set("runtime", job.runtime.as_secs_f64().to_string());
    set("ramp_time", job.ramp.as_secs_f64().to_string());
    set("rwmixread", job.percent_read().to_string());
    set("offset", job.offset.to_string());
    set("randseed", job.seed.to_string());
    if job.loops.is_none() && job.number_ios.is_none() {
        set("time_based", "1".into());
    }
    if !job.random_map {
        set("norandommap", "1".into());
    }
    set("group_reporting", "1".into());
    if let Some(size) = job.size {
        set("size", size.to_string());
    }
    if let Some(ios) = job.number_ios {
        set("number_ios", ios.to_string());
    }
    if let Some(loops) = job.loops {
        set("loops", loops.to_string());
    }
    if let Some(rate) = &job.rate {
        set("rate_iops", rate.iops.to_string());
        let process = match rate.pacing {
            Pacing::Fixed => "linear",
            Pacing::Poisson => "poisson",
        };
        set("rate_process", process.into());
    }
    if job.verify {
        set("verify", "crc32c".into());
    }
    contents(&mut set, &job.contents);
    Value::Object(options)
}

/// The options for the contents of writes that differ from fio's defaults.
fn contents(set: &mut impl FnMut(&str, String), contents: &Contents) {
    match &contents.base {
        Base::Random => {}
        Base::Zeroes => set("zero_buffers", "1".into()),
        Base::Pattern(bytes) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            set("buffer_pattern", format!("0x{digits}"));
        }
    }
    if contents.scramble != (contents.base == Base::Random) {
        set("scramble_buffers", u8::from(contents.scramble).to_string());
    }
    if contents.refill {
        set("refill_buffers", "1".into());
    }
    if contents.compress_percent > 0 {
        set(
            "buffer_compress_percentage",
            contents.compress_percent.to_string(),
        );
        set("buffer_compress_chunk", contents.compress_chunk.to_string());
    }
    if contents.dedupe_percent > 0 {
        set("dedupe_percentage", contents.dedupe_percent.to_string());
    }
}

fn side(side: &Side) -> Value {
    json!({
        "io_bytes": side.bytes,
        "io_kbytes": side.bytes / 1024,
        "bw_bytes": whole(side.bw_bytes),
        "bw": whole(side.bw_bytes / 1024.0),
        "iops": side.iops,
        "runtime": millis(side.runtime_ns),
        "total_ios": side.ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": distribution(&Latency::default(), false),
        "clat_ns": distribution(&side.service, true),
        "lat_ns": distribution(&side.latency, true),
    })
}

fn distribution(latency: &Latency, percentiles: bool) -> Value {
    let mut value = json!({
        "min": latency.min_ns,
        "max": latency.max_ns,
        "mean": latency.mean_ns,
        "stddev": latency.stddev_ns,
        "N": latency.count,
    });
    if percentiles && latency.count > 0 {
        let table = latency
            .percentiles_ns
            .iter()
            .map(|(percent, ns)| (format!("{percent:.6}"), json!(ns)));
        value["percentile"] = Value::Object(table.collect());
    }
    value
}

fn errors(one: &JobResult) -> Value {
    let counts = one
        .errors
        .by_status
        .iter()
        .map(|(status, count)| (format!("{status:?}"), json!(count)));
    json!({
        "total": one.errors.total(),
        "by_status": Value::Object(counts.collect()),
        "first": one.errors.first,
    })
}

fn verify(one: &JobResult) -> Value {
    one.verify.as_ref().map_or(Value::Null, |verify| {
        json!({
            "blocks_checked": verify.blocks_checked,
            "errors": verify.errors,
            "first_error": verify.first_error,
        })
    })
}

fn cpu(results: &Results) -> Value {
    let cpu = &results.cpu;
    json!({
        "job_cores": cpu.job_cores,
        "user_cores": cpu.user_cores,
        "system_cores": cpu.system_cores,
        "machine_cores": cpu.machine_cores,
        "cores": cpu.cores,
        "window_ms": u64::try_from(cpu.window.as_millis()).unwrap_or(u64::MAX),
    })
}

fn millis(ns: u64) -> u64 {
    ns / 1_000_000
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "fio gives whole numbers here; the cast rounds down and saturates"
)]
fn whole(rate: f64) -> u64 {
    rate as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_run_reads_as_it_did() {
        let value = runs(&[sample::run(sample::results())], &sample::context());
        let text = serde_json::to_string_pretty(&value).expect("keys are strings") + "\n";
        sample::golden("run.json", &text);
    }

    #[test]
    fn what_reads_fio_finds_its_keys() {
        let value = runs(&[sample::run(sample::results())], &sample::context());
        assert_eq!(value["schema"], 1);
        let read = &value["jobs"][0]["read"];
        assert_eq!(read["total_ios"], 1_000_000);
        assert_eq!(read["bw"], 400_000);
        assert_eq!(read["runtime"], 10_000);
        assert!(read["clat_ns"]["percentile"]["99.000000"].is_u64());
        assert!(value["jobs"][0]["trim"]["iops"].is_number());
    }

    #[test]
    fn trouble_stands_in_the_document() {
        let value = runs(&[sample::run(sample::trouble())], &sample::context());
        let job = &value["jobs"][0];
        assert_eq!(job["error"], 1);
        assert_eq!(job["errors"]["by_status"]["MediaRead"], 3);
        assert_eq!(job["verify"]["errors"], 2);
        assert!(job["ended_early"].is_string());
    }
}

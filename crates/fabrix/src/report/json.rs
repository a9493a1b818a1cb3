//! Runs and reports as JSON. The keys of a job are fio's.
//!
//! `jobs` has one entry for each section, with all its jobs together, as in fio with
//! `group_reporting`. The single jobs are under `per_job`. Values that are not measured (`slat_ns`,
//! short and dropped requests) are present as zeroes, because programs for fio's output expect
//! them. Values that fio does not have
//! (`verify`, `errors`, `cpu`) have additional keys. `schema` changes when a key changes its
//! meaning.

use std::time::Duration;

use fabrix_bench::arrivals::{Pacing, Rate};
use fabrix_bench::contents::{Base, Contents};
use fabrix_bench::job::Job;
use fabrix_bench::latency::Latency;
use fabrix_bench::results::{Depths, JobResult, Results, STOPPED, Side};
use fabrix_bench::search::SearchEnd;
use fabrix_bench::series::{Moved, Point};
use fabrix_bench::verify::Verify;
use fabrix_block::spec::Size;
use serde_json::{Map, Value, json};

use super::sheet::{Repeat, Report, Run, Unified, Written};
use super::{Context, number};

/// Version of the keys.
const SCHEMA: u32 = 1;
/// Version of fio whose keys these are.
const FIO: &str = "fio-3.33";

/// The document of runs that were executed together, each as a fio job.
/// `disk_util` is fio's list of block devices.
pub(crate) fn runs(report: &Report, disk_util: Value, context: &Context) -> Value {
    let runs = &report.runs;
    let each = runs
        .iter()
        .flat_map(|run| run.results.jobs.iter().map(|one| job(run, one)));
    let mut document = document(context);
    let global = runs.iter().filter_map(|run| run.written.as_ref());
    document["global options"] = strings(global.flat_map(|written| &written.global));
    document["disk_util"] = disk_util;
    document["jobs"] = runs.iter().map(whole_run).collect();
    document["per_job"] = each.collect();
    document["cpu"] = runs.first().map_or(Value::Null, |run| cpu(&run.results));
    document["notes"] = json!(report.notes);
    document["warnings"] = json!(report.warnings);
    document
}

/// The document of a report. `docs/BENCH.md` describes the keys.
pub(crate) fn report(report: &Report, context: &Context) -> Value {
    let run = |run: &Run| {
        json!({
            "name": run.name,
            "disk": run.disk,
            "jobs": [whole_run(run)],
            "per_job": run.results.jobs.iter().map(|one| job(run, one)).collect::<Vec<_>>(),
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

/// The document of [`runs`] with the bins of fio's `json+`: each latency that occurred, in
/// nanoseconds, with the number of its requests.
pub(crate) fn with_bins(mut document: Value, report: &Report) -> Value {
    let jobs = document["jobs"].as_array_mut().into_iter().flatten();
    for (job, run) in jobs.zip(&report.runs) {
        let all = &run.results.aggregate;
        for (name, key, latency) in [
            ("read", "clat_ns", &all.read.service),
            ("write", "clat_ns", &all.write.service),
            ("trim", "clat_ns", &all.trim.service),
            ("mixed", "clat_ns", &all.total.service),
            ("sync", "lat_ns", &all.sync),
        ] {
            let bins = latency.bins_ns.iter();
            let bins: Map<_, _> = bins
                .map(|(ns, count)| (ns.to_string(), json!(count)))
                .collect();
            if let (Some(side), false) = (job.get_mut(name), bins.is_empty()) {
                side[key]["bins"] = Value::Object(bins);
            }
        }
    }
    document
}

pub(super) fn document(context: &Context) -> Value {
    json!({
        "schema": SCHEMA,
        "fio version": format!("{FIO}-fabrix-{}", context.version),
        "fabrix version": format!("fabrix-{}", context.version),
        "timestamp": context.timestamp,
        "timestamp_ms": context.timestamp * 1000,
        "time": number::asctime(context.timestamp),
        "command": context.command,
        "machine": facts(context),
    })
}

/// All jobs of a run together, with the values that exist only for the whole run.
fn whole_run(run: &Run) -> Value {
    let results = &run.results;
    let mut value = job(run, &results.aggregate);
    value["disk"] = json!(run.disk);
    value["jobs"] = json!(results.jobs.len());
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
    let mut value = json!({
        "at_ms": u64::try_from(point.at.as_millis()).unwrap_or(u64::MAX),
        "span_ms": u64::try_from(point.span.as_millis()).unwrap_or(u64::MAX),
        "read": side(&point.sides[0]),
        "write": side(&point.sides[1]),
    });
    if point.sides[2].ios > 0 {
        value["trim"] = side(&point.sides[2]);
    }
    value
}

/// The machine's facts as an object.
fn facts(context: &Context) -> Value {
    let pairs = context
        .facts
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)));
    Value::Object(pairs.collect::<Map<_, _>>())
}

fn job(run: &Run, one: &JobResult) -> Value {
    let results = &run.results;
    let cpu = &results.cpu;
    // The readings are those of all jobs together.
    let alone = results.jobs.len() == 1 || std::ptr::eq(one, &results.aggregate);
    let series = if alone { &results.series[..] } else { &[] };
    let [latency_ns, latency_us, latency_ms] = ranges(&one.total.service);
    let target = results.job.latency_target;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let seconds = one.total.runtime_ns.div_ceil(1_000_000_000) + results.job.ramp.as_secs();
    let mut value = json!({
        "jobname": results.job.name,
        "groupid": run.group,
        "error": error(run, one),
        "eta": 0,
        "elapsed": seconds,
        "job options": options(run),
        "read": side(&one.read, series, &[0]),
        "write": side(&one.write, series, &[1]),
        "trim": side(&one.trim, series, &[2]),
        "sync": { "total_ios": one.sync.count, "lat_ns": distribution(&one.sync, true) },
        "job_runtime": millis(one.total.runtime_ns),
        "usr_cpu": cpu.user_cores * 100.0,
        "sys_cpu": cpu.system_cores * 100.0,
        "ctx": cpu.context_switches,
        "majf": cpu.major_faults,
        "minf": cpu.minor_faults,
        "iodepth_level": depths(one),
        "latency_ns": latency_ns,
        "latency_us": latency_us,
        "latency_ms": latency_ms,
        "latency_depth": one.depth,
        "latency_target": target.map_or(0, |target| nanos(target.target)),
        "latency_percentile": target.map_or(100.0, |target| target.percentile),
        "latency_window": target.map_or(0, |target| nanos(target.window) / 1000),
        "latency_target_met": one.search.map(|search| search != SearchEnd::Missed),
        "latency_search_ms": match one.search {
            Some(SearchEnd::Found(took)) => json!(millis(nanos(took))),
            _ => Value::Null,
        },
        "total_err": one.errors.total().max((error(run, one) != 0).into()),
        "errors": errors(one),
        "busy": one.busy,
        "ended_early": one.ended_early,
        "missed_rate": run.missed,
        "verify": verify(one),
    });
    let unified = run.written.as_ref().map(Written::unified);
    let unified = unified.unwrap_or_default();
    if unified != Unified::Apart {
        value["mixed"] = side(&one.total, series, &[0, 1, 2]);
    }
    if let (Unified::Mixed, Value::Object(value)) = (unified, &mut value) {
        let apart = ["read", "write", "trim", "sync"];
        apart.iter().for_each(|key| drop(value.remove(*key)));
    }
    value
}

/// Percent of the requests by the number in flight at their start, under fio's names of the ranges.
fn depths(one: &JobResult) -> Value {
    let percentages = one.depths.percentages().map(|percent| json!(percent));
    let names = Depths::NAMES.map(str::to_owned);
    Value::Object(names.into_iter().zip(percentages).collect())
}

/// The distribution of the latency in percent of the requests, under fio's names of the ranges: in
/// nanoseconds, microseconds and milliseconds.
fn ranges(latency: &Latency) -> [Value; 3] {
    let steps = [
        "2", "4", "10", "20", "50", "100", "250", "500", "750", "1000",
    ];
    let share = |at: usize| {
        let count = latency.counts.get(at).copied().unwrap_or(0);
        json!(count as f64 * 100.0 / latency.count.max(1) as f64)
    };
    let unit = |first: usize, names: &[&str]| {
        let pairs = (first..).zip(names);
        Value::Object(
            pairs
                .map(|(at, name)| ((*name).to_owned(), share(at)))
                .collect(),
        )
    };
    let longest = [&steps[..], &["2000", ">=2000"]].concat();
    [unit(0, &steps), unit(10, &steps), unit(20, &longest)]
}

/// Options as an object. The last value of a key counts.
fn strings<'a>(options: impl Iterator<Item = &'a (String, String)>) -> Value {
    let pairs = options.map(|(key, value)| (key.clone(), json!(value)));
    Value::Object(pairs.collect())
}

/// The options as written, with the job's name and seed. Without a text they are those of the job,
/// with fio's names and in fio's string form.
fn options(run: &Run) -> Value {
    let job: &Job = &run.results.job;
    if let Some(written) = &run.written {
        let mut options = strings(written.own.iter());
        options["name"] = json!(job.name);
        options["randseed"] = json!(job.seed.to_string());
        return options;
    }
    let mut options = Map::new();
    let mut set = |name: &str, value: String| {
        options.insert(name.into(), Value::String(value));
    };
    set("name", job.name.clone());
    set("filename", run.disk.clone());
    set("rw", job.rw.name().into());
    if job.has_range() {
        set("bsrange", job.size_text());
    } else if job.is_split() {
        set("bssplit", job.size_text());
    } else {
        set("bs", Size(job.block_bytes.into()).to_string());
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
    if job.align != [0; 2] {
        let [reads, writes] = job.align;
        set("blockalign", format!("{reads},{writes}"));
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
    if let Some(bytes) = job.io_bytes {
        set("io_size", bytes.to_string());
    }
    if job.durable {
        set("sync", "dsync".into());
    }
    if job.flushes.every > 0 {
        set("fsync", job.flushes.every.to_string());
    }
    if job.flushes.at_end {
        set("end_fsync", "1".into());
    }
    let [reads, writes] = job.side_rates;
    let iops = |rate: Option<Rate>| rate.map_or_else(String::new, |rate| rate.iops.to_string());
    if job.side_rates != [None, None] {
        set("rate_iops", format!("{},{}", iops(reads), iops(writes)));
    }
    if job.rate.is_some() {
        set("rate_iops", iops(job.rate));
    }
    if let Some(rate) = job.rate.or(reads).or(writes) {
        let process = match rate.pacing {
            Pacing::Fixed => "linear",
            Pacing::Poisson => "poisson",
        };
        set("rate_process", process.into());
    }
    if let Some(options) = &job.verify {
        verification(&mut set, options);
    }
    contents(&mut set, &job.contents);
    Value::Object(options)
}

/// fio's error of a job: 84 (EILSEQ) for wrong blocks, 110 (ETIMEDOUT) for an early end and for a
/// rate that was not reached, and 1 for failed requests.
fn error(run: &Run, one: &JobResult) -> i32 {
    let wrong = one.verify.as_ref().is_some_and(|verify| verify.errors > 0);
    let early = one.ended_early.as_ref().is_some_and(|why| why != STOPPED);
    match one.errors.total() {
        0 if wrong => 84,
        0 if early || run.missed.is_some() => 110,
        0 => 0,
        _ => 1,
    }
}

/// The options of a verification that differ from fio's defaults.
fn verification(set: &mut impl FnMut(&str, String), options: &Verify) {
    set("verify", options.method.name().into());
    for (name, number) in [
        ("verify_interval", options.interval),
        ("verify_offset", options.offset),
        ("verify_backlog", options.backlog),
        ("verify_backlog_batch", options.backlog_batch),
        ("verify_fatal", options.fatal.into()),
    ] {
        if number > 0 {
            set(name, number.to_string());
        }
    }
    if let Some(pattern) = &options.pattern {
        set("verify_pattern", pattern.text());
    }
    if !options.read_back {
        set("do_verify", "0".into());
    }
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
    for (key, value) in [
        ("scramble_buffers", contents.scramble),
        ("refill_buffers", contents.refill),
    ] {
        if let Some(value) = value {
            set(key, u8::from(value).to_string());
        }
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

/// Directions with their readings. `places` are theirs in a reading.
fn side(side: &Side, series: &[Point], places: &[usize]) -> Value {
    let sum = |point: &Point, of: fn(&Moved) -> u64| -> f64 {
        places.iter().map(|at| of(&point.sides[*at]) as f64).sum()
    };
    let ios = |point: &Point| sum(point, |moved| moved.ios);
    let whole_samples = merged(series, |point| ios(point) > 0.0);
    let iops = samples(&whole_samples, ios);
    let bw = samples(&whole_samples, |point| {
        sum(point, |moved| moved.bytes) / 1024.0
    });
    let used = side.ios > 0;
    json!({
        "io_bytes": side.bytes,
        "io_kbytes": side.bytes / 1024,
        "bw_bytes": whole(side.bw_bytes),
        "bw": whole(side.bw_bytes / 1024.0),
        "iops": side.iops,
        "runtime": if used { millis(side.runtime_ns) } else { 0 },
        "total_ios": side.ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": distribution(&Latency::default(), false),
        "clat_ns": distribution(&side.service, true),
        "lat_ns": distribution(&side.latency, true),
        "bw_min": whole(bw.min),
        "bw_max": whole(bw.max),
        "bw_agg": if bw.count > 0 { 100.0 } else { 0.0 },
        "bw_mean": bw.mean,
        "bw_dev": bw.deviation,
        "bw_samples": bw.count,
        "iops_min": whole(iops.min),
        "iops_max": whole(iops.max),
        "iops_mean": iops.mean,
        "iops_stddev": iops.deviation,
        "iops_samples": iops.count,
    })
}

/// Statistics of the samples. All fields are 0 without samples.
#[derive(Default)]
struct Samples {
    min: f64,
    max: f64,
    mean: f64,
    /// Standard deviation of a sample: the divisor is one less than the count.
    deviation: f64,
    count: usize,
}

/// Samples of at least fio's length, from shorter readings. A rest that is shorter than a sample is
/// left out. Readings before the first request and after the last one do not belong to the load.
fn merged(series: &[Point], is_used: impl Fn(&Point) -> bool) -> Vec<Point> {
    let first = series.iter().position(&is_used).unwrap_or(series.len());
    let end = series.iter().rposition(is_used).map_or(first, |at| at + 1);
    let mut samples = Vec::new();
    let mut open: Option<Point> = None;
    for point in &series[first..end] {
        let sum = open
            .take()
            .map_or(*point, |open| Point::joined(open, *point));
        match sum.span >= SAMPLE_LEAST {
            true => samples.push(sum),
            false => open = Some(sum),
        }
    }
    samples
}

/// Shortest sample. fio's has 500 ms, and the time of a reading varies by a few milliseconds.
const SAMPLE_LEAST: Duration = Duration::from_millis(450);

/// Statistics of a quantity per second.
fn samples(samples: &[Point], of: impl Fn(&Point) -> f64) -> Samples {
    let rates: Vec<f64> = samples
        .iter()
        .map(|point| of(point) / point.span.as_secs_f64())
        .collect();
    if rates.is_empty() {
        return Samples::default();
    }
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    Samples {
        min: rates.iter().copied().fold(f64::INFINITY, f64::min),
        max: rates.iter().copied().fold(0.0, f64::max),
        mean,
        deviation: (squares / (rates.len().max(2) - 1) as f64).sqrt(),
        count: rates.len(),
    }
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
    use crate::report::sheet::Written;

    fn document_of(results: Results) -> Value {
        let report = Report {
            runs: vec![sample::run(results)],
            ..Report::default()
        };
        runs(&report, json!([]), &sample::context())
    }

    #[test]
    fn a_run_reads_as_it_did() {
        let value = document_of(sample::results());
        let text = serde_json::to_string_pretty(&value).expect("keys are strings") + "\n";
        sample::golden("run.json", &text);
    }

    #[test]
    fn what_reads_fio_finds_its_keys() {
        let value = document_of(sample::results());
        assert_eq!(value["schema"], 1);
        let read = &value["jobs"][0]["read"];
        assert_eq!(read["total_ios"], 1_000_000);
        assert_eq!(read["bw"], 400_000);
        assert_eq!(read["runtime"], 10_000);
        assert!(read["clat_ns"]["percentile"]["99.000000"].is_u64());
        assert!(value["jobs"][0]["trim"]["iops"].is_number());
        assert_eq!(value["jobs"][0]["latency_us"]["100"], 100.0);
        assert_eq!(
            (&read["iops_min"], &read["iops_max"]),
            (&json!(91_800), &json!(108_000))
        );
        assert_eq!(
            (&read["iops_samples"], &read["iops_mean"]),
            (&json!(10), &json!(99_900.0))
        );
    }

    #[test]
    fn only_whole_samples_count() {
        let point = |millis: u64, ios| Point {
            span: Duration::from_millis(millis),
            sides: [Moved {
                ios,
                ..Moved::default()
            }; 3],
            ..Point::default()
        };
        let counted = |series: &[Point]| {
            let found = merged(series, |point| point.sides[0].ios > 0);
            let found = samples(&found, |point| point.sides[0].ios as f64);
            (found.count, found.min, found.max)
        };
        assert_eq!(counted(&[]), (0, 0.0, 0.0));
        assert_eq!(counted(&[point(300, 9)]), (0, 0.0, 0.0), "a short run");
        assert_eq!(counted(&[point(500, 50), point(200, 1)]), (1, 100.0, 100.0));
        let parts = [point(250, 10), point(250, 40), point(500, 25)];
        assert_eq!(counted(&parts), (2, 50.0, 100.0), "short readings");
        let waits = [point(500, 0), point(500, 50), point(500, 0)];
        assert_eq!(
            counted(&waits),
            (1, 100.0, 100.0),
            "before and after the load"
        );
    }

    #[test]
    fn options_are_those_that_were_written() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let mut run = sample::run(sample::results());
        run.written = Some(Written {
            global: vec![pair("bs", "8k"), pair("bs", "4k")],
            own: vec![pair("rw", "randread")],
        });
        let report = Report {
            runs: vec![run],
            ..Report::default()
        };
        let value = runs(&report, json!([]), &sample::context());
        assert_eq!(value["global options"], json!({ "bs": "4k" }));
        let options = &value["jobs"][0]["job options"];
        assert_eq!(options["rw"], "randread");
        assert!(options["randseed"].is_string() && options.get("iodepth").is_none());
    }

    #[test]
    fn trouble_stands_in_the_document() {
        let value = document_of(sample::trouble());
        let job = &value["jobs"][0];
        assert_eq!(job["error"], 1);
        assert_eq!(job["errors"]["by_status"]["MediaRead"], 3);
        assert_eq!(job["verify"]["errors"], 2);
        assert!(job["ended_early"].is_string());
    }
}

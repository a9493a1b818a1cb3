//! A run as text for a terminal in fio's order: rates, latencies, then the rest.

use fabrix_bench::Job;
use fabrix_bench::job::Distribution;
use fabrix_bench::latency::Latency;
use fabrix_bench::results::{Depths, JobResult, Results, Side};
use fabrix_bench::search::SearchEnd;
use fabrix_block::spec::Size;

use super::number::{bytes, cores, grouped, mb_per_s, short, time};
use super::sheet::{Run, Unified, Written};

/// The requested jobs in fio's words. Of joined jobs the patterns, sizes and depths of all.
pub(crate) fn asked(results: &Results) -> String {
    let job = &results.job;
    let each = |text: fn(&Job) -> String| {
        let mut texts = vec![text(job)];
        for text in results.others.iter().map(text) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts.join("+")
    };
    let (rw, bs) = (each(pattern), each(sizes));
    let depth = each(|job| job.iodepth.to_string());
    let percent = job.percent_read();
    let mix = if percent == 0 || percent == 100 {
        String::new()
    } else {
        format!(", rwmixread={percent}")
    };
    let law = match &job.distribution {
        Distribution::Uniform => String::new(),
        law => format!(", random_distribution={}", law.text()),
    };
    let seed = match job.rw.is_random() {
        true => format!(", randseed={}", job.seed),
        false => String::new(),
    };
    let sync = if job.durable { ", sync=dsync" } else { "" };
    let flushes = match job.flushes.every {
        0 => String::new(),
        every => format!(", fsync={every}"),
    };
    format!(
        "{}: rw={rw}, bs={bs}, iodepth={depth}, jobs={}{mix}{law}{sync}{flushes}{seed}",
        job.name, job.numjobs
    )
}

/// The pattern with the number behind it: `read:-8k`, `randread:8`.
fn pattern(job: &Job) -> String {
    let bytes = Size(job.skip_bytes.unsigned_abs());
    match (job.skip_bytes, job.run_ios) {
        (1.., _) => format!("{}:{bytes}", job.rw),
        (..0, _) => format!("{}:-{bytes}", job.rw),
        (0, 2..) => format!("{}:{}", job.rw, job.run_ios),
        (0, _) => job.rw.to_string(),
    }
}

/// The sizes of requests: `4k`, `4k,8k` for reads and writes, `4k-64k`, or `4k/60:64k/40`.
fn sizes(job: &Job) -> String {
    if !job.is_split() {
        return Size(job.block_bytes.into()).to_string();
    }
    let text = |write| {
        let sizes = job.sizes(write);
        let size = |bytes: u32| Size(bytes.into());
        if let Some(range) = sizes.range {
            return format!("{}-{}", size(range.shortest), size(range.longest));
        }
        let shares: Vec<_> = sizes.iter().collect();
        if let [one] = shares[..] {
            return size(one.bytes).to_string();
        }
        let shares = shares.iter();
        let shares = shares.map(|share| format!("{}/{}", size(share.bytes), share.percent));
        shares.collect::<Vec<_>>().join(":")
    };
    let (reads, writes) = (text(false), text(true));
    match reads == writes {
        true => reads,
        false => format!("{reads},{writes}"),
    }
}

/// A run with its repeats.
pub(crate) fn run(run: &Run) -> String {
    let unified = run.written.as_ref().map(Written::unified);
    let mut text = summary(&run.results, unified.unwrap_or_default());
    let iops = run.spread(|repeat| repeat.iops);
    if iops.count > 1 {
        let mean = run.spread(|repeat| repeat.mean_us);
        text += &format!(
            "  {} runs, the one in the middle above: IOPS median={}, min={}, max={}, spread={:.1} %; \
                 mean latency median={}, min={}, max={}\n",
            iops.count,
            grouped(iops.median),
            grouped(iops.min),
            grouped(iops.max),
            iops.percent(),
            time(mean.median * 1e3),
            time(mean.min * 1e3),
            time(mean.max * 1e3)
        );
    }
    text
}

/// Summary of all jobs of a run, with a final newline.
fn summary(results: &Results, unified: Unified) -> String {
    let (job, all) = (&results.job, &results.aggregate);
    let mut text = format!("{}\n", asked(results));
    let is_apart = unified != Unified::Mixed;
    if is_apart && all.read.ios > 0 {
        side(&mut text, "read", &all.read, job.is_open_loop());
    }
    if is_apart && all.write.ios > 0 {
        side(&mut text, "write", &all.write, job.is_open_loop());
    }
    if all.sync.count > 0 {
        text += &format!(
            "  fsync/fdatasync: {} in all\n",
            grouped(all.sync.count as f64)
        );
        latency(&mut text, "sync", &all.sync);
    }
    if is_apart && all.trim.ios > 0 {
        side(&mut text, "trim", &all.trim, job.rate.is_some());
    }
    if unified != Unified::Apart && all.total.ios > 0 {
        side(&mut text, "mixed", &all.total, job.is_open_loop());
    }
    if all.total.ios == 0 {
        text.push_str("  no request succeeded in the measured time\n");
    }
    steady(&mut text, results);
    depths(&mut text, results);
    target(&mut text, results);
    cpu(&mut text, results);
    trouble(&mut text, all);
    text
}

fn side(text: &mut String, name: &str, side: &Side, open_loop: bool) {
    let seconds = time(side.runtime_ns as f64);
    let mib = short(side.bw_bytes / f64::from(1 << 20));
    *text += &format!(
        "  {name}: IOPS={}, BW={} MB/s ({mib} MiB/s), {} in {seconds}\n",
        grouped(side.iops),
        mb_per_s(side.bw_bytes),
        bytes(side.bytes as f64)
    );
    latency(
        text,
        if open_loop { "service" } else { "clat" },
        &side.service,
    );
    if open_loop {
        latency(text, LAT, &side.latency);
    }
}

fn latency(text: &mut String, name: &str, latency: &Latency) {
    *text += &format!(
        "    {name}: min={}, mean={}, stdev={}, max={}\n",
        time(latency.min_ns as f64),
        time(latency.mean_ns),
        time(latency.stddev_ns),
        time(latency.max_ns as f64)
    );
    let word = name.split(',').next().unwrap_or(name);
    *text += &format!("    {word} percentiles:\n");
    for row in latency.percentiles_ns.chunks(4) {
        let cells: Vec<String> = row
            .iter()
            .map(|(percent, ns)| format!("{percent:5.2}th={:>8}", time(*ns as f64)))
            .collect();
        *text += &format!("     | {}\n", cells.join("  "));
    }
}

/// Name of the latency of an open loop.
const LAT: &str = "lat, from the planned start (scheduling and wake-up included)";

fn steady(text: &mut String, results: &Results) {
    let Some(attained) = &results.steady else {
        return;
    };
    let said = attained.at.map_or_else(
        || "not attained".to_owned(),
        |at| format!("attained after {}", time(at.as_secs_f64() * 1e9)),
    );
    *text += &format!("  steadystate: {said}, {:.2} % at last\n", attained.percent);
}

fn cpu(text: &mut String, results: &Results) {
    let (cpu, all) = (&results.cpu, &results.aggregate);
    let each = match all.total.ios {
        0 => String::new(),
        ios => format!(
            ", {} an I/O",
            time(all.cpu_time.as_nanos() as f64 / ios as f64)
        ),
    };
    *text += &format!(
        "  cpu: {} cores in the jobs{each}; process usr={} sys={}; machine {} of {} cores busy\n",
        cores(Some(cpu.job_cores)),
        cores(Some(cpu.user_cores)),
        cores(Some(cpu.system_cores)),
        cores(Some(cpu.machine_cores)),
        cpu.cores
    );
}

/// The depth that a search has found, and the time to which the figures belong.
fn target(text: &mut String, results: &Results) {
    let Some(target) = &results.job.latency_target else {
        return;
    };
    let said = match results.aggregate.search {
        Some(SearchEnd::Found(took)) => format!(
            "; the search took {}, and the figures are those of the last window",
            time(took.as_secs_f64() * 1e9)
        ),
        Some(SearchEnd::Missed) => "; no depth keeps the target".to_owned(),
        Some(SearchEnd::Unfinished) if !target.keeps_running => {
            "; the search had not ended, and the figures are those of all its windows".to_owned()
        }
        _ => String::new(),
    };
    *text += &format!(
        "  latency: target={}, percentile={} %, depth={}{said}\n",
        time(target.target.as_secs_f64() * 1e9),
        target.percentile,
        results.aggregate.depth
    );
}

/// How many requests were in flight, for a job that may have several.
fn depths(text: &mut String, results: &Results) {
    if results.job.iodepth > 1 {
        let percentages = results.aggregate.depths.percentages();
        let shares = Depths::NAMES.iter().zip(percentages);
        let shares: Vec<String> = shares
            .map(|(name, percent)| format!("{name}={percent:.1}%"))
            .collect();
        *text += &format!("  IO depths: {}\n", shares.join(", "));
    }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        many => format!("{} times", grouped(many as f64)),
    }
}

/// All failures and early ends. Empty if there were none.
fn trouble(text: &mut String, all: &JobResult) {
    if let Some(verify) = &all.verify {
        let (checked, wrong) = (grouped(verify.blocks_checked as f64), verify.errors);
        *text += &format!("  verify: {checked} blocks checked, {wrong} wrong\n");
        if let Some(first) = &verify.first_error {
            *text += &format!("    first: {first}\n");
        }
    }
    if all.busy > 0 {
        *text += &format!("  busy: the disk had no room {}\n", times(all.busy));
    }
    if all.errors.total() > 0 {
        let kinds: Vec<String> = all
            .errors
            .by_status
            .iter()
            .map(|(status, count)| format!("{status:?} {count}"))
            .collect();
        *text += &format!("  errors: {}\n", kinds.join(", "));
        if let Some(first) = &all.errors.first {
            *text += &format!("    first: {first}\n");
        }
    }
    if let Some(why) = &all.ended_early {
        *text += &format!("  ended early: {why}\n");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fabrix_bench::Rw;
    use fabrix_bench::job::Share;
    use fabrix_bench::search::LatencyTarget;

    use super::*;
    use crate::report::sample;

    #[test]
    fn a_clean_run_reads_as_it_did() {
        sample::golden("summary.txt", &summary(&sample::results(), Unified::Apart));
    }

    #[test]
    fn the_head_has_all_that_was_asked() {
        let mut results = sample::results();
        let job = &mut results.job;
        (job.rw, job.skip_bytes) = (Rw::Read, -8192);
        let share = |bytes| {
            vec![Share {
                bytes,
                percent: 100,
            }]
        };
        job.split = [share(4096), share(8192)];
        let head = asked(&results);
        assert!(
            head.contains(": rw=read:-8k, bs=4k,8k, iodepth=32,"),
            "{head}"
        );
        let other = Job {
            run_ios: 8,
            rw: Rw::RandWrite,
            iodepth: 1,
            ..Job::default()
        };
        results.others = vec![other.clone(), other];
        let head = asked(&results);
        let parts = "rw=read:-8k+randwrite:8, bs=4k,8k+4k, iodepth=32+1,";
        assert!(head.contains(parts), "{head}");
    }

    #[test]
    fn a_search_says_what_it_found() {
        let mut results = sample::results();
        results.job.latency_target = Some(LatencyTarget {
            target: Duration::from_micros(200),
            window: Duration::from_secs(1),
            percentile: 99.0,
            keeps_running: false,
        });
        for (search, part) in [
            (
                SearchEnd::Found(Duration::from_secs(3)),
                "the search took 3.00 s",
            ),
            (SearchEnd::Unfinished, "had not ended"),
            (SearchEnd::Missed, "no depth keeps the target"),
        ] {
            results.aggregate.search = Some(search);
            let text = summary(&results, Unified::Apart);
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }

    #[test]
    fn a_run_in_trouble_says_what_went_wrong() {
        let text = summary(&sample::trouble(), Unified::Apart);
        for part in [
            "MediaRead 3",
            "first: job 0",
            "2 wrong",
            "stale block",
            "no room 7 times",
            "ended early",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }
}

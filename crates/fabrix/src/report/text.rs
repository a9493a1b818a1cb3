//! One run as text for a terminal, in the order fio prints it: rates first, then latencies, then the rest.

use std::fmt::Write;

use fabrix_bench::latency::{Latency, PERCENTILES};
use fabrix_bench::results::{JobResult, Results, Side};

use super::number::{bytes, cores, grouped, mb_per_s, short, time};

/// The summary of a run, all jobs together; ends with a newline.
pub(crate) fn summary(results: &Results) -> String {
    let (job, all) = (&results.job, &results.aggregate);
    let mut text = format!(
        "{}: rw={}, bs={}, iodepth={}, jobs={}{}\n",
        job.name,
        job.rw,
        job.block_bytes,
        job.iodepth,
        job.numjobs,
        mix(results)
    );
    if all.read.ios > 0 {
        side(&mut text, "read", &all.read, job.rate.is_some());
    }
    if all.write.ios > 0 {
        side(&mut text, "write", &all.write, job.rate.is_some());
    }
    if all.total.ios == 0 {
        text.push_str("  no request succeeded in the measured time\n");
    }
    cpu(&mut text, results);
    trouble(&mut text, all);
    text
}

fn mix(results: &Results) -> String {
    let percent = results.job.percent_read();
    if percent == 0 || percent == 100 {
        String::new()
    } else {
        format!(", rwmixread={percent}")
    }
}

fn side(text: &mut String, name: &str, side: &Side, open_loop: bool) {
    let seconds = time(side.runtime_ns as f64);
    let mib = short(side.bw_bytes / f64::from(1 << 20));
    line(
        text,
        &format!(
            "  {name}: IOPS={}, BW={} MB/s ({mib} MiB/s), {} in {seconds}",
            grouped(side.iops),
            mb_per_s(side.bw_bytes),
            bytes(side.bytes as f64)
        ),
    );
    latency(
        text,
        if open_loop { "service" } else { "clat" },
        &side.service,
    );
    if open_loop {
        latency(text, "lat, from the intended start", &side.latency);
    }
}

fn latency(text: &mut String, name: &str, latency: &Latency) {
    line(
        text,
        &format!(
            "    {name}: min={}, mean={}, stdev={}, max={}",
            time(latency.min_ns as f64),
            time(latency.mean_ns),
            time(latency.stddev_ns),
            time(latency.max_ns as f64)
        ),
    );
    line(text, &format!("    {name} percentiles:"));
    let pairs: Vec<_> = PERCENTILES.iter().zip(latency.percentiles_ns).collect();
    for row in pairs.chunks(4) {
        let cells: Vec<String> = row
            .iter()
            .map(|(percent, ns)| format!("{percent:5.2}th={:>8}", time(*ns as f64)))
            .collect();
        line(text, &format!("     | {}", cells.join("  ")));
    }
}

fn cpu(text: &mut String, results: &Results) {
    let cpu = &results.cpu;
    line(
        text,
        &format!(
            "  cpu: {} cores in the jobs; process usr={} sys={}; machine {} of {} cores busy",
            cores(Some(cpu.job_cores)),
            cores(Some(cpu.user_cores)),
            cores(Some(cpu.system_cores)),
            cores(Some(cpu.machine_cores)),
            cpu.cores
        ),
    );
}

/// Everything that did not go as asked; nothing when all did.
fn trouble(text: &mut String, all: &JobResult) {
    if let Some(verify) = &all.verify {
        let (checked, wrong) = (grouped(verify.blocks_checked as f64), verify.errors);
        line(
            text,
            &format!("  verify: {checked} blocks checked, {wrong} wrong"),
        );
        if let Some(first) = &verify.first_error {
            line(text, &format!("    first: {first}"));
        }
    }
    if all.busy > 0 {
        line(
            text,
            &format!(
                "  busy: the disk had no room {} times",
                grouped(all.busy as f64)
            ),
        );
    }
    if all.errors.total() > 0 {
        let kinds: Vec<String> = all
            .errors
            .by_status
            .iter()
            .map(|(status, count)| format!("{status:?} {count}"))
            .collect();
        line(text, &format!("  errors: {}", kinds.join(", ")));
        if let Some(first) = &all.errors.first {
            line(text, &format!("    first: {first}"));
        }
    }
    if let Some(why) = &all.ended_early {
        line(text, &format!("  ended early: {why}"));
    }
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a String takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_clean_run_reads_as_it_did() {
        sample::golden("summary.txt", &summary(&sample::results()));
    }

    #[test]
    fn a_run_in_trouble_says_what_went_wrong() {
        let text = summary(&sample::trouble());
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

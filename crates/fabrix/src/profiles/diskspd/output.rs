//! DiskSpd's text output: the input, the processors, the I/O by thread in three tables, and the
//! latency percentiles.
//!
//! Source: the DiskSpd documentation, "Analyzing test results". The column for a thread's file
//! shows the target's URI.

use fabrix_bench::cpu::Cpu;
use fabrix_bench::latency::Latency;
use fabrix_bench::results::{JobResult, Side};
use fabrix_bench::spread::Spread;

use super::flags::{Flags, NAMES};
use crate::cli::bench::args::shown;
use crate::report::sheet::Run;

const MIB: f64 = 1_048_576.0;

/// Selects the measurements of one direction.
type Direction = fn(&JobResult) -> &Side;

/// The complete output.
pub(super) fn text(flags: &Flags, words: &[String], runs: &[Run]) -> String {
    let mut text = format!("\nCommand Line: fabrix bench diskspd {}\n\n", shown(words));
    input(&mut text, flags, runs);
    let seconds = runs
        .iter()
        .map(|run| run.results.aggregate.total.runtime_ns)
        .max()
        .unwrap_or(0) as f64
        / 1e9;
    let threads: usize = runs.iter().map(|run| run.results.jobs.len()).sum();
    let cpu = runs.first().map(|run| run.results.cpu).unwrap_or_default();
    text += &format!(
        "\nResults for timespan 1:\n{}\n\nactual test time:\t{seconds:.2}s\nthread \
             count:\t\t{threads}\nproc count:\t\t{}\n\n",
        "*".repeat(79),
        cpu.cores
    );
    let columns = processors(&cpu);
    text += &format!(
        "CPU |  Usage |  User  |  Kernel |  Idle\n{}\navg.| {:6.2}%| {:6.2}%|  {:6.2}%| {:6.2}%\n\n",
        "-".repeat(43),
        columns[0],
        columns[1],
        columns[2],
        columns[3]
    );
    let kinds: [(&str, Direction); 3] = [
        ("Total IO", |job| &job.total),
        ("Read IO", |job| &job.read),
        ("Write IO", |job| &job.write),
    ];
    for (name, direction) in kinds {
        threads_of(&mut text, flags, name, direction, runs);
    }
    if flags.latency {
        runs.iter().for_each(|run| latencies(&mut text, run));
    }
    text
}

/// Usage, user, kernel and idle time of the machine in percent. Usage is the sum of user and
/// kernel.
pub(super) fn processors(cpu: &Cpu) -> [f64; 4] {
    let cores = cpu.cores.max(1) as f64;
    let percent = |part: f64| (part / cores * 100.0).clamp(0.0, 100.0);
    let (usage, kernel) = (
        percent(cpu.machine_cores),
        percent(cpu.machine_system_cores),
    );
    [usage, usage - kernel, kernel, 100.0 - usage]
}

fn input(text: &mut String, flags: &Flags, runs: &[Run]) {
    *text += &format!(
        "Input parameters:\n\n\ttimespan:   1\n\t-------------\n\tduration: {}s\n\twarm up time: \
             {}s\n\tcool down time: 0s\n",
        flags.job.runtime.as_secs(),
        flags.job.ramp.as_secs()
    );
    *text += &format!("\trandom seed: {}\n", flags.job.seed);
    if flags.latency {
        text.push_str("\tmeasuring latency\n");
    }
    let way = if flags.job.rw.is_random() {
        "using random I/O"
    } else {
        "using sequential I/O"
    };
    let mix = match 100 - flags.job.rwmixread {
        0 => "performing read test".to_owned(),
        100 => "performing write test".to_owned(),
        percent => format!(
            "performing mix test (read/write ratio: {}/{percent})",
            100 - percent
        ),
    };
    let cache = match flags.cached {
        true => "using software cache",
        false => "software cache disabled",
    };
    let through = match flags.job.durable {
        true => "\t\twritethrough on\n",
        false => "",
    };
    for run in runs {
        *text += &format!(
            "\tpath: '{}'\n\t\t{cache}\n{through}\t\t{mix}\n\t\tblock size: {}\n\t\t{way}\n\
             \t\tnumber of outstanding I/O operations per thread: {}\n\t\tthreads per file: {}\n",
            run.disk, flags.job.block_bytes, flags.job.iodepth, flags.job.numjobs
        );
    }
}

/// One of the three tables of threads.
fn threads_of(text: &mut String, flags: &Flags, name: &str, direction: Direction, runs: &[Run]) {
    *text += &format!("{name}\nthread |       bytes     |     I/Os     |    MiB/s   |  I/O per s ");
    if flags.latency {
        text.push_str("|  AvgLat  ");
    }
    if flags.interval.is_some() {
        text.push_str("| IopsStdDev ");
    }
    if flags.latency {
        text.push_str("| LatStdDev ");
    }
    text.push_str("|  file\n");
    let rule = "-".repeat(100);
    *text += &format!("{rule}\n");
    let mut thread = 0;
    for run in runs {
        for job in &run.results.jobs {
            line(
                text,
                flags,
                &format!("{thread:6}"),
                direction(job),
                run,
                Some(&run.disk),
            );
            thread += 1;
        }
    }
    *text += &format!("{rule}\n");
    let total = sum(runs, direction);
    if let Some(run) = runs.first() {
        line(text, flags, "total:", &total, run, None);
    }
    text.push('\n');
}

/// The sum of all targets.
fn sum(runs: &[Run], direction: Direction) -> Side {
    let mut total = Side::default();
    for side in runs.iter().map(|run| direction(&run.results.aggregate)) {
        let (before, more) = (total.ios as f64, side.ios as f64);
        if before + more > 0.0 {
            total.latency.mean_ns =
                (total.latency.mean_ns * before + side.latency.mean_ns * more) / (before + more);
            total.latency.stddev_ns = total.latency.stddev_ns.max(side.latency.stddev_ns);
        }
        total.ios += side.ios;
        total.bytes += side.bytes;
        total.iops += side.iops;
        total.bw_bytes += side.bw_bytes;
    }
    total
}

fn line(text: &mut String, flags: &Flags, name: &str, side: &Side, run: &Run, file: Option<&str>) {
    *text += &format!(
        "{name} | {:15} | {:12} | {:10.2} | {:10.2} ",
        side.bytes,
        side.ios,
        side.bw_bytes / MIB,
        side.iops
    );
    if flags.latency {
        *text += &format!("| {:8.3} ", side.latency.mean_ns / 1e6);
    }
    if flags.interval.is_some() {
        // Readings exist per target, not per thread.
        let shown = file.map_or_else(|| format!("{:.2}", deviation(run)), |_| "N/A".to_owned());
        *text += &format!("| {shown:>10} ");
    }
    if flags.latency {
        *text += &format!("| {:9.3} ", side.latency.stddev_ns / 1e6);
    }
    *text += &format!("| {}\n", file.unwrap_or_default());
}

/// Standard deviation of the readings of a target.
pub(super) fn deviation(run: &Run) -> f64 {
    let readings: Vec<f64> = run
        .results
        .series
        .iter()
        .map(fabrix_bench::series::Point::iops)
        .collect();
    let mean = Spread::of(readings.iter().copied()).mean;
    let square: f64 = readings
        .iter()
        .map(|reading| (reading - mean).powi(2))
        .sum();
    (square / readings.len().max(1) as f64).sqrt()
}

/// The percentile table of one target.
fn latencies(text: &mut String, run: &Run) {
    let all = &run.results.aggregate;
    let sides = [&all.read.latency, &all.write.latency, &all.total.latency];
    *text += &format!(
        "{}\n  %-ile |  Read (ms) | Write (ms) | Total (ms)\n----------------------------------------------\n",
        run.disk
    );
    let mut row = |name: &str, of: &dyn Fn(&Latency) -> Option<u64>| {
        let cells = sides.map(|side| match of(side).filter(|_| side.count > 0) {
            Some(ns) => format!("{:10.3}", ns as f64 / 1e6),
            None => format!("{:>10}", "N/A"),
        });
        *text += &format!("{name:>7} | {} | {} | {}\n", cells[0], cells[1], cells[2]);
    };
    row("min", &|latency| Some(latency.min_ns));
    for (name, percent) in NAMES {
        row(name, &|latency| latency.percentile_ns(percent));
    }
    row("max", &|latency| Some(latency.max_ns));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_columns_add_up() {
        let cpu = Cpu {
            machine_cores: 1.5,
            machine_system_cores: 0.5,
            cores: 2,
            ..Cpu::default()
        };
        assert_eq!(processors(&cpu), [75.0, 50.0, 25.0, 25.0]);
    }
}

//! DiskSpd's text output: the input, the processors, the I/O by thread in three tables, and the
//! latency percentiles.
//!
//! Source: the DiskSpd documentation, "Analyzing test results". The column for a thread's file
//! shows the target's URI.

use fabrix_bench::Results;
use fabrix_bench::cpu::Cpu;
use fabrix_bench::latency::Latency;
use fabrix_bench::results::{JobResult, Side};
use fabrix_bench::series::Point;
use fabrix_bench::spread::Spread;

use super::flags::{Flags, NAMES};
use crate::cli::bench::args::shown;
use crate::cli::bench::session::Disk;
use crate::report::sheet::Run;

const MIB: f64 = 1_048_576.0;

/// A section of the output: one direction, or both together.
struct Section {
    name: &'static str,
    side: fn(&JobResult) -> &Side,
    /// Indexes of the directions among those of [`Point`].
    directions: &'static [usize],
}

const SECTIONS: [Section; 3] = [
    Section {
        name: "Total IO",
        side: |job| &job.total,
        directions: &[0, 1],
    },
    Section {
        name: "Read IO",
        side: |job| &job.read,
        directions: &[0],
    },
    Section {
        name: "Write IO",
        side: |job| &job.write,
        directions: &[1],
    },
];

/// The complete output.
pub(super) fn text(flags: &Flags, words: &[String], disks: &[Disk], runs: &[Run]) -> String {
    let mut text = format!("\nCommand Line: fabrix bench diskspd {}\n\n", shown(words));
    input(&mut text, flags, disks);
    let Some(all) = joined(runs) else {
        return text;
    };
    text += &format!(
        "\n\n\nResults for timespan 1:\n{}\n\nactual test time:\t{:.2}s\nthread \
             count:\t\t{}\nproc count:\t\t{}\n\n",
        "*".repeat(79),
        seconds(&all),
        all.jobs.len(),
        all.cpu.cores
    );
    let columns = processors(&all.cpu);
    text += &format!(
        "CPU |  Usage |  User  |  Kernel |  Idle\n{}\navg.| {:6.2}%| {:6.2}%|  {:6.2}%| {:6.2}%\n",
        "-".repeat(43),
        columns[0],
        columns[1],
        columns[2],
        columns[3]
    );
    for section in &SECTIONS {
        threads(&mut text, flags, section, disks, runs, &all);
    }
    if flags.latency {
        text.push_str("\n\n");
        // As in DiskSpd, a single target has the table of the total only.
        for run in runs.iter().filter(|_| runs.len() > 1) {
            latencies(&mut text, &run.disk, &run.results);
        }
        latencies(&mut text, "total:", &all);
    }
    text
}

/// All targets as one, with the histograms of all requests.
pub(super) fn joined(runs: &[Run]) -> Option<Results> {
    let results: Vec<&Results> = runs.iter().map(|run| &run.results).collect();
    Results::joined(&results)
}

/// Measured time in seconds. All rates are amounts per this time: a total is the sum of its rows.
pub(super) fn seconds(all: &Results) -> f64 {
    all.aggregate.total.runtime_ns as f64 / 1e9
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

fn input(text: &mut String, flags: &Flags, disks: &[Disk]) {
    let job = &flags.job;
    *text += &format!(
        "Input parameters:\n\n\ttimespan:   1\n\t-------------\n\tduration: {}s\n\twarm up time: \
             {}s\n\tcool down time: 0s\n",
        job.runtime.as_secs(),
        job.ramp.as_secs()
    );
    if flags.latency {
        text.push_str("\tmeasuring latency\n");
    }
    if let Some(every) = flags.interval {
        *text += &format!("\tgathering IOPS at intervals of {}ms\n", every.as_millis());
    }
    *text += &format!("\trandom seed: {}\n", job.seed);
    for (disk, target) in disks.iter().zip(&flags.targets) {
        *text += &format!("\tpath: '{}'\n", disk.label);
        for line in of_target(flags, target) {
            *text += &format!("\t\t{line}\n");
        }
    }
}

/// The lines of a target.
fn of_target(flags: &Flags, target: &str) -> Vec<String> {
    let job = &flags.job;
    let cached = flags.is_cached(target);
    let pauses = job.bursts.as_ref();
    let (way, distance) = match (job.rw.is_random(), flags.shares_position) {
        (true, _) => ("random", "alignment"),
        (false, true) => ("interlocked sequential", "stride"),
        (false, false) => ("sequential", "stride"),
    };
    let mut lines = vec![
        format!(
            "think time: {}ms",
            pauses.map_or(0, |one| one.pause.as_millis())
        ),
        format!("burst size: {}", pauses.map_or(0, |one| one.ios)),
        match cached {
            true => "using software cache".into(),
            false => "software cache disabled".into(),
        },
        match (job.durable, cached) {
            (true, true) => "hardware and software write caches disabled, writethrough on".into(),
            (true, false) => "hardware write cache disabled, writethrough on".into(),
            (false, _) => "using hardware write cache, writethrough off".into(),
        },
        match 100 - job.rwmixread {
            0 => "performing read test".into(),
            100 => "performing write test".into(),
            percent => format!(
                "performing mix test (read/write ratio: {}/{percent})",
                100 - percent
            ),
        },
        format!("block size: {}", job.block_bytes),
        format!("using {way} I/O ({distance}: {})", job.block_bytes),
        format!(
            "number of outstanding I/O operations per thread: {}",
            job.iodepth
        ),
    ];
    if job.offset > 0 {
        lines.push(format!("base file offset: {}", job.offset));
    }
    if let Some(end) = flags.end_bytes {
        lines.push(format!("max file size: {end}"));
    }
    lines.push(format!("thread stride size: {}", job.offset_increment));
    lines.push(format!("threads per file: {}", job.numjobs));
    lines
}

/// The table of threads of a section.
fn threads(
    text: &mut String,
    flags: &Flags,
    section: &Section,
    disks: &[Disk],
    runs: &[Run],
    all: &Results,
) {
    *text += &format!(
        "\n{}\nthread |       bytes     |     I/Os     |    MiB/s   |  I/O per s ",
        section.name
    );
    let mut dashes = 78;
    for (column, is_shown) in [
        ("|  AvgLat  ", flags.latency),
        ("| IopsStdDev ", flags.interval.is_some()),
        ("| LatStdDev ", flags.latency),
    ] {
        if is_shown {
            text.push_str(column);
            dashes += column.len();
        }
    }
    let rule = "-".repeat(dashes);
    *text += &format!("|  file\n{rule}\n");
    let seconds = seconds(all);
    let row = |side: &Side, deviation: Option<f64>| row(flags, side, deviation, seconds);
    let mut thread = 0;
    for (run, disk) in runs.iter().zip(disks) {
        // Readings exist for a target, and so for a thread that has it alone.
        let alone = (run.results.jobs.len() == 1).then_some(&run.results.series);
        let file = format!("{} ({})", disk.label, size(disk.device.geometry().bytes()));
        for job in &run.results.jobs {
            let deviation = alone.map(|series| deviation(series, section.directions));
            let cells = row((section.side)(job), deviation);
            *text += &format!("{thread:6} | {cells} | {file}\n");
            thread += 1;
        }
    }
    let deviation = deviation(&all.series, section.directions);
    let cells = row((section.side)(&all.aggregate), Some(deviation));
    *text += &format!("{rule}\ntotal:   {cells}\n");
}

/// The columns of numbers of a row.
fn row(flags: &Flags, side: &Side, deviation: Option<f64>, seconds: f64) -> String {
    let rate = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
    let mut cells = format!(
        "{:15} | {:12} | {:10.2} | {:10.2}",
        side.bytes,
        side.ios,
        rate(side.bytes as f64 / MIB),
        rate(side.ios as f64)
    );
    if flags.latency {
        cells += &format!(" | {:8.3}", side.latency.mean_ns / 1e6);
    }
    if flags.interval.is_some() {
        let shown = deviation.map_or_else(|| "N/A".to_owned(), |iops| format!("{iops:.2}"));
        cells += &format!(" | {shown:>10}");
    }
    if flags.latency {
        cells += &match side.latency.count {
            0 => " |       N/A".to_owned(),
            _ => format!(" |  {:8.3}", side.latency.stddev_ns / 1e6),
        };
    }
    cells
}

/// The size of a file as DiskSpd writes it.
fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes > 10 << 30 => format!("{}GiB", bytes >> 30),
        bytes if bytes > 10 << 20 => format!("{}MiB", bytes >> 20),
        bytes if bytes > 10 << 10 => format!("{}KiB", bytes >> 10),
        bytes => format!("{bytes}B"),
    }
}

/// Standard deviation of the IOPS of some directions over the readings.
pub(super) fn deviation(series: &[Point], directions: &[usize]) -> f64 {
    let readings = series.iter().map(|point| point.iops_of(directions));
    let readings: Vec<f64> = readings.collect();
    let mean = Spread::of(readings.iter().copied()).mean;
    let square: f64 = readings
        .iter()
        .map(|reading| (reading - mean).powi(2))
        .sum();
    (square / readings.len().max(1) as f64).sqrt()
}

/// The percentile table of one target, or of all.
fn latencies(text: &mut String, name: &str, results: &Results) {
    let all = &results.aggregate;
    let sides = [&all.read.latency, &all.write.latency, &all.total.latency];
    *text += &format!(
        "\n{name}\n  %-ile |  Read (ms) | Write (ms) | Total (ms)\n----------------------------------------------\n"
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

//! fio's job files: sections of keys, converted to jobs of our generator.
//!
//! The conversion is pure: text in, jobs out. fio's rules for sizes apply (`4k` is 4096 and `4Ki`
//! is 4000, unless `kb_base=1000` is set), and fio's defaults. An unsupported key is an error that
//! names it, because ignoring it would measure something else. Source: fio's documentation, "Job
//! file format" and "Job file parameters".

mod keys;
mod numbers;

use std::time::Duration;

use fabrix_bench::{Job, RUNTIME_MAX};
use keys::Builder;

/// A job of a file. Its disk is not yet known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    /// `filename`: the disk as a URI.
    pub(crate) filename: Option<String>,
    pub(crate) job: Job,
    /// `size` and `offset` as percentages of the disk.
    size_percent: Option<u32>,
    offset_percent: Option<u32>,
    pub(crate) logs: Logs,
}

/// Logs of readings over time, with the prefixes of their file names: `write_bw_log`,
/// `write_iops_log`, `write_lat_log`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Logs {
    pub(crate) bw: Option<String>,
    pub(crate) iops: Option<String>,
    pub(crate) lat: Option<String>,
    /// `log_avg_msec`: interval of the readings.
    pub(crate) every: Option<Duration>,
}

impl Logs {
    /// All logs with one prefix.
    pub(crate) fn all(name: &str) -> Self {
        let name = Some(name.to_owned());
        Self {
            bw: name.clone(),
            iops: name.clone(),
            lat: name,
            every: None,
        }
    }

    /// Sets a log. A key without a value, which is read as 1, takes the job's name as prefix.
    fn set(&mut self, key: &str, value: &str) {
        let log = match key {
            "write_bw_log" => &mut self.bw,
            "write_iops_log" => &mut self.iops,
            _ => &mut self.lat,
        };
        *log = Some(if value == "1" { "" } else { value }.to_owned());
    }

    /// Replaces missing prefixes by the job's name.
    fn named(mut self, job: &str) -> Self {
        let logs = [&mut self.bw, &mut self.iops, &mut self.lat];
        let nameless = logs.into_iter().flatten().filter(|name| name.is_empty());
        nameless.for_each(|name| job.clone_into(name));
        self
    }
}

impl Listed {
    /// The job for a disk of `disk_bytes`. As in fio, an offset in percent is rounded up to the
    /// shortest request, and a size in percent is rounded down.
    ///
    /// Errors: a sentence when a percentage leaves no space.
    pub(crate) fn on(self, disk_bytes: u64) -> Result<Job, String> {
        let part = |percent: u32| {
            let bytes = u128::from(disk_bytes) * u128::from(percent) / 100;
            u64::try_from(bytes).unwrap_or(disk_bytes)
        };
        let mut job = self.job;
        let unit = u64::from(job.unit_bytes()).max(1);
        if let Some(percent) = self.offset_percent {
            job.offset = part(percent).next_multiple_of(unit);
        }
        if let Some(percent) = self.size_percent {
            let most = disk_bytes.saturating_sub(job.offset);
            job.size = Some(part(percent).min(most) / unit * unit);
        }
        if job.size == Some(0) {
            return Err(format!(
                "job `{}`: its size in percent leaves nothing of {disk_bytes} bytes",
                job.name
            ));
        }
        Ok(job)
    }
}

/// Parses a job file into stages. The stages run one after the other, and the jobs of a stage side
/// by side. `variable` returns the value of an environment variable for `${NAME}`.
///
/// Errors: a sentence with line and key.
pub(crate) fn parse(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Vec<Listed>>, String> {
    let mut global = Builder::new();
    let mut stages: Vec<Vec<Listed>> = Vec::new();
    let mut open: Option<(String, Builder)> = None;
    let mut in_global = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        let said = |sentence: String| format!("line {number}: {sentence}");
        if let Some(name) = line.strip_prefix('[') {
            let name = name
                .strip_suffix(']')
                .ok_or_else(|| said(format!("`{line}` has no end: write [name]")))?;
            close(open.take(), &mut stages)?;
            in_global = name == "global";
            if !in_global {
                open = Some((name.to_owned(), global.clone()));
            }
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, "1"));
        let value = expanded(value.trim(), variable).map_err(&said)?;
        let target = match &mut open {
            Some((_, builder)) => builder,
            None if in_global => &mut global,
            None => {
                return Err(said(format!(
                    "`{line}` stands before any section; begin with [global] or [name]"
                )));
            }
        };
        target.set(key.trim(), &value).map_err(&said)?;
    }
    close(open, &mut stages)?;
    if stages.is_empty() {
        return Err("there is no job in it; a job is a section like [name]".into());
    }
    Ok(stages)
}

/// Completes a section. It joins the previous stage, unless it has to wait for that stage.
fn close(section: Option<(String, Builder)>, stages: &mut Vec<Vec<Listed>>) -> Result<(), String> {
    let Some((name, builder)) = section else {
        return Ok(());
    };
    let waits = builder.waits();
    let listed = builder.build(name)?;
    match stages.last_mut() {
        Some(stage) if !waits => stage.push(listed),
        _ => stages.push(vec![listed]),
    }
    Ok(())
}

/// Replaces `${NAME}` in a value.
fn expanded(value: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after
            .split_once('}')
            .ok_or_else(|| format!("`{value}` has a ${{ without its }}"))?;
        text += before;
        text += &variable(name).ok_or_else(|| format!("the environment has no variable {name}"))?;
        rest = after;
    }
    Ok(text + rest)
}

/// fio's defaults for a job.
fn usual() -> Job {
    Job {
        rw: fabrix_bench::Rw::Read,
        iodepth: 1,
        runtime: RUNTIME_MAX,
        ramp: Duration::ZERO,
        ..Job::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabrix_bench::Rw;

    fn read(text: &str) -> Result<Vec<Vec<Listed>>, String> {
        parse(text, &|name| (name == "DISK").then(|| "ram:64M".to_owned()))
    }

    #[track_caller]
    fn refused(text: &str, parts: &[&str]) {
        let error = read(text).expect_err(text);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }

    #[test]
    fn a_published_file_becomes_its_stages() {
        let stages = read(
            "; a comment\n[global]\nnumjobs=8\niodepth=4\nloops=1\ntime_based\nioengine=libaio\ndirect=1\nruntime=60\n\
             filename=${DISK}\n\n[4k sequential 50write]\nrw=write\nrwmixread=50\nbs=4k\nstonewall\n\
             [8k random 70write]\nbs=8k\nrwmixread=70\nrw=randrw\nstonewall\n",
        )
        .expect("it is the seed's file");
        assert_eq!(stages.len(), 2);
        let first = &stages[0][0];
        assert_eq!(first.filename.as_deref(), Some("ram:64M"));
        assert_eq!(
            (first.job.numjobs, first.job.iodepth, first.job.runtime),
            (8, 4, Duration::from_secs(60))
        );
        assert_eq!(
            (first.job.percent_read(), first.job.loops),
            (0, None),
            "rw=write does not mix, time_based loops"
        );
        assert_eq!(
            (stages[1][0].job.rw, stages[1][0].job.percent_read()),
            (Rw::RandMixed, 70)
        );
    }

    #[test]
    fn jobs_without_a_wall_run_side_by_side() {
        let stages = read("[a]\nfilename=ram:8M\n[b]\nfilename=ram:8M\n[c]\nstonewall\n")
            .expect("three jobs");
        let names = |at: usize| {
            stages[at]
                .iter()
                .map(|one| one.job.name.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!((names(0), names(1)), (vec!["a", "b"], vec!["c"]));
    }

    #[test]
    fn without_time_a_job_ends_with_its_region() {
        let stages = read("[a]\nsize=1m\nloops=3\n[b]\nruntime=5\n").expect("two jobs");
        let (a, b) = (&stages[0][0].job, &stages[0][1].job);
        assert_eq!(
            (a.size, a.loops, a.runtime),
            (Some(1 << 20), Some(3), RUNTIME_MAX)
        );
        assert_eq!((b.loops, b.runtime), (Some(1), Duration::from_secs(5)));
    }

    #[test]
    fn the_amount_of_io_is_not_the_size_of_its_region() {
        let stages =
            read("[a]\nsize=1m\nio_size=10k\nbs=4k\n[b]\nio_size=8k\ntime_based\nruntime=1\n");
        let stages = stages.expect("two jobs");
        let (a, b) = (&stages[0][0].job, &stages[0][1].job);
        assert_eq!(
            (a.size, a.number_ios, a.loops),
            (Some(1 << 20), Some(3), None)
        );
        assert_eq!(b.number_ios, None, "time alone ends it");
        refused(
            "[a]\nio_size=1m\nbssplit=4k/50:8k/50\n",
            &["io_size", "one size"],
        );
    }

    #[test]
    fn logs_have_the_name_that_was_given_or_that_of_their_job() {
        let text = "[global]\nwrite_bw_log=all\n[a]\nwrite_lat_log\nlog_avg_msec=250\n[b]\n";
        let stages = read(text).expect("two jobs");
        let (a, b) = (&stages[0][0].logs, &stages[0][1].logs);
        assert_eq!(
            (a.bw.as_deref(), a.lat.as_deref()),
            (Some("all"), Some("a"))
        );
        assert_eq!(
            (a.iops.as_deref(), a.every),
            (None, Some(Duration::from_millis(250)))
        );
        assert_eq!(
            *b,
            Logs {
                bw: Some("all".into()),
                ..Logs::default()
            }
        );
        refused(
            "[a]\nlog_avg_msec=0\n",
            &["line 2", "log_avg_msec", "no reading"],
        );
    }

    #[test]
    fn sizes_in_percent_are_those_of_the_disk() {
        let listed = read("[a]\nsize=50%\noffset=25%\n").expect("fio's own form")[0][0].clone();
        let job = listed.on(1 << 20).expect("half of it");
        assert_eq!((job.offset, job.size), (1 << 18, Some(1 << 19)));
        // fio on a file of 1000 KiB: the offset is rounded up, the size down.
        for (keys, offset, size) in [
            ("size=100%\nbs=1k", 0, 1_024_000),
            ("offset=33%\nsize=33%", 339_968, 335_872),
            ("offset=33%\nsize=33%\nbs=16k", 344_064, 327_680),
            ("offset=50%\nsize=90%\nbs=16k", 524_288, 491_520),
        ] {
            let listed = read(&format!("[a]\n{keys}\n")).expect(keys)[0][0].clone();
            let job = listed.on(1_024_000).expect(keys);
            assert_eq!((job.offset, job.size), (offset, Some(size)), "{keys}");
        }
        let listed = read("[a]\nsize=100%\nbs=1m\n").expect("one job")[0][0].clone();
        let job = listed.on(1 << 30).expect("all of it");
        assert_eq!(job.size, Some(1 << 30), "1024 blocks of 1024");
        assert!(
            read("[a]\nsize=1%\n").expect("one job")[0][0]
                .clone()
                .on(4096)
                .is_err()
        );
    }

    #[test]
    fn no_key_that_changes_what_is_measured_is_taken_in_silence() {
        for key in [
            "allow_file_create",
            "ba",
            "blockalign",
            "bsrange",
            "buffer_compress_percentage",
            "cpus_allowed",
            "create_on_open",
            "dedupe_percentage",
            "directory",
            "experimental_verify",
            "fallocate",
            "fdatasync",
            "file_service_type",
            "fill_device",
            "flow",
            "fsync",
            "fsync_on_close",
            "hipri",
            "iodepth_batch",
            "iodepth_low",
            "io_submit_mode",
            "latency_target",
            "lockmem",
            "nrfiles",
            "opendir",
            "percentage_random",
            "rate",
            "rate_min",
            "read_iolog",
            "replay_no_stall",
            "rwmix",
            "sequence",
            "size_percent",
            "softrandommap",
            "startdelay",
            "sync",
            "thinktime",
            "trim_percentage",
            "unified_rw_reporting",
            "verify_pattern",
            "write_barrier",
            "write_iolog",
            "zonemode",
            "zonesize",
        ] {
            refused(
                &format!("[a]\n{key}=1\n"),
                &["line 2", &format!("`{key}` is not supported")],
            );
        }
        for line in [
            "direct=0",
            "rwmixread=101",
            "iodepth=0",
            "numjobs=0",
            "loops=x",
            "runtime=soon",
            "kb_base=7",
        ] {
            let (key, _) = line.split_once('=').expect("a key and a value");
            refused(&format!("[a]\n{line}\n"), &["line 2", key]);
        }
    }

    #[test]
    fn a_key_that_is_not_supported_is_named_with_its_line() {
        refused("[a]\nrw=read\nzonemode=zbd\n", &["line 3", "`zonemode`"]);
        refused("[a]\nbs=x\n", &["line 2", "bs", "`x`"]);
        refused("[a]\nrw=trim\n", &["line 2", "rw=trim"]);
        refused("[a]\nverify=xyz\n", &["line 2", "verify=xyz"]);
        refused("rw=read\n", &["line 1", "before any section"]);
        refused("[a\n", &["line 1", "no end"]);
        refused("[global]\nrw=read\n", &["no job"]);
        refused("", &["no job"]);
        refused("[a]\nfilename=${NOWHERE}\n", &["line 2", "NOWHERE"]);
        refused("[a]\nfilename=${DISK\n", &["line 2", "without its }"]);
    }
}

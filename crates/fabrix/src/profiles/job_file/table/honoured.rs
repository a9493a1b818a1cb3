//! Keys with an effect.

use fabrix_bench::verify::Pattern;
use fabrix_bench::{RUNTIME_MAX, Rw};

use super::Key;
use crate::args::values::parse_percentiles;
use crate::profiles::job_file::keys::Amount;
use crate::profiles::job_file::numbers::{percent, size, switch, time, whole, word};
use crate::profiles::job_file::{engines, processors};
use crate::report::sheet::Unified;

pub(super) const KEYS: &[Key] = &[
    Key::honoured(
        &["name"],
        |section, value| {
            section.name = Some(value.to_owned());
            Ok(())
        },
        "name in results; in `[global]` without effect, as in fio",
    ),
    Key::honoured(
        &["filename"],
        |section, value| {
            section.add_file(value);
            Ok(())
        },
        "the disk as a URI or a path; a file that is not there is made, with `size` or `filesize`; `A:B` are several \
         files or devices, of which each request takes the next; given twice, also in `[global]`, it adds files, as in \
         fio",
    ),
    Key::honoured(
        &["directory"],
        |section, value| {
            section.place.directory = Some(value.to_owned());
            Ok(())
        },
        "`filename` lies there, and without it each job has files of its own there; the jobs of `numjobs` take turns \
         with the folders of a list `A:B`",
    ),
    Key::honoured(
        &["filename_format"],
        |section, value| {
            section.place.format = Some(value.to_owned());
            Ok(())
        },
        "`$jobname`, `$jobnum` and `$filenum` are known",
    ),
    Key::honoured(
        &["nrfiles", "nr_files"],
        |section, value| {
            section.place.nrfiles = whole(value, 1, section.kilo)?;
            Ok(())
        },
        "files of each job that names none with `filename`: up to 64, `size` is that of all together",
    ),
    Key::honoured(
        &["file_service_type"],
        |section, value| section.set_service(value),
        "`roundrobin`, `roundrobin:N` for sequential jobs, `random` for random ones; random addresses choose their \
         file by chance in both; `sequential` and the other laws only for a job with one file",
    ),
    Key::honoured(
        &["filesize"],
        |section, value| {
            section.file_bytes = Some(size(value, section.kilo)?);
            Ok(())
        },
        "bytes of the file, and so the most that a job uses of the disk",
    ),
    Key::honoured(
        &["direct"],
        |section, value| {
            section.place.direct = switch(value)?;
            Ok(())
        },
        "0 is the default as in fio: files and block devices go through the page cache",
    ),
    Key::honoured(
        &["buffered"],
        |section, value| {
            section.place.direct = !switch(value)?;
            Ok(())
        },
        "the opposite of `direct`",
    ),
    Key::honoured(
        &["ioengine"],
        |section, value| {
            section.synchronous = engines::is_synchronous(value)?;
            section.engine = Some(value.to_owned());
            Ok(())
        },
        "synchronous engines, and so the default `psync`, have depth 1; engines for other disks are refused",
    ),
    Key::honoured(
        &["rw", "readwrite"],
        |section, value| {
            let (name, follows) = value.split_once(':').unzip();
            let name = name.unwrap_or(value);
            section.job.rw = Rw::parse(name).map_err(|error| error.to_string())?;
            section.set_follows(follows)
        },
        "read, write, randread, randwrite, rw, randrw, trim, randtrim, trimwrite, randtrimwrite; `read:8k` leaves out \
         8 KiB behind each request, `read:-8k` walks backwards, and `randread:8` makes 8 requests one after the other \
         at each random address",
    ),
    Key::honoured(
        &["rw_sequencer"],
        |section, value| {
            let words = [("sequential", false), ("identical", true)];
            section.job.run_is_identical = word(value, &words)?;
            Ok(())
        },
        "whether the requests of `randread:8` have one address",
    ),
    Key::honoured(
        &["bs", "blocksize"],
        |section, value| section.set_block(value),
        "up to three sizes: reads, writes, trims",
    ),
    Key::honoured(
        &["bssplit"],
        |section, value| {
            section.job.split = section.split(value)?;
            section.job.ranges = [None; 2];
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["size"],
        |section, value| section.set_place("size", value),
        "bytes, or percent of the disk",
    ),
    Key::honoured(
        &["offset", "fileoffset"],
        |section, value| section.set_place("offset", value),
        "bytes, or percent of the disk",
    ),
    Key::honoured(
        &["offset_increment"],
        |section, value| {
            section.increment = Amount::parse(value, section.kilo)?;
            Ok(())
        },
        "bytes, or percent of the disk",
    ),
    Key::honoured(
        &["io_size", "io_limit"],
        |section, value| {
            section.io_size = Some(Amount::parse(value, section.kilo)?);
            Ok(())
        },
        "bytes, or percent of the region",
    ),
    Key::honoured(
        &["number_ios"],
        |section, value| {
            section.job.number_ios = Some(whole(value, 1, section.kilo)?);
            Ok(())
        },
        "",
    ),
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
        &["group_reporting"],
        |section, value| {
            section.group_reporting = switch(value)?;
            Ok(())
        },
        "all jobs up to the next `stonewall` or `new_group` are one entry with the name of the first; histograms are \
         added; with `--count` each section stays an entry",
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
        &["fill_device", "fill_fs"],
        |section, value| {
            section.fills = switch(value)?;
            Ok(())
        },
        "the whole disk is written, whatever `size` says; a file keeps its length",
    ),
    Key::honoured(
        &["unified_rw_reporting"],
        |_, value| Unified::parse(value).map(drop),
        "`mixed`: all directions in one entry `mixed`; `both`: that one too",
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
        &["verify"],
        |section, value| section.set_verify(value),
        "the blocks are fio's (3.33), and either program reads what the other wrote; `rw=read` checks what an earlier \
         job wrote; wrong blocks are counted to the end and give exit code 5",
    ),
    Key::honoured(
        &["do_verify"],
        |section, value| {
            section.verify.read_back = switch(value)?;
            Ok(())
        },
        "0: written blocks are not read back",
    ),
    Key::honoured(
        &["verify_pattern"],
        |section, value| {
            section.verify.pattern = Some(Pattern::parse(value)?);
            Ok(())
        },
        "with `%o`; without `verify` the blocks have a header and the pattern, as in fio",
    ),
    Key::honoured(
        &["verify_interval"],
        |section, value| {
            section.verify.interval = whole_bytes(value, section.kilo)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["verify_offset"],
        |section, value| {
            section.verify.offset = whole_bytes(value, section.kilo)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["verify_fatal"],
        |section, value| {
            section.verify.fatal = switch(value)?;
            Ok(())
        },
        "1: the first wrong block ends the job",
    ),
    Key::honoured(
        &["verify_only"],
        |section, value| {
            section.verify_only = switch(value)?;
            Ok(())
        },
        "the job reads the blocks that it would write",
    ),
    Key::honoured(
        &["verify_backlog"],
        |section, value| {
            section.verify.backlog = whole(value, 0, section.kilo)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["verify_backlog_batch"],
        |section, value| {
            section.verify.backlog_batch = whole(value, 0, section.kilo)?;
            Ok(())
        },
        "at most `verify_backlog`",
    ),
    Key::honoured(
        &["continue_on_error"],
        |section, value| {
            let words = [
                ("none", [false, false]),
                ("0", [false, false]),
                ("verify", [false, false]),
                ("read", [true, false]),
                ("write", [false, true]),
                ("io", [true, true]),
                ("all", [true, true]),
                ("1", [true, true]),
            ];
            section.job.continue_on_error = word(value, &words)?;
            Ok(())
        },
        "wrong blocks never end a job; `write` is for trims and flushes too; without a connection each request waits \
         10 ms before it is repeated",
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

/// A length within a request in bytes.
fn whole_bytes(value: &str, kilo: u64) -> Result<u32, String> {
    let bytes = size(value, kilo)?;
    u32::try_from(bytes).map_err(|_| format!("`{value}` is longer than a request"))
}

//! Tests: jobs from the text of job files.

use super::*;
use fabrix_bench::Rw;
use fabrix_bench::arrivals::Bursts;

fn jobs(text: &str) -> Result<Jobs, String> {
    let outside = sections::Outside {
        variable: &|name| (name == "DISK").then(|| "ram:64M".to_owned()),
        file: &|path| Err(format!("{}: no such file", path.display())),
    };
    let mut errors = Vec::new();
    let sections = sections::of_file("a.fio".as_ref(), text, &outside, &mut errors);
    match Jobs::of(&sections, &[], &[]) {
        Ok(jobs) if errors.is_empty() => Ok(jobs),
        Ok(_) => Err(errors.join("\n")),
        Err(more) => Err([errors, more].concat().join("\n")),
    }
}

fn read(text: &str) -> Result<Vec<Vec<Listed>>, String> {
    jobs(text).map(|jobs| jobs.stages)
}

/// The job of the only section, on a disk of 1 MiB.
#[track_caller]
fn job(text: &str) -> Job {
    let stages = read(text).expect(text);
    stages[0][0].clone().for_disk(1 << 20, 1).expect(text)
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
    assert_eq!(first.place.filenames, ["ram:64M"]);
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
    let stages =
        read("[a]\nfilename=ram:8M\n[b]\nfilename=ram:8M\n[c]\nstonewall\n").expect("three jobs");
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
    let stages = read("[a]\nsize=1m\nio_size=10k\nbs=4k\n[b]\nio_size=8k\ntime_based\nruntime=1\n");
    let stages = stages.expect("two jobs");
    let on = |at: usize| stages[0][at].clone().for_disk(1 << 20, 1).expect("it fits");
    let (a, b) = (on(0), on(1));
    assert_eq!(
        (a.size, a.io_bytes, a.loops),
        (Some(1 << 20), Some(10 << 10), Some(1))
    );
    assert_eq!(b.io_bytes, None, "time alone ends it");
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
    let none = read("[a]\nlog_avg_msec=0\n").expect("fio's default");
    assert_eq!(none[0][0].logs.every, None);
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
        "dedupe_mode",
        "sync_file_range",
        "iodepth_low",
        "opendir",
        "read_iolog",
        "trim_percentage",
        "verify_state_load",
        "write_iolog",
        "zonesize",
    ] {
        refused(
            &format!("[a]\n{key}=2\n"),
            &["a.fio: line 2", &format!("`{key}` is not supported: ")],
        );
    }
    for line in [
        "rwmixread=101",
        "iodepth=0",
        "numjobs=0",
        "loops=x",
        "runtime=soon",
        "kb_base=7",
        "ioengine=doesnotexist",
        "continue_on_error=trim",
        "rw=read:x",
    ] {
        let (key, _) = line.split_once('=').expect("a key and a value");
        refused(&format!("[a]\n{line}\n"), &["line 2", key]);
    }
}

#[test]
fn all_wrong_keys_are_named_at_once_with_the_nearest_right_word() {
    refused(
        "[a]\ndirekt=1\nbs=4k\nzonemode=zbd\n[b]\nbs=x\n",
        &[
            "line 2: `direkt` is not a key of fio; did you mean `direct`?",
            "line 4: `zonemode` is not supported",
            "line 6: bs: `x`",
        ],
    );
}

#[test]
fn values_that_ask_for_nothing_are_accepted() {
    let text = "[a]\nfsync=0\nthinktime=0\nzonemode=none\nsync=none\ncontinue_on_error=none\n";
    assert_eq!(job(text).rw, Rw::Read);
}

#[test]
fn keys_without_effect_are_noted_once() {
    let text = "[global]\nthread\n[a]\nioengine=libaio\ninvalidate=1\n[b]\nthread=1\n";
    let notes = jobs(text).expect("two jobs").notes();
    assert_eq!(notes, ["without effect here: invalidate, thread"]);
}

#[test]
fn synchronous_engines_have_depth_one_and_it_is_said() {
    for (line, depth, part) in [
        ("ioengine=psync", 1, "ioengine=psync is synchronous"),
        ("rw=read", 1, "default engine (psync)"),
        ("ioengine=libaio", 32, ""),
    ] {
        let text = format!("[a]\niodepth=32\n{line}\n");
        assert_eq!(job(&text).iodepth, depth, "{line}");
        let notes = jobs(&text).expect("a job").notes().concat();
        assert!(notes.contains(part), "{notes}");
    }
}

#[test]
fn numbers_have_fios_units_everywhere() {
    let text =
        "[a]\nioengine=libaio\niodepth=1k\nrate_iops=10k\nruntime=60sec\nrandseed=-1\nsize=8*4k\n";
    let found = job(text);
    assert_eq!((found.iodepth, found.size), (1024, Some(32768)));
    assert_eq!(
        found.offered_iops().map(|iops| iops.to_string()),
        Some("10240".to_owned())
    );
    assert_eq!(
        (found.runtime, found.seed),
        (Duration::from_secs(60), u64::MAX)
    );
    assert_eq!(job("[a]\nruntime=0\n").runtime, RUNTIME_MAX);
    let half = job("[a]\nio_size=50%\noffset_increment=10%\nbs=4k\n");
    assert_eq!(
        (half.io_bytes, half.offset_increment),
        (Some(512 << 10), 102_400)
    );
}

#[test]
fn latencies_count_microseconds_without_a_unit() {
    let found = job(
        "[a]\nlatency_target=200\nlatency_window=5s\nlatency_percentile=99.5\nmax_latency=1ms,2ms\n",
    );
    let target = found.latency_target.expect("a target");
    assert_eq!(
        (target.target, target.window, target.percentile),
        (Duration::from_micros(200), Duration::from_secs(5), 99.5)
    );
    assert_eq!(
        found.max_latency,
        [1, 2, 2].map(|millis| Some(Duration::from_millis(millis)))
    );
    assert_eq!(
        job("[a]\nlatency_window=1s\nmax_latency=0\n").latency_target,
        None
    );
}

#[test]
fn block_sizes_have_up_to_three_parts() {
    let sizes = |text: &str| {
        let job = job(&format!("[a]\nrw=rw\nbs={text}\n"));
        let one = |write| job.sizes(write).longest_bytes();
        (one(false), one(true))
    };
    for (text, expected) in [
        ("8k", (8192, 8192)),
        (",16k", (4096, 16384)),
        ("4k,4k,8k", (4096, 4096)),
        ("8k,", (8192, 4096)),
        ("4ki", (4096, 4096)),
    ] {
        assert_eq!(sizes(text), expected, "{text}");
    }
    refused("[a]\nbs=1k,2k,3k,4k\n", &["more than three sizes"]);
}

#[test]
fn a_rate_is_that_of_each_direction() {
    let rates = |line: &str| {
        let job = job(&format!("[a]\nrw=randrw\n{line}\n"));
        job.side_rates
            .map(|rate| rate.map(|rate| rate.iops.to_string()))
    };
    let both = |reads: &str, writes: &str| [Some(reads.to_owned()), Some(writes.to_owned())];
    assert_eq!(rates("rate_iops=200"), both("200", "200"));
    assert_eq!(rates("rate_iops=300,50"), both("300", "50"));
    assert_eq!(rates("rate=1m\nbs=4k"), both("256", "256"));
    assert_eq!(rates("rate=100k\nbs=64k"), both("1.5625", "1.5625"));
    assert_eq!(rates("rate_iops=300,"), [Some("300".to_owned()), None]);
    let reads = job("[a]\nrate_iops=5,7\n");
    assert_eq!(
        reads.offered_iops().map(|iops| iops.to_string()),
        Some("5".to_owned())
    );
    assert_eq!(reads.side_rates, [None, None]);
    refused("[a]\nrate_iops=1\nrate=4k\n", &["not both"]);
}

#[test]
fn a_pause_follows_the_requests_in_flight() {
    let bursts = |keys: &str| job(&format!("[a]\nthinktime=5ms\n{keys}\n")).bursts;
    let five = Duration::from_millis(5);
    let burst = |ios, time| {
        let (pause, quiet) = (five, true);
        Some(Bursts {
            ios,
            time,
            pause,
            quiet,
        })
    };
    assert_eq!(bursts(""), burst(1, None));
    assert_eq!(bursts("thinktime_blocks=4"), burst(4, None));
    let deep = "ioengine=libaio\niodepth=8\nthinktime_blocks=4\n";
    assert_eq!(bursts(deep), burst(11, None));
    assert_eq!(
        bursts(&format!("{deep}thinktime_blocks_type=issue")),
        burst(4, None)
    );
    assert_eq!(bursts("thinktime_iotime=5000"), burst(u32::MAX, Some(five)));
    assert_eq!(job("[a]\nthinktime=0\n").bursts, None);
}

#[test]
fn sections_keep_their_names() {
    let stages = read("[global]\nname=common\n[one]\n[two]\nname=deux\n").expect("two jobs");
    let names: Vec<&str> = stages[0].iter().map(|one| one.job.name.as_str()).collect();
    assert_eq!(names, ["one", "deux"]);
}

#[test]
fn a_job_waits_for_the_named_one() {
    let stages = read("[a]\n[b]\nwait_for=a\n[c]\nwait_for=a\n").expect("three jobs");
    let waits: Vec<_> = stages[0].iter().map(|one| one.waits_in_stage).collect();
    assert_eq!(waits, [None, Some(0), Some(0)]);
    let stages = read("[a]\n[b]\nstonewall\n[c]\nwait_for=a\n").expect("three jobs");
    assert_eq!(stages[1][1].waits_in_stage, None, "a has ended");
    refused("[a]\nwait_for=z\n", &["names no job"]);
}

#[test]
fn exitall_applies_to_all_jobs_and_startdelay_to_its_own() {
    let stages = read("[a]\nstartdelay=2\n[b]\nexitall\n").expect("two jobs");
    let delays = stages[0].iter().map(|one| one.start_delay.as_secs());
    assert_eq!(delays.collect::<Vec<_>>(), [2, 0]);
    assert!(stages[0].iter().all(|one| one.exit_all));
}

#[test]
fn the_length_of_the_file_bounds_the_size() {
    let found = job("[a]\nfilesize=64k\nsize=256k\n");
    assert_eq!((found.size, found.number_ios), (Some(65536), None));
}

#[test]
fn settings_of_the_command_line_replace_those_of_all_jobs() {
    let outside = sections::Outside {
        variable: &|_| None,
        file: &|_| Err(String::new()),
    };
    let mut errors = Vec::new();
    let text = "[a]\nbs=8k\n[b]\nbs=16k\n";
    let file = sections::of_file("a.fio".as_ref(), text, &outside, &mut errors);
    let words = ["--bs=4k".to_owned()];
    let line = sections::of_words(&words, &|_| None, &mut errors);
    let jobs = Jobs::of(&file, &line.defaults(), &["b".into()]).expect("a job");
    assert_eq!((jobs.stages.len(), jobs.stages[0].len()), (1, 1));
    assert_eq!(jobs.stages[0][0].job.block_bytes, 4096);
    let words = ["--bz=4k".to_owned()];
    let line = sections::of_words(&words, &|_| None, &mut errors);
    let errors = Jobs::of(&file, &line.defaults(), &[]).expect_err("a wrong key");
    assert_eq!(errors.len(), 1, "{errors:?}");
}

#[test]
fn a_key_that_is_not_supported_is_named_with_its_line() {
    refused(
        "[a]\nrw=read\nzonemode=zbd\n",
        &["a.fio: line 3", "`zonemode`"],
    );
    refused("[a]\nbs=x\n", &["line 2", "bs", "`x`"]);
    refused("[a]\nrw=trimread\n", &["line 2", "rw=trimread"]);
    refused("[a]\nverify=xyz\n", &["line 2", "verify=xyz"]);
    refused("rw=read\n", &["line 1", "before any section"]);
    refused("[a\n", &["line 1", "no end"]);
    refused("[global]\nrw=read\n", &["no job"]);
    refused("", &["no job"]);
    refused("[a]\nfilename=${NOWHERE}\n", &["line 2", "NOWHERE"]);
    refused("[a]\nfilename=${DISK\n", &["line 2", "without its }"]);
}

#[test]
fn files_of_a_job_are_a_stripe_or_are_refused() {
    let one = |text: &str| read(text).expect(text)[0][0].clone();
    let listed = one("[a]\nfilename=x:y\noffset=8k\nsize=36k\nbs=4k\n");
    assert_eq!(listed.chunk_bytes, Some(4096));
    let job = listed.for_disk(1 << 20, 2).expect("it fits");
    assert_eq!(
        (job.offset, job.size),
        (16384, Some(32768)),
        "of both files"
    );
    let turns = one("[a]\nfilename=x:y\nbs=4k\nfile_service_type=roundrobin:4\n");
    assert_eq!(turns.chunk_bytes, Some(16384));
    let named = one("[a]\nfilename=x\nnrfiles=4\nfile_service_type=sequential\n");
    assert_eq!(named.chunk_bytes, None, "one file is named");
    let both = one("[global]\nfilename=x\n[a]\nfilename=y\n");
    assert_eq!(both.place.filenames, ["x", "y"], "as in fio");
    for (keys, part) in [
        ("bs=6k", "power of two"),
        ("bs=4k,8k\nrw=rw", "one length"),
        ("offset=2k", "multiples of a request"),
        (
            "file_service_type=sequential",
            "file_service_type=roundrobin",
        ),
        ("file_service_type=random", "file_service_type=roundrobin"),
        ("rw=read:8k", "a number behind rw="),
        (
            "rw=randread\nrandom_distribution=zipf:1.2",
            "random_distribution",
        ),
    ] {
        let text = format!("[a]\nfilename=x:y\nsize=1m\n{keys}\n");
        refused(&text, &["with 2 files", part, "one section for each file"]);
    }
    refused("[a]\nfilesize=1m-2m\n", &["ranges are not supported"]);
    refused("[a]\nnrfiles=65\nsize=1m\n", &["64 files"]);
}

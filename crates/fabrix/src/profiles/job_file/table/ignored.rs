//! Keys that are accepted without an effect.

use super::Key;

pub(super) const KEYS: &[Key] = &[
    Key::ignored(&["description"], "text for people"),
    Key::ignored(&["thread"], "every job is a thread"),
    Key::ignored(
        &["invalidate"],
        "a file is opened without the page cache, unless `direct=0`",
    ),
    Key::ignored(&["softrandommap"], "the random map is always there"),
    Key::ignored(
        &["iodepth_batch", "iodepth_batch_submit"],
        "requests are submitted as soon as they are due",
    ),
    Key::ignored(
        &[
            "iodepth_batch_complete_min",
            "iodepth_batch_complete",
            "iodepth_batch_complete_max",
        ],
        "completions are taken as soon as they are there",
    ),
    Key::ignored(
        &[
            "hipri",
            "fixedbufs",
            "registerfiles",
            "sqthread_poll",
            "sqthread_poll_cpu",
            "nonvectored",
            "uncached",
        ],
        "options of the io_uring engine; `--engine` and `--spin` choose ours",
    ),
    Key::ignored(
        &["userspace_reap", "force_async"],
        "options of foreign engines",
    ),
    Key::ignored(
        &[
            "mem",
            "iomem",
            "hugepage_size",
            "mem_align",
            "iomem_align",
            "lockmem",
        ],
        "buffers are memory of ours",
    ),
    Key::ignored(
        &["clocksource", "gtod_reduce", "gtod_cpu"],
        "the clock costs little",
    ),
    Key::ignored(
        &[
            "disable_lat",
            "disable_clat",
            "disable_slat",
            "disable_bw_measurement",
            "disable_bw",
        ],
        "everything is always measured",
    ),
    Key::ignored(
        &[
            "clat_percentiles",
            "lat_percentiles",
            "slat_percentiles",
            "significant_figures",
            "unit_base",
            "disk_util",
        ],
        "how results are printed",
    ),
    Key::ignored(
        &[
            "stats",
            "block_error_percentiles",
            "bwavgtime",
            "iopsavgtime",
            "log_entries",
        ],
        "how results are gathered",
    ),
    Key::ignored(
        &["log_compression", "log_compression_cpus"],
        "logs are written at the end",
    ),
    Key::ignored(
        &[
            "fallocate",
            "fadvise_hint",
            "fadvise",
            "write_hint",
            "overwrite",
            "allow_file_create",
            "allow_mounted_write",
        ],
        "a file is made sparse, and written once before it is read",
    ),
    Key::ignored(
        &[
            "create_serialize",
            "create_fsync",
            "create_on_open",
            "openfiles",
            "lockfile",
        ],
        "files are made and opened before the measurement",
    ),
    Key::ignored(&["unlink", "unlink_each_loop"], "files stay where they are"),
    Key::ignored(
        &["cpus_allowed_policy"],
        "jobs are always split over `cpus_allowed`",
    ),
    Key::ignored(
        &["nice", "uid", "gid"],
        "the program runs as it was started",
    ),
    Key::ignored(
        &["verify_async", "verify_async_cpus", "verify_dump"],
        "the job's thread verifies, and the first wrong block is described in the results",
    ),
    Key::ignored(
        &["verify_state_save", "experimental_verify"],
        "a job keeps its state in memory, and what it wrote can be verified from the disk alone",
    ),
    Key::ignored(
        &["error_dump", "exitall_on_error"],
        "the first failure is described, and ends the run",
    ),
    Key::ignored(
        &[
            "eta",
            "eta_interval",
            "eta_newline",
            "status_interval",
            "alloc_size",
            "max_jobs",
            "aux_path",
        ],
        "options of fio's program",
    ),
    Key::ignored(
        &["warnings_fatal", "idle_prof", "bandwidth_log"],
        "options of fio's program",
    ),
    Key::ignored(
        &["rate_cycle", "ratecycle"],
        "`rate_min` and `rate_iops_min` are compared with the mean of the whole run",
    ),
    Key::ignored(&["thinktime_spin"], "a pause costs no processor time"),
    Key::ignored(
        &["numa_mem_policy"],
        "buffers are taken from the node of the job's processor",
    ),
    Key::ignored(&["unique_filename"], "only clients of a fio server need it"),
    Key::ignored(
        &[
            "verifysort",
            "verifysort_nr",
            "rwmixcycle",
            "log_issue_time",
            "filetype",
        ],
        "fio no longer uses it, or it says what is the case here",
    ),
    Key::ignored(
        &["job_start_clock_id", "comm"],
        "how results and threads are named",
    ),
    Key::ignored(
        &["verify_header_seed", "verify_write_sequence"],
        "jobs that write each other's blocks are refused, so that only lost writes are out of turn",
    ),
];

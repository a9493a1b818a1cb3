//! Keys without an effect and keys that are refused.

use super::Key;

pub(super) const KEYS: &[Key] = &[
    Key::ignored(&["description"], "text for people"),
    Key::ignored(&["thread"], "every job is a thread"),
    Key::ignored(
        &["group_reporting"],
        "the jobs of a section are reported together",
    ),
    Key::ignored(&["new_group"], "sections are never added up"),
    Key::ignored(
        &["invalidate"],
        "a file is opened without the page cache, unless `direct=0`",
    ),
    Key::ignored(
        &["norandommap"],
        "every random address is drawn independently",
    ),
    Key::ignored(&["softrandommap"], "there is no random map"),
    Key::ignored(&["random_generator"], "there is one generator"),
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
            "file_service_type",
            "lockfile",
        ],
        "files are made and opened before the measurement",
    ),
    Key::ignored(
        &["unlink", "unlink_each_loop", "fsync_on_close"],
        "files stay where they are",
    ),
    Key::ignored(
        &["cpus_allowed_policy"],
        "jobs are always split over `cpus_allowed`",
    ),
    Key::ignored(
        &["nice", "uid", "gid"],
        "the program runs as it was started",
    ),
    Key::ignored(
        &[
            "verify_async",
            "verify_async_cpus",
            "verify_dump",
            "verify_fatal",
        ],
        "wrong blocks are counted to the end, and the first one is described",
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
    Key::refused(
        &["nrfiles", "nr_files"],
        &["1"],
        "a job works on one disk; name a disk, a stripe (raid0:) or one section for each file",
    ),
    Key::refused(&["zero_buffers"], &["0"], "writes have random contents"),
    Key::refused(
        &["refill_buffers"],
        &["0"],
        "all writes of a job have the same contents",
    ),
    Key::refused(
        &["scramble_buffers"],
        &["0", "1"],
        "all writes of a job have the same contents",
    ),
    Key::refused(&["buffer_pattern"], &[], "writes have random contents"),
    Key::refused(
        &["buffer_compress_percentage", "buffer_compress_chunk"],
        &["0"],
        "writes have random contents",
    ),
    Key::refused(
        &[
            "dedupe_percentage",
            "dedupe_mode",
            "dedupe_working_set_percentage",
            "dedupe_global",
        ],
        &["0"],
        "all writes of a job have the same contents",
    ),
    Key::refused(
        &["bsrange", "blocksize_range"],
        &[],
        "write bssplit=4k/50:8k/50 for several sizes",
    ),
    Key::refused(
        &["bs_unaligned", "blocksize_unaligned", "bs_is_seq_rand"],
        &["0"],
        "requests are multiples of the disk's block",
    ),
    Key::refused(
        &["ba", "blockalign"],
        &["0"],
        "addresses are multiples of the shortest request",
    ),
    Key::refused(&["offset_align"], &["0"], "write an offset that is aligned"),
    Key::refused(
        &["percentage_random"],
        &["100"],
        "a job is random or sequential; write two sections",
    ),
    Key::refused(
        &["rw_sequencer"],
        &["sequential"],
        "requests follow each other",
    ),
    Key::refused(
        &["fsync", "fdatasync", "write_barrier"],
        &["0"],
        "jobs do not flush",
    ),
    Key::refused(&["end_fsync"], &["0"], "jobs do not flush"),
    Key::refused(&["sync_file_range"], &[], "jobs do not flush"),
    Key::refused(&["atomic"], &["0"], "writes are not atomic"),
    Key::refused(
        &["rate_min", "rate_iops_min", "ratemin"],
        &["0"],
        "a job is not ended when it is slow; compare results",
    ),
    Key::refused(
        &["rate_cycle", "ratecycle", "rate_ignore_thinktime"],
        &["1000", "0"],
        "rates have no cycle",
    ),
    Key::refused(
        &[
            "thinktime",
            "thinktime_spin",
            "thinktime_blocks",
            "thinktime_blocks_type",
            "thinktime_iotime",
        ],
        &["0", "complete"],
        "write rate_iops= for an offered load",
    ),
    Key::refused(
        &[
            "max_latency",
            "latency_target",
            "latency_window",
            "latency_run",
        ],
        &["0"],
        "try several depths, as `fabrix bench starwind` does",
    ),
    Key::refused(
        &["latency_percentile"],
        &["100", "100.0"],
        "try several depths",
    ),
    Key::refused(
        &["iodepth_low"],
        &[],
        "a job always keeps iodepth requests in flight",
    ),
    Key::refused(
        &["io_submit_mode"],
        &["inline"],
        "the job's thread submits its requests",
    ),
    Key::refused(
        &["serialize_overlap"],
        &["0"],
        "requests in flight may overlap",
    ),
    Key::refused(
        &["flow", "flow_id", "flow_sleep", "flow_watermark"],
        &["0"],
        "write rate_iops= in each section",
    ),
    Key::refused(
        &["unified_rw_reporting"],
        &["none", "0"],
        "reads and writes are reported apart",
    ),
    Key::refused(&["exit_what"], &["group"], "a job does not end others"),
    Key::refused(&["cpumask"], &[], "write cpus_allowed=0,2-3"),
    Key::refused(
        &["numa_cpu_nodes", "numa_mem_policy"],
        &[],
        "write cpus_allowed= with the node's processors",
    ),
    Key::refused(
        &[
            "verify_only",
            "verify_state_load",
            "verify_state_save",
            "experimental_verify",
        ],
        &["0"],
        "a job checks what it wrote itself",
    ),
    Key::refused(&["do_verify"], &["1"], "blocks are read back in any case"),
    Key::refused(
        &[
            "verify_backlog",
            "verify_backlog_batch",
            "verify_interval",
            "verify_offset",
        ],
        &["0"],
        "a job checks whole blocks",
    ),
    Key::refused(
        &["verify_pattern"],
        &[],
        "write verify=crc32c: every block has its address and a checksum",
    ),
    Key::refused(
        &[
            "trim_percentage",
            "trim_verify_zero",
            "trim_backlog",
            "trim_backlog_batch",
        ],
        &["0"],
        "jobs do not trim",
    ),
    Key::refused(
        &["fill_device", "fill_fs"],
        &["0"],
        "leave size= out to write the whole disk",
    ),
    Key::refused(
        &["file_append", "pre_read", "create_only"],
        &["0"],
        "a disk has a fixed size",
    ),
    Key::refused(&["opendir", "unique_filename"], &[], "name one disk"),
    Key::refused(
        &["log_offset", "log_prio"],
        &["0"],
        "a line of a log is the mean of many requests",
    ),
    Key::refused(&["log_max_value"], &["0"], "a line of a log is a mean"),
    Key::refused(
        &[
            "log_unix_epoch",
            "log_alternate_epoch",
            "log_alternate_epoch_clock_id",
        ],
        &["0"],
        "logs count from the start of the measurement",
    ),
    Key::refused(
        &["log_hist_msec", "log_hist_coarseness"],
        &["0"],
        "there are no logs of histograms",
    ),
    Key::refused(
        &["write_hist_log", "log_store_compressed"],
        &["0"],
        "there are no logs of histograms",
    ),
    Key::refused(
        &["write_iolog", "read_iolog", "read_iolog_chunked"],
        &[],
        "requests are generated, not replayed",
    ),
    Key::refused(
        &[
            "replay_no_stall",
            "replay_redirect",
            "replay_scale",
            "replay_align",
            "replay_time_scale",
            "replay_skip",
            "merge_blktrace_file",
            "merge_blktrace_scalars",
            "merge_blktrace_iters",
        ],
        &[],
        "requests are generated, not replayed",
    ),
    Key::refused(
        &[
            "zonesize",
            "zonecapacity",
            "zonerange",
            "zoneskip",
            "read_beyond_wp",
            "max_open_zones",
            "job_max_open_zones",
            "ignore_zone_limits",
            "zone_reset_threshold",
            "zone_reset_frequency",
        ],
        &["0"],
        "disks have no zones; size= and offset= choose a region",
    ),
    Key::refused(
        &["zonemode"],
        &["none"],
        "disks have no zones; size= and offset= choose a region",
    ),
    Key::refused(
        &[
            "prio",
            "prioclass",
            "cmdprio_percentage",
            "cmdprio_class",
            "cmdprio",
            "cmdprio_bssplit",
        ],
        &["0"],
        "requests have no priorities",
    ),
    Key::refused(
        &["cgroup", "cgroup_weight", "cgroup_nodelete"],
        &[],
        "start the program in its group: systemd-run --scope",
    ),
    Key::refused(
        &["ioscheduler"],
        &[],
        "write to /sys/block/NAME/queue/scheduler before",
    ),
    Key::refused(
        &["exec_prerun", "exec_postrun"],
        &[],
        "run it before or after this program",
    ),
    Key::refused(
        &["profile"],
        &[],
        "`fabrix bench --help` names our profiles",
    ),
    Key::refused(&["ignore_error"], &[], "write continue_on_error=io"),
    Key::refused(
        &["server", "client", "daemonize", "remote_config"],
        &[],
        "name a remote disk by its URI; `fabrix serve` is its server",
    ),
    Key::refused(
        &["minimal", "terse_version", "append_terse"],
        &[],
        "write --output-format=json",
    ),
];

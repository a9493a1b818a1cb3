//! Arguments of `fabrix bench URI`: fio's options for one job on one disk.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fabrix_bench::Rw;
use fabrix_bench::job::Distribution;

use super::CommonArgs;
use super::contents::ContentsArgs;
use crate::args::values::{Percentiles, parse_bytes, parse_percentiles, parse_time};

/// Arguments of `bench URI`.
#[derive(Args)]
pub(crate) struct PlainArgs {
    /// The disk to measure, as a URI, or a file of fio's jobs; see `fabrix bench fio --help`
    #[arg(value_name = "URI", required = true)]
    pub(crate) uri: Option<String>,
    /// With a file of jobs: the disk for all of them, whatever their filename= says
    #[arg(value_name = "DISK")]
    pub(crate) disk: Option<String>,
    /// What to do: read, write, randread, randwrite, rw, randrw, trim, randtrim, trimwrite,
    /// randtrimwrite
    #[arg(long, default_value = "randread", value_parser = parse_rw, value_name = "MODE")]
    pub(crate) rw: Rw,
    /// Bytes of one I/O
    #[arg(long, default_value = "4k", value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) bs: u64,
    /// I/Os of several sizes, like 4k/60:64k/40; reads and, after a comma, writes
    #[arg(long, value_name = "SIZE/PERCENT:...", conflicts_with = "bs")]
    pub(crate) bssplit: Option<String>,
    /// I/Os in flight, per job
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) iodepth: u32,
    /// Jobs at once, a thread each
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) numjobs: u32,
    /// How long to measure; a number without unit counts seconds [default: 10s, without limit with
    /// --number-ios or --loops]
    #[arg(long, value_parser = parse_time, value_name = "TIME")]
    pub(crate) runtime: Option<Duration>,
    /// End each job after so many I/Os
    #[arg(long, alias = "number_ios", value_name = "N")]
    pub(crate) number_ios: Option<u64>,
    /// End each job when it has moved the bytes of its region so often
    #[arg(long, value_name = "N")]
    pub(crate) loops: Option<u32>,
    /// End by time alone, whatever --loops says
    #[arg(long, alias = "time_based")]
    pub(crate) time_based: bool,
    /// Measure so often, and print the median with least, greatest and spread
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) count: u32,
    /// End when the rate is steady: iops:5%, bw:5%, iops_slope:0.3% or bw_slope:0.3%
    #[arg(long, value_name = "CRITERION")]
    pub(crate) steadystate: Option<String>,
    /// How long the rate must be steady
    #[arg(long, alias = "ss_dur", value_parser = parse_time, value_name = "TIME", default_value = "5s")]
    pub(crate) ss_dur: Duration,
    /// How long to run before judging
    #[arg(long, alias = "ss_ramp", value_parser = parse_time, value_name = "TIME", default_value = "0s")]
    pub(crate) ss_ramp: Duration,
    /// How long to run before measuring
    #[arg(
        long,
        alias = "ramp_time",
        alias = "ramp-time",
        default_value = "0s",
        value_name = "TIME"
    )]
    #[arg(value_parser = parse_time)]
    pub(crate) ramp: Duration,
    /// Reads in a mix, in percent
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(0..=100), value_name = "PERCENT")]
    pub(crate) rwmixread: u8,
    /// How random addresses are spread: random, zipf:THETA, pareto:POWER, normal:DEVIATION,
    /// zoned:PERCENT/PERCENT:... or zoned_abs:PERCENT/SIZE:...
    #[arg(long, alias = "random_distribution", default_value = "random", value_parser = Distribution::parse)]
    #[arg(value_name = "LAW")]
    pub(crate) random_distribution: Distribution,
    /// Draw each random address by itself [default: visit each block once before any block again]
    #[arg(long)]
    pub(crate) norandommap: bool,
    /// Seed of the random addresses and contents [default: another one each time; the results say
    /// it]
    #[arg(long, value_name = "N")]
    pub(crate) randseed: Option<u64>,
    /// How much of the disk to use
    #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) size: Option<u64>,
    /// Where on the disk to start
    #[arg(long, default_value = "0", value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) offset: u64,
    /// Write blocks that carry their address, a generation and a checksum; read them back and
    /// compare
    #[arg(long)]
    pub(crate) verify: bool,
    /// Offered load per job, in I/Os a second: latency counts from when an I/O was due
    #[arg(long, alias = "rate_iops", value_name = "IOPS")]
    pub(crate) rate_iops: Option<u32>,
    /// How the offered load arrives
    #[arg(long, alias = "rate_process", value_enum, default_value = "poisson")]
    pub(crate) rate_process: RateProcess,
    /// Which percentiles of the latency to print, like 50:99:99.9
    #[arg(long, alias = "percentile_list", value_name = "LIST", value_parser = parse_percentiles)]
    pub(crate) percentile_list: Option<Percentiles>,
    /// Write readings over time as fio's logs: PREFIX_bw.log, PREFIX_iops.log, PREFIX_lat.log
    #[arg(long, value_name = "PREFIX")]
    pub(crate) write_logs: Option<PathBuf>,
    /// The distance of the readings over time
    #[arg(long, default_value = "500ms", value_parser = parse_time, value_name = "TIME")]
    pub(crate) log_every: Duration,
    /// Connect, then stay idle for so long, measuring nothing
    #[arg(long, value_parser = parse_time, value_name = "TIME", conflicts_with = "verify")]
    pub(crate) hold: Option<Duration>,
    #[command(flatten)]
    pub(crate) contents: ContentsArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// fio's `rate_process`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RateProcess {
    /// Independently of each other.
    Poisson,
    /// At equal distances.
    Linear,
}

fn parse_rw(text: &str) -> Result<Rw, String> {
    Rw::parse(text).map_err(|error| error.to_string())
}

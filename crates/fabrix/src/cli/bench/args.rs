//! The words of `fabrix bench` and of its profiles.
//!
//! Knows clap and nothing of what the words do. A profile that borrows the words of another tool (DiskSpd, sgp_dd)
//! takes them as they are; they are read beside the profile.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use fabrix_bench::Rw;
use fabrix_bench::access::Distribution;

use crate::args::{DISKS_HELP, EngineArgs, Format, RemoteArgs, parse_bytes, parse_time};

/// Arguments of `bench`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = DISKS_HELP)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) profile: Option<Profile>,
    #[command(flatten)]
    pub(crate) plain: PlainArgs,
}

/// Known measurements, each with the method and the table of the one it reproduces.
#[derive(Subcommand)]
pub(crate) enum Profile {
    /// Search the best numjobs x iodepth, then 13 workloads with it, then latencies at depth 1
    Starwind(SweepArgs),
    /// Sweep the size of commands, 1 KiB to 1 MiB, with 10 threads and 2: MB/s and both CPUs
    Stgt(StgtArgs),
    /// Random reads and writes of 1K to 64K, 1, 2 and 4 workers at depth 32, several times
    Zetavault(SweepArgs),
    /// Copy or read in sgp_dd's words: if= of= bs= count= bpt= thr= dio= time=
    #[command(name = "sgp_dd", alias = "sgp-dd", disable_help_flag = true, after_help = SGP_DD_HELP)]
    SgpDd(WordsArgs),
    /// Measure in DiskSpd's words, and print its results: -b4K -o32 -t1 -r -w30 -d10 -W5 -L -Rxml URI
    #[command(disable_help_flag = true, after_help = DISKSPD_HELP)]
    Diskspd(WordsArgs),
    /// The eight numbers of CrystalDiskMark, with its presets and its scoring
    Cdm(CdmArgs),
    /// Measure the wire alone: streams, and requests shaped like block I/O
    Net(NetArgs),
    /// The same load at each layer: where the time goes
    Path(SweepArgs),
    /// Compare two files of results, ours or fio's
    Compare(CompareArgs),
}

const SGP_DD_HELP: &str = "\
Words of sgp_dd, with disks as URIs:
  if=URI of=URI      copy; of=/dev/null: read only; if=/dev/zero: write only
  bs=N count=N       bytes of a block [512], and how many blocks [all]
  skip=N seek=N      blocks before the first one read, and written
  bpt=N thr=N        blocks of a command [128], and commands in flight [4]
  dio=1 time=1       taken, as all I/O is direct; say how long it took";

const DISKSPD_HELP: &str = "\
Flags of DiskSpd, each with its value behind it, then disks as URIs:
  -b64K -o2 -t1      bytes of a request, in flight for each thread, threads
  -d10 -W5           seconds measured, and before that
  -r -w0             random instead of sequential; percent of writes
  -L -D1000          latencies; readings every so many milliseconds
  -Rtext -Rxml       how to print the results
  -c1G -f1G -B0 -T0  make a file; use so much of it, from there on; between threads
  -g1000i -g1000 -z1 requests a second, or bytes a millisecond, of each thread; seed
  -S.. -Z.. -h -n    taken: no cache and random contents anyway
Or the set of a published test: set [-d1] URI...";

/// What every measurement takes.
#[derive(Args, Clone)]
pub(crate) struct CommonArgs {
    /// Write even on a disk that carries a partition table or a file system
    #[arg(long)]
    pub(crate) allow_write: bool,
    /// Leave results.json, results.csv, index.html and the charts there
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// How to print the results
    #[arg(
        short,
        long,
        alias = "output-format",
        value_enum,
        default_value = "text"
    )]
    pub(crate) output: Format,
}

/// Arguments of `bench URI`.
#[derive(Args)]
pub(crate) struct PlainArgs {
    /// The disk to measure, as a URI, or a file of jobs in fio's format (NAME.fio)
    #[arg(value_name = "URI", required = true)]
    pub(crate) uri: Option<String>,
    /// With a file of jobs: the disk for all of them, whatever their filename= says
    #[arg(value_name = "DISK")]
    pub(crate) disk: Option<String>,
    /// What to do: read, write, randread, randwrite, rw, randrw
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
    /// How long to measure; a number without unit counts seconds [default: 10s, without limit with --number-ios or
    /// --loops]
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
    /// How random addresses are spread: random, or zipf:THETA
    #[arg(long, alias = "random_distribution", default_value = "random", value_parser = Distribution::parse)]
    #[arg(value_name = "LAW")]
    pub(crate) random_distribution: Distribution,
    /// How much of the disk to use
    #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) size: Option<u64>,
    /// Where on the disk to start
    #[arg(long, default_value = "0", value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) offset: u64,
    /// Write blocks that carry their address, a generation and a checksum; read them back and compare
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

/// Arguments of the profiles that measure a table of workloads.
#[derive(Args)]
#[command(after_help = DISKS_HELP)]
pub(crate) struct SweepArgs {
    /// The disk to measure, as a URI
    #[arg(value_name = "URI")]
    pub(crate) uri: String,
    /// Further columns: the same on these disks; may be repeated
    #[arg(long, value_name = "URI")]
    pub(crate) against: Vec<String>,
    /// A further column: the disk served and reached over NVMe/TCP on loopback, within this process
    #[arg(long)]
    pub(crate) loopback: bool,
    /// How long each measurement lasts [default: what fits a coffee; the note names the document's]
    #[arg(long, value_parser = parse_time, value_name = "TIME")]
    pub(crate) runtime: Option<Duration>,
    /// How long each runs before measuring
    #[arg(long, value_parser = parse_time, value_name = "TIME", default_value = "0.2s")]
    pub(crate) ramp: Duration,
    /// How often each is measured; the median is shown, with its spread
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) count: Option<u32>,
    /// The times and repeats of the document
    #[arg(long, conflicts_with_all = ["runtime", "count"])]
    pub(crate) as_published: bool,
    /// How much of the disk to use
    #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) size: Option<u64>,
    /// Do not write the disk once before measuring it
    #[arg(long)]
    pub(crate) no_fill: bool,
    /// Show a published table beside ours; `list` names them
    #[arg(long, value_name = "NAME")]
    pub(crate) published: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Arguments of `bench stgt`.
#[derive(Args)]
#[command(after_help = DISKS_HELP)]
pub(crate) struct StgtArgs {
    /// The disk, and perhaps a second one for two devices at once [default: two disks of zeroes, null:1T,block=512]
    #[arg(value_name = "URI", num_args = 0..=2)]
    pub(crate) uris: Vec<String>,
    /// Every second size, a tenth of a second each
    #[arg(long, conflicts_with_all = ["runtime", "ramp", "sizes"])]
    pub(crate) quick: bool,
    /// Which sizes of commands, like 1k,64k,1m [default: powers of two from 1 KiB to 1 MiB]
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes, value_name = "LIST")]
    pub(crate) sizes: Vec<u64>,
    /// How long each measurement lasts
    #[arg(long, value_parser = parse_time, value_name = "TIME", default_value = "0.5s")]
    pub(crate) runtime: Duration,
    /// How long each runs before measuring
    #[arg(long, value_parser = parse_time, value_name = "TIME", default_value = "0.2s")]
    pub(crate) ramp: Duration,
    /// How much of each disk to use
    #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) size: Option<u64>,
    /// Do not write the disks once before measuring them
    #[arg(long)]
    pub(crate) no_fill: bool,
    /// Show a published table beside ours; `list` names them
    #[arg(long, value_name = "NAME")]
    pub(crate) published: Option<String>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Arguments of a profile in the words of another tool. Short options are that tool's; ours are long.
#[derive(Args)]
#[command(mut_args = |arg| arg.short(None::<char>))]
pub(crate) struct WordsArgs {
    /// Leave results.json, results.csv, index.html and the charts there
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Write even on a disk that carries a partition table or a file system
    #[arg(long)]
    pub(crate) allow_write: bool,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// How to print the results
    #[arg(long, value_enum, default_value = "text")]
    pub(crate) output: Format,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The words of the other tool, the disks as URIs; our own options stand before them
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    pub(crate) words: Vec<String>,
}

impl WordsArgs {
    /// What every measurement takes.
    pub(crate) fn common(&self) -> CommonArgs {
        CommonArgs {
            allow_write: self.allow_write,
            report: self.report.clone(),
            engine: self.engine.clone(),
            remote: self.remote.clone(),
            output: self.output,
        }
    }
}

/// Arguments of `bench cdm`.
#[derive(Args)]
#[command(after_help = DISKS_HELP)]
pub(crate) struct CdmArgs {
    /// The disk to measure, as a URI
    #[arg(value_name = "URI")]
    pub(crate) uri: String,
    /// Which four tests
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) preset: CdmPreset,
    /// Size of the test region
    #[arg(long, default_value = "1G", value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) size: u64,
    /// Counted runs of each test
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) count: u32,
    /// How long each run lasts
    #[arg(long, default_value = "5s", value_parser = parse_time, value_name = "TIME")]
    pub(crate) time: Duration,
    /// Pause between tests
    #[arg(long, default_value = "5s", value_parser = parse_time, value_name = "TIME")]
    pub(crate) interval: Duration,
    /// A third column: reads and writes mixed, with so many percent of reads
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub(crate) mix: Option<u8>,
    /// Write the card as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) card: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// The presets of CrystalDiskMark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CdmPreset {
    /// SEQ1M Q8T1, SEQ1M Q1T1, RND4K Q32T1, RND4K Q1T1
    Default,
    /// SEQ1M Q8T1, SEQ128K Q32T1, RND4K Q32T16, RND4K Q1T1
    Nvme,
    /// SEQ1M Q8T1 and RND4K Q32T1
    Peak,
    /// SEQ1M Q1T1 and RND4K Q1T1
    Real,
}

/// Arguments of `bench net`.
#[derive(Args)]
pub(crate) struct NetArgs {
    /// The other end: HOST[:PORT], or a disk's URI, whose host is meant
    #[arg(
        value_name = "HOST[:PORT] or URI",
        required_unless_present = "server",
        conflicts_with = "server"
    )]
    pub(crate) host: Option<String>,
    /// Be the other end: listen there until interrupted
    #[arg(short, long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:5301")]
    pub(crate) server: Option<String>,
    /// How long each test lasts
    #[arg(short = 't', long, default_value = "2s", value_parser = parse_time, value_name = "TIME")]
    pub(crate) time: Duration,
    /// Streams at once
    #[arg(short = 'P', long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) parallel: u16,
    /// Only streams from the server to us, and no requests
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    pub(crate) reverse: bool,
    /// Only streams both ways at once, and no requests
    #[arg(long)]
    pub(crate) bidir: bool,
    /// Bytes of one send
    #[arg(short = 'l', long, default_value = "128k", value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) length: u64,
    /// Bytes of data in a response, as in a read of so many bytes
    #[arg(long, default_value = "4k", value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) bs: u64,
    /// Requests in flight per stream
    #[arg(
        long,
        default_value = "1,32",
        value_delimiter = ',',
        value_name = "LIST"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) iodepth: Vec<u32>,
    /// How to print the results
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
    /// Leave results.json, results.csv, index.html and the charts there
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
}

/// Arguments of `bench compare`.
#[derive(Args)]
pub(crate) struct CompareArgs {
    /// The results to compare with
    #[arg(value_name = "A.json")]
    pub(crate) before: PathBuf,
    /// The results to judge
    #[arg(value_name = "B.json")]
    pub(crate) after: PathBuf,
    /// End with exit code 6 when B has so many percent fewer IOPS, beyond the noise
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub(crate) fail_over: Option<f64>,
}

/// A list of percentiles, as given.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Percentiles(pub(crate) Vec<f64>);

fn parse_rw(text: &str) -> Result<Rw, String> {
    Rw::parse(text).map_err(|error| error.to_string())
}

/// fio's list: numbers with colons between them; sorted, each once.
pub(crate) fn parse_percentiles(text: &str) -> Result<Percentiles, String> {
    let number = |part: &str| {
        let number = part.trim().parse::<f64>().ok();
        let inside = number.filter(|percent| *percent > 0.0 && *percent <= 100.0);
        inside.ok_or_else(|| format!("`{part}` is not a percentile; write a list like 50:99:99.9"))
    };
    let mut list = text
        .split(':')
        .map(number)
        .collect::<Result<Vec<f64>, _>>()?;
    list.sort_by(f64::total_cmp);
    list.dedup();
    Ok(Percentiles(list))
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    let percent = number.filter(|percent| *percent >= 0.0 && percent.is_finite());
    percent.ok_or_else(|| format!("`{text}` is not a percentage; write 5 or 5%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_percentiles_is_sorted_and_wrong_ones_are_named() {
        assert_eq!(
            parse_percentiles("99.9:50:99:50"),
            Ok(Percentiles(vec![50.0, 99.0, 99.9]))
        );
        for (text, part) in [
            ("", "``"),
            ("50:x", "`x`"),
            ("101", "`101`"),
            ("0", "`0`"),
            ("NaN", "`NaN`"),
        ] {
            let error = parse_percentiles(text).expect_err(text);
            assert!(
                error.contains(part) && error.contains("50:99:99.9"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_limit_is_a_percentage() {
        assert_eq!(
            (parse_percent("5"), parse_percent("2.5%")),
            (Ok(5.0), Ok(2.5))
        );
        assert!(parse_percent("-1").is_err() && parse_percent("five").is_err());
    }
}

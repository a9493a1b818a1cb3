//! Arguments of the profiles, of `net` and of `compare`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use fabrix_rt::SpinPolicy;

use super::CommonArgs;
use crate::args::values::{DISKS_HELP, Format, parse_bytes, parse_spin, parse_time};
use crate::profiles::cdm::policies::Policies;
use crate::profiles::cdm::test::Test;

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
    /// How long each measurement lasts [default: starwind 1s, zetavault 0.5s; --as-published takes
    /// the document's time]
    #[arg(long, value_parser = parse_time, value_name = "TIME")]
    pub(crate) runtime: Option<Duration>,
    /// How often each is measured; the median is shown, with its spread
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) count: Option<u32>,
    /// The times and repeats of the document
    #[arg(long, conflicts_with_all = ["runtime", "count"])]
    pub(crate) as_published: bool,
    #[command(flatten)]
    pub(crate) table: TableArgs,
    #[command(flatten)]
    pub(crate) step: StepArgs,
}

/// Arguments of profiles that reproduce a published table.
#[derive(Args)]
pub(crate) struct TableArgs {
    /// Do not write the disk once before measuring it
    #[arg(long)]
    pub(crate) no_fill: bool,
    /// Show a published table beside ours; `list` names them
    #[arg(long, value_name = "NAME")]
    pub(crate) published: Option<String>,
}

/// Arguments for the single measurements of a profile.
#[derive(Args)]
pub(crate) struct StepArgs {
    /// How long each runs before measuring
    #[arg(long, value_parser = parse_time, value_name = "TIME", default_value = "0.2s")]
    pub(crate) ramp: Duration,
    /// How much of each disk to use
    #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) size: Option<u64>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Arguments of `bench path`.
#[derive(Args)]
#[command(after_help = DISKS_HELP)]
pub(crate) struct PathArgs {
    /// The disk to measure, as a URI
    #[arg(value_name = "URI")]
    pub(crate) uri: String,
    /// How long each measurement lasts
    #[arg(long, value_parser = parse_time, value_name = "TIME", default_value = "1s")]
    pub(crate) runtime: Duration,
    /// How often each is measured; the median is shown, with its spread
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) count: u32,
    #[command(flatten)]
    pub(crate) step: StepArgs,
}

/// Arguments of `bench stgt`.
#[derive(Args)]
#[command(after_help = DISKS_HELP)]
pub(crate) struct StgtArgs {
    /// The disk, and perhaps a second one for two devices at once [default: two disks of zeroes,
    /// null:1T,block=512]
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
    #[command(flatten)]
    pub(crate) table: TableArgs,
    #[command(flatten)]
    pub(crate) step: StepArgs,
}

/// Arguments of `bench cdm`.
#[derive(Args)]
#[command(after_help = DISKS_HELP)]
pub(crate) struct CdmArgs {
    /// The disk to measure, as a URI
    #[arg(value_name = "URI")]
    pub(crate) uri: String,
    /// Which tests
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) preset: CdmPreset,
    /// Other tests than those of a preset, like SEQ1M-Q8T1,RND4K-Q32T16
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Test::parse, conflicts_with = "preset")]
    pub(crate) tests: Vec<Test>,
    /// Measure a disk with several paths under each of these policies, like
    /// fixed:1,round-robin:1,queue-depth; all: each path alone, and all policies
    #[arg(long, value_name = "all|POLICY,...", conflicts_with = "card")]
    pub(crate) policies: Option<Policies>,
    /// Size of the test region; with --policies several are possible, like 1G,64G
    #[arg(
        long,
        default_value = "1G",
        value_parser = parse_bytes,
        value_delimiter = ',',
        value_name = "SIZE"
    )]
    pub(crate) size: Vec<u64>,
    /// Counted runs of each test
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) count: u32,
    /// How long each run lasts
    #[arg(long, alias = "time", default_value = "5s", value_parser = parse_time, value_name = "TIME")]
    pub(crate) runtime: Duration,
    /// Pause between tests
    #[arg(long, default_value = "5s", value_parser = parse_time, value_name = "TIME")]
    pub(crate) interval: Duration,
    /// A third column: reads and writes mixed, with so many percent of reads
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub(crate) mix: Option<u8>,
    /// Write zeroes instead of random data (CrystalDiskMark's "All 0x00 (0 Fill)")
    #[arg(long)]
    pub(crate) zero_fill: bool,
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
    /// SEQ1M Q8T1 alone
    Demo,
}

/// Arguments of `bench net`.
#[derive(Args)]
pub(crate) struct NetArgs {
    /// The other end: HOST[:PORT], or a disk's URI, whose host is meant (nvme+rdma:// and iser://
    /// as with --rdma); rdma://HOST[:PORT]: over RDMA only, where `rping -s` may listen instead of
    /// ours
    #[arg(
        value_name = "HOST[:PORT] or URI",
        required_unless_present = "server",
        conflicts_with = "server"
    )]
    pub(crate) host: Option<String>,
    /// Be the other end: listen there until interrupted
    #[arg(short, long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:5301")]
    pub(crate) server: Option<String>,
    /// Over RDMA, too: listen for both, or measure both
    #[arg(long)]
    pub(crate) rdma: bool,
    /// How long each test lasts
    #[arg(short = 't', long, alias = "time", default_value = "2s", value_parser = parse_time)]
    #[arg(value_name = "TIME")]
    pub(crate) runtime: Duration,
    /// Streams at once, and connections of the bandwidth over RDMA
    #[arg(short = 'P', long, default_value_t = 1, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) parallel: u16,
    /// Only streams from the server to us, and no requests
    #[arg(short = 'R', long, conflicts_with_all = ["bidir", "rdma"])]
    pub(crate) reverse: bool,
    /// Only streams both ways at once, and no requests
    #[arg(long, conflicts_with = "rdma")]
    pub(crate) bidir: bool,
    /// Bytes of one send
    #[arg(short = 'l', long, default_value = "128k", value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) length: u64,
    /// Bytes of data in a response, as in a read of so many bytes
    #[arg(long, default_value = "4k", value_parser = parse_bytes, value_name = "SIZE")]
    pub(crate) bs: u64,
    /// Requests in flight per stream; the bandwidth over RDMA has the largest of them
    #[arg(
        long,
        default_value = "1,32",
        value_delimiter = ',',
        value_name = "LIST"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) iodepth: Vec<u32>,
    /// Bytes of messages, READs and WRITEs over RDMA; pings have the first of these sizes
    #[arg(long, default_value = "64,4k,64k", value_delimiter = ',', value_parser = parse_bytes)]
    #[arg(value_name = "LIST")]
    pub(crate) sizes: Vec<u64>,
    /// Whether the threads of RDMA spin instead of sleeping
    #[arg(long, value_parser = parse_spin, default_value = "never", value_name = "auto|never|always")]
    pub(crate) spin: SpinPolicy,
    /// How to print the results, and where --server listens
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
    /// How to print the comparison
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Format,
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
    fn a_limit_is_a_percentage() {
        assert_eq!(
            (parse_percent("5"), parse_percent("2.5%")),
            (Ok(5.0), Ok(2.5))
        );
        assert!(parse_percent("-1").is_err() && parse_percent("five").is_err());
    }
}

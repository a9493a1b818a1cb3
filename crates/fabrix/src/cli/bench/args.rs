//! Arguments of `fabrix bench` and its profiles, declared for clap.
//!
//! `plain.rs` has the arguments of a job, `fio.rs` those of fio's command line, `profiles.rs` those
//! of profiles, and `foreign.rs` those of profiles with the syntax of another tool (DiskSpd,
//! sgp_dd).

mod contents;
mod fio;
mod foreign;
mod plain;
mod profiles;

use std::path::PathBuf;

use clap::{Args, Command, Subcommand};

use crate::args::path::{EngineArgs, RemoteArgs};
use crate::args::values::{DISKS_HELP, Format};
pub(crate) use fio::{FioArgs, as_fio};
use foreign::{DDPT_HELP, DISKSPD_HELP, SGP_DD_HELP};
pub(crate) use foreign::{WordsArgs, ours_first, shown};
pub(crate) use plain::{PlainArgs, RateProcess};
pub(crate) use profiles::{
    CdmArgs, CdmPreset, CompareArgs, NetArgs, PathArgs, StgtArgs, SweepArgs, TableArgs,
};

/// Arguments of `bench`.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    args_override_self = true,
    after_help = DISKS_HELP
)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) profile: Option<Profile>,
    #[command(flatten)]
    pub(crate) plain: PlainArgs,
}

/// Known measurements, each with the method and the table of the one it reproduces.
#[derive(Subcommand)]
pub(crate) enum Profile {
    /// Run job files of fio, or its command line as it is: --name=x --filename=URI --rw=randread
    /// ...
    Fio(FioArgs),
    /// Search the best numjobs x iodepth, then 13 workloads with it, then latencies at depth 1
    Starwind(SweepArgs),
    /// Sweep the size of commands, 1 KiB to 1 MiB, with 10 threads and 2: MB/s and both CPUs
    Stgt(StgtArgs),
    /// Random reads and writes of 1K to 64K, 1, 2 and 4 workers at depth 32, several times
    Zetavault(SweepArgs),
    /// Copy or read in sgp_dd's words: if= of= bs= count= bpt= thr= dio= time=
    #[command(name = "sgp_dd", alias = "sgp-dd", disable_help_flag = true, after_help = SGP_DD_HELP)]
    SgpDd(WordsArgs),
    /// Copy or read in ddpt's words: if= of= bs= count= bpt= iflag= oflag= status=
    #[command(disable_help_flag = true, after_help = DDPT_HELP)]
    Ddpt(WordsArgs),
    /// Measure in DiskSpd's words, and print its results: -b4K -o32 -t1 -r -w30 -d10 -W5 -L -Rxml
    /// URI
    #[command(disable_help_flag = true, after_help = DISKSPD_HELP)]
    Diskspd(WordsArgs),
    /// The eight numbers of CrystalDiskMark, with its presets and its scoring
    Cdm(CdmArgs),
    /// Measure the wire alone: streams, and requests shaped like block I/O
    Net(NetArgs),
    /// The same load at each layer: where the time goes
    Path(PathArgs),
    /// Compare two files of results, ours or fio's
    Compare(CompareArgs),
}

/// Names of all profiles.
pub(crate) fn profiles() -> String {
    let all = Profile::augment_subcommands(Command::new("bench"));
    let names: Vec<&str> = all.get_subcommands().map(Command::get_name).collect();
    names.join(", ")
}

/// Arguments of every measurement.
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

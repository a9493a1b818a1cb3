//! `fabrix bench`: a job on a disk in fio's words, a file of fio jobs, or a profile.
//!
//! `plain` runs one job, `fio` runs fio's job files and command lines, and `measure` runs the jobs
//! of both. `session` is shared by all profiles, and `crate::profiles` contains them.

pub(crate) mod args;
mod compare;
mod disk;
mod disk_util;
mod entries;
mod file_id;
mod fio;
pub(crate) mod form;
mod hold;
pub(crate) mod interrupts;
mod measure;
mod opened;
mod outputs;
mod plain;
mod plan;
mod progress;
pub(crate) mod publish;
pub(crate) mod session;
mod shared_files;
mod verdict;
pub(super) mod warnings;

use std::process::ExitCode;

use args::{BenchArgs, Profile};

use crate::failure::Failure;
use crate::profiles;
use crate::profiles::sgp_dd::Tool;

pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    match &args.profile {
        None => plain::run(&args.plain),
        Some(Profile::Fio(args)) => fio::run(args),
        Some(Profile::Starwind(args)) => profiles::starwind::run(args),
        Some(Profile::Stgt(args)) => profiles::stgt::run(args),
        Some(Profile::Zetavault(args)) => profiles::zetavault::run(args),
        Some(Profile::SgpDd(args)) => profiles::sgp_dd::run(args, Tool::SgpDd),
        Some(Profile::Ddpt(args)) => profiles::sgp_dd::run(args, Tool::Ddpt),
        Some(Profile::Diskspd(args)) => profiles::diskspd::run(args),
        Some(Profile::Cdm(args)) => profiles::cdm::run(args),
        Some(Profile::Net(args)) => profiles::net::run(args),
        Some(Profile::Path(args)) => profiles::path::run(args),
        Some(Profile::Compare(args)) => compare::run(args),
    }
}

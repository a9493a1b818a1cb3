//! The jobs of a command with their disks, planned before anything is measured.

use std::path::PathBuf;
use std::time::Duration;

use fabrix_bench::{Job, Start};

use super::form::Form;
use super::session::Disk;
use crate::profiles::job_file::{Least, Logs};
use crate::report::sheet::Written;

/// The jobs of a command.
pub(super) struct Plan {
    /// Stages, which run one after the other. The jobs of a stage run at the same time.
    pub(super) stages: Vec<Vec<Planned>>,
    /// Number of measurements of each stage.
    pub(super) count: u32,
    /// Interval of the readings over time, where no job names one.
    pub(super) log_every: Duration,
    /// Forms of the results.
    pub(super) forms: Vec<Form>,
    /// File for the results, instead of stdout.
    pub(super) file: Option<PathBuf>,
    /// Files of jobs, which no result may replace.
    pub(super) inputs: Vec<PathBuf>,
}

/// A job, its disk, and its logs.
pub(super) struct Planned {
    pub(super) disk: Disk,
    pub(super) job: Job,
    pub(super) logs: Logs,
    /// Start of the job within its stage.
    pub(super) start: Start,
    /// Rates below which the job has failed.
    pub(super) least: Least,
    /// Number of the job's group: fio's `groupid`.
    pub(super) group: u32,
    /// Whether the job is reported together with its group (`group_reporting`).
    pub(super) group_reporting: bool,
    /// The job as written in fio's words.
    pub(super) written: Option<Written>,
}

impl Planned {
    /// A job that starts at once.
    pub(super) fn new(disk: Disk, job: Job, logs: Logs) -> Self {
        Self {
            disk,
            job,
            logs,
            start: Start::default(),
            least: Least::default(),
            group: 0,
            group_reporting: true,
            written: None,
        }
    }

    /// Whether both are jobs of one section.
    pub(super) fn is_clone_of(&self, other: &Self) -> bool {
        self.job.name == other.job.name
            && self.group == other.group
            && self.written.is_some()
            && self.written == other.written
    }
}

/// Path of a log of the job with this index, if the job has such a log.
pub(super) fn log_path(logs: &Logs, what: &str, index: usize) -> Option<PathBuf> {
    let name = match what {
        "bw" => &logs.bw,
        "iops" => &logs.iops,
        _ => &logs.lat,
    };
    let number = match logs.shared {
        true => String::new(),
        false => format!(".{}", index + 1),
    };
    Some(format!("{}_{what}{number}.log", name.as_ref()?).into())
}

//! A disk that is measured, and what is done on it at a time.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabrix_bench::{CopyTo, Job};
use fabrix_block::spec::{Disk as SpecDisk, Size};
use fabrix_block::{Device, Spec};

use crate::failure::Failure;
use crate::profiles::loopback::Loopback;

/// A disk that is measured.
#[derive(Clone)]
pub(crate) struct Disk {
    /// What the tables call it.
    pub(crate) label: String,
    pub(crate) uri: String,
    pub(crate) device: Arc<dyn Device>,
    /// The target in this process that it is reached through.
    pub(crate) via: Option<Rc<Loopback>>,
}

/// One of the jobs that are measured side by side.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(super) disk: &'a Disk,
    pub(super) job: &'a Job,
    /// A copy: the disk that is written, and where on it the job's region comes to lie.
    copy_to: Option<(&'a Disk, u64)>,
}

impl Disk {
    /// Whether so much of it can be used, if anything was said.
    ///
    /// Errors: a sentence with what it has.
    pub(crate) fn check_size(&self, size: Option<u64>) -> Result<(), Failure> {
        let bytes = self.device.geometry().bytes();
        match size {
            Some(size) if size > bytes => Err(Failure::usage(format!(
                "{}: --size {} is more than the disk has; name one of up to {}",
                self.uri,
                Size(size),
                Size(bytes)
            ))),
            _ => Ok(()),
        }
    }

    /// Whether it does what a job asks: a disk that can only be read is not written.
    pub(crate) fn takes(&self, job: &Job) -> bool {
        job.percent_read() == 100 || !self.device.geometry().read_only
    }

    /// Whether it forgets what is written: filling it is in vain.
    pub(super) fn is_null(&self) -> bool {
        is_null(&self.uri)
    }
}

impl<'a> Step<'a> {
    /// A job on a disk.
    pub(crate) fn new(disk: &'a Disk, job: &'a Job) -> Self {
        Self {
            disk,
            job,
            copy_to: None,
        }
    }

    /// What the job reads is written to another disk, from a byte on.
    pub(crate) fn copy(self, to: &'a Disk, offset: u64) -> Self {
        Self {
            copy_to: Some((to, offset)),
            ..self
        }
    }

    /// Where what is read is written to.
    pub(super) fn destination(&self) -> Option<CopyTo<'a>> {
        let (disk, offset) = self.copy_to?;
        Some(CopyTo {
            device: &disk.device,
            offset,
        })
    }

    /// The clock, and the CPU time of the target in this process that the disk is reached through.
    pub(super) fn target_time(&self) -> Option<(Instant, Duration)> {
        let via = self.disk.via.as_ref()?;
        Some((Instant::now(), via.cpu_time()))
    }
}

/// Whether a disk of this name forgets what is written.
pub(super) fn is_null(uri: &str) -> bool {
    Spec::parse(uri).is_ok_and(|spec| matches!(spec.disk, SpecDisk::Null { .. }))
}

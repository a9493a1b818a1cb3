//! A measured disk, and the jobs on it.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabrix_bench::{CopyTo, Job, Start};
use fabrix_block::raid0::Raid0;
use fabrix_block::spec::{Disk as SpecDisk, Size};
use fabrix_block::{Device, Identity, Spec};

use super::file_id::FileId;
use crate::failure::Failure;
use crate::profiles::loopback::Loopback;

/// A measured disk.
#[derive(Clone)]
pub(crate) struct Disk {
    /// Name in tables.
    pub(crate) label: String,
    pub(crate) uri: String,
    pub(crate) device: Arc<dyn Device>,
    /// The disks of a stripe over several files of a job. Empty: the disk is no such stripe.
    pub(crate) files: Vec<Self>,
    /// The target in this process through which the disk is accessed.
    pub(crate) via: Option<Rc<Loopback>>,
    /// Advice that leads around the page cache, in the words that led into it.
    pub(crate) around_cache: &'static str,
}

/// One of several jobs that run side by side.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(super) disk: &'a Disk,
    pub(super) job: &'a Job,
    /// Destination of a copy: disk, and byte position of the region's start.
    copy_to: Option<(&'a Disk, u64)>,
    /// Start among the jobs that run side by side.
    pub(super) start: Start,
}

impl Disk {
    /// Checks that the disk has `size` bytes.
    ///
    /// Errors: a sentence with the disk's size.
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

    /// Whether the disk supports a job. A read-only disk accepts no writes.
    pub(crate) fn takes(&self, job: &Job) -> bool {
        job.percent_read() == 100 || !self.device.geometry().read_only
    }

    /// A stripe over several files of a job.
    ///
    /// Errors: a sentence when they cannot form one.
    pub(super) fn stripe(chunk_bytes: u32, files: Vec<Self>) -> Result<Self, Failure> {
        let uris: Vec<&str> = files.iter().map(|file| file.uri.as_str()).collect();
        let text = format!("raid0:chunk={chunk_bytes},({})", uris.join(","));
        let identity = Identity::derive(&text, &text, "files of a job");
        let devices = files.iter().map(|file| Arc::clone(&file.device)).collect();
        Ok(Self {
            label: names(&files),
            uri: text,
            device: Raid0::new(chunk_bytes, devices, identity).map_err(Failure::from)?,
            around_cache: files.first().map_or("", |file| file.around_cache),
            files,
            via: None,
        })
    }

    /// The disks that have first blocks of their own: the files of a stripe, or the disk.
    pub(super) fn parts(&self) -> &[Self] {
        match self.files.is_empty() {
            true => std::slice::from_ref(self),
            false => &self.files,
        }
    }

    /// Whether the disk is this file, or consists of it.
    pub(super) fn is_file(&self, file: &Path) -> bool {
        if !self.files.is_empty() {
            return self.files.iter().any(|part| part.is_file(file));
        }
        let id = FileId::of(file);
        let spec = Spec::parse(&self.uri);
        spec.is_ok_and(|spec| consists_of(&spec, &id))
    }

    /// Whether the disk discards writes, so that filling it is useless.
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
            start: Start::default(),
        }
    }

    /// Starts the job at another time than the stage.
    pub(super) fn at(self, start: Start) -> Self {
        Self { start, ..self }
    }

    /// Turns the job into a copy to another disk, from byte `offset` on.
    pub(crate) fn copy(self, to: &'a Disk, offset: u64) -> Self {
        Self {
            copy_to: Some((to, offset)),
            ..self
        }
    }

    /// Destination of a copy.
    pub(super) fn destination(&self) -> Option<CopyTo<'a>> {
        let (disk, offset) = self.copy_to?;
        Some(CopyTo {
            device: &disk.device,
            offset,
        })
    }

    /// The current time, and the CPU time of the target in this process, if there is one.
    pub(super) fn target_time(&self) -> Option<(Instant, Duration)> {
        let via = self.disk.via.as_ref()?;
        Some((Instant::now(), via.cpu_time()))
    }
}

/// The names of the files of a stripe: the first ones, and the number of the others.
fn names(files: &[Disk]) -> String {
    let names = files.iter().take(NAMED_MOST).map(|file| &*file.label);
    let names = names.collect::<Vec<_>>().join(", ");
    match files.len().saturating_sub(NAMED_MOST) {
        0 => names,
        others => format!("{names} and {others} more"),
    }
}

/// Whether a disk or a member of it is this file.
fn consists_of(spec: &Spec, id: &FileId) -> bool {
    match &spec.disk {
        SpecDisk::File { path, .. } => FileId::of(Path::new(path)) == *id,
        SpecDisk::Raid0 { members, .. } => members.iter().any(|member| consists_of(member, id)),
        _ => false,
    }
}

/// Files of a stripe that its name contains: as many as fit into a line.
const NAMED_MOST: usize = 4;

/// Whether a disk of this name discards writes.
pub(super) fn is_null(uri: &str) -> bool {
    Spec::parse(uri).is_ok_and(|spec| matches!(spec.disk, SpecDisk::Null { .. }))
}

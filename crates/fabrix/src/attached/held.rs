//! The state of an attached disk, which its process and its control socket share.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use fabrix_block::filter::stats::Stats;
use fabrix_block::spec::Remote;
use fabrix_block::{Device, Durability, OpenError, OpenErrorKind};
use fabrix_host::multipath::PathLocation;
use serde_json::{Value, json};

use super::front::Front;
use super::paths::Paths;
use super::records::{Record, RecordFile};
use crate::args::FrontEnd;
use crate::counters;
use crate::disks::{Opener, PathName};
use crate::failure::Failure;
use crate::locks::lock;
use crate::log::{self, Level};

/// An attached disk, as the control socket sees it.
pub(crate) struct Held {
    pub(super) record: Mutex<Record>,
    pub(super) disk: Mutex<Arc<dyn Device>>,
    /// Held during a change of the size or of the paths: one comes after the other.
    pub(super) changing: Mutex<()>,
    /// Opens paths that join.
    pub(super) opener: Opener,
    pub(super) file: RecordFile,
    pub(super) counted: Arc<Stats>,
    pub(super) paths: Arc<Paths>,
    pub(super) kind: FrontEnd,
    pub(super) front: Front,
    pub(super) sender: Mutex<Sender<HolderEvent>>,
}

/// Event for the main thread.
pub(crate) enum HolderEvent {
    /// A front end of this kind has ended.
    FrontEndEnded(FrontEnd),
    /// A signal requests the end.
    StopRequested,
    /// A path, or the disk itself, reports that the disk has changed, for example its size.
    DiskChanged(Option<PathName>),
}

impl Held {
    pub(super) fn record(&self) -> Record {
        lock(&self.record).clone()
    }

    /// The record with state and statistics.
    pub(crate) fn json(&self) -> Value {
        let record = self.record();
        let mut all = serde_json::to_value(&record).unwrap_or_default();
        let volatile = lock(&self.disk).geometry().durability == Durability::None;
        all["state"] = json!(self.paths.state());
        all["fault"] = json!(self.paths.fault());
        all["paths"] = self.paths.json();
        all["reconnects"] = json!(self.paths.reconnects());
        all["volatile"] = json!(volatile);
        all["zero_copy"] = json!(self.front.zero_copy());
        if let Some(over_uring) = self.front.over_uring() {
            all["io_uring"] = json!(over_uring.is_ok());
        }
        for (name, counts) in counters::summary(&self.counted) {
            all[name] = counts;
        }
        all
    }

    /// The paths of the disk.
    pub(crate) fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Adds a path to the disk.
    ///
    /// Errors: see [`Paths::add`].
    pub(crate) fn add_path(&self, uri: &str) -> Result<(), Failure> {
        let _one_at_a_time = lock(&self.changing);
        self.paths
            .add(|number| self.opener.open_path(uri, number))?;
        self.paths_changed();
        Ok(())
    }

    /// Removes a path of the disk.
    ///
    /// Errors: see [`Paths::remove`].
    pub(crate) fn remove_path(&self, index: usize) -> Result<(), Failure> {
        let _one_at_a_time = lock(&self.changing);
        self.paths.remove(index)?;
        self.paths_changed();
        Ok(())
    }

    /// Asks discovery again, and takes in the ports that it lists now and did not before.
    pub(super) fn look_for_paths(&self, uri: &str) {
        let (present, removed) = self.paths.locations();
        let listed = self.opener.listed_again(uri, &present);
        let is_known = |path: &Remote| present.iter().chain(&removed).any(|it| is_at(path, it));
        let _one_at_a_time = lock(&self.changing);
        for path in listed.iter().filter(|path| !is_known(path)) {
            let open = |number| self.opener.open_remote_path(path, number);
            match self.paths.add(open) {
                Ok(()) => {
                    log::say(
                        Level::Info,
                        format_args!("{path}: discovery lists this path now"),
                    );
                    self.paths_changed();
                }
                Err(failure) => log::say(
                    Level::Info,
                    format_args!("{failure}: this path is left out"),
                ),
            }
        }
    }

    /// A process that takes the disk over finds its paths in the record.
    fn paths_changed(&self) {
        let mut record = lock(&self.record);
        record.roster = self.paths.numbered();
        if let Err(failure) = self.file.write(&record) {
            log::warn(format_args!("the record has the former paths: {failure}"));
        }
    }

    /// Detailed statistics.
    pub(crate) fn counters(&self) -> Value {
        let record = self.record();
        json!({
            "schema": 1,
            "name": record.name,
            "device": record.device,
            "state": self.paths.state(),
            "fault": self.paths.fault(),
            "paths": self.paths.json(),
            "reconnects": self.paths.reconnects(),
            "counters": counters::detailed(&self.counted),
        })
    }

    /// Detaches the disk: see [`Front::end`]. With `force` this process ends at once. Requests of
    /// programs that still have the device open then fail.
    pub(crate) fn detach(&self, force: bool) -> Result<(), Failure> {
        self.front.end(force)?;
        if force {
            let sender = lock(&self.sender);
            let _it_is_over_already = sender.send(HolderEvent::FrontEndEnded(self.kind));
        }
        Ok(())
    }

    /// Adopts the current size of the disk. `reported_by` is the path that reported the change, if
    /// one did.
    pub(crate) fn resize(&self, reported_by: Option<&PathName>) -> Result<(), Failure> {
        let _one_at_a_time = lock(&self.changing);
        let disk = Arc::clone(&lock(&self.disk));
        let fresh = disk.resize(None); // a target may take long to answer
        if let Some(fault) = fresh.as_ref().err().and_then(fault) {
            self.paths.set_fault(reported_by, Some(&fault));
        }
        let fresh = fresh?;
        self.front.resized(&fresh)?;
        self.paths.set_fault(reported_by, None);
        let mut record = lock(&self.record);
        record.size_bytes = fresh.geometry().bytes();
        *lock(&self.disk) = fresh;
        Ok(())
    }
}

/// Whether a path of a list leads to a location.
fn is_at(path: &Remote, location: &PathLocation) -> bool {
    let ip = path.host.split('%').next().and_then(|ip| ip.parse().ok());
    let (ip_there, port) = (location.address.ip(), location.address.port());
    path.scheme == location.scheme && ip == Some(ip_there) && path.port == Some(port)
}

/// The disk's fault in an error. None if the disk could not be asked.
fn fault(error: &OpenError) -> Option<String> {
    matches!(
        error.kind,
        OpenErrorKind::NotFound | OpenErrorKind::Unsupported
    )
    .then(|| error.to_string())
}

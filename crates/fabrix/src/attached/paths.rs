//! The connections of an attached disk, from the events of its sessions: their states, numbers of
//! reconnections, and faults that make the disk unusable.
//!
//! Sessions report events on the shard's thread, rarely. The control socket reads the state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fabrix_host::PathEvent;
use fabrix_host::multipath::{Access, Member, PathDisk, PathLocation, Roster};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::disks::{NumberedPath, PathName, Watch};
use crate::failure::Failure;
use crate::locks::lock;

/// All connections of a disk.
#[derive(Default)]
pub(crate) struct Paths {
    known: Mutex<Vec<Path>>,
    /// The paths to the whole disk. None: it has one, or consists of several remote disks.
    roster: Mutex<Option<Arc<Roster>>>,
    /// Whether the known connections are all paths to the whole disk. Others have left.
    is_several: AtomicBool,
    /// Paths that were removed. They do not come back because discovery lists them.
    removed: Mutex<Vec<PathLocation>>,
}

/// A change of which paths get requests.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PathChange {
    Fail,
    Restore,
    Prefer,
}

struct Path {
    name: PathName,
    state: State,
    reconnects: u64,
    /// How the target serves the disk over this path. None: it has not told.
    access: Option<Access>,
    /// Reason why the disk is unusable over this path.
    fault: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The first connection is being made.
    Connecting,
    Connected,
    Reconnecting,
    /// Connected to the target, but the target does not provide the disk.
    Unusable,
    Lost,
}

/// What a path says of the disk, from the best to the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Condition {
    /// Requests are executed.
    Attached,
    /// The connection stands, but target or administrator want no requests over it.
    Inaccessible,
    /// The connection is being made again.
    Reconnecting,
    /// The target does not provide the disk.
    Unusable,
    /// The connection is not made again.
    Lost,
    /// The first connection is being made, and requests wait for it.
    Connecting,
}

impl Condition {
    fn word(self) -> &'static str {
        match self {
            Self::Attached | Self::Connecting => "attached",
            Self::Inaccessible => "inaccessible",
            Self::Unusable => State::Unusable.word(),
            Self::Reconnecting => State::Reconnecting.word(),
            Self::Lost => State::Lost.word(),
        }
    }
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Reconnecting => "reconnecting",
            Self::Unusable => "unusable",
            Self::Lost => "lost",
        }
    }
}

impl Path {
    /// The first connection does not count as a reconnection.
    fn new(name: PathName) -> Self {
        Self {
            name,
            state: State::Connecting,
            reconnects: 0,
            access: None,
            fault: None,
        }
    }
}

impl Paths {
    /// The disk is open, and has several paths.
    pub(crate) fn opened(&self, roster: &Arc<Roster>) {
        *lock(&self.roster) = Some(Arc::clone(roster));
        let members = roster.members();
        let names = members.iter().map(|it| name(it.number, &*it.disk));
        self.expect(names.collect());
    }

    fn expect(&self, names: Vec<PathName>) {
        self.is_several.store(true, Ordering::Relaxed);
        *lock(&self.known) = names.into_iter().map(Path::new).collect();
    }

    fn is_several(&self) -> bool {
        self.is_several.load(Ordering::Relaxed)
    }

    /// The paths of the disk.
    ///
    /// Errors: it was attached with one path.
    fn roster(&self) -> Result<Arc<Roster>, Failure> {
        lock(&self.roster).clone().ok_or_else(|| {
            Failure::usage(
                "the disk has a single path for good: attach it as multipath:(URI,URI), \
                 or as multipath:(URI) to add paths later",
            )
        })
    }

    /// Changes which paths get requests.
    ///
    /// Errors: there is no such path, or the disk has one only.
    pub(crate) fn switch(&self, index: Option<usize>, change: PathChange) -> Result<(), Failure> {
        let roster = self.roster()?;
        index.map_or(Ok(()), |index| roster.has(index))?;
        let switches = roster.switches();
        match (change, index) {
            (PathChange::Prefer, index) => switches.prefer(index),
            (PathChange::Fail, Some(index)) => switches.set_failed(index, true),
            (PathChange::Restore, Some(index)) => switches.set_failed(index, false),
            (PathChange::Fail | PathChange::Restore, None) => {
                return Err(Failure::usage("say which path"));
            }
        }
        Ok(())
    }

    /// Adds a path, which `open` connects, with the lowest free number.
    ///
    /// Errors: the disk has one path only or too many, or the path is not another one to the disk.
    pub(crate) fn add(
        &self,
        open: impl FnOnce(usize) -> Result<Arc<dyn PathDisk>, Failure>,
    ) -> Result<(), Failure> {
        let roster = self.roster()?;
        let number = roster.free_number()?;
        let disk = open(number)?;
        let location = disk.location();
        // Known before its first event.
        insert(&mut lock(&self.known), name(number, &*disk));
        let joined = roster.join(number, disk);
        match &joined {
            Ok(()) => lock(&self.removed).retain(|removed| *removed != location),
            Err(_) => self.forget(number),
        }
        Ok(joined?)
    }

    /// Removes a path.
    ///
    /// Errors: there is no such path, or it is the last one.
    pub(crate) fn remove(&self, index: usize) -> Result<(), Failure> {
        let roster = self.roster()?;
        let members = roster.members();
        roster.leave(index)?;
        self.forget(index);
        let left = members.iter().filter(|member| member.number == index);
        lock(&self.removed).extend(left.map(|member| member.disk.location()));
        Ok(())
    }

    /// Where the paths lead that the disk has, and those that were removed from it.
    pub(crate) fn locations(&self) -> (Vec<PathLocation>, Vec<PathLocation>) {
        let roster = lock(&self.roster).clone();
        let members = roster.map_or_else(Vec::new, |roster| roster.members());
        let present = members.iter().map(|member| member.disk.location());
        (present.collect(), lock(&self.removed).clone())
    }

    fn forget(&self, index: usize) {
        lock(&self.known).retain(|path| path.name.index != index);
    }

    /// The present paths of a disk that can have several.
    pub(crate) fn numbered(&self) -> Vec<NumberedPath> {
        let roster = lock(&self.roster).clone();
        let members = roster.map_or_else(Vec::new, |roster| roster.members());
        let numbered = |member: &Member| NumberedPath {
            index: member.number,
            uri: member.disk.identity().name.clone(),
        };
        members.iter().map(numbered).collect()
    }

    /// A handler for the events of a session. `changed` is also told of changes of the disk, and
    /// `moved` when a path was lost or is back.
    pub(crate) fn watch(
        self: &Arc<Self>,
        changed: impl Fn(PathName) + Send + Sync + 'static,
        moved: impl Fn() + Send + Sync + 'static,
    ) -> Watch {
        let paths = Arc::clone(self);
        Arc::new(move |name, event| {
            let has_changed = event == PathEvent::Changed;
            let before = paths.outages();
            paths.take(&name, event);
            if has_changed {
                changed(name);
            } else if paths.outages() != before {
                moved();
            }
        })
    }

    /// Number of paths that are being connected again, and number of those that were.
    fn outages(&self) -> (usize, u64) {
        let known = lock(&self.known);
        let lost = known.iter().filter(|it| it.state == State::Reconnecting);
        let again = known.iter().map(|path| path.reconnects).sum();
        (lost.count(), again)
    }

    fn take(&self, name: &PathName, event: PathEvent) {
        let mut known = lock(&self.known);
        let index = known.iter().position(|path| path.name == *name);
        if index.is_none() && self.is_several() {
            return; // the last words of a path that has left
        }
        let index = index.unwrap_or_else(|| insert(&mut known, name.clone()));
        let path = &mut known[index];
        match event {
            PathEvent::Connected => {
                let is_first = path.state == State::Connecting;
                path.reconnects += u64::from(!is_first && path.state != State::Connected);
                path.state = State::Connected;
                // A new connection has verified the disk on this path, but not on the others.
                path.fault = None;
            }
            PathEvent::Lost => path.state = State::Reconnecting,
            PathEvent::Unusable(why) => {
                path.state = State::Unusable;
                path.fault = Some(why.to_string());
            }
            PathEvent::Access(access) => path.access = Some(access),
            PathEvent::GivenUp => path.state = State::Lost,
            PathEvent::Changed => {}
        }
    }

    /// State of the whole disk. `attached` means that requests are executed: over every path, or
    /// over one of several alternatives.
    ///
    /// Otherwise a disk that consists of several has the worst state of them, and one with
    /// alternatives that from which it comes back soonest.
    pub(crate) fn state(&self) -> &'static str {
        let known = lock(&self.known);
        let states = known.iter().map(|path| self.condition(path));
        let state = match self.is_several() {
            false => states.max(),
            true => states.min(),
        };
        state.unwrap_or(Condition::Attached).word()
    }

    fn condition(&self, path: &Path) -> Condition {
        let roster = lock(&self.roster).clone();
        let is_failed = roster.is_some_and(|it| it.switches().is_failed(path.name.index));
        let is_closed = is_failed || path.access == Some(Access::Inaccessible);
        match path.state {
            State::Connecting => Condition::Connecting,
            State::Lost => Condition::Lost,
            State::Reconnecting => Condition::Reconnecting,
            State::Connected | State::Unusable if path.fault.is_some() => Condition::Unusable,
            State::Connected | State::Unusable if is_closed => Condition::Inaccessible,
            State::Connected | State::Unusable => Condition::Attached,
        }
    }

    /// Fault of the first path that has one.
    pub(crate) fn fault(&self) -> Option<String> {
        lock(&self.known).iter().find_map(|path| path.fault.clone())
    }

    /// Stores the result of a check of the disk: usable (None) or a fault. `name` is the path
    /// that reported a change; without it the result holds for all paths. A fault stays until the
    /// next check or the next connection.
    pub(crate) fn set_fault(&self, name: Option<&PathName>, fault: Option<&str>) {
        for path in lock(&self.known).iter_mut() {
            if name.is_none_or(|name| *name == path.name) {
                path.fault = fault.map(str::to_owned);
                if fault.is_none() && path.state == State::Unusable {
                    path.state = State::Reconnecting;
                }
            }
        }
    }

    /// Number of reconnections of all paths.
    pub(crate) fn reconnects(&self) -> u64 {
        lock(&self.known).iter().map(|path| path.reconnects).sum()
    }

    pub(crate) fn json(&self) -> Value {
        let roster = lock(&self.roster).clone();
        let switches = roster.as_ref().map(|roster| roster.switches());
        let path = |path: &Path| {
            let index = path.name.index;
            json!({
                "index": index,
                "failed": switches.is_some_and(|it| it.is_failed(index)),
                "preferred": switches.is_some_and(|it| it.preferred() == Some(index)),
                "scheme": &*path.name.scheme,
                "address": path.name.address.to_string(),
                "state": path.state.word(),
                "reconnects": path.reconnects,
                "access": path.access.map(Access::word),
            })
        };
        lock(&self.known).iter().map(path).collect()
    }
}

/// Inserts a path. Returns its place: paths report in any order, and are listed in that of the URI.
fn insert(known: &mut Vec<Path>, name: PathName) -> usize {
    let place = known.partition_point(|path| path.name.index <= name.index);
    known.insert(place, Path::new(name));
    place
}

/// What events of a path are known by.
fn name(number: usize, disk: &dyn PathDisk) -> PathName {
    let location = disk.location();
    PathName {
        index: number,
        scheme: location.scheme.into(),
        address: location.address,
    }
}

#[cfg(test)]
mod tests;

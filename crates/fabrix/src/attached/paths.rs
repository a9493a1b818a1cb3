//! The connections of an attached disk, from the events of its sessions: their states, numbers of
//! reconnections, and faults that make the disk unusable.
//!
//! Sessions report events on the shard's thread, rarely. The control socket reads the state.

use std::sync::{Arc, Mutex};

use fabrix_block::Spec;
use fabrix_block::spec::Disk;
use fabrix_host::PathEvent;
use fabrix_host::multipath::{Access, PathSwitches};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::disks::{PathName, Watch};
use crate::failure::Failure;
use crate::locks::lock;

/// All connections of a disk.
#[derive(Default)]
pub(crate) struct Paths {
    known: Mutex<Vec<Path>>,
    /// Number of ways to the whole disk. 0: it has one, or consists of several remote disks.
    alternatives: usize,
    switches: Arc<PathSwitches>,
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
}

impl Condition {
    fn word(self) -> &'static str {
        match self {
            Self::Attached => "attached",
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
            state: State::Connected,
            reconnects: 0,
            access: None,
            fault: None,
        }
    }
}

impl Paths {
    /// The connections of the disk with this URI.
    pub(crate) fn of(uri: &str) -> Self {
        let spec = Spec::parse(uri);
        Self {
            alternatives: spec.map_or(0, |spec| match spec.disk {
                Disk::Multipath { paths, .. } => paths.len(),
                _ => 0,
            }),
            ..Self::default()
        }
    }

    /// The switches of the disk's paths. None: the disk does not have several.
    pub(crate) fn switches(&self) -> Option<Arc<PathSwitches>> {
        (self.alternatives > 0).then(|| Arc::clone(&self.switches))
    }

    /// Changes which paths get requests.
    ///
    /// Errors: there is no such path, or the disk has one only.
    pub(crate) fn switch(&self, index: Option<usize>, change: PathChange) -> Result<(), Failure> {
        if self.alternatives == 0 {
            return Err(Failure::usage(
                "the disk does not have several paths: attach it as multipath:(URI,URI)",
            ));
        }
        if let Some(index) = index.filter(|index| *index >= self.alternatives) {
            return Err(Failure::usage(format!(
                "there is no path {index}: the disk has {}, counted from 0",
                self.alternatives
            )));
        }
        match (change, index) {
            (PathChange::Prefer, index) => self.switches.prefer(index),
            (PathChange::Fail, Some(index)) => self.switches.set_failed(index, true),
            (PathChange::Restore, Some(index)) => self.switches.set_failed(index, false),
            (PathChange::Fail | PathChange::Restore, None) => {
                return Err(Failure::usage("say which path"));
            }
        }
        Ok(())
    }

    /// A handler for the events of a session. `changed` is also told of changes of the disk.
    pub(crate) fn watch(
        self: &Arc<Self>,
        changed: impl Fn(PathName) + Send + Sync + 'static,
    ) -> Watch {
        let paths = Arc::clone(self);
        Arc::new(move |name, event| {
            let has_changed = event == PathEvent::Changed;
            paths.take(&name, event);
            if has_changed {
                changed(name);
            }
        })
    }

    fn take(&self, name: &PathName, event: PathEvent) {
        let mut known = lock(&self.known);
        let index = known.iter().position(|path| path.name == *name);
        let index = index.unwrap_or_else(|| {
            // Paths report in any order. They are listed in the order of the URI.
            let place = known.partition_point(|path| path.name.index <= name.index);
            known.insert(place, Path::new(name.clone()));
            place
        });
        let path = &mut known[index];
        match event {
            PathEvent::Connected => {
                path.reconnects += u64::from(path.state != State::Connected);
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
        let state = match self.alternatives {
            0 => states.max(),
            _ => states.min(),
        };
        state.unwrap_or(Condition::Attached).word()
    }

    fn condition(&self, path: &Path) -> Condition {
        let is_closed =
            path.access == Some(Access::Inaccessible) || self.switches.is_failed(path.name.index);
        match path.state {
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
        let path = |path: &Path| {
            let index = path.name.index;
            json!({
                "index": index,
                "failed": self.switches.is_failed(index),
                "preferred": self.switches.preferred() == Some(index),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn over(scheme: &str, port: u16) -> PathName {
        PathName {
            index: usize::from(port % 10),
            scheme: scheme.into(),
            address: ([127, 0, 0, 1], port).into(),
        }
    }

    #[test]
    fn two_transports_of_one_address_are_two_paths() {
        let paths = Paths::of("multipath:(nvme+rdma://h/n/1,nvme+tcp://h/n/1)");
        let [one, other] = ["nvme+rdma", "nvme+tcp"].map(|scheme| over(scheme, 4420));
        paths.take(&one, PathEvent::Connected);
        paths.take(&other, PathEvent::Connected);
        paths.take(&one, PathEvent::Lost);
        let found = paths.json();
        let found = [0, 1].map(|at| (found[at]["scheme"].clone(), found[at]["state"].clone()));
        let is = |scheme: &str, state: &str| (json!(scheme), json!(state));
        assert_eq!(
            found,
            [is("nvme+rdma", "reconnecting"), is("nvme+tcp", "connected")]
        );
        assert_eq!(paths.state(), "attached");
    }

    #[test]
    fn paths_are_listed_in_the_order_of_the_uri() {
        let paths = Paths::of("multipath:(iscsi://10.0.0.1/a/0,iscsi://10.0.0.2/a/0)");
        paths.take(&over("iscsi", 3261), PathEvent::Connected);
        paths.take(&over("iscsi", 3260), PathEvent::Access(Access::Optimized));
        let access = [0, 1].map(|at| paths.json()[at]["access"].clone());
        assert_eq!(access, [json!("optimized"), Value::Null]);
    }

    #[test]
    fn a_disk_with_several_paths_is_attached_while_one_of_them_serves_it() {
        let paths = Paths::of("multipath:(iscsi://10.0.0.1/a/0,iscsi://10.0.0.2/a/0)");
        let [one, other] = [3260, 3261].map(|port| over("iscsi", port));
        paths.take(&one, PathEvent::Connected);
        paths.take(&other, PathEvent::Lost);
        assert_eq!(paths.state(), "attached");
        paths.take(&one, PathEvent::Unusable("it is another disk".into()));
        assert_eq!(paths.state(), "reconnecting");
        paths.take(&other, PathEvent::Connected);
        assert_eq!(paths.state(), "attached");
    }

    #[test]
    fn a_disk_over_whose_paths_no_request_may_go_is_inaccessible() {
        let paths = Paths::of("multipath:(iscsi://10.0.0.0/a/0,iscsi://10.0.0.1/a/0)");
        for name in [3260, 3261].map(|port| over("iscsi", port)) {
            paths.take(&name, PathEvent::Connected);
        }
        let fail = |index| paths.switch(Some(index), PathChange::Fail).expect("a path");
        fail(0);
        assert_eq!(paths.state(), "attached");
        fail(1);
        assert_eq!(paths.state(), "inaccessible");
        paths.switch(Some(1), PathChange::Restore).expect("a path");
        paths.take(
            &over("iscsi", 3261),
            PathEvent::Access(Access::Inaccessible),
        );
        assert_eq!(paths.state(), "inaccessible");
        paths.take(&over("iscsi", 3260), PathEvent::Lost);
        assert_eq!(paths.state(), "inaccessible");
        paths.take(
            &over("iscsi", 3261),
            PathEvent::Access(Access::NonOptimized),
        );
        assert_eq!(paths.state(), "attached");
    }

    #[test]
    fn a_connection_that_comes_back_is_one_reconnection_however_many_tries_it_took() {
        let paths = Paths::default();
        let address = over("nvme+tcp", 4420);
        paths.take(&address, PathEvent::Connected);
        assert_eq!((paths.state(), paths.reconnects()), ("attached", 0));
        for _ in 0..3 {
            paths.take(&address, PathEvent::Lost);
        }
        assert_eq!(paths.state(), "reconnecting");
        paths.take(&address, PathEvent::Connected);
        assert_eq!((paths.state(), paths.reconnects()), ("attached", 1));
        paths.take(&address, PathEvent::GivenUp);
        assert_eq!(paths.state(), "lost");
    }

    #[test]
    fn a_target_that_came_back_with_another_disk_leaves_the_disk_unusable_and_says_why() {
        let paths = Paths::default();
        let address = over("nvme+tcp", 4420);
        let another = || PathEvent::Unusable("it is another disk".into());
        for event in [PathEvent::Connected, PathEvent::Lost, another(), another()] {
            paths.take(&address, event);
        }
        let found = (paths.state(), paths.fault(), paths.reconnects());
        assert_eq!(
            found,
            ("unusable", Some("it is another disk".to_owned()), 0)
        );
        assert_eq!(paths.json()[0]["state"], "unusable");
        paths.set_fault(Some(&address), None);
        let found = (paths.state(), paths.fault(), paths.reconnects());
        assert_eq!(
            found,
            ("reconnecting", None, 0),
            "it was taken as it is now"
        );
        paths.take(&address, PathEvent::Connected);
        let found = (paths.state(), paths.fault(), paths.reconnects());
        assert_eq!(found, ("attached", None, 1));
    }

    /// Two connected paths, of which the first has reported the disk as gone.
    fn one_of_two_says_that_it_is_gone() -> (Paths, [PathName; 2]) {
        let paths = Paths::default();
        let addresses = [4420, 4421].map(|port| over("nvme+tcp", port));
        for address in &addresses {
            paths.take(address, PathEvent::Connected);
        }
        paths.set_fault(Some(&addresses[0]), Some(GONE));
        (paths, addresses)
    }

    const GONE: &str = "no such namespace";

    #[test]
    fn a_disk_that_is_gone_is_unusable_until_the_path_that_said_so_connects_again() {
        let (paths, [told, _]) = one_of_two_says_that_it_is_gone();
        assert_eq!(paths.state(), "unusable");
        paths.take(&told, PathEvent::Lost);
        assert_eq!(paths.state(), "reconnecting");
        paths.take(&told, PathEvent::Connected);
        assert_eq!((paths.state(), paths.fault()), ("attached", None));
    }

    #[test]
    fn what_a_path_says_of_the_disk_stands_whatever_becomes_of_the_others() {
        let (paths, [told, other]) = one_of_two_says_that_it_is_gone();
        paths.take(&other, PathEvent::Lost);
        paths.take(&other, PathEvent::Connected);
        assert_eq!(paths.state(), "unusable");
        paths.set_fault(Some(&other), None);
        assert_eq!(paths.fault().as_deref(), Some(GONE));
        paths.set_fault(Some(&told), None);
        assert_eq!((paths.state(), paths.fault()), ("attached", None));
    }

    #[test]
    fn a_look_at_the_whole_disk_speaks_for_every_path() {
        let (paths, [told, other]) = one_of_two_says_that_it_is_gone();
        paths.set_fault(None, Some(GONE));
        paths.take(&told, PathEvent::Connected);
        assert_eq!(paths.state(), "unusable");
        paths.take(&other, PathEvent::Connected);
        assert_eq!(paths.state(), "attached");
        paths.set_fault(Some(&told), Some(GONE));
        paths.set_fault(None, None);
        assert_eq!(paths.state(), "attached");
    }
}

//! What the reservations of a disk may be, as the hosts know it.
//!
//! A change takes effect at one instant between its command and its answer. The model keeps every
//! state that the answers so far allow, each with the changes in progress that it has seen. An
//! answer strikes the states out that contradict it: when none is left, the product is wrong.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{State, Verdict};
use crate::peer::{Change, HostId};

/// Number of a change, of an access or of a report.
pub(crate) type Id = u64;

/// Keys in order, and the type of the reservation.
type Report = (Vec<u64>, Option<usize>);

/// The model.
pub(crate) struct Model {
    /// Never empty.
    worlds: BTreeSet<Possible>,
    changes: BTreeMap<Id, Pending>,
    accesses: BTreeMap<Id, Access>,
    reports: BTreeMap<Id, BTreeSet<Report>>,
    /// For each host, a number of the time at which its last change that registers a key ended.
    registering: BTreeMap<HostId, Id>,
    next: Id,
    /// How often the target was killed.
    kills: u64,
}

/// A state that the disk may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Possible {
    state: State,
    /// The changes in progress that have happened in it, and how.
    happened: BTreeMap<Id, (Verdict, Vec<HostId>)>,
}

/// A change in progress.
struct Pending {
    change: Change,
    /// It happens no more if it has not happened yet: its target was killed.
    is_over: bool,
}

/// A read or a write in progress.
struct Access {
    host: HostId,
    writes: bool,
    may_pass: bool,
    may_conflict: bool,
}

impl Model {
    pub(crate) fn new() -> Self {
        let first = Possible {
            state: State::default(),
            happened: BTreeMap::new(),
        };
        Self {
            worlds: BTreeSet::from([first]),
            changes: BTreeMap::new(),
            accesses: BTreeMap::new(),
            reports: BTreeMap::new(),
            registering: BTreeMap::new(),
            next: 0,
            kills: 0,
        }
    }

    /// How often the target was killed.
    pub(crate) fn kills(&self) -> u64 {
        self.kills
    }

    fn next_id(&mut self) -> Id {
        self.next += 1;
        self.next
    }

    /// A host asks for a change.
    pub(crate) fn change_begins(&mut self, change: Change) -> Id {
        let id = self.next_id();
        let is_over = false;
        self.changes.insert(id, Pending { change, is_over });
        self.grow();
        id
    }

    /// A change was answered. Result: the hosts whose commands it has aborted for certain.
    ///
    /// # Errors
    /// The answer contradicts the rules.
    pub(crate) fn change_ends(
        &mut self,
        id: Id,
        verdict: Verdict,
    ) -> Result<BTreeSet<HostId>, String> {
        let change = self.forget(id);
        let ended = |possible: &Possible| possible.happened.get(&id).map(|(it, _)| *it);
        let before = std::mem::take(&mut self.worlds);
        let (fit, others): (Vec<_>, Vec<_>) = before
            .into_iter()
            .partition(|possible| ended(possible) == Some(verdict));
        if fit.is_empty() {
            let states: BTreeSet<_> = others.iter().map(|it| &it.state).collect();
            let fault = format!(
                "{change:?} was answered with {verdict:?}, and the state can only be one of {states:?}"
            );
            self.worlds = others.into_iter().collect();
            self.change_is_over(id);
            return Err(fault);
        }
        let mut aborted: Option<BTreeSet<HostId>> = None;
        for mut possible in fit {
            let victims = possible.happened.remove(&id).map(|(_, victims)| victims);
            let victims: BTreeSet<_> = victims.unwrap_or_default().into_iter().collect();
            aborted = Some(match aborted {
                None => victims,
                Some(aborted) => &aborted & &victims,
            });
            self.worlds.insert(possible);
        }
        Ok(aborted.unwrap_or_default())
    }

    /// Whether a write of a host that arrives only after the change `id` may pass: no reservation
    /// forbids it, or the host may have registered a key since the change began.
    pub(crate) fn may_write_after(&self, host: HostId, id: Id) -> bool {
        if self.may_write(host) {
            return true;
        }
        let in_progress = self.changes.values().map(|pending| &pending.change);
        let mut in_progress = in_progress.filter(|change| change.host == host);
        in_progress.any(|change| change.action.registers())
            || self.registering.get(&host).is_some_and(|ended| *ended > id)
    }

    /// Whether a write of a host may pass now.
    pub(crate) fn may_write(&self, host: HostId) -> bool {
        self.worlds.iter().any(|it| it.state.may(host, true))
    }

    fn forget(&mut self, id: Id) -> Option<Change> {
        let change = self.changes.remove(&id)?.change;
        if change.action.registers() {
            let now = self.next_id();
            self.registering.insert(change.host, now);
        }
        Some(change)
    }

    /// A change was refused before it could happen.
    ///
    /// # Errors
    /// It has happened for certain.
    pub(crate) fn change_never_happens(&mut self, id: Id) -> Result<(), String> {
        let others = |possible: &Possible| !possible.happened.contains_key(&id);
        if !self.worlds.iter().any(others) {
            self.change_is_over(id);
            return Err("a change that was not carried out is in force".to_owned());
        }
        self.forget(id);
        self.worlds.retain(others);
        Ok(())
    }

    /// The time of a change without an answer is over: from now on it has happened or never does.
    pub(crate) fn change_is_over(&mut self, id: Id) {
        self.forget(id);
        let worlds = std::mem::take(&mut self.worlds);
        self.worlds = worlds
            .into_iter()
            .map(|mut possible| {
                possible.happened.remove(&id);
                possible
            })
            .collect();
    }

    /// The target was killed: changes that have not happened never do, and the next target begins
    /// with what was stored.
    pub(crate) fn killed(&mut self) {
        self.kills += 1;
        for pending in self.changes.values_mut() {
            pending.is_over = true;
        }
        let worlds = std::mem::take(&mut self.worlds);
        self.worlds = worlds
            .into_iter()
            .map(|possible| Possible {
                state: possible.state.after_restart(),
                ..possible
            })
            .collect();
        self.note();
    }

    /// A host begins to read or write.
    pub(crate) fn access_begins(&mut self, host: HostId, writes: bool) -> Id {
        let id = self.next_id();
        let access = Access {
            host,
            writes,
            may_pass: false,
            may_conflict: false,
        };
        self.accesses.insert(id, access);
        self.note();
        id
    }

    /// A read or a write has passed, or conflicted.
    ///
    /// # Errors
    /// No reservation since it began allows that.
    pub(crate) fn access_ends(&mut self, id: Id, passed: bool) -> Result<(), String> {
        let access = self.accesses.remove(&id).expect("it began");
        let may = if passed {
            access.may_pass
        } else {
            access.may_conflict
        };
        if may {
            return Ok(());
        }
        let what = if access.writes { "write" } else { "read" };
        let how = if passed { "passed" } else { "conflicted" };
        let states: BTreeSet<_> = self.worlds.iter().map(|it| &it.state).collect();
        Err(format!(
            "a {what} of host {} {how}, and the state is one of {states:?}",
            access.host
        ))
    }

    /// Nobody knows how an access has ended.
    pub(crate) fn access_is_lost(&mut self, id: Id) {
        self.accesses.remove(&id);
    }

    /// A host asks for the registrations.
    pub(crate) fn report_begins(&mut self) -> Id {
        let id = self.next_id();
        self.reports.insert(id, BTreeSet::new());
        self.note();
        id
    }

    /// The registrations were reported: the keys in order, and the type of the reservation if the
    /// command reports that.
    ///
    /// # Errors
    /// They cannot have been like this since the host asked.
    pub(crate) fn report_ends(
        &mut self,
        id: Id,
        keys: &[u64],
        kind: Option<Option<usize>>,
    ) -> Result<(), String> {
        let possible = self.reports.remove(&id).expect("it began");
        let fits =
            |(of, held): &Report| *of == keys && kind.is_none_or(|reported| reported == *held);
        match possible.iter().any(fits) {
            true => Ok(()),
            false => Err(format!(
                "the keys {keys:?} and the type {kind:?} were reported, and only {possible:?} are possible"
            )),
        }
    }

    /// Nobody knows what was reported.
    pub(crate) fn report_is_lost(&mut self, id: Id) {
        self.reports.remove(&id);
    }

    /// Adds the states in which changes in progress have happened, in every order.
    fn grow(&mut self) {
        let mut new: Vec<_> = self.worlds.iter().cloned().collect();
        while let Some(possible) = new.pop() {
            for (id, pending) in &self.changes {
                if pending.is_over || possible.happened.contains_key(id) {
                    continue;
                }
                let mut next = possible.clone();
                let happened = next.state.apply(&pending.change);
                next.happened.insert(*id, happened);
                if self.worlds.insert(next.clone()) {
                    new.push(next);
                }
            }
        }
        self.note();
    }

    /// Notes for accesses and reports in progress what is possible now.
    fn note(&mut self) {
        for Possible { state, .. } in &self.worlds {
            for access in self.accesses.values_mut() {
                let may = state.may(access.host, access.writes);
                access.may_pass |= may;
                access.may_conflict |= !may;
            }
            for report in self.reports.values_mut() {
                report.insert(state.report());
            }
        }
    }
}

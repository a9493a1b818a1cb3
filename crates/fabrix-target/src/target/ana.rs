//! Changes of the states of ANA groups.
//!
//! A group that stops to serve at a listener is in state *change* until no disk has a command that
//! came in before, nor an abandoned one. So the target answers the change only when another target
//! may take over.

use std::time::Duration;

use fabrix_proto::nvme::ana::{ANA_TRANSITION_SECONDS, AnaState};

use super::Target;
use super::change::again;
use crate::lock::lock;
use crate::shared::Order;
use crate::{Catalog, Listen, TargetError};

impl Target {
    /// Sets the state of an ANA group at the listeners that `at` accepts. Hosts that are connected
    /// there get an event. The state is the access state (ALUA) of the group's logical units, too:
    /// all initiators of their targets get a unit attention.
    ///
    /// A state that refuses commands is reached through [`AnaState::Change`]. It follows when the
    /// commands that came before have ended at their disks, or at the latest after 5 s. The answer
    /// also waits when the group has refused commands before.
    ///
    /// # Errors
    /// [`TargetError::Refused`]: no disk is in the group, `at` accepts no listener that serves
    /// disks, or the state is [`AnaState::Change`], which the target sets itself because it must
    /// end.
    /// [`TargetError::NotDrained`]: the state is set, but a disk still has commands. Else as for
    /// [`change`](Self::change).
    pub fn set_ana_state(
        &self,
        group: u32,
        state: AnaState,
        at: impl Fn(&Listen) -> bool,
    ) -> Result<(), TargetError> {
        let _one_at_a_time = lock(&self.changing);
        let catalog = self.catalog();
        check(&catalog, group, state).map_err(TargetError::Refused)?;
        let listens = listens(&catalog, at).map_err(TargetError::Refused)?;
        let drained = match state.refusal() {
            None => Ok(()),
            Some(_) => self.stop(&catalog, group, &listens),
        };
        let set = self.set_states(group, state, &listens);
        set.and(drained)
    }

    /// Lets ANA groups refuse commands at all listeners, at once, and ends all connections. Commands
    /// that are at disks are abandoned. Hosts that come back see the new states.
    ///
    /// # Errors
    /// As for [`change`](Self::change).
    pub fn give_up(&self, groups: &[u32]) -> Result<(), TargetError> {
        let _one_at_a_time = lock(&self.changing);
        let listens = self.catalog().listen;
        let listens: Vec<_> = listens.into_iter().filter(Listen::has_ana_states).collect();
        let mut set = Ok(());
        for group in groups {
            let refused = self.set_states(*group, AnaState::Inaccessible, &listens);
            set = set.and(refused);
        }
        let until = self.shared.control.now() + DRAIN;
        let ended = self.order_all(until, Order::Disconnect);
        set.and(ended)
    }

    /// Reads the reservations of the disks of an ANA group anew: another target has served them
    /// meanwhile, and has stored its changes.
    ///
    /// # Errors
    /// [`TargetError::Refused`]: they cannot be read. The disks must not be served.
    pub fn load_reservations(&self, group: u32) -> Result<(), TargetError> {
        let _one_at_a_time = lock(&self.changing);
        let catalog = self.shared.catalog.current();
        let exports = catalog.desired.exports();
        let mut of_group = exports.filter(|(_, _, export)| export.ana_group == group);
        of_group.try_for_each(|(place, _, export)| {
            let disk = catalog.disk(&*export.device);
            let loaded = disk.map_or(Ok(()), |disk| disk.state().load_again());
            loaded.map_err(|why| TargetError::Refused(format!("{place}: {why}")))
        })
    }

    /// Lets a group refuse commands at listeners, and waits for the commands that came before.
    fn stop(&self, catalog: &Catalog, group: u32, listens: &[Listen]) -> Result<(), TargetError> {
        let serves = |listen: &&Listen| catalog.ana_state(group, listen).refusal().is_none();
        let stops: Vec<_> = listens.iter().filter(serves).copied().collect();
        if !stops.is_empty() {
            self.set_states(group, AnaState::Change, &stops)?;
        }
        self.drain_refused(group)
    }

    fn set_states(
        &self,
        group: u32,
        state: AnaState,
        listens: &[Listen],
    ) -> Result<(), TargetError> {
        self.apply(|catalog| {
            for listen in listens {
                catalog.set_ana_state(group, listen, state);
            }
            Ok(())
        })
    }

    /// Waits until no disk has a command of an ANA group that is refused. A disk may also have
    /// requests whose commands were abandoned.
    fn drain_refused(&self, group: u32) -> Result<(), TargetError> {
        let control = &*self.shared.control;
        let until = control.now() + DRAIN;
        let drained = self.order_all(until, Order::AwaitRefused);
        let is_free = || !self.has_abandoned(group);
        match drained.is_ok() && again(control, until, is_free) {
            true => Ok(()),
            false => Err(TargetError::NotDrained),
        }
    }

    /// Whether a disk of an ANA group has abandoned requests.
    fn has_abandoned(&self, group: u32) -> bool {
        let catalog = self.shared.catalog.current();
        let exports = catalog.desired.exports();
        let mut of_group = exports.filter(|(_, _, export)| export.ana_group == group);
        of_group.any(|(_, _, export)| {
            let disk = catalog.disk(&*export.device);
            disk.is_some_and(|disk| disk.state().has_barrier())
        })
    }
}

fn check(catalog: &Catalog, group: u32, state: AnaState) -> Result<(), String> {
    if state == AnaState::Change {
        return Err(format!(
            "`{state}` is the state while the commands of a group end: it cannot be set"
        ));
    }
    let mut exports = catalog.exports();
    match exports.any(|(_, _, export)| export.ana_group == group) {
        true => Ok(()),
        false => Err(format!("no disk is in ANA group {group}")),
    }
}

/// The listeners that `at` accepts.
fn listens(catalog: &Catalog, at: impl Fn(&Listen) -> bool) -> Result<Vec<Listen>, String> {
    let listens = catalog.listen.iter().copied();
    let listens: Vec<_> = listens.filter(|it| it.has_ana_states() && at(it)).collect();
    match listens.is_empty() {
        false => Ok(listens),
        true => {
            Err("no disk can be reached there: `fabrix ctl show` lists the listeners".to_owned())
        }
    }
}

/// Longest wait for commands at disks.
const DRAIN: Duration = Duration::from_secs(5);
const _: () = assert!(DRAIN.as_secs() < ANA_TRANSITION_SECONDS as u64);

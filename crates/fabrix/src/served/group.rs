//! The exports of a gateway group: what its machine does with them.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fabrix_block::Ownership;
use fabrix_gateways::{GatewayNumber, State, controller_ids};
use fabrix_target::{AnaState, Catalog, Export, Gateways, Listen};
use serde_json::{Value, json};

use super::catalog;
use super::listen::{elsewhere, serves_disks};
use super::{Served, failure};
use crate::failure::Failure;
use crate::locks::lock;

impl Served {
    /// Makes this the exports of a gateway group. `asks` asks for an ANA group.
    pub(crate) fn join_group(&self, asks: impl Fn(u32) + Send + Sync + 'static) {
        // It is joined once.
        let _joined = self.asks.set(Box::new(asks));
    }

    /// Asks the other gateways of the group for an ANA group, and waits until it is here.
    pub(crate) fn ask_for(&self, group: u32) -> Result<(), Failure> {
        let asks = self.asks.get();
        let asks = asks
            .ok_or_else(|| Failure::usage("this is no gateway of a group: see --gateway-group"))?;
        if !self
            .exports()
            .iter()
            .any(|export| export.ana_group == group)
        {
            return Err(Failure::usage(format!("no disk is in ANA group {group}")));
        }
        asks(group);
        let until = Instant::now() + TAKEN_WITHIN;
        while !self.serves(group) {
            if Instant::now() >= until {
                return Err(Failure::io(format!(
                    "ANA group {group} has not come within {} s; the log of both gateways says why",
                    TAKEN_WITHIN.as_secs()
                )));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Whether hosts can use an ANA group here.
    fn serves(&self, group: u32) -> bool {
        let catalog = self.target.catalog();
        let listen = catalog.listen.iter().find(|it| it.has_ana_states());
        listen.is_some_and(|listen| catalog.ana_state(group, listen) == AnaState::Optimized)
    }

    /// Refuses what a gateway of a group does not do.
    pub(super) fn refuse_in_group(&self, why: &str) -> Result<(), Failure> {
        match self.asks.get() {
            Some(_) => Err(Failure::usage(why)),
            None => Ok(()),
        }
    }

    /// Refuses a change that only a gateway makes that the cluster has not shut out.
    pub(super) fn refuse_shut_out(&self) -> Result<(), Failure> {
        match self.asks.get().is_some() && self.is_shut_out() {
            true => Err(Failure::io(
                "the cluster has shut this gateway out; it comes back by itself",
            )),
            false => Ok(()),
        }
    }

    /// Refuses a change that only the gateway makes that serves an ANA group.
    pub(super) fn refuse_elsewhere(&self, group: u32) -> Result<(), Failure> {
        match self.asks.get().is_none() || self.serves(group) {
            true => Ok(()),
            false => Err(Failure::usage(format!(
                "another gateway serves ANA group {group}: `ana list` says which one; ask that one"
            ))),
        }
    }

    /// Lets hosts use the disks of an ANA group. They are locked first, and their reservations are
    /// read anew. Nobody waits for the cluster meanwhile but the caller.
    pub(crate) fn take(&self, group: u32) -> Result<(), Failure> {
        for ownership in self.ownerships(Some(group)) {
            ownership.acquire()?;
        }
        let loaded = self.target.load_reservations(group);
        loaded.map_err(|error| failure(&error))?;
        let _one_at_a_time = lock(&self.state);
        let set = self.target.set_ana_state(group, AnaState::Optimized, all);
        set.map_err(|error| failure(&error))
    }

    /// Lets hosts use the disks of an ANA group no more, and unlocks them.
    ///
    /// Errors: requests do not end, or the cluster refuses.
    pub(crate) fn release(&self, group: u32) -> Result<(), Failure> {
        let set = {
            let _one_at_a_time = lock(&self.state);
            self.target
                .set_ana_state(group, AnaState::Inaccessible, all)
        };
        set.map_err(|error| failure(&error))?;
        for ownership in self.ownerships(Some(group)) {
            ownership.release()?;
        }
        Ok(())
    }

    /// Lets hosts use no disk any more, and ends their connections.
    pub(crate) fn give_up(&self) -> Result<(), Failure> {
        let _one_at_a_time = lock(&self.state);
        let mut groups: Vec<u32> = self.exports().iter().map(|it| it.ana_group).collect();
        groups.sort_unstable();
        groups.dedup();
        let given_up = self.target.give_up(&groups);
        given_up.map_err(|error| failure(&error))
    }

    /// Opens all disks by a new client of the cluster. Nobody waits for the cluster meanwhile but
    /// the caller.
    pub(crate) fn renew(&self) -> Result<(), Failure> {
        self.ownerships(None).iter().for_each(|it| it.lose());
        let mut exports = self.exports();
        for export in &mut exports {
            export.device = export.device.resize(None)?;
            self.opener.store_with(&export.device);
        }
        let state = lock(&self.state);
        self.change_disks(|disks| {
            disks.clone_from(&exports);
            Ok(())
        })?;
        drop(state);
        for export in &exports {
            let watching = self.watch(export);
            let watching = watching
                .and_then(|watching| lock(&self.state).watches.insert(export.number, watching));
            drop(watching);
        }
        Ok(())
    }

    /// Whether hosts or initiators have connections.
    pub(crate) fn has_hosts(&self) -> bool {
        self.target.controllers() + self.target.sessions() > 0
    }

    /// Whether the cluster refuses this process.
    pub(crate) fn is_shut_out(&self) -> bool {
        self.ownerships(None).iter().any(|it| it.is_lost())
    }

    /// Tells hosts of the gateways of a group. `seat` is the number and the life of this one. None:
    /// it has none for now.
    pub(crate) fn follow_group(
        &self,
        group: &State,
        seat: Option<(GatewayNumber, u64)>,
    ) -> Result<(), Failure> {
        let Some(seat) = seat else {
            return Ok(());
        };
        let mut state = lock(&self.state);
        state.group = Some((group.clone(), seat.0));
        let present = self.target.catalog().gateways;
        let gateways = Gateways {
            referrals: present.referrals.clone(),
            ..gateways_of(group, seat)?
        };
        if present == gateways {
            return Ok(());
        }
        self.change(|catalog| {
            catalog.gateways = gateways;
            Ok(())
        })
    }

    fn ownerships(&self, group: Option<u32>) -> Vec<Arc<dyn Ownership>> {
        let exports = self.exports();
        let of_group = exports
            .iter()
            .filter(|it| group.is_none_or(|group| it.ana_group == group));
        of_group.filter_map(|it| it.device.ownership()).collect()
    }
}

/// The gateways of a group, for users. `mine` is the number of this one.
pub(super) fn group_json((group, mine): &(State, GatewayNumber)) -> Value {
    let members = group.members.iter().map(|(number, member)| {
        let owned = group.owners.iter().filter(|(_, owner)| *owner == number);
        json!({
            "gateway": number,
            "is_this": number == mine,
            "state": if member.fenced { "shut out" } else { "live" },
            "ana_groups": owned.map(|(group, _)| *group).collect::<Vec<_>>(),
            "listeners": member.listeners,
        })
    });
    members.collect()
}

/// Longest wait for an ANA group, and the time between two looks.
const TAKEN_WITHIN: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(10);

fn all(_: &Listen) -> bool {
    true
}

/// What hosts are told of a group by the gateway with this number and life.
pub(crate) fn gateways_of(group: &State, seat: (GatewayNumber, u64)) -> Result<Gateways, Failure> {
    let others = group
        .members
        .iter()
        .filter(|(number, _)| **number != seat.0);
    let uris = others.flat_map(|(_, member)| &member.listeners);
    let uris = uris.filter(|uri| uri.starts_with("nvme"));
    let others = uris.map(|uri| elsewhere(uri, &[]));
    let others = others.collect::<Result<Vec<Listen>, _>>()?;
    Ok(Gateways {
        controller_ids: controller_ids(seat.0, seat.1),
        others: others.into_iter().filter(serves_disks).collect(),
        shut_out: Some(group.ended_controllers(seat.0)),
        ..Gateways::default()
    })
}

/// Lets nobody use any disk of a catalog, until the group says so.
pub(crate) fn refuse_all(catalog: &mut Catalog) {
    let groups: Vec<u32> = catalog::disks(catalog)
        .iter()
        .map(|it: &Export| it.ana_group)
        .collect();
    for listen in catalog.listen.clone() {
        for group in &groups {
            catalog.set_ana_state(*group, &listen, AnaState::Inaccessible);
        }
    }
}

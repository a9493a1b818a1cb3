//! View of one host on the inventory: the only access to namespaces and discovery records.

use alloc::sync::Arc;
use core::net::SocketAddr;

use super::{Deallocate, Inventory, Listener, Namespace, Refused, Subsystem};
use crate::nvme::ana::{ANA_GROUPS_MAX, AnaListener, AnaState};
use crate::nvme::nqn::Nqn;

/// View of one host on the inventory. All access to namespaces and discovery records uses a view.
///
/// A clone is cheap. The view keeps its inventory alive. An association has one view, and calls
/// [`refresh`](Self::refresh) when the inventory is replaced.
#[derive(Clone, Debug)]
pub struct Authorized {
    inventory: Arc<Inventory>,
    host: Nqn,
    scope: Option<usize>,
    reached_at: Option<SocketAddr>,
    listener: Option<AnaListener>,
}

impl Authorized {
    /// View of `host` on the subsystem with index `scope`. `None`: the discovery subsystem. The
    /// caller has authorized the host.
    pub(super) const fn new(inventory: Arc<Inventory>, host: Nqn, scope: Option<usize>) -> Self {
        Self {
            inventory,
            host,
            scope,
            reached_at: None,
            listener: None,
        }
    }

    /// The same view for a host that is connected to the local `address`. The discovery log then
    /// lists only addresses that are reachable from there.
    #[must_use]
    pub fn reached_at(mut self, address: SocketAddr) -> Self {
        self.reached_at = Some(address);
        self
    }

    /// The same view for a host whose connection came through `listener`. The states of ANA groups
    /// are those of this listener.
    #[must_use]
    pub const fn through(mut self, listener: AnaListener) -> Self {
        self.listener = Some(listener);
        self
    }

    /// The same view of a newer inventory.
    ///
    /// # Errors
    /// The subsystem is gone, or no longer allows the host. The caller has to end the association.
    pub fn refresh(&self, inventory: &Arc<Inventory>) -> Result<Self, Refused> {
        let name = self
            .subsystem()
            .map_or_else(Nqn::discovery, |subsystem| subsystem.nqn.clone());
        let mut view = inventory.authorize(&name, &self.host)?;
        (view.reached_at, view.listener) = (self.reached_at, self.listener);
        Ok(view)
    }

    /// Host of the view.
    #[must_use]
    pub const fn host(&self) -> &Nqn {
        &self.host
    }

    /// The subsystem, or `None` in the discovery subsystem.
    #[must_use]
    pub fn subsystem(&self) -> Option<&Subsystem> {
        self.inventory.subsystems.get(self.scope?)
    }

    /// Whether this is a view of the discovery subsystem.
    #[must_use]
    pub const fn is_discovery(&self) -> bool {
        self.scope.is_none()
    }

    /// The active namespace with this id.
    #[must_use]
    pub fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.subsystem()?.namespace(nsid)
    }

    /// The active namespaces in ascending order of their ids.
    #[must_use]
    pub fn namespaces(&self) -> &[Namespace] {
        self.subsystem()
            .map_or(&[], |subsystem| &subsystem.namespaces)
    }

    /// The ANA groups that have a namespace, in ascending order.
    pub fn ana_groups(&self) -> impl Iterator<Item = u32> {
        let namespaces = self.namespaces();
        (1..=ANA_GROUPS_MAX).filter(|group| namespaces.iter().any(|it| it.ana_group == *group))
    }

    /// State of an ANA group for this host.
    #[must_use]
    pub fn ana_state(&self, group: u32) -> AnaState {
        let at = self.listener;
        at.map_or(AnaState::Optimized, |at| {
            self.inventory.ana_state(group, at)
        })
    }

    /// VWC: whether Flush has an effect on any namespace.
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        self.grows()
            || self
                .namespaces()
                .iter()
                .any(|namespace| namespace.volatile_cache)
    }

    /// Whether Dataset Management deallocates blocks of any namespace.
    #[must_use]
    pub fn deallocates(&self) -> bool {
        let deallocates = |namespace: &Namespace| namespace.deallocate != Deallocate::No;
        self.grows() || self.namespaces().iter().any(deallocates)
    }

    fn grows(&self) -> bool {
        self.subsystem().is_some_and(|subsystem| subsystem.grows)
    }

    /// Generation counter of the discovery log.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.inventory.generation
    }

    /// Records of the discovery log for this host: each allowed subsystem at each reachable
    /// address, then the referrals. Empty outside of the discovery subsystem.
    pub fn discovery_records(&self) -> impl Iterator<Item = DiscoveryRecord<'_>> {
        let inventory = &*self.inventory;
        let visible = if self.is_discovery() {
            &inventory.subsystems[..]
        } else {
            &[]
        };
        let referrals = if self.is_discovery() {
            &inventory.listeners[..]
        } else {
            &[]
        };
        let ours = visible
            .iter()
            .filter(|subsystem| subsystem.hosts.allow(&self.host))
            .flat_map(move |subsystem| {
                let places = inventory
                    .listeners
                    .iter()
                    .filter(|listener| !listener.referral);
                places.filter_map(move |listener| {
                    let address = match self.reached_at {
                        Some(here) => listener.portal.seen_from(here)?,
                        None => listener.portal.address,
                    };
                    Some(DiscoveryRecord {
                        subsystem: Some(subsystem),
                        listener,
                        address,
                    })
                })
            });
        let others = referrals.iter().filter(|listener| listener.referral);
        ours.chain(others.map(|listener| DiscoveryRecord {
            subsystem: None,
            listener,
            address: listener.portal.address,
        }))
    }
}

/// A record of the discovery log, before its conversion to bytes.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryRecord<'a> {
    /// Subsystem at the address. `None`: another discovery service.
    pub subsystem: Option<&'a Subsystem>,
    /// Listener of the record.
    pub listener: &'a Listener,
    /// Address to report.
    pub address: SocketAddr,
}

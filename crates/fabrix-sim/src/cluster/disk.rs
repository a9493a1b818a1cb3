//! The disk of a cluster as one client has it open.

use std::sync::Arc;
use std::time::Duration;

use fabrix_block::{
    Channel, Deallocate, Device, Durability, Geometry, Identity, OpenError, OpenErrorKind,
    Ownership,
};
use fabrix_rt::Shard;

use super::{ADDRESS, ClientId, Cluster, channel};
use crate::images::BLOCK_BYTES;
use crate::world;

/// The disk of a cluster, open by a client.
#[derive(Clone)]
pub(crate) struct ClusterDisk {
    geometry: Geometry,
    identity: Identity,
    cluster: Cluster,
    client: ClientId,
}

impl ClusterDisk {
    /// Opens the disk at a machine by a new client.
    pub(crate) fn open(cluster: &Cluster, machine: usize) -> Arc<Self> {
        let mut state = cluster.state();
        let mut geometry = Geometry::new(BLOCK_BYTES, state.habits.blocks);
        geometry.durability = Durability::Device;
        geometry.deallocate = Deallocate::Undefined;
        let client = state.connect(machine);
        drop(state);
        Arc::new(Self {
            geometry,
            identity: Identity::derive("simulated", "cluster", "Disk of a simulated cluster"),
            cluster: cluster.clone(),
            client,
        })
    }

    /// Address of the client.
    pub(crate) fn address(&self) -> String {
        format!("{ADDRESS}{}", self.client)
    }

    /// Requests of the client in progress.
    pub(crate) fn requests(&self) -> usize {
        self.cluster.state().clients[self.client].requests
    }

    /// The client gets the newest map of the cluster.
    pub(crate) fn take_newest_map(&self) {
        let mut state = self.cluster.state();
        state.clients[self.client].map = state.newest;
    }

    /// Whether the cluster refuses the client.
    pub(crate) fn is_shut_out(&self) -> bool {
        !self.cluster.state().admits_now(self.client)
    }

    fn refused(&self) -> OpenError {
        let sentence = format!(
            "{} was shut out, or another client has the lock",
            self.address()
        );
        OpenError::new(OpenErrorKind::Unreachable, sentence)
    }
}

impl Device for ClusterDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        let geometry = self.geometry.clone();
        Ok(channel::open(shard, &self.cluster, self.client, geometry))
    }

    fn ownership(&self) -> Option<Arc<dyn Ownership>> {
        Some(Arc::new(self.clone()))
    }
}

impl Ownership for ClusterDisk {
    /// The former owner learns of it later.
    fn acquire(&self) -> Result<(), OpenError> {
        let mut state = self.cluster.state();
        let owner = state.lock.filter(|owner| *owner != self.client);
        // Who is shut out is asked of the monitor, which knows the newest map.
        let is_taken = owner.is_some_and(|owner| !state.shut_out.contains_key(&owner));
        if is_taken || !state.admits_now(self.client) {
            return Err(self.refused());
        }
        state.clients[self.client].has_lock = true;
        let former = state.lock.replace(self.client);
        let Some(former) = former.filter(|it| *it != self.client) else {
            return Ok(());
        };
        let most = u64::try_from(state.habits.lock_news.as_nanos()).expect("a short time");
        let time = Duration::from_nanos(state.choices.below(most + 1));
        drop(state);
        let world = world::current().expect("a world on this thread");
        let cluster = self.cluster.clone();
        world.plan(world.now() + time, move |_| {
            let mut state = cluster.state();
            state.clients[former].has_lock = state.lock == Some(former);
        });
        Ok(())
    }

    fn release(&self) -> Result<(), OpenError> {
        let mut state = self.cluster.state();
        if !state.admits_now(self.client) {
            return Err(self.refused());
        }
        state.clients[self.client].has_lock = false;
        state.lock.take_if(|owner| *owner == self.client);
        Ok(())
    }

    fn is_lost(&self) -> bool {
        self.cluster.state().clients[self.client].is_lost
    }

    fn lose(&self) {
        self.cluster.state().clients[self.client].is_lost = true;
    }
}

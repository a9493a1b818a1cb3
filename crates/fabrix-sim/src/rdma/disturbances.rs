//! What happens to connections and devices. Each function returns in words what it has done.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use fabrix_rt::Nanos;
use fabrix_transport::rdma::EventKind;

use super::work::RETRY_EXCEEDED;
use super::{Rdma, Stage, State, Told};
use crate::world::World;

impl Rdma {
    /// One of the ends that are connected. None: there is none.
    pub(crate) fn connected(&self, index: usize) -> Option<u64> {
        let state = self.state();
        let ends = state.ends.iter();
        let connected = ends.filter(|(_, end)| end.stage == Stage::Connected);
        let connected: Vec<u64> = connected.map(|(id, _)| *id).collect();
        connected.get(index % connected.len().max(1)).copied()
    }

    /// The queue pair of an end fails. The other one hears of it when this end lets go.
    ///
    /// Not one that was cut: a host would connect again while the target works on for the lost
    /// connection.
    pub(crate) fn break_end(&self, world: &World, id: u64, status: i32) -> Option<String> {
        let mut state = self.state();
        let end = state.ends.get(&id).filter(|end| !end.is_cut)?;
        let name = format!("the queue pair of {} to {:?}", end.local, end.remote?);
        end.device.as_ref()?.fail(status, "a fault of the world");
        state.tell_ready(world, id);
        Some(format!("{name} fails with status {status}"))
    }

    /// Cuts all connections between the machines of an end: nothing arrives any more.
    pub(crate) fn cut_path(&self, id: u64) -> Option<String> {
        let mut state = self.state();
        let (from, to) = state.machines(id)?;
        state.cut(|local, remote| (local, remote) == (from, to) || (remote, local) == (from, to));
        Some(format!("RDMA connections of {from} and {to} are cut"))
    }

    /// Cuts everything.
    pub(crate) fn cut_all(&self) {
        self.state().cut(|_, _| true);
    }

    /// Everything from the machine of an end to that of its peer waits until a time.
    pub(crate) fn stall_path(&self, id: u64, until: Nanos) -> Option<String> {
        let mut state = self.state();
        let (from, to) = state.machines(id)?;
        let stalled = state.stalls.entry((from, to)).or_default();
        *stalled = until.max(*stalled);
        Some(format!("RDMA from {from} to {to} stalls until {until:?}"))
    }

    /// Requests for connections are refused until a time.
    pub(crate) fn refuse_until(&self, until: Nanos) -> String {
        let mut state = self.state();
        state.refuses_until = until.max(state.refuses_until);
        format!("RDMA connections are refused until {until:?}")
    }

    /// The device of a machine is removed, and comes back after a time. The kernel waits for
    /// processes that hold it. `is_dead`: it does nothing any more from now on.
    pub(crate) fn remove_device(
        &self,
        world: &World,
        machine: IpAddr,
        (down, is_dead): (Duration, bool),
    ) -> Option<String> {
        let mut state = self.state();
        if !state.removed.insert(machine) {
            return None;
        }
        let ends = state.ends.iter();
        let of_device = ends.filter(|(_, end)| end.local.ip() == machine);
        let holders: BTreeSet<u64> = of_device.map(|(id, _)| *id).collect();
        for id in &holders {
            state.tell(world, *id, Told::Other(EventKind::DeviceRemoved));
        }
        if is_dead {
            state.cut(|local, remote| local == machine || remote == machine);
        }
        let back = world.now() + down;
        world.plan(back, move |world| {
            let limit = world.now() + HELD_MOST;
            world.rdma().come_back(world, machine, holders, limit);
        });
        Some(format!(
            "the RDMA device of {machine} is removed for {down:?}"
        ))
    }

    /// Whether the device of a machine is removed.
    pub(crate) fn is_removed(&self, machine: IpAddr) -> bool {
        self.state().removed.contains(&machine)
    }

    /// A removed device comes back, as soon as nobody holds it.
    fn come_back(&self, world: &World, machine: IpAddr, mut holders: BTreeSet<u64>, limit: Nanos) {
        let mut state = self.state();
        holders.retain(|id| state.ends.contains_key(id));
        if holders.is_empty() {
            state.removed.remove(&machine);
        } else if world.now() < limit {
            let again = world.now() + Duration::from_millis(10);
            world.plan(again, move |world| {
                world.rdma().come_back(world, machine, holders, limit);
            });
        } else {
            let fault = format!(
                "{} ends hold the removed device of {machine}",
                holders.len()
            );
            state.faults.push(fault);
            state.removed.remove(&machine);
        }
    }
}

impl State {
    /// Cuts the ends whose machine, and that of their peer, are meant.
    fn cut(&mut self, is_meant: impl Fn(IpAddr, IpAddr) -> bool) {
        for end in self.ends.values_mut() {
            if let Some(remote) = end.remote {
                end.is_cut |= is_meant(end.local.ip(), remote.ip());
            }
        }
    }
}

/// Statuses with which a queue pair fails: retries exceeded, a remote access error, a local
/// protection error, flushed.
pub(crate) const STATUSES: [i32; 4] = [RETRY_EXCEEDED, 10, 4, 5];
/// A shard that holds a removed device may stand still for 12 s.
const HELD_MOST: Duration = Duration::from_secs(20);

//! Requests on their way: they are carried out at the other end, their own end has the answer, and
//! messages are told.

use std::rc::Rc;

use fabrix_transport::rdma::simulated::{SimulatedEnd, Step};

use super::{Rdma, note};
use crate::world::World;

impl Rdma {
    /// Plans the requests that were handed to a device since the last call.
    pub(super) fn posted(&self, world: &World, id: u64) {
        let mut state = self.state();
        let Some((from, to)) = state.machines(id) else {
            return;
        };
        loop {
            let arrival = state.arrival(world, from, to);
            let Some(end) = state.ends.get_mut(&id) else {
                return;
            };
            let in_progress = end.device.as_ref().map_or(0, SimulatedEnd::requests);
            if end.planned >= end.ended + in_progress {
                return;
            }
            end.planned += 1;
            let number = end.planned;
            end.last.arrival = end.last.arrival.max(arrival);
            world.plan(end.last.arrival, move |world| {
                world.rdma().arrives(world, id);
            });
            world.plan(world.now() + state.habits.retry, move |world| {
                world.rdma().give_up(world, id, number);
            });
        }
    }

    /// The next request of an end arrives at the other one.
    fn arrives(&self, world: &Rc<World>, id: u64) {
        let Some((device, peer, peers)) = self.both(id) else {
            return;
        };
        if self.is_delayed(world, id, true, move |world| {
            world.rdma().arrives(world, id);
        }) {
            return;
        }
        note(world, id, 1);
        match device.execute(&peers) {
            // A lost request ends when its time is over.
            Step::Idle | Step::Lost => {}
            Step::Waits => self.waits(world, id),
            Step::Executed(is_message) => self.executed(world, (id, peer), is_message),
            Step::Failed => {
                self.state().tell_ready(world, id);
                self.state().tell_ready(world, peer);
            }
        }
    }

    /// A message has found no receive. Our protocols never send such a message.
    fn waits(&self, world: &World, id: u64) {
        let mut state = self.state();
        let end = &state.ends[&id];
        let (local, remote) = (end.local, end.remote);
        let fault = format!("a message from {local} to {remote:?} finds no receive");
        state.faults.push(fault);
        let again = world.now() + state.habits.retry;
        world.plan(again, move |world| world.rdma().arrives(world, id));
    }

    fn executed(&self, world: &World, (id, peer): (u64, u64), is_message: bool) {
        let mut state = self.state();
        let Some((from, to)) = state.machines(id) else {
            return;
        };
        let answer = state.arrival(world, to, from);
        let told = state.told(world);
        if let Some(end) = state.ends.get_mut(&id) {
            end.last.answer = end.last.answer.max(answer);
            world.plan(end.last.answer, move |world| {
                world.rdma().answered(world, id);
            });
        }
        if let Some(end) = state.ends.get_mut(&peer).filter(|_| is_message) {
            end.last.message = end.last.message.max(told);
            world.plan(end.last.message, move |world| {
                world.rdma().is_told(world, peer);
            });
        }
    }

    /// An end has the answer to its first request.
    fn answered(&self, world: &Rc<World>, id: u64) {
        let Some((device, ..)) = self.both(id) else {
            return;
        };
        if device.is_closed()
            || self.is_delayed(world, id, false, move |world| {
                world.rdma().answered(world, id);
            })
        {
            return;
        }
        note(world, id, 2);
        device.acknowledge();
        let mut state = self.state();
        if let Some(end) = state.ends.get_mut(&id) {
            end.ended += 1;
        }
        state.tell_ready(world, id);
    }

    /// A message that has arrived at an end is told.
    fn is_told(&self, world: &World, id: u64) {
        let mut state = self.state();
        let end = state.ends.get(&id);
        if let Some(device) = end.and_then(|end| end.device.clone()) {
            note(world, id, 3);
            device.deliver();
            state.tell_ready(world, id);
        }
    }

    /// The device has repeated a request for long enough.
    fn give_up(&self, world: &World, id: u64, number: usize) {
        let mut state = self.state();
        let end = state.ends.get(&id).filter(|end| end.ended < number);
        let device = end.and_then(|end| end.device.clone());
        if let Some(device) = device.filter(|device| !device.is_closed()) {
            note(world, id, 4);
            device.fail(RETRY_EXCEEDED, "transport retry counter exceeded");
            state.tell_ready(world, id);
        }
    }

    /// The devices of an end and of its peer, with the number of the peer. None: nothing arrives.
    fn both(&self, id: u64) -> Option<(SimulatedEnd, u64, SimulatedEnd)> {
        let state = self.state();
        let end = state.ends.get(&id).filter(|end| !end.is_cut)?;
        let peer = end.peer?;
        let peers = state.ends.get(&peer)?.device.clone()?;
        Some((end.device.clone()?, peer, peers))
    }

    /// Plans something again that has met a stall.
    fn is_delayed(
        &self,
        world: &World,
        id: u64,
        is_request: bool,
        again: impl FnOnce(&Rc<World>) + 'static,
    ) -> bool {
        let mut state = self.state();
        let Some((mut from, mut to)) = state.machines(id) else {
            return false;
        };
        if !is_request {
            (from, to) = (to, from);
        }
        let at = state.delayed(world, from, to);
        drop(state);
        at.map(|at| world.plan(at, again)).is_some()
    }
}

/// IBV_WC_RETRY_EXC_ERR.
pub(super) const RETRY_EXCEEDED: i32 = 12;

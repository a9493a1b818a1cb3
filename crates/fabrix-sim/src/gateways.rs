//! Plans of the states in which targets serve a disk at each of their addresses (ANA).
//!
//! A change takes time: commands at the disk end first. So a plan only says that a change is due,
//! and the world's own loop makes it, as an administrator does.
//!
//! When a target has answered that it serves its disk nowhere, another one may serve it. So no
//! request may be at the disk then, and none may come before the next change.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::nvme::ana::{ANA_GROUP_DEFAULT, AnaState};
use fabrix_rt::Nanos;
use fabrix_target::{Listen, Target};

use crate::choices::Choices;
use crate::disk::SimDisk;
use crate::server::{MACHINE, SECOND};
use crate::trace::{self, Entry};
use crate::world::World;

/// Changes that are due, in their order.
#[derive(Default)]
pub(crate) struct Gateways {
    due: Rc<RefCell<VecDeque<(IpAddr, AnaState)>>>,
    /// Targets that have answered that they serve the disk nowhere.
    closed: Vec<Served>,
    faults: Vec<String>,
}

/// A target of a machine, and its disk.
#[derive(Clone)]
pub(crate) struct Served {
    pub(crate) target: Rc<Target>,
    pub(crate) disk: Arc<SimDisk>,
}

impl Gateways {
    /// Plans changes of the state at two addresses. Some move the disk to one of them: the state of
    /// the other one changes first. At the end both are optimized.
    pub(crate) fn plan(world: &Rc<World>, choices: &mut Choices) -> Self {
        let gateways = Self::default();
        let mut last = world.now();
        for _ in 0..choices.below(8) {
            let at = world.now() + Duration::from_micros(choices.below(4_000_000));
            let state = choices.one_of(&[
                AnaState::Inaccessible,
                AnaState::Optimized,
                AnaState::NonOptimized,
                AnaState::PersistentLoss,
            ]);
            let machine = choices.one_of(&[MACHINE, SECOND]);
            gateways.plan_at(world, at, machine, state);
            if choices.once_in(3) {
                let other = if machine == MACHINE { SECOND } else { MACHINE };
                gateways.plan_at(world, at, other, AnaState::Optimized);
            }
            last = last.max(at);
        }
        let time = Duration::from_millis(choices.one_of(&[1, 300, 5_000]));
        for machine in [MACHINE, SECOND] {
            gateways.plan_at(world, last + time, machine, AnaState::Optimized);
        }
        gateways
    }

    fn plan_at(&self, world: &Rc<World>, at: Nanos, machine: IpAddr, state: AnaState) {
        let due = Rc::clone(&self.due);
        world.is_disturbed_until(at);
        world.plan(at, move |_| due.borrow_mut().push_back((machine, state)));
    }

    /// Makes the changes that are due. The world goes on meanwhile. `find` names what runs at a
    /// machine. A target that is not running, or is killed meanwhile, forgets them: it starts with
    /// optimized states.
    pub(crate) fn make_due(&mut self, find: impl Fn(IpAddr) -> Option<Served>) {
        self.check_closed(&find);
        while let Some((machine, state)) = self.next() {
            if let Some(served) = find(machine) {
                self.change(&served, machine, state);
                self.check_closed(&find);
            }
        }
    }

    fn change(&mut self, served: &Served, machine: IpAddr, state: AnaState) {
        let target = &served.target;
        self.closed.retain(|it| !Rc::ptr_eq(&it.target, target));
        let is_there = |listen: &Listen| listen.portal.address.ip() == machine;
        let set = target.set_ana_state(ANA_GROUP_DEFAULT, state, is_there);
        trace::note(|| Entry::new("ana", format!("{state} at {machine}: {set:?}")));
        if set.is_ok() && serves_nowhere(target) {
            self.closed.push(served.clone());
        }
    }

    /// No request may be at the disk of a target that serves it nowhere.
    fn check_closed(&mut self, find: &impl Fn(IpAddr) -> Option<Served>) {
        if self.closed.is_empty() {
            return;
        }
        let running: Vec<_> = [MACHINE, SECOND].into_iter().filter_map(find).collect();
        let is = |one: &Served, other: &Served| Rc::ptr_eq(&one.target, &other.target);
        self.closed
            .retain(|it| running.iter().any(|other| is(it, other)));
        let requests = self.closed.iter().map(|it| it.disk.requests());
        let requests = requests.max().unwrap_or_default();
        if requests > 0 {
            self.closed.clear();
            self.faults.push(format!(
                "the disk has {requests} requests of a target that has answered that it serves it nowhere"
            ));
        }
    }

    /// What was wrong.
    pub(crate) fn faults(self) -> Vec<String> {
        self.faults
    }

    fn next(&self) -> Option<(IpAddr, AnaState)> {
        self.due.borrow_mut().pop_front()
    }
}

/// Whether the state at each listener of a target refuses commands.
fn serves_nowhere(target: &Target) -> bool {
    let catalog = target.catalog();
    let mut listens = catalog.listen.iter().filter(|it| it.has_ana_states());
    listens.all(|it| catalog.ana_state(ANA_GROUP_DEFAULT, it).refusal().is_some())
}

//! Plans of the states in which targets serve a disk at each of their addresses (ANA).
//!
//! A change takes time: commands at the disk end first. So a plan only says that a change is due,
//! and the world's own loop makes it, as an administrator does.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use fabrix_proto::nvme::ana::{ANA_GROUP_DEFAULT, AnaState};
use fabrix_rt::Nanos;
use fabrix_target::Target;

use crate::choices::Choices;
use crate::server::{MACHINE, SECOND};
use crate::trace::{self, Entry};
use crate::world::World;

/// Changes that are due, in their order.
#[derive(Clone, Default)]
pub(crate) struct Gateways {
    due: Rc<RefCell<VecDeque<(IpAddr, AnaState)>>>,
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

    /// Makes the changes that are due. The world goes on meanwhile. `target_of` names the target of
    /// a machine. One that is not running, or is killed meanwhile, forgets them: it starts with
    /// optimized states.
    pub(crate) fn make_due(&self, target_of: impl Fn(IpAddr) -> Option<Rc<Target>>) {
        while let Some((machine, state)) = self.next() {
            let Some(target) = target_of(machine) else {
                continue;
            };
            let set = target.set_ana_state(ANA_GROUP_DEFAULT, state, |listen| {
                listen.portal.address.ip() == machine
            });
            trace::note(|| Entry::new("ana", format!("{state} at {machine}: {set:?}")));
        }
    }

    fn next(&self) -> Option<(IpAddr, AnaState)> {
        self.due.borrow_mut().pop_front()
    }
}

//! What leads a gateway: it does what its machine asks for, at the cluster and at its target, as
//! the program does.
//!
//! What is asked of the cluster takes time. Calls of the target wait for its shards; the world goes
//! on meanwhile. A process that stands still or has ended does nothing of all that.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::{Device, OpenError, Ownership};
use fabrix_gateways::{Action, GatewayNumber, Outcome, State, controller_ids};
use fabrix_proto::nvme::ana::{ANA_GROUP_DEFAULT, AnaState};
use fabrix_rt::Nanos;
use fabrix_target::{Catalog, Gateways, Listen, TargetError};

use super::group::{Group, Process};
use crate::cluster::ClusterDisk;
use crate::server::{self, TARGETS};
use crate::trace::{self, Entry};
use crate::world::World;

/// What leads a process of a gateway.
#[derive(Clone)]
pub(super) struct Driver {
    pub(super) group: Rc<Group>,
    pub(super) index: usize,
    pub(super) process: Rc<Process>,
}

impl Driver {
    /// Plans a call for when the process runs, at a time or later. There is none if it has ended.
    pub(super) fn at(
        &self,
        world: &World,
        at: Nanos,
        call: impl FnOnce(&Self, &Rc<World>) + 'static,
    ) {
        let driver = self.clone();
        world.plan(at, move |world| {
            let stopped = driver.process.stopped_until.get();
            match driver.process.has_ended.get() {
                true => {}
                false if stopped > world.now() => driver.at(world, stopped, call),
                false => call(&driver, world),
            }
        });
    }

    /// Does what comes next.
    pub(super) fn step(&self, world: &Rc<World>) {
        let next = self.process.gateway.borrow_mut().next(since(world.now()));
        let action = match next {
            Ok(action) => action,
            Err(refusal) => {
                let fault = format!("gateway {} is refused: {refusal:?}", self.index);
                return self.group.fault(fault);
            }
        };
        match action {
            Action::Wait(until) => return self.wait(world, until),
            Action::Leave => {
                self.note("leaves");
                self.group.end(world, self.index, true);
                return;
            }
            Action::GiveUp => return self.give_up(world),
            Action::Release(_) if !self.drain() => return self.report(world, Outcome::Failed),
            _ => {}
        }
        self.ask(world, action);
    }

    /// Waits until a time, unless something happens.
    fn wait(&self, world: &World, until: Duration) {
        let number = self.process.waits_begun.get() + 1;
        self.process.waits_begun.set(number);
        self.process.waits.set(Some(number));
        let at = Nanos(u64::try_from(until.as_nanos()).expect("a time"));
        self.at(world, at.max(world.now()), move |driver, world| {
            if driver.process.waits.get() == Some(number) {
                driver.wake(world);
            }
        });
    }

    /// Ends a wait.
    pub(super) fn wake(&self, world: &Rc<World>) {
        if self.process.waits.take().is_some() {
            self.report(world, Outcome::Done);
        }
    }

    /// Reports an outcome, once the process runs, and goes on.
    fn report(&self, world: &Rc<World>, outcome: Outcome) {
        self.at(world, world.now(), move |driver, world| {
            let is_a_look = matches!(outcome, Outcome::Looked(..));
            let mut gateway = driver.process.gateway.borrow_mut();
            gateway.ended(outcome, since(world.now()));
            drop(gateway);
            if is_a_look {
                driver.follow(world);
            }
            driver.at(world, world.now(), Self::step);
        });
    }

    /// Asks the cluster for something. It is carried out when it arrives there, also if the process
    /// has ended or stands still by then.
    fn ask(&self, world: &World, action: Action) {
        let [there, back] = self.group.cluster.travel();
        let driver = self.clone();
        world.plan(world.now() + there, move |world| {
            if driver.is_cut_off(world) {
                return driver.fail_later(world);
            }
            let outcome = driver.carry_out(world, &action);
            driver.at(
                world,
                world.now() + back,
                move |driver, world| match driver.is_cut_off(world) {
                    true => driver.fail_later(world),
                    false => driver.answered(world, &action, outcome),
                },
            );
        });
    }

    fn is_cut_off(&self, world: &World) -> bool {
        self.group.cluster.reached_at(self.index, world.now()) > world.now()
    }

    /// No answer comes: the group's own client gives up after a while.
    fn fail_later(&self, world: &World) {
        let time = Duration::from_millis(1 + self.group.cluster.draw(PATIENCE));
        self.at(world, world.now() + time, |driver, world| {
            driver.report(world, Outcome::Failed);
        });
    }

    /// The part of an action that the cluster does.
    fn carry_out(&self, world: &World, action: &Action) -> Outcome {
        let cluster = &self.group.cluster;
        let disk = self.process.disk.borrow();
        match action {
            Action::Beat(number, beat) => cluster.beat(*number, beat.clone()),
            Action::Look(numbers) => {
                return Outcome::Looked(cluster.group(), cluster.beats(numbers));
            }
            Action::Fence(client) => cluster.shut_out(world, client),
            Action::Write(version, state) => {
                if !cluster.replace(*version, state.to_string()) {
                    return Outcome::Conflict;
                }
            }
            Action::Take(_) => {
                disk.take_newest_map();
                return at_lock(&disk, &disk.acquire());
            }
            Action::Release(_) => return at_lock(&disk, &disk.release()),
            Action::Renew => return Outcome::Renewed(String::new()),
            Action::GiveUp | Action::Wait(_) | Action::Leave => {}
        }
        Outcome::Done
    }

    /// The cluster has answered: the part of an action that follows here.
    fn answered(&self, world: &Rc<World>, action: &Action, outcome: Outcome) {
        let outcome = match (action, outcome) {
            (Action::Fence(_), Outcome::Done) => {
                self.process.disk.borrow().take_newest_map();
                Outcome::Done
            }
            (Action::Take(_), Outcome::Done) => self.open(),
            (Action::Renew, Outcome::Renewed(_)) => self.renew(),
            (_, outcome) => outcome,
        };
        if !matches!(
            action,
            Action::Beat(..) | Action::Look(_) | Action::Write(..)
        ) {
            self.note(&format!("has done {action:?}: {outcome:?}"));
        }
        self.report(world, outcome);
    }

    /// Lets hosts use the disk.
    fn open(&self) -> Outcome {
        let Some(target) = self.group.target(self.index) else {
            return Outcome::Failed;
        };
        let loaded = target.load_reservations(ANA_GROUP_DEFAULT);
        let set = |()| target.set_ana_state(ANA_GROUP_DEFAULT, AnaState::Optimized, |_| true);
        match loaded.and_then(set) {
            Ok(()) | Err(TargetError::Late) => Outcome::Done,
            Err(_) => Outcome::Failed,
        }
    }

    /// Lets hosts use the disk no more, and waits for their requests. True: none is left.
    fn drain(&self) -> bool {
        let Some(target) = self.group.target(self.index) else {
            return false;
        };
        let set = target.set_ana_state(ANA_GROUP_DEFAULT, AnaState::Inaccessible, |_| true);
        let requests = self.process.disk.borrow().requests();
        if set.is_ok() && requests > 0 {
            let fault = format!(
                "the disk has {requests} requests of a gateway that has answered that it serves it nowhere"
            );
            self.group.fault(fault);
        }
        set.is_ok()
    }

    fn give_up(&self, world: &Rc<World>) {
        self.note("gives the disk up");
        self.process.disk.borrow().lose();
        if let Some(target) = self.group.target(self.index) {
            let _late = target.give_up(&[ANA_GROUP_DEFAULT]);
        }
        self.report(world, Outcome::Done);
    }

    /// Opens the disk by a new client.
    fn renew(&self) -> Outcome {
        let disk = ClusterDisk::open(&self.group.cluster, self.index);
        let address = disk.address();
        *self.process.disk.borrow_mut() = Arc::clone(&disk);
        let Some(target) = self.group.target(self.index) else {
            return Outcome::Renewed(address);
        };
        let device: Arc<dyn Device> = disk;
        let changed = target.change(|catalog| {
            let namespaces = catalog
                .subsystems
                .iter_mut()
                .flat_map(|it| &mut it.namespaces);
            let units = catalog
                .iscsi_targets
                .iter_mut()
                .flat_map(|it| &mut it.units);
            namespaces
                .chain(units)
                .for_each(|export| export.device = Arc::clone(&device));
            Ok(())
        });
        match changed {
            Ok(()) | Err(TargetError::Late) => Outcome::Renewed(address),
            Err(_) => Outcome::Failed,
        }
    }

    /// Tells hosts what the state says of other gateways. A target starts when its gateway has
    /// joined for the first time.
    fn follow(&self, world: &Rc<World>) {
        let gateway = self.process.gateway.borrow();
        let (Some(seat), Some(state)) = (gateway.seat(), gateway.state()) else {
            return;
        };
        let gateways = gateways(seat, state);
        drop(gateway);
        let member = &self.group.members[self.index];
        match self.group.target(self.index) {
            Some(target) if target.catalog().gateways == gateways => {}
            Some(target) => {
                let set = |catalog: &mut Catalog| {
                    catalog.gateways = gateways;
                    Ok(())
                };
                let _late = target.change(set);
            }
            None => {
                *member.exports.borrow_mut() = self.first_catalog(gateways);
                member.server.borrow_mut().restart(world);
            }
        }
    }

    /// A catalog with which hosts cannot use the disk yet.
    fn first_catalog(&self, gateways: Gateways) -> Catalog {
        let device: Arc<dyn Device> = Arc::clone(&self.process.disk.borrow()) as _;
        let mut catalog = server::catalog(&device, &TARGETS[self.index..=self.index]);
        for listen in catalog.listen.clone() {
            catalog.set_ana_state(ANA_GROUP_DEFAULT, &listen, AnaState::Inaccessible);
        }
        catalog.gateways = gateways;
        catalog
    }

    fn note(&self, what: &str) {
        trace::note(|| Entry::new(format!("gateway{}", self.index), what));
    }
}

/// What the state says to hosts of a gateway.
fn gateways((number, life): (GatewayNumber, u64), state: &State) -> Gateways {
    let members = state.members.iter();
    let others = members.filter(|(it, other)| **it != number && !other.fenced);
    let listens = others.flat_map(|(_, other)| &other.listeners);
    let listens = listens.map(|at| Listen::nvme_tcp(at.parse().expect("an address")));
    Gateways {
        controller_ids: controller_ids(number, life),
        others: listens.collect(),
        shut_out: Some(state.ended_controllers(number)),
        ..Gateways::default()
    }
}

/// The outcome at the lock.
fn at_lock(disk: &ClusterDisk, result: &Result<(), OpenError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(_) if disk.is_shut_out() => Outcome::Fenced,
        Err(_) => Outcome::Failed,
    }
}

/// A time of the world, as a gateway counts it.
pub(super) const fn since(now: Nanos) -> Duration {
    Duration::from_nanos(now.0)
}

/// 3 s, in milliseconds: for so long the group's own client waits for an answer.
const PATIENCE: u64 = 3_000;

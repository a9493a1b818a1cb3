//! Hosts with a path to each of several gateways, and the end of their world: what worlds of
//! gateways have in common.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::backlog::Backlog;
use crate::checker::Checker;
use crate::choices::Choices;
use crate::disk_faults::DiskFaults;
use crate::hosts::{self, Host, Protocol, Way};
use crate::one_disk::{self, AFTERWARDS, BLOCKS};
use crate::report::Report;
use crate::run::Run;
use crate::server;
use crate::trace::{self, Entry};
use crate::world::World;

/// The hosts of a world, and what they know of its disk.
pub(crate) struct Users {
    pub(crate) hosts: Rc<RefCell<Vec<Host>>>,
    pub(crate) checker: Rc<RefCell<Checker>>,
    /// When the last fault is over, every request ends within this time.
    most: Duration,
}

impl Users {
    /// Connects two hosts. `backlog`: what a request takes. `faults`: how the disk fails.
    pub(crate) fn start(
        run: &Run,
        world: &Rc<World>,
        protocol: Protocol,
        faults: &DiskFaults,
        mut backlog: Backlog,
    ) -> Self {
        let checker = Rc::new(RefCell::new(Checker::new(BLOCKS)));
        let numbers = (1..=HOSTS).filter(|number| run.keeps_host(*number));
        let hosts: Vec<_> = numbers
            .map(|number| {
                let mut choices = run.choices(4 + number);
                let wish = one_disk::wish(run, &mut choices, faults);
                backlog.requests += wish.requests;
                backlog.pause = backlog.pause.max(wish.pause);
                let way = Way::to_target(protocol);
                Host::start(world, (number, way), &checker, choices, wish)
            })
            .collect();
        Self {
            hosts: Rc::new(RefCell::new(hosts)),
            checker,
            most: backlog.most(),
        }
    }

    /// Lets the world go on until every request has ended, or must have. `each` is called after
    /// each step.
    pub(crate) fn run(&self, world: &Rc<World>, mut each: impl FnMut()) -> Report {
        let began = world.now();
        let limit = world.calm_from().max(began) + self.most;
        let has_ended = |host: &Host| host.workload().borrow().has_ended();
        while !self.hosts.borrow().iter().all(has_ended) && world.now() < limit {
            world.step(limit);
            each();
        }
        Report {
            time: world.now() - began,
            ..Report::default()
        }
    }

    /// The hosts close their disk, or disappear. What is still on its way comes late: it must not
    /// change anything.
    pub(crate) fn leave(
        &self,
        world: &Rc<World>,
        image: impl Fn() -> Vec<u8>,
        choices: &mut Choices,
        report: &mut Report,
    ) {
        hosts::leave(&mut self.hosts.borrow_mut(), self.most, report);
        if choices.once_in(4) {
            trace::note(|| Entry::new("hosts", "disappear without a word"));
            let ends = world.net().connected();
            ends.into_iter().for_each(|end| world.net().cut(end));
        }
        report.faults.extend(self.check(&image()));
        world.run_until(world.now() + AFTERWARDS);
        report.faults.extend(self.check(&image()));
        report.left(world.left());
        report.left(self.hosts.borrow().iter().map(Host::left));
        world.count_into(report);
        self.hosts.borrow().iter().for_each(|host| host.kill(world));
    }

    /// Compares what the disk holds with what it may hold.
    pub(crate) fn check(&self, image: &[u8]) -> Vec<String> {
        server::check_image(image, &self.checker)
    }
}

/// Hosts that share the disk.
const HOSTS: u64 = 2;
/// Keep-alive timeout of a host.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);

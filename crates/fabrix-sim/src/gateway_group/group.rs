//! The gateways of a group: their machines, targets and processes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Device;
use fabrix_gateways::{About, Gateway, GatewayNumber, State};
use fabrix_proto::nvme::ana::{ANA_GROUP_DEFAULT, AnaState};
use fabrix_rt::Nanos;
use fabrix_target::{Catalog, Target};

use super::driver::{Driver, since};
use crate::backing::Backing;
use crate::choices::Choices;
use crate::cluster::{Cluster, ClusterDisk};
use crate::server::{self, Server, TARGETS};
use crate::trace::{self, Entry};
use crate::world::World;

/// The gateways of a group.
pub(super) struct Group {
    pub(super) cluster: Cluster,
    pub(super) members: Vec<Member>,
    faults: RefCell<Vec<String>>,
}

/// A machine with a gateway.
pub(super) struct Member {
    pub(super) server: RefCell<Server>,
    /// What the target exports when it starts.
    pub(super) exports: Rc<RefCell<Catalog>>,
    process: RefCell<Option<Rc<Process>>>,
}

/// A process of a gateway.
pub(super) struct Process {
    pub(super) gateway: RefCell<Gateway>,
    /// Its address for neighbours.
    pub(super) neighbour: String,
    pub(super) disk: RefCell<Arc<ClusterDisk>>,
    /// It stands still until then.
    pub(super) stopped_until: Cell<Nanos>,
    /// Number of the wait that is not over.
    pub(super) waits: Cell<Option<u64>>,
    /// Waits that have begun.
    pub(super) waits_begun: Cell<u64>,
    pub(super) has_ended: Cell<bool>,
}

/// The cluster, as a machine has it.
struct At(Cluster, usize);

impl Backing for At {
    fn open(&self) -> Arc<dyn Device> {
        ClusterDisk::open(&self.0, self.1)
    }

    fn image(&self) -> Vec<u8> {
        self.0.image()
    }

    fn lose_power(&self) {}
}

impl Group {
    /// Starts all gateways, and waits until one of them serves and all can be reached.
    pub(super) fn start(world: &Rc<World>, cluster: &Cluster, choices: &mut Choices) -> Rc<Self> {
        let member = |index| {
            let exports = Rc::new(RefCell::new(Catalog::default()));
            let shards = usize::try_from(choices.between(1, 2)).expect("few");
            let backing = Rc::new(At(cluster.clone(), index));
            let starts = Rc::clone(&exports);
            Member {
                server: RefCell::new(Server::stopped(backing, shards, move || {
                    starts.borrow().clone()
                })),
                exports,
                process: RefCell::default(),
            }
        };
        let group = Rc::new(Self {
            cluster: cluster.clone(),
            members: (0..TARGETS.len()).map(member).collect(),
            faults: RefCell::default(),
        });
        let indexes = 0..group.members.len();
        indexes.for_each(|index| group.start_process(world, index));
        let until = world.now() + STARTED;
        while !group.is_ready() && world.step(until) {}
        group
    }

    fn is_ready(&self) -> bool {
        let is_up = |member: &Member| member.server.borrow().target().is_some();
        self.members.iter().all(is_up) && self.serving().len() == 1
    }

    /// Starts the process of a gateway that does not run.
    pub(super) fn start_process(self: &Rc<Self>, world: &Rc<World>, index: usize) {
        let disk = ClusterDisk::open(&self.cluster, index);
        let name = format!("gateway{index}");
        trace::note(|| Entry::new(name.as_str(), format!("starts as {}", disk.address())));
        let uuid = "the-disk".to_owned();
        // Every process has another one.
        let neighbour = disk.address();
        let about = About {
            name,
            neighbour: neighbour.clone(),
            exports: "the-names".to_owned(),
            listeners: vec![server::nvme_at(TARGETS[index]).to_string()],
            disks: [(1, (uuid, ANA_GROUP_DEFAULT))].into(),
        };
        let mut gateway = Gateway::new(about, disk.address(), since(world.now()));
        gateway.hosts_are_connected(true);
        let process = Rc::new(Process {
            gateway: RefCell::new(gateway),
            neighbour,
            disk: RefCell::new(disk),
            stopped_until: Cell::default(),
            waits: Cell::default(),
            waits_begun: Cell::default(),
            has_ended: Cell::default(),
        });
        *self.members[index].process.borrow_mut() = Some(Rc::clone(&process));
        let driver = Driver {
            group: Rc::clone(self),
            index,
            process,
        };
        driver.at(world, world.now(), Driver::step);
    }

    /// What leads a gateway that runs.
    pub(super) fn driver(self: &Rc<Self>, index: usize) -> Option<Driver> {
        let process = self.process(index)?;
        let group = Rc::clone(self);
        Some(Driver {
            group,
            index,
            process,
        })
    }

    pub(super) fn process(&self, index: usize) -> Option<Rc<Process>> {
        self.members[index].process.borrow().clone()
    }

    /// The target of a gateway, once it listens.
    pub(super) fn target(&self, index: usize) -> Option<Rc<Target>> {
        self.members[index].server.borrow().target()
    }

    /// The process of a gateway ends. Its neighbours hear of it soon, or not at all. Result:
    /// whether it was running.
    pub(super) fn end(self: &Rc<Self>, world: &Rc<World>, index: usize, is_heard: bool) -> bool {
        let Some(process) = self.members[index].process.take() else {
            return false;
        };
        process.has_ended.set(true);
        self.members[index].server.borrow_mut().kill(world);
        if is_heard {
            self.tell(world, move |driver| {
                let mut gateway = driver.process.gateway.borrow_mut();
                gateway.peer_ended(&process.neighbour);
            });
        }
        true
    }

    /// All processes end.
    pub(super) fn end_all(self: &Rc<Self>, world: &Rc<World>) {
        for index in 0..self.members.len() {
            self.end(world, index, false);
        }
    }

    /// The gateways that run hear of something soon.
    fn tell(self: &Rc<Self>, world: &Rc<World>, what: impl Fn(&Driver) + Clone + 'static) {
        let drivers = (0..self.members.len()).filter_map(|index| self.driver(index));
        for driver in drivers {
            let time = Duration::from_millis(self.cluster.draw(50));
            let what = what.clone();
            driver.at(world, world.now() + time, move |driver, world| {
                what(driver);
                driver.wake(world);
            });
        }
    }

    /// Asks for a move of the disk to a gateway, as an operator does. Result: whether it can be
    /// asked.
    pub(super) fn want(self: &Rc<Self>, world: &Rc<World>, index: usize) -> Option<GatewayNumber> {
        let (version, text) = self.cluster.group()?;
        let mut state = State::parse(&text).expect("what a gateway has stored");
        let (number, _) = state.named(&format!("gateway{index}"))?;
        state.wanted.insert(ANA_GROUP_DEFAULT, number);
        self.cluster.replace(Some(version), state.to_string());
        self.tell(world, |driver| {
            driver.process.gateway.borrow_mut().look_again();
        });
        Some(number)
    }

    /// The gateways that serve the disk.
    fn serving(&self) -> Vec<usize> {
        let serves = |index: &usize| {
            let process = self.process(*index);
            process.is_some_and(|it| !it.gateway.borrow().serving().is_empty())
        };
        (0..self.members.len()).filter(serves).collect()
    }

    /// In quiet exactly one gateway serves, and its target alone lets hosts use the disk.
    pub(super) fn check_calm(&self) -> Option<String> {
        let serving = self.serving();
        let opens = |index: &usize| {
            let catalog = self.target(*index).map(|target| target.catalog());
            catalog.is_some_and(|catalog| {
                let listen = catalog.listen[0];
                catalog.ana_state(ANA_GROUP_DEFAULT, &listen) == AnaState::Optimized
            })
        };
        let open: Vec<_> = (0..self.members.len()).filter(opens).collect();
        let is_right = serving.len() == 1 && serving == open;
        (!is_right)
            .then(|| format!("in quiet the gateways {serving:?} serve, and hosts can use {open:?}"))
    }

    /// Notes that something is wrong.
    pub(super) fn fault(&self, fault: String) {
        self.faults.borrow_mut().push(fault);
    }

    /// What was wrong.
    pub(super) fn faults(&self) -> Vec<String> {
        self.faults.take()
    }

    /// What hosts that have left have left behind, with a name for each.
    pub(super) fn left(&self) -> Vec<(&'static str, usize)> {
        let all = self.members.iter();
        all.flat_map(|it| it.server.borrow().left()).collect()
    }
}

/// All gateways have joined by then.
const STARTED: Duration = Duration::from_secs(20);

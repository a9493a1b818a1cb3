//! Worlds with two targets: a gateway attaches the disk of a target over one protocol, and exports
//! it again over both.
//!
//! Some hosts use the disk through the gateway and one at its own target. The promise is that of
//! worlds with one target: no fault of the network, the target or the gateway loses or changes
//! data, every request ends, and nothing is left behind. What was made durable survives a loss of
//! power.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Device;
use fabrix_host::Options;

use crate::backing::Backing;
use crate::backlog::Backlog;
use crate::checker::Checker;
use crate::choices::Choices;
use crate::disk::{DiskHabits, SimDisk};
use crate::disk_faults::DiskFaults;
use crate::faults;
use crate::hosts::{self, Host, Protocol, Way};
use crate::net::{self, EndId, Habits};
use crate::one_disk::{self, AFTERWARDS, BLOCKS};
use crate::report::Report;
use crate::run::Run;
use crate::server::{self, Server};
use crate::trace::{self, Entry};
use crate::workload::Wish;
use crate::world::World;

/// Runs the world.
pub(crate) fn run(run: &Run) -> Report {
    let mut choices = run.choices(0);
    let mut net = Habits::draw(&mut choices);
    net.piece = net.piece.max(SHORTEST_PIECE);
    let world = World::new(run, net);
    let habits = DiskHabits::draw(BLOCKS, &mut choices);
    let mut backlog = Backlog {
        at_disk: habits.longest,
        ..Backlog::default()
    };
    let backing: Rc<dyn Backing> = Rc::new(SimDisk::new(habits, run.choices(4)));
    let server = Server::start(
        &world,
        Rc::clone(&backing),
        shards(&mut choices),
        &[server::MACHINE],
    );
    let server = Rc::new(RefCell::new(server));
    let gateway = Gateway::new(&world, backing, &mut choices);
    let gateway = Rc::new(RefCell::new(gateway));
    Gateway::start(&gateway, &world);
    let checker = Rc::new(RefCell::new(Checker::new(BLOCKS)));
    let ways = [GATEWAY, GATEWAY, server::MACHINE].map(|machine| Way {
        protocol: choices.one_of(&[Protocol::Nvme, Protocol::Iscsi]),
        machine,
    });
    let ways = (1..)
        .zip(ways)
        .filter(|(number, _)| run.keeps_host(*number));
    let hosts = ways.map(|(number, way)| {
        let mut choices = run.choices(4 + number);
        let wish = one_disk::wish(run, &mut choices, &DiskFaults::default());
        let wish = Wish {
            requests: wish.requests.min(REQUESTS),
            flushes_apart: way.protocol == Protocol::Iscsi && way.machine == GATEWAY,
            ..wish
        };
        backlog.requests += wish.requests;
        backlog.pause = backlog.pause.max(wish.pause);
        Host::start(&world, (number, way), &checker, choices, wish)
    });
    let mut hosts: Vec<Host> = hosts.collect();
    faults::plan(&world, &server, &mut choices);
    plan_killed_gateways(&world, &gateway, &mut choices);
    if choices.once_in(3) {
        faults::plan_power_losses(&world, &server, &checker, &mut choices);
    }
    let began = world.now();
    // An outage of each target, and each request travels twice.
    let most = backlog.most() * 2;
    let limit = world.calm_from().max(began) + most;
    let has_ended = |host: &Host| host.workload().borrow().has_ended();
    while !hosts.iter().all(has_ended) && world.now() < limit {
        world.step(limit);
    }
    let mut report = Report {
        time: world.now() - began,
        ..Report::default()
    };
    hosts::leave(&mut hosts, most, &mut report);
    if choices.once_in(4) {
        trace::note(|| Entry::new("hosts", "disappear without a word"));
        let ends = world.net().connected();
        ends.into_iter().for_each(|end| world.net().cut(end));
    }
    report.faults.extend(server.borrow().check_image(&checker));
    // While the gateway is there, it talks with its target.
    let limit = world.now() + AFTERWARDS;
    let is_used = || gateway.borrow().server.left().iter().any(|it| it.1 > 0);
    while is_used() && world.now() < limit {
        world.step(limit);
    }
    report.left(gateway.borrow().server.left());
    gateway.borrow_mut().is_over = true;
    gateway.borrow_mut().kill(&world);
    world.run_until(world.now() + AFTERWARDS);
    // What was still on its way has come late: it must not have changed anything.
    report.faults.extend(server.borrow().check_image(&checker));
    report.left(world.left());
    report.left(hosts.iter().map(Host::left));
    report.left(server.borrow().left());
    world.count_into(&mut report);
    hosts.iter().for_each(|host| host.kill(&world));
    server.borrow_mut().lose_power(&world, &checker);
    report.faults.extend(server.borrow().check_image(&checker));
    report
}

fn shards(choices: &mut Choices) -> usize {
    usize::try_from(choices.between(1, 3)).expect("few")
}

/// A host of the target, and a target itself.
struct Gateway {
    server: Server,
    way: Way,
    options: Options,
    /// The disk as this process has attached it.
    disk: Rc<RefCell<Option<Arc<dyn Device>>>>,
    /// The addresses of its shards, and of those of its former processes.
    addresses: Vec<IpAddr>,
    /// It does not start again.
    is_over: bool,
}

impl Gateway {
    /// A gateway that is not running.
    fn new(world: &Rc<World>, backing: Rc<dyn Backing>, choices: &mut Choices) -> Self {
        let disk = Rc::new(RefCell::new(None));
        let attached = Rc::clone(&disk);
        let exports = move || {
            let disk = attached.borrow();
            server::catalog(disk.as_ref().expect("it is attached"), &[GATEWAY])
        };
        let server = Server::stopped(backing, shards(choices), exports);
        let protocol = choices.one_of(&[Protocol::Nvme, Protocol::Iscsi]);
        let name = world.net().take_number();
        Self {
            server,
            way: Way::to_target(protocol),
            options: hosts::options(world, (name, NUMBER), |_| (), choices),
            disk,
            addresses: Vec::new(),
            is_over: false,
        }
    }

    /// Starts the process: it attaches the disk and exports it. If the target does not answer, it
    /// ends and is started again.
    fn start(gateway: &Rc<RefCell<Self>>, world: &Rc<World>) {
        if gateway.borrow().is_over {
            return;
        }
        let Some(disk) = Self::attach(gateway, world) else {
            let gateway = Rc::clone(gateway);
            let at = world.now() + PAUSE;
            return world.plan(at, move |world| Self::start(&gateway, world));
        };
        trace::note(|| Entry::new("gateway", "has attached the disk"));
        let gateway = &mut *gateway.borrow_mut();
        gateway.disk.replace(Some(disk));
        gateway.server.restart(world);
        let shards = gateway.server.shards().iter();
        gateway
            .addresses
            .extend(shards.map(|id| net::address_of(*id)));
    }

    /// The disk. None: the target does not answer, or has not noticed yet that a former process is
    /// gone. With NVMe it sees to that itself. To iSCSI each process is another initiator port, so
    /// the new session does not end those of the former one.
    fn attach(gateway: &RefCell<Self>, world: &World) -> Option<Arc<dyn Device>> {
        let (way, options) = {
            let gateway = gateway.borrow();
            let is_known = |address: &IpAddr| world.net().has_peer(*address);
            if gateway.way.protocol == Protocol::Iscsi && gateway.addresses.iter().any(is_known) {
                return None;
            }
            (gateway.way, gateway.options.clone())
        };
        // The world goes on meanwhile.
        hosts::connect(way, NUMBER, 0, &options).ok()
    }

    /// Ends the process, as kill -9 does. What it has sent to the target and has not arrived is
    /// lost. False: it has ended before, or starts.
    fn kill(&mut self, world: &World) -> bool {
        let net = world.net();
        let is_its_peer = |end: &EndId| {
            let peer = net.peer_address(*end).map(|peer| peer.ip());
            peer.is_some_and(|peer| self.addresses.contains(&peer))
        };
        let ends = net.connected().into_iter().filter(is_its_peer);
        ends.for_each(|end| net.reset(end));
        self.disk.take();
        self.server.kill(world)
    }
}

/// Plans that the gateway is killed, and starts again after a time.
fn plan_killed_gateways(world: &Rc<World>, gateway: &Rc<RefCell<Gateway>>, choices: &mut Choices) {
    let span = choices.one_of(&[100_000, 1_000_000, 20_000_000]);
    for _ in 0..choices.below(3) {
        let at = world.now() + Duration::from_micros(choices.below(span));
        let down = Duration::from_millis(choices.below(3_000));
        world.is_disturbed_until(at + down);
        let gateway = Rc::clone(gateway);
        world.plan_fault(at, move |world| {
            if !gateway.borrow_mut().kill(world) {
                return None;
            }
            let at = world.now() + down;
            world.plan(at, move |world| Gateway::start(&gateway, world));
            Some(format!(
                "the gateway is killed, and starts again in {down:?}"
            ))
        });
    }
}

/// Shorter pieces would cost too many turns on two ways.
const SHORTEST_PIECE: usize = 500;
/// Most requests of a host: through the gateway each costs twice as much.
const REQUESTS: u64 = 25;
/// The machine of the gateway.
const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
/// Number of the gateway among the hosts of the target.
const NUMBER: usize = 1;
/// Time between two attempts to start the gateway.
const PAUSE: Duration = Duration::from_millis(200);

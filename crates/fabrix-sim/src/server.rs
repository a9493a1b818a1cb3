//! The target of a world, which exports one disk over both protocols, and can be killed and started
//! again.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use fabrix_block::Device;
use fabrix_target::{
    Catalog, Deadlines, Export, Initiators, IscsiTargetConfig, Limits, Listen, ReservationStore,
    SubsystemConfig, Target, TargetConfig,
};

use crate::backing::Backing;
use crate::checker::Checker;
use crate::images::BLOCK;
use crate::store::SimStore;
use crate::trace::{self, Entry};
use crate::workload;
use crate::world::World;

/// A target and its disk.
pub(crate) struct Server {
    backing: Rc<dyn Backing>,
    shard_count: usize,
    shards: Vec<usize>,
    target: Option<Rc<Target>>,
    /// What a target exports when it starts.
    catalog: Box<dyn Fn() -> Catalog>,
    store: Option<SimStore>,
    when_killed: Option<Box<dyn FnMut()>>,
}

impl Server {
    /// Starts a target with so many shards, which listens at these machines' addresses.
    pub(crate) fn start(
        world: &Rc<World>,
        backing: Rc<dyn Backing>,
        shard_count: usize,
        machines: &'static [IpAddr],
    ) -> Self {
        let opens = Rc::clone(&backing);
        let exports = move || catalog(&opens.open(), machines);
        let mut server = Self::stopped(backing, shard_count, exports);
        server.restart(world);
        server
    }

    /// Starts a target that may store reservations.
    pub(crate) fn with_store(
        world: &Rc<World>,
        backing: Rc<dyn Backing>,
        shard_count: usize,
        store: Option<SimStore>,
    ) -> Self {
        let opens = Rc::clone(&backing);
        let mut server = Self::stopped(backing, shard_count, move || {
            catalog(&opens.open(), &[MACHINE])
        });
        server.store = store;
        server.restart(world);
        server
    }

    /// A target that is not running. It exports a catalog when it starts.
    pub(crate) fn stopped(
        backing: Rc<dyn Backing>,
        shard_count: usize,
        catalog: impl Fn() -> Catalog + 'static,
    ) -> Self {
        Self {
            backing,
            shard_count,
            shards: Vec::new(),
            target: None,
            catalog: Box::new(catalog),
            store: None,
            when_killed: None,
        }
    }

    /// The target, while it runs.
    pub(crate) fn target(&self) -> Option<Rc<Target>> {
        self.target.clone()
    }

    /// Shards of the target.
    pub(crate) fn shards(&self) -> &[usize] {
        &self.shards
    }

    /// Has a function called whenever the target is killed.
    pub(crate) fn when_killed(&mut self, function: impl FnMut() + 'static) {
        self.when_killed = Some(Box::new(function));
    }

    /// Starts the target again after its end.
    pub(crate) fn restart(&mut self, world: &Rc<World>) {
        trace::note(|| Entry::new("target", "starts"));
        let made: Vec<_> = (0..self.shard_count).map(|_| world.add_shard()).collect();
        let remotes = made.iter().map(|(_, shard)| shard.borrow().remote());
        let remotes = remotes.collect();
        self.shards = made.iter().map(|(id, _)| *id).collect();
        drop(made);
        let store = self.store.clone();
        let config = config((self.catalog)(), store.map(|store| Arc::new(store) as _));
        let target = Target::start_with(config, Deadlines::default(), remotes, world.control());
        self.target = Some(Rc::new(target.expect("a target")));
    }

    /// Ends the process of the target, as kill -9 does. False: it has ended before.
    pub(crate) fn kill(&mut self, world: &World) -> bool {
        for shard in self.shards.drain(..) {
            world.kill(shard);
        }
        let was_running = self.target.take().is_some();
        if was_running {
            self.store.iter().for_each(SimStore::crash);
            self.when_killed.iter_mut().for_each(|function| function());
        }
        was_running
    }

    /// The machine of the target and its disk lose their power. False: the process of the target
    /// has ended before.
    pub(crate) fn lose_power(&mut self, world: &World, checker: &RefCell<Checker>) -> bool {
        trace::note(|| Entry::new("target", "loses its power, with its disk"));
        self.backing.lose_power();
        checker.borrow_mut().power_lost();
        self.kill(world)
    }

    /// Compares what the disk holds with what it may hold.
    pub(crate) fn check_image(&self, checker: &RefCell<Checker>) -> Vec<String> {
        check_image(&self.backing.image(), checker)
    }

    /// What hosts that have left have left behind, with a name for each.
    pub(crate) fn left(&self) -> [(&'static str, usize); 3] {
        let target = self.target.as_deref();
        [
            ("connections", target.map_or(0, Target::connections)),
            ("controllers", target.map_or(0, Target::controllers)),
            ("sessions", target.map_or(0, Target::sessions)),
        ]
    }
}

/// Compares what a disk holds with what it may hold.
pub(crate) fn check_image(image: &[u8], checker: &RefCell<Checker>) -> Vec<String> {
    let mut checker = checker.borrow_mut();
    let blocks = 0..(image.len() / BLOCK) as u64;
    let read = checker.read_begins(blocks.clone());
    let wrong = match workload::values(image, blocks) {
        Ok(values) => checker.read_ends(read, &values).err(),
        Err(fault) => return vec![fault],
    };
    let wrong = wrong.map(|wrong| format!("at the end: {wrong}"));
    wrong.into_iter().collect()
}

/// Where the target listens for NVMe/TCP.
pub(crate) fn nvme_address() -> SocketAddr {
    nvme_at(MACHINE)
}

/// Where the target listens for iSCSI.
pub(crate) fn iscsi_address() -> SocketAddr {
    iscsi_at(MACHINE)
}

/// Where the target of a machine listens for NVMe/TCP.
pub(crate) fn nvme_at(machine: IpAddr) -> SocketAddr {
    SocketAddr::new(machine, NVME_PORT)
}

/// Where the target of a machine listens for iSCSI.
pub(crate) fn iscsi_at(machine: IpAddr) -> SocketAddr {
    SocketAddr::new(machine, 3260)
}

/// Whether the target of some machine listens here for NVMe/TCP.
pub(crate) fn is_nvme(address: SocketAddr) -> bool {
    address.port() == NVME_PORT
}

/// A disk, which a target exports over both protocols, at the addresses of these machines.
pub(crate) fn catalog(device: &Arc<dyn Device>, machines: &[IpAddr]) -> Catalog {
    let export = |number| Export::new(number, Arc::clone(device));
    Catalog {
        subsystems: vec![SubsystemConfig {
            nqn: SUBSYSTEM.to_owned(),
            serial: "FBXSIM".to_owned(),
            model: "Fabrix simulated".to_owned(),
            firmware: "0.1".to_owned(),
            grows: false,
            hosts: None,
            namespaces: vec![export(1)],
        }],
        iscsi_targets: vec![IscsiTargetConfig {
            name: ISCSI_TARGET.to_owned(),
            port: 1,
            product: "simulated".to_owned(),
            revision: "0.1".to_owned(),
            initiators: Initiators::anybody(),
            units: vec![export(0)],
        }],
        listen: machines
            .iter()
            .flat_map(|machine| listens(*machine))
            .collect(),
        ana_states: Vec::new(),
        gateways: fabrix_target::Gateways::default(),
    }
}

fn listens(machine: IpAddr) -> [Listen; 3] {
    [
        Listen::nvme_tcp(nvme_at(machine)),
        Listen::nvme_rdma(nvme_at(machine)),
        Listen::iscsi(iscsi_at(machine)),
    ]
}

fn config(catalog: Catalog, reservation_store: Option<Arc<dyn ReservationStore>>) -> TargetConfig {
    TargetConfig {
        catalog,
        limits: Limits {
            max_io_queues: 4,
            max_queue_entries: 32,
            max_transfer_bytes: 1 << 20,
        },
        reservation_store,
        counts: false,
        max_connections: 64,
        max_unauthenticated: 64,
        notify: Box::new(|_| ()),
    }
}

/// The machine of the target.
pub(crate) const MACHINE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// Another address of the target, for hosts with two paths.
pub(crate) const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// The machine of a third gateway.
pub(crate) const THIRD: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 4));
/// Every address of a target.
pub(crate) const TARGETS: [IpAddr; 3] = [MACHINE, SECOND, THIRD];
const NVME_PORT: u16 = 4420;
/// Name of the NVMe subsystem.
pub(crate) const SUBSYSTEM: &str = "nqn.2014-08.org.example:simulated";
/// Name of the iSCSI target.
pub(crate) const ISCSI_TARGET: &str = "iqn.2026-01.org.example:simulated";

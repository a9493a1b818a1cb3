//! Common parts of the target's tests: a target on shards of its own, a host that can send any
//! bytes, and disks that follow a test's rules.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::missing_panics_doc,
    reason = "a module of several test programs, none uses all of it"
)]

pub mod disk;
pub mod host;
pub mod wire;

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabrix_block::ram::RamDisk;
use fabrix_block::{Device, Geometry, Identity};
use fabrix_rt::{Engine, HugePages, Remote, Shard, ShardConfig, ShardThread, engine, spawn};
use fabrix_sim::Place;
use fabrix_target::{
    Catalog, Deadlines, Export, Initiators, IscsiTargetConfig, Limits, Listen, NAMESPACES_MAX,
    Notice, ReservationStore, SubsystemConfig, Target, TargetConfig, TargetError,
};

use host::Host;

/// The subsystem that every stage serves.
pub const NQN: &str = "nqn.2026-01.example:fabrix-target-tests";
/// The same disks as an iSCSI target.
pub const IQN: &str = "iqn.2026-01.example:fabrix-target-tests";
/// NQN of the tests' hosts, unless a test names another.
pub const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001";
/// Time limit of every wait. A wait that reaches the limit has found a fault.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Parameters of a stage.
pub struct Plan {
    pub shards: usize,
    pub arena_bytes: usize,
    pub devices: Vec<Arc<dyn Device>>,
    pub hosts: Option<Vec<String>>,
    pub initiators: Initiators,
    pub max_connections: usize,
    pub max_unauthenticated: usize,
    pub max_queue_entries: u16,
    pub max_transfer_bytes: u32,
    pub deadlines: Deadlines,
    pub reservation_store: Option<Arc<dyn ReservationStore>>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            shards: 2,
            arena_bytes: 256 << 20,
            devices: vec![ram("first", 512, 16 << 20)],
            hosts: None,
            initiators: Initiators::anybody(),
            max_connections: 64,
            max_unauthenticated: 64,
            max_queue_entries: 128,
            max_transfer_bytes: 1 << 20,
            deadlines: Deadlines::default(),
            reservation_store: None,
        }
    }
}

impl Plan {
    /// The usual stage with one disk.
    pub fn of(device: Arc<dyn Device>) -> Self {
        Self {
            devices: vec![device],
            ..Self::default()
        }
    }
}

/// A running target and its shards. The drop stops the shards and checks that none panicked.
pub struct Stage {
    pub target: Target,
    pub address: SocketAddr,
    place: Place,
    shards: Vec<ShardThread>,
    remotes: Vec<Remote>,
    /// The numbers of the shards in the world.
    numbers: Vec<usize>,
    notices: Mutex<Receiver<Notice>>,
}

impl Stage {
    /// A target over one RAM disk of 512-byte blocks.
    pub fn new(engine: Engine) -> Self {
        Self::set(engine, Plan::default())
    }

    pub fn set(engine: Engine, plan: Plan) -> Self {
        let shards: Vec<_> = (0..plan.shards)
            .map(|id| shard(engine, id, plan.arena_bytes))
            .collect();
        let remotes = shards.iter().map(|shard| shard.remote.clone()).collect();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut stage = Self::start(Place::machine(), plan, remotes, any);
        stage.shards = shards;
        stage
    }

    /// In a world of its own, where waiting takes no real time.
    pub fn in_world(plan: Plan) -> Self {
        let place = Place::world();
        let shards = (0..plan.shards).map(|_| place.add_shard());
        let (numbers, remotes): (Vec<_>, Vec<_>) = shards.unzip();
        let any = SocketAddr::from(([10, 0, 0, 1], 0));
        let mut stage = Self::start(place, plan, remotes, any);
        stage.numbers = numbers;
        stage
    }

    fn start(place: Place, plan: Plan, remotes: Vec<Remote>, any: SocketAddr) -> Self {
        let (tell, notices) = channel();
        let tell = Mutex::new(tell);
        let disks: Vec<_> = (1..)
            .zip(plan.devices)
            .map(|(number, device)| Export::new(number, device))
            .collect();
        let catalog = Catalog {
            subsystems: vec![SubsystemConfig {
                hosts: plan.hosts,
                ..subsystem(NQN, disks.clone())
            }],
            iscsi_targets: vec![IscsiTargetConfig {
                initiators: plan.initiators,
                ..iscsi_target(IQN, 1, units(&disks))
            }],
            listen: vec![Listen::nvme_tcp(any), Listen::iscsi(any)],
            ana_states: Vec::new(),
            gateways: fabrix_target::Gateways::default(),
        };
        let config = TargetConfig {
            catalog,
            limits: Limits {
                max_io_queues: 8,
                max_queue_entries: plan.max_queue_entries,
                max_transfer_bytes: plan.max_transfer_bytes,
            },
            reservation_store: plan.reservation_store,
            counts: false,
            max_connections: plan.max_connections,
            max_unauthenticated: plan.max_unauthenticated,
            notify: Box::new(move |notice| {
                let _nobody_listens = tell.lock().expect("no panic here").send(notice.clone());
            }),
        };
        let control = place.control();
        let target = Target::start_with(config, plan.deadlines, remotes.clone(), control);
        let target = target.expect("a target");
        let address = target.addresses()[0];
        Self {
            target,
            address,
            place,
            shards: Vec::new(),
            remotes,
            numbers: Vec::new(),
            notices: Mutex::new(notices),
        }
    }

    /// The disks of the first subsystem.
    pub fn exports(&self) -> Vec<Export> {
        self.target.catalog().subsystems[0].namespaces.clone()
    }

    /// Changes the disks of the first subsystem, and of the first iSCSI target likewise.
    pub fn change_disks(&self, edit: impl FnOnce(&mut Vec<Export>)) -> Result<(), TargetError> {
        self.target.change(|catalog| {
            edit(&mut catalog.subsystems[0].namespaces);
            catalog.iscsi_targets[0].units = units(&catalog.subsystems[0].namespaces);
            Ok(())
        })
    }

    pub fn add(&self, export: Export) -> Result<(), TargetError> {
        self.change_disks(|disks| disks.push(export))
    }

    pub fn remove(&self, nsid: u32) -> Result<Export, TargetError> {
        let mut removed = None;
        self.change_disks(|disks| {
            let at = disks.iter().position(|export| export.number == nsid);
            removed = Some(disks.remove(at.expect("it is exported")));
        })?;
        Ok(removed.expect("it was removed"))
    }

    pub fn replace(&self, export: Export) -> Result<(), TargetError> {
        self.change_disks(|disks| {
            let at = disks.iter().position(|it| it.number == export.number);
            disks[at.expect("it is exported")] = export;
        })
    }

    /// Opens one more listener. Returns its address with the port that the system chose.
    pub fn open_port(&self, listen: Listen) -> Result<SocketAddr, TargetError> {
        self.target.change(|catalog| {
            catalog.listen.push(listen);
            Ok(())
        })?;
        let listens = self.target.catalog().listen;
        Ok(listens.last().expect("it was added").portal.address)
    }

    pub fn close_port(&self, address: SocketAddr) -> Result<(), TargetError> {
        self.target.change(|catalog| {
            catalog.listen.retain(|it| it.portal.address != address);
            Ok(())
        })
    }

    pub fn set_hosts(&self, hosts: Option<Vec<String>>) -> Result<(), TargetError> {
        self.target.change(|catalog| {
            catalog.subsystems[0].hosts = hosts;
            Ok(())
        })
    }

    pub fn set_initiators(&self, names: Option<Vec<String>>) -> Result<(), TargetError> {
        self.target.change(|catalog| {
            catalog.iscsi_targets[0].initiators.names = names;
            Ok(())
        })
    }

    /// A new TCP connection, before the first PDU.
    pub fn dial(&self) -> Host {
        Host::dial(self.address)
    }

    /// An admin queue, ready for commands.
    pub fn admin(&self) -> Host {
        Host::admin(self.address)
    }

    /// An admin queue and its first I/O queue.
    pub fn admin_and_io(&self) -> (Host, Host) {
        let admin = self.admin();
        let io = self.io(&admin, 1);
        (admin, io)
    }

    /// An I/O queue of a controller.
    pub fn io(&self, admin: &Host, qid: u16) -> Host {
        Host::io(self.address, admin.controller, qid)
    }

    /// Runs a function on a shard, and waits for its result.
    pub fn ask<T: Send + 'static>(
        &self,
        shard: usize,
        question: impl FnOnce(&mut Shard) -> T + Send + 'static,
    ) -> T {
        let (tell, told) = sync_channel(1);
        let run = move |shard: &mut Shard| {
            let _nobody_waits = tell.send(question(shard));
        };
        self.remotes[shard]
            .run(Box::new(run))
            .expect("room in the mailbox");
        self.receive(&told, "the shard turns, it does not hang")
    }

    /// Waits for something in a channel.
    fn receive<T>(&self, told: &Receiver<T>, what: &str) -> T {
        if !self.place.is_world() {
            return told.recv_timeout(PATIENCE).expect(what);
        }
        let deadline = self.place.now() + PATIENCE;
        loop {
            if let Ok(it) = told.try_recv() {
                return it;
            }
            assert!(self.place.now() < deadline, "{what}");
            self.place.pause(MOMENT);
        }
    }

    /// Stops a shard until the result is dropped. The shard then finds all events of the meantime
    /// at once.
    pub fn stop(&self, shard: usize) -> Sender<()> {
        let (wake, asleep) = channel::<()>();
        let (tell, told) = channel();
        let sleep = move |_: &mut Shard| {
            let _listens = tell.send(());
            let _woken = asleep.recv();
        };
        self.remote(shard).run(Box::new(sleep)).expect("room");
        told.recv_timeout(PATIENCE).expect("it stops");
        wake
    }

    /// Lets a shard of a world stand still for a time.
    pub fn stop_for(&self, shard: usize, time: Duration) {
        self.place.stop_shard(self.numbers[shard], time);
    }

    /// The time at its place.
    pub fn now(&self) -> Duration {
        self.place.now()
    }

    /// The mailbox of a shard.
    pub fn remote(&self, shard: usize) -> &Remote {
        &self.remotes[shard]
    }

    /// Repeats a check until it succeeds. Every shard turns between two checks.
    pub fn until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let deadline = self.now() + PATIENCE;
        while !is_so(self) {
            assert!(self.now() < deadline, "never: {what}");
            for shard in 0..self.remotes.len() {
                self.ask(shard, |_| ());
            }
        }
    }

    /// Bytes of buffers in use, on all shards.
    pub fn buffer_bytes(&self) -> usize {
        (0..self.remotes.len())
            .map(|shard| self.ask(shard, |shard| shard.buffer_bytes_in_use()))
            .sum()
    }

    /// Waits until no connection, no controller and no used buffer is left.
    pub fn until_empty(&self) {
        self.until("all connections are gone", |stage| {
            stage.target.connections() == 0
        });
        self.until("all controllers are gone", |stage| {
            stage.target.controllers() == 0
        });
        self.until("all buffers are free", |stage| stage.buffer_bytes() == 0);
    }

    /// Waits for a notice that `wanted` accepts.
    pub fn notice(&self, mut wanted: impl FnMut(&Notice) -> bool) -> Notice {
        let notices = self.notices.lock().expect("one test, one thread");
        loop {
            let notice = self.receive(&notices, "a notice");
            if wanted(&notice) {
                return notice;
            }
        }
    }

    /// Checks that a new host is served.
    pub fn serves_a_fresh_host(&self) {
        let (_admin, mut io) = self.admin_and_io();
        let data = pattern(4096, 77);
        io.write(1, 0, &data);
        assert!(
            io.read(1, 0, 8) == data,
            "a fresh host reads what it has written"
        );
    }
}

/// Between two looks, in a world.
const MOMENT: Duration = Duration::from_micros(100);

impl Drop for Stage {
    fn drop(&mut self) {
        self.place.leave();
        for shard in &self.shards {
            shard.remote.stop();
        }
        for shard in self.shards.drain(..) {
            let ended = shard.join.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "a shard panicked"
            );
        }
    }
}

fn shard(engine: Engine, id: usize, arena_bytes: usize) -> ShardThread {
    let config = ShardConfig {
        id,
        engine,
        arena_bytes,
        ..ShardConfig::default()
    };
    spawn(config, None, |_| ()).expect("a shard")
}

/// A subsystem that admits every host.
pub fn subsystem(nqn: &str, namespaces: Vec<Export>) -> SubsystemConfig {
    SubsystemConfig {
        nqn: nqn.to_owned(),
        serial: "FBXTEST".to_owned(),
        model: "Fabrix under test".to_owned(),
        firmware: "0.1".to_owned(),
        grows: false,
        hosts: None,
        namespaces,
    }
}

/// An iSCSI target that admits every initiator.
pub fn iscsi_target(name: &str, port: u16, units: Vec<Export>) -> IscsiTargetConfig {
    IscsiTargetConfig {
        name: name.to_owned(),
        port,
        product: "Fabrix under test".to_owned(),
        revision: "0.1".to_owned(),
        initiators: Initiators::anybody(),
        units,
    }
}

/// Namespaces as logical units, from 0 on. A namespace without a unit is left for the subsystem to
/// refuse.
pub fn units(namespaces: &[Export]) -> Vec<Export> {
    let fitting = namespaces
        .iter()
        .filter(|export| (1..=NAMESPACES_MAX).contains(&export.number));
    let unit = |export: &Export| Export {
        number: export.number - 1,
        ..export.clone()
    };
    fitting.map(unit).collect()
}

/// A RAM disk.
pub fn ram(name: &str, block_bytes: u32, bytes: u64) -> Arc<dyn Device> {
    let identity = Identity::derive(name, name, "a test's disk");
    let blocks = bytes / u64::from(block_bytes);
    RamDisk::new(Geometry::new(block_bytes, blocks), HugePages::No, identity).expect("memory")
}

/// Whether this machine supports an engine. Prints a line if not.
pub fn has(engine: Engine) -> bool {
    match engine {
        Engine::IoUring => match engine::probe() {
            Ok(_) => true,
            Err(refused) => {
                eprintln!("skipped: {refused}");
                false
            }
        },
        _ => true,
    }
}

/// Runs one body as two tests, one per engine.
#[macro_export]
macro_rules! on_both_engines {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[test]
            fn on_io_uring() {
                if $crate::common::has(fabrix_rt::Engine::IoUring) {
                    super::$name(fabrix_rt::Engine::IoUring);
                }
            }
            #[test]
            fn on_epoll() {
                super::$name(fabrix_rt::Engine::Epoll);
            }
        }
    )+};
}

/// Bytes that differ from their neighbours, with a long period.
pub fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes)
        .map(|at| u8::try_from((at * 7 + at / 251) % 251).expect("below 251") ^ seed)
        .collect()
}

//! The hosts of a world: each has a shard, a way to the disk, and a user of the disk.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use fabrix_block::Device;
use fabrix_host::multipath::{self, Failover, Multipath, PathDisk, Policy};
use fabrix_host::{Address, ConnectError, Nqn, Options, PathEvent, Transport, iscsi};
use fabrix_rt::Shard;

use crate::checker::Checker;
use crate::choices::Choices;
use crate::net;
use crate::report::Report;
use crate::server::{ISCSI_TARGET, MACHINE, SECOND, SUBSYSTEM, TARGETS, iscsi_at, nvme_at};
use crate::trace::{self, Entry};
use crate::workload::{Wish, Workload};
use crate::world::World;

/// The protocol by which a host reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    /// NVMe/TCP.
    Nvme,
    /// iSCSI.
    Iscsi,
    /// NVMe/RDMA.
    Rdma,
    /// NVMe/TCP, over two paths.
    Paths,
    /// iSCSI, over two paths.
    IscsiPaths,
    /// NVMe/TCP, over three paths to a group of gateways.
    Group,
    /// The same. What has become of a lost path, the host does not wait for.
    FastGroup,
}

/// How a host reaches the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// The protocol.
    pub(crate) protocol: Protocol,
    /// The machine that exports the disk.
    pub(crate) machine: IpAddr,
}

impl Way {
    /// The way to the target of a world.
    pub(crate) fn to_target(protocol: Protocol) -> Self {
        let machine = MACHINE;
        Self { protocol, machine }
    }
}

/// A host.
pub(crate) struct Host {
    /// Its number in the world. The first one is 1.
    number: u64,
    shard: Rc<RefCell<Shard>>,
    workload: Option<Rc<RefCell<Workload>>>,
    losses: Arc<AtomicU64>,
    device: Arc<dyn Device>,
    checker: Rc<RefCell<Checker>>,
    choices: Choices,
    wish: Wish,
    /// What came of the requests of users whose process was killed.
    past: Outcome,
}

/// What came of requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Requests that have ended.
    pub(crate) ended: u64,
    /// Those of them that have failed.
    pub(crate) failed: u64,
    /// What was wrong.
    pub(crate) faults: Vec<String>,
}

impl Outcome {
    fn add(&mut self, workload: &Workload) {
        let (ended, failed) = workload.ended();
        self.ended += ended;
        self.failed += failed;
        self.faults.extend(workload.faults().iter().cloned());
    }
}

impl Host {
    /// Connects the host with a number, and starts its user.
    pub(crate) fn start(
        world: &Rc<World>,
        (number, way): (u64, Way),
        checker: &Rc<RefCell<Checker>>,
        mut choices: Choices,
        wish: Wish,
    ) -> Self {
        let losses = Arc::new(AtomicU64::new(0));
        let (id, shard) = world.add_shard();
        note_shard(number, id);
        let counted = Arc::clone(&losses);
        let watch = move |event| {
            counted.fetch_add(u64::from(event == PathEvent::Lost), Relaxed);
        };
        let mut options = options(world, (id, 0), watch, &mut choices);
        if way.protocol == Protocol::Rdma {
            (options.header_digest, options.data_digest) = (false, false);
        }
        let device = connect(way, 0, 0, &options).expect("the network works yet");
        let workload = Workload::start(
            &mut shard.borrow_mut(),
            &*device,
            checker,
            choices.clone(),
            wish.clone(),
        );
        Self {
            number,
            shard,
            workload: Some(workload),
            losses,
            device,
            checker: Rc::clone(checker),
            choices,
            wish,
            past: Outcome::default(),
        }
    }

    /// Ends the process of the host, as kill -9 does, and starts it again. Its user goes on with
    /// the requests that have not begun. False: the user has left.
    pub(crate) fn kill_and_restart(&mut self, world: &Rc<World>) -> bool {
        let Some(workload) = self.workload.take() else {
            return false;
        };
        for (write, blocks) in workload.borrow_mut().die() {
            let checker = Rc::clone(&self.checker);
            world.plan(world.now() + FORGOTTEN, move |_| {
                checker.borrow_mut().is_over(write, blocks);
            });
        }
        self.kill(world);
        self.wish.requests = workload.borrow().left();
        self.past.add(&workload.borrow());
        let (id, shard) = world.add_shard();
        note_shard(self.number, id);
        self.shard = shard;
        self.choices.word();
        self.workload = Some(Workload::start(
            &mut self.shard.borrow_mut(),
            &*self.device,
            &self.checker,
            self.choices.clone(),
            self.wish.clone(),
        ));
        true
    }

    /// Its number in the world.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// What came of the requests until now.
    pub(crate) fn outcome(&self) -> Outcome {
        let mut outcome = self.past.clone();
        outcome.add(&self.workload().borrow());
        outcome
    }

    /// The user of the disk, until it leaves.
    pub(crate) fn workload(&self) -> &Rc<RefCell<Workload>> {
        self.workload.as_ref().expect("it has not left")
    }

    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Relaxed)
    }

    /// The user closes the disk.
    pub(crate) fn leave(&mut self) {
        if let Some(workload) = self.workload.take() {
            Workload::leave(&mut self.shard.borrow_mut(), workload);
        }
    }

    /// What is left after the user has closed the disk, with its name.
    pub(crate) fn left(&self) -> (&'static str, usize) {
        let shard = self.shard.borrow();
        ("operations of a host", shard.operations_in_flight())
    }

    pub(crate) fn kill(&self, world: &World) {
        let id = self.shard.borrow().id();
        world.kill(id);
    }
}

/// A host has this shard now, and by its address it is known.
fn note_shard(number: u64, shard: usize) {
    let who = || format!("host {}", net::address_of(shard));
    trace::note(|| Entry::new(who(), format!("is host {number}")));
}

/// All users close the disk. What has come of their requests, `most` after the last fault, goes
/// into the report.
pub(crate) fn leave(hosts: &mut [Host], most: Duration, report: &mut Report) {
    for host in hosts {
        report.losses += host.losses();
        let outcome = host.outcome();
        report.ended += outcome.ended;
        report.failed += outcome.failed;
        report.faults.extend(outcome.faults);
        let missing = host.workload().borrow().missing();
        if missing > 0 {
            report.faults.push(format!(
                "{missing} requests of a host have not ended {most:?} after the last fault"
            ));
        }
        host.leave();
    }
}

/// Options of a host: the number of its shard, and its own. `watch` hears of its connections.
pub(crate) fn options(
    world: &World,
    (shard, host): (usize, usize),
    watch: impl Fn(PathEvent) + Send + Sync + 'static,
    choices: &mut Choices,
) -> Options {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(choices.word() | 1).to_le_bytes());
    let mut options = Options::new(Nqn::new(&nqn(host)).expect("an NQN"), id);
    options.control = world.control();
    options.nr_io_queues = u16::try_from(choices.between(1, 3)).expect("few");
    options.queue_size = 32;
    options.header_digest = choices.once_in(2);
    options.data_digest = choices.once_in(2);
    options.watch = Arc::new(move |_, event| {
        let who = || format!("host {}", net::address_of(shard));
        trace::note(|| Entry::new(who(), format!("says of its path: {event:?}")));
        watch(event);
    });
    options
}

/// Connects the host with this number to a disk. The first disk is 0.
pub(crate) fn connect(
    way: Way,
    host: usize,
    disk: u16,
    options: &Options,
) -> Result<Arc<dyn Device>, ConnectError> {
    Ok(match way.protocol {
        Protocol::Nvme => Arc::new(connect_nvme(Transport::Tcp, way.machine, disk, options)?),
        Protocol::Rdma => Arc::new(connect_nvme(Transport::Rdma, way.machine, disk, options)?),
        Protocol::Iscsi => Arc::new(connect_iscsi(way.machine, host, disk, options)?),
        Protocol::Paths => connect_nvme_paths((&TWO, Failover::Safe), disk, options)?,
        Protocol::Group => connect_nvme_paths((&TARGETS, Failover::Safe), disk, options)?,
        Protocol::FastGroup => connect_nvme_paths((&TARGETS, Failover::Fast), disk, options)?,
        Protocol::IscsiPaths => {
            let paths = (&TWO[..], Failover::Safe);
            Arc::new(connect_paths(paths, options, |machine| {
                Ok(Arc::new(connect_iscsi(machine, host, disk, options)?))
            })?)
        }
    })
}

fn connect_nvme_paths(
    paths: (&[IpAddr], Failover),
    disk: u16,
    options: &Options,
) -> Result<Arc<dyn Device>, ConnectError> {
    Ok(Arc::new(connect_paths(paths, options, |machine| {
        let path = connect_nvme(Transport::Tcp, machine, disk, options)?;
        Ok(Arc::new(path))
    })?))
}

/// A disk at several machines, each of which `path` connects. The number of queues chooses the
/// policy.
fn connect_paths(
    (machines, failover): (&[IpAddr], Failover),
    options: &Options,
    path: impl Fn(IpAddr) -> Result<Arc<dyn PathDisk>, ConnectError>,
) -> Result<Multipath, ConnectError> {
    let paths: Result<Vec<_>, _> = machines.iter().map(|machine| path(*machine)).collect();
    let policy = match options.nr_io_queues {
        1 => Policy::QueueDepth,
        2 => Policy::RoundRobin(2),
        _ => Policy::Fixed(1),
    };
    multipath::connect("several paths", paths?, (policy, failover))
}

fn connect_nvme(
    transport: Transport,
    machine: IpAddr,
    disk: u16,
    options: &Options,
) -> Result<fabrix_host::RemoteDisk, ConnectError> {
    let address = Address {
        transport,
        host: machine.to_string(),
        port: nvme_at(machine).port(),
        subsystem: Some(SUBSYSTEM.to_owned()),
        nsid: Some(u32::from(disk) + 1),
    };
    fabrix_host::connect(&address, options)
}

fn connect_iscsi(
    machine: IpAddr,
    host: usize,
    disk: u16,
    options: &Options,
) -> Result<iscsi::RemoteUnit, ConnectError> {
    let address = iscsi::Address {
        transport: fabrix_host::Transport::Tcp,
        host: machine.to_string(),
        port: iscsi_at(machine).port(),
        target: Some(ISCSI_TARGET.to_owned()),
        lun: Some(disk),
    };
    let initiator = iscsi::Initiator {
        name: initiator(host),
        ours: None,
        theirs: None,
    };
    iscsi::connect(&address, &initiator, options)
}

/// NQN of the host with this number.
pub(crate) fn nqn(host: usize) -> String {
    format!("nqn.2014-08.org.example:host{host}")
}

/// iSCSI name of the host with this number.
pub(crate) fn initiator(host: usize) -> String {
    format!("iqn.2026-01.org.example:host{host}")
}

/// The addresses of hosts with two paths.
const TWO: [IpAddr; 2] = [MACHINE, SECOND];
/// After this time the target has dropped the connections of a killed host, and its disk has ended
/// their requests: an iSCSI target takes a minute to find out, and a shard may stand still.
const FORGOTTEN: Duration = Duration::from_secs(90);

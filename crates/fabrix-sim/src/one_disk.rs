//! Worlds with one disk: hosts over NVMe/TCP, over iSCSI or both, each with one path, whose network
//! and target fail.
//!
//! The promise that these worlds check: no fault of the network or of the target's process loses or
//! changes data, every request ends, and nothing is left behind. What was made durable survives a
//! loss of power.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::backing::{self, Backing};
use crate::backlog::Backlog;
use crate::checker::Checker;
use crate::choices::Choices;
use crate::disk::{DiskHabits, SimDisk};
use crate::disk_faults::DiskFaults;
use crate::faults::{self, Delays};
use crate::files::FileHabits;
use crate::gateways::{Gateways, Served};
use crate::hosts::{self, Host, Protocol, Way};
use crate::net::Habits;
use crate::report::Report;
use crate::run::Run;
use crate::server::{MACHINE, SECOND, Server};
use crate::trace::{self, Entry};
use crate::workload::Wish;
use crate::world::World;

/// What a world is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Faults of the network and of the target's process, which are in the other worlds too.
    Network,
    /// The machine of the target loses its power.
    Power,
    /// The same, with the product's file back end.
    Files,
    /// The disk fails, and the machine of the target may lose its power.
    Errors,
    /// As [`Network`](Self::Network), and hosts have two paths, at which the target changes how it
    /// serves the disk (ANA).
    Paths,
    /// Faults of the RDMA network and of the target's process.
    Rdma,
    /// Transfers are so long that their data travels in pieces.
    Long,
}

/// Runs the world with a host for each protocol named.
pub(crate) fn run(run: &Run, protocols: &[Protocol], subject: Subject) -> Report {
    let mut choices = run.choices(0);
    let mut habits = Habits::draw(&mut choices);
    if subject == Subject::Long {
        habits = habits.for_long_transfers();
    }
    let world = World::new(run, habits);
    if subject == Subject::Long {
        world.allow_buffers(LONG_BUFFERS);
    }
    let below = run.choices(4);
    let blocks = if subject == Subject::Long {
        LONG_BLOCKS
    } else {
        BLOCKS
    };
    // Without other faults, reads do not wait for writes that hang.
    let is_calm = subject == Subject::Errors && choices.once_in(4);
    let faults = match subject {
        Subject::Errors if is_calm => DiskFaults {
            hangs: 20,
            longest_hang: READ_LIMIT * 2,
            ..DiskFaults::draw(&mut choices, BLOCKS)
        },
        Subject::Errors => DiskFaults::draw(&mut choices, BLOCKS),
        Subject::Files if choices.once_in(2) => DiskFaults {
            is_below_a_file: true,
            ..DiskFaults::draw(&mut choices, BLOCKS)
        },
        _ => DiskFaults::default(),
    };
    if faults.hangs > 0 {
        world.set_disk_hangs();
    }
    let is_iscsi_paths = protocols.contains(&Protocol::IscsiPaths);
    let mut delays = Delays::default();
    let mut backlog = Backlog::default();
    let mut disk = None;
    let backing: Rc<dyn Backing> = match subject {
        Subject::Files => {
            let habits = file_habits(&mut choices, faults.clone());
            backlog.at_disk = habits.longest;
            Rc::new(world.files().create(habits, below))
        }
        _ => {
            let mut habits = DiskHabits {
                faults: faults.clone(),
                ..DiskHabits::draw(blocks, &mut choices)
            };
            if is_iscsi_paths {
                habits.longest = habits.longest.min(ISCSI_AT_DISK);
            }
            backlog.at_disk = habits.longest;
            let new = SimDisk::new(habits, below);
            disk = Some(Arc::clone(&new));
            Rc::new(new)
        }
    };
    let shards = choices.between(1, 3);
    let shards = usize::try_from(shards).expect("few");
    let machines: &[IpAddr] = match subject {
        Subject::Paths => &[MACHINE, SECOND],
        _ => &[MACHINE],
    };
    let server = Server::start(&world, Rc::clone(&backing), shards, machines);
    let server = Rc::new(RefCell::new(server));
    let checker = Rc::new(RefCell::new(Checker::new(blocks)));
    if subject == Subject::Files && faults.lost_flushes > 0 {
        // A file is trusted again when it is opened again. The kernel has forgotten then what it
        // could not write, but for a loss of power.
        let checker = Rc::clone(&checker);
        server.borrow_mut().when_killed(move || {
            backing.lose_power();
            checker.borrow_mut().power_lost();
        });
    }
    let hosts: Vec<Host> = (1..)
        .zip(protocols)
        .filter(|(number, _)| run.keeps_host(*number))
        .map(|(number, protocol)| {
            let mut choices = run.choices(4 + number);
            let mut wish = wish(run, &mut choices, &faults);
            if subject == Subject::Long {
                wish = long(wish);
            }
            if subject == Subject::Rdma {
                // Up to 4 KiB of a write go with its command.
                let longest = choices.one_of(&[4, 12, 32]);
                wish.longest = wish.blocks.min(longest);
            }
            backlog.requests += wish.requests;
            backlog.pause = backlog.pause.max(wish.pause);
            Host::start(
                &world,
                (number, Way::to_target(*protocol)),
                &checker,
                choices,
                wish,
            )
        })
        .collect();
    let hosts = Rc::new(RefCell::new(hosts));
    let power = match subject {
        Subject::Network | Subject::Long | Subject::Rdma | Subject::Paths => false,
        Subject::Power | Subject::Files => true,
        Subject::Errors => !is_calm && choices.once_in(2),
    };
    if subject == Subject::Rdma {
        faults::plan_rdma(&world, &server, &mut choices);
    } else if !is_calm {
        faults::plan_within(&world, &server, &mut delays, &mut choices);
    }
    let mut gateways = Gateways::default();
    if subject == Subject::Paths {
        let longest = if is_iscsi_paths { LATEST_ISCSI } else { LATEST };
        faults::plan_lost_paths(&world, longest, &mut delays, &mut choices);
        gateways = Gateways::plan(&world, &mut choices);
    }
    if !is_calm {
        faults::plan_killed_hosts(&world, &hosts, &mut choices);
    }
    if power {
        faults::plan_power_losses(&world, &server, &checker, &mut choices);
    }
    let began = world.now();
    if subject == Subject::Paths {
        backlog.unsettled = match is_iscsi_paths {
            true => UNSETTLED_ISCSI,
            false => UNSETTLED,
        };
    }
    if faults.hangs > 0 {
        // Fewer than one request in ten hangs.
        backlog.at_disk += faults.longest_hang / 10;
    }
    let most = backlog.most();
    let limit = world.calm_from().max(began) + most;
    let have_ended = |hosts: &[Host]| {
        hosts
            .iter()
            .all(|host| host.workload().borrow().has_ended())
    };
    while !have_ended(&hosts.borrow()) && world.now() < limit {
        world.step(limit);
        gateways.make_due(|_| served(&server, disk.as_ref()));
    }
    let mut report = Report {
        time: world.now() - began,
        faults: gateways.faults(),
        ..Report::default()
    };
    // Some hosts disappear without a word: the target has to find out.
    let is_lost = choices.once_in(4);
    let reads = |host: &Host| host.workload().borrow().slowest_read();
    let slowest_read = hosts.borrow().iter().map(reads).max().unwrap_or_default();
    hosts::leave(&mut hosts.borrow_mut(), most, &mut report);
    if is_calm && report.losses == 0 && slowest_read > READ_LIMIT {
        let fault = format!("a read took {slowest_read:?}: it waited for a write that hung");
        report.faults.push(fault);
    }
    if is_lost {
        trace::note(|| Entry::new("hosts", "disappear without a word"));
        let ends = world.net().connected();
        ends.into_iter().for_each(|end| world.net().cut(end));
        world.rdma().cut_all();
    }
    report.faults.extend(server.borrow().check_image(&checker));
    world.run_until(world.now() + AFTERWARDS);
    // What was still on its way has come late: it must not have changed anything.
    report.faults.extend(server.borrow().check_image(&checker));
    let mut left = world.left();
    left.extend(server.borrow().left());
    left.extend(hosts.borrow().iter().map(Host::left));
    report.left(left);
    world.count_into(&mut report);
    hosts.borrow().iter().for_each(|host| host.kill(&world));
    server.borrow_mut().lose_power(&world, &checker);
    report.faults.extend(server.borrow().check_image(&checker));
    report
}

/// The target with its disk, while it runs.
fn served(server: &RefCell<Server>, disk: Option<&Arc<SimDisk>>) -> Option<Served> {
    let (target, disk) = (server.borrow().target()?, Arc::clone(disk?));
    Some(Served { target, disk })
}

pub(crate) fn wish(run: &Run, choices: &mut Choices, faults: &DiskFaults) -> Wish {
    Wish {
        requests: run.requests(choices.between(5, 60)),
        depth: usize::try_from(choices.between(1, 16)).expect("few"),
        blocks: choices.between(4, BLOCKS),
        longest: 4,
        pause: Duration::from_micros(choices.between(0, 50_000)),
        flushes: choices.one_of(&[0, 5, 5, 30]),
        durable: choices.one_of(&[0, 10, 10, 60]),
        flushes_apart: false,
        faults: faults.clone(),
    }
}

/// Few requests, most of which are longer than what a write may send unasked.
fn long(wish: Wish) -> Wish {
    Wish {
        requests: wish.requests.min(8),
        depth: wish.depth.min(4),
        blocks: LONG_BLOCKS,
        longest: LONG_BLOCKS,
        ..wish
    }
}

fn file_habits(choices: &mut Choices, faults: DiskFaults) -> FileHabits {
    FileHabits {
        blocks: BLOCKS,
        longest: backing::longest(choices),
        interrupts: choices.once_in(2),
        allocates: choices.once_in(2),
        faults,
    }
}

/// Three keep-alive timeouts of a host and the CQT of the target: for so long a write of a lost
/// path waits without a reset.
const UNSETTLED: Duration = Duration::from_secs(18);
/// For so long an initiator lets a write of a lost path wait without a login there: until the
/// target has ended the session.
const UNSETTLED_ISCSI: Duration = Duration::from_secs(65);
/// Longest time of a request at the disk. A write may wait for a few others there.
const ISCSI_AT_DISK: Duration = Duration::from_millis(500);
/// 12 s, in milliseconds: for so long the target hears nothing of a lost path.
const LATEST: u64 = 12_000;
/// 45 s: an iSCSI target keeps a session that it does not hear of for longer.
const LATEST_ISCSI: u64 = 45_000;
/// Few, so that requests meet.
pub(crate) const BLOCKS: u64 = 64;
/// 384 KiB: three times what a capsule may carry, and more than a first burst.
const LONG_BLOCKS: u64 = 768;
/// 8 MiB: eight requests of 384 KiB at once, and what connections receive.
const LONG_BUFFERS: usize = 8 << 20;
/// After this time nothing of a host that has left may be there: the keep-alive, the deadline of
/// disks and the longest request are over. A target of iSCSI takes a minute to find out that its
/// initiator is gone, and a shard may stand still meanwhile.
pub(crate) const AFTERWARDS: Duration = Duration::from_secs(90);
/// Most time of a read that waits for nothing but a slow disk and a slow network.
const READ_LIMIT: Duration = Duration::from_secs(12);

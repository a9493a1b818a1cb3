//! Faults of the network and of the target, planned from the choices of a world. Hosts wait and go
//! on. Only a loss of power excuses a lost write, one that nobody has made durable.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use fabrix_rt::Nanos;

use crate::checker::Checker;
use crate::choices::Choices;
use crate::hosts::Host;
use crate::net::{EndId, Net, address_of};
use crate::rdma;
use crate::server::{MACHINE, Server, TARGETS, is_nvme};
use crate::world::World;

/// How long faults may hold back what hosts have sent, all of them together.
pub(crate) struct Delays {
    left: Duration,
}

impl Delays {
    pub(crate) fn at_most(left: Duration) -> Self {
        Self { left }
    }

    /// A time, or what is left.
    fn take(&mut self, time: Duration) -> Duration {
        let taken = time.min(self.left);
        self.left -= taken;
        taken
    }
}

impl Default for Delays {
    /// There is no limit.
    fn default() -> Self {
        Self::at_most(Duration::MAX)
    }
}

/// Plans some faults.
pub(crate) fn plan(world: &Rc<World>, server: &Rc<RefCell<Server>>, choices: &mut Choices) {
    plan_within(world, server, &mut Delays::default(), choices);
}

/// Plans some faults that delay what hosts have sent by no more than `delays`.
pub(crate) fn plan_within(
    world: &Rc<World>,
    server: &Rc<RefCell<Server>>,
    delays: &mut Delays,
    choices: &mut Choices,
) {
    let span = choices.one_of(&[100_000, 1_000_000, 20_000_000]);
    for _ in 0..choices.below(9) {
        let at = world.now() + Duration::from_micros(choices.below(span));
        match choices.below(5) {
            0 => plan_at_an_end(world, at, choices, reset),
            1 => plan_at_an_end(world, at, choices, |world, end| Some(cut(world, end))),
            2 => {
                let longest = choices.one_of(&[300, 3_000, 7_000, 12_000]);
                let time = delays.take(Duration::from_millis(choices.below(longest)));
                world.is_disturbed_until(at + time);
                plan_at_an_end(world, at, choices, move |world, end| {
                    Some(stall(world, end, time))
                });
            }
            3 => {
                let longest = choices.one_of(&[300, 3_000, 12_000]);
                let time = delays.take(Duration::from_millis(choices.below(longest)));
                world.is_disturbed_until(at + time);
                plan_a_pause(world, at, choices, time);
            }
            _ => {
                let down = Duration::from_millis(choices.below(3_000));
                world.is_disturbed_until(at + down);
                plan_a_kill(world, server, at, down);
            }
        }
    }
}

/// Plans some faults of an RDMA network, its devices, and the target.
pub(crate) fn plan_rdma(world: &Rc<World>, server: &Rc<RefCell<Server>>, choices: &mut Choices) {
    let span = choices.one_of(&[100_000, 1_000_000, 20_000_000]);
    for _ in 0..choices.below(9) {
        let at = world.now() + Duration::from_micros(choices.below(span));
        let time = Duration::from_millis(choices.one_of(&[300, 3_000, 12_000]));
        let time =
            time.mul_f64(f64::from(u16::try_from(choices.below(1_000)).expect("small")) / 1e3);
        match choices.below(7) {
            0 => {
                let status = choices.one_of(&rdma::STATUSES);
                plan_at_a_connection(world, at, choices, move |world, id| {
                    world.rdma().break_end(world, id, status)
                });
            }
            1 => plan_at_a_connection(world, at, choices, |world, id| world.rdma().cut_path(id)),
            2 => {
                world.is_disturbed_until(at + time);
                plan_at_a_connection(world, at, choices, move |world, id| {
                    world.rdma().stall_path(id, world.now() + time)
                });
            }
            3 => {
                world.is_disturbed_until(at + time);
                plan_a_pause(world, at, choices, time);
            }
            4 => {
                let down = Duration::from_millis(choices.below(3_000));
                world.is_disturbed_until(at + down);
                plan_a_kill(world, server, at, down);
            }
            5 => plan_a_removal(world, at, choices, time),
            _ => {
                world.is_disturbed_until(at + time);
                world.plan_fault(at, move |world| {
                    Some(world.rdma().refuse_until(world.now() + time))
                });
            }
        }
    }
}

/// Plans that paths are lost with what hosts have sent: a host hears of it at once, and the target
/// receives the last bytes up to `longest` milliseconds late. Only hosts with another path, which
/// wait for the end of the lost one, come through that.
pub(crate) fn plan_lost_paths(
    world: &Rc<World>,
    longest: u64,
    delays: &mut Delays,
    choices: &mut Choices,
) {
    for _ in 0..choices.below(4) {
        let at = world.now() + Duration::from_micros(choices.below(3_000_000));
        let longest = choices.one_of(&[300, 2_000, longest]);
        let time = delays.take(Duration::from_millis(choices.between(1, longest)));
        world.is_disturbed_until(at + time);
        plan_at_an_end(world, at, choices, move |world, end| {
            let net = world.net();
            let (host, target) = host_and_target(net, end)?;
            net.stall_path(target, world.now() + time);
            net.reset_path(host);
            Some(format!(
                "is lost at the host, and the target hears of it in {time:?}"
            ))
        });
    }
}

/// The two ends of the connection of an end: that of the host, and that of the target.
pub(crate) fn host_and_target(net: &Net, end: EndId) -> Option<(EndId, EndId)> {
    let peer = net.peer(end)?;
    let address = net.address(end)?.ip();
    Some(match TARGETS.contains(&address) {
        true => (peer, end),
        false => (end, peer),
    })
}

/// Plans something that happens to an end of one of the RDMA connections that are there then.
fn plan_at_a_connection(
    world: &Rc<World>,
    at: Nanos,
    choices: &mut Choices,
    act: impl FnOnce(&World, u64) -> Option<String> + 'static,
) {
    let word = choices.below(1 << 16);
    world.plan_fault(at, move |world| {
        let index = usize::try_from(word).expect("an index");
        let id = world.rdma().connected(index)?;
        act(world, id)
    });
}

/// Plans that the device of the target or of a host is removed for a time.
///
/// Only a device of the target is dead from then on. With a dead one a host would connect again
/// while the target works on for the lost connection, see [`cut`].
fn plan_a_removal(world: &Rc<World>, at: Nanos, choices: &mut Choices, time: Duration) {
    let of_target = choices.once_in(2);
    let word = usize::try_from(choices.below(1 << 16)).expect("an index");
    let is_dead = of_target && choices.once_in(2);
    world.is_disturbed_until(at + time);
    world.plan_fault(at, move |world| {
        let shards = world.shard_ids();
        let machine = match of_target {
            true => MACHINE,
            false => address_of(*shards.get(word % shards.len().max(1))?),
        };
        world.rdma().remove_device(world, machine, (time, is_dead))
    });
}

/// Plans that the machine of the target loses its power, one to three times.
pub(crate) fn plan_power_losses(
    world: &Rc<World>,
    server: &Rc<RefCell<Server>>,
    checker: &Rc<RefCell<Checker>>,
    choices: &mut Choices,
) {
    let span = choices.one_of(&[100_000, 1_000_000, 20_000_000]);
    for _ in 0..choices.between(1, 3) {
        let at = world.now() + Duration::from_micros(choices.below(span));
        let down = Duration::from_millis(choices.below(10_000));
        world.is_disturbed_until(at + down);
        let silent = choices.once_in(2);
        let (server, checker) = (Rc::clone(server), Rc::clone(checker));
        world.plan_fault(at, move |world| {
            if silent {
                // The machine stays off for so long that its peers hear nothing of it.
                let net = world.net();
                let is_there = |end: &EndId| {
                    let both = [net.address(*end), net.peer_address(*end)];
                    both.into_iter().flatten().any(|it| it.ip() == MACHINE)
                };
                let ends = net.connected().into_iter().filter(is_there);
                ends.for_each(|end| net.cut(end));
            }
            if server.borrow_mut().lose_power(world, &checker) {
                let at = world.now() + down;
                world.plan(at, move |world| server.borrow_mut().restart(world));
            }
            let peers = if silent {
                ", and no peer hears of it"
            } else {
                ""
            };
            Some(format!(
                "the target's machine loses its power for {down:?}{peers}"
            ))
        });
    }
}

/// Plans that processes of hosts are killed and start again, in some worlds with several hosts.
pub(crate) fn plan_killed_hosts(
    world: &Rc<World>,
    hosts: &Rc<RefCell<Vec<Host>>>,
    choices: &mut Choices,
) {
    if hosts.borrow().len() < 2 || !choices.once_in(3) {
        return;
    }
    for _ in 0..choices.between(1, 3) {
        let at = world.now() + Duration::from_micros(choices.below(5_000_000));
        let index = choices.index(hosts.borrow().len());
        let hosts = Rc::clone(hosts);
        world.plan_fault(at, move |world| {
            let host = &mut hosts.borrow_mut()[index];
            let is_there = host.kill_and_restart(world);
            is_there.then(|| format!("host {} is killed, and starts again", host.number()))
        });
    }
}

/// Plans something that happens at an end of one of the connections that are there then.
pub(crate) fn plan_at_an_end(
    world: &Rc<World>,
    at: Nanos,
    choices: &mut Choices,
    act: impl FnOnce(&World, EndId) -> Option<String> + 'static,
) {
    let word = choices.below(1 << 16);
    world.plan_fault(at, move |world| {
        let ends = world.net().connected();
        let index = usize::try_from(word).expect("an index") % ends.len().max(1);
        let end = *ends.get(index)?;
        let name = world.net().name(end);
        act(world, end).map(|words| format!("{name} {words}"))
    });
}

/// Resets a connection.
///
/// Not one that was cut: only one end would hear of it. A host of NVMe would connect again while
/// the target works on for the lost connection, see [`cut`].
pub(crate) fn reset(world: &World, end: EndId) -> Option<String> {
    if world.net().is_cut(end) {
        return None;
    }
    world.net().reset(end);
    Some("is reset".to_owned())
}

/// Cuts a connection. Nobody hears of it.
///
/// The connections of a path to NVMe are cut together, for the reason of [`stall`]. Where requests
/// hang at the disk they are reset instead: the host connects again before the target knows of a
/// cut, and a write that hangs longer than that comes late. At a gateway, requests hang while it
/// has lost its own target.
pub(crate) fn cut(world: &World, end: EndId) -> String {
    let net = world.net();
    let both = [net.address(end), net.peer_address(end)];
    if let Some(target) = both.into_iter().flatten().find(|it| is_nvme(*it)) {
        if world.disk_hangs() || !TARGETS.contains(&target.ip()) {
            net.reset_path(end);
            return "is reset, and all beside it".to_owned();
        }
        net.cut_path(end);
        return "is cut, and all beside it, and nobody hears of it".to_owned();
    }
    net.cut(end);
    "is cut, and nobody hears of it".to_owned()
}

/// Stalls the bytes that come to an end.
///
/// A session of iSCSI replaces an older one, so one connection may stall alone. A controller of
/// NVMe does not: what its host has sent before must not come after what it sends again on a new
/// connection. So a whole path stalls. See "Late writes of a lost connection" in
/// `docs/design/host.md`.
pub(crate) fn stall(world: &World, end: EndId, time: Duration) -> String {
    let until = world.now() + time;
    if world.net().address(end).is_some_and(is_nvme) {
        world.net().stall_path(end, until);
        return format!("stalls for {time:?}, and all beside it");
    }
    world.net().stall(end, until);
    format!("stalls for {time:?}")
}

/// Plans that a shard of a host or of the target stands still for a time, as when its processor
/// does something else.
fn plan_a_pause(world: &Rc<World>, at: Nanos, choices: &mut Choices, time: Duration) {
    let word = choices.below(1 << 16);
    world.plan_fault(at, move |world| {
        let shards = world.shard_ids();
        let index = usize::try_from(word).expect("an index") % shards.len().max(1);
        let shard = *shards.get(index)?;
        world.stop_shard(shard, world.now() + time);
        Some(format!("shard {shard} stands still for {time:?}"))
    });
}

/// Plans that the target is killed, and starts again after a time.
pub(crate) fn plan_a_kill(
    world: &Rc<World>,
    server: &Rc<RefCell<Server>>,
    at: Nanos,
    down: Duration,
) {
    let server = Rc::clone(server);
    world.plan_fault(at, move |world| {
        if !server.borrow_mut().kill(world) {
            return None;
        }
        start_at(world, &server, world.now() + down);
        Some(format!(
            "the target is killed, and starts again in {down:?}"
        ))
    });
}

/// Plans that the target starts. It does not without its RDMA device, so it is tried again.
fn start_at(world: &World, server: &Rc<RefCell<Server>>, at: Nanos) {
    let server = Rc::clone(server);
    world.plan(at, move |world| match world.rdma().is_removed(MACHINE) {
        true => start_at(world, &server, world.now() + START_AGAIN),
        false => server.borrow_mut().restart(world),
    });
}

/// Time between attempts to start the target.
const START_AGAIN: Duration = Duration::from_millis(100);

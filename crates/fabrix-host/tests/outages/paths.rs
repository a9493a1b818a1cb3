//! A disk over two paths: what happens to requests when one of them is lost, or executes nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabrix_block::{Operation, Payload, Status};
use fabrix_host::Options;
use fabrix_host::multipath::{self, Failover, Multipath, PathDisk, Policy};
use fabrix_proto::nvme::admin::AdminCommand;
use fabrix_proto::nvme::instance::ControllerInstance;
use fabrix_proto::nvme::spec::{Opcode, Status as Nvme};
use fabrix_rt::Loan;

use super::common::{Asked, Command, Fake, Link, Rig, Script, Then, options_in_world};
use super::{Switch, disk};

pub(super) const WRITE: Operation = Operation::Write { durable: false };
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Two targets of one disk in one world, and the disk over both. Requests prefer the first.
pub(super) struct Two {
    pub(super) one: Fake,
    pub(super) other: Fake,
    pub(super) options: Options,
}

impl Two {
    /// `script` is that of the first target.
    pub(super) fn new(script: Script) -> Self {
        let one = Fake::in_world(script);
        let other = Fake::start_at(&one.shared.place, Script::default());
        Self::of(one, other)
    }

    fn of(one: Fake, other: Fake) -> Self {
        let (options, _) = options_in_world(&one.shared.place);
        let options = Options {
            keep_alive: KEEP_ALIVE,
            fast_io_fail: Some(Duration::from_secs(10)),
            ..options
        };
        Self {
            one,
            other,
            options,
        }
    }

    fn disk(&self, failover: Failover) -> Multipath {
        let path = |fake| Arc::new(disk(fake, &self.options)) as Arc<dyn PathDisk>;
        let paths = vec![path(&self.one), path(&self.other)];
        multipath::connect("two", paths, (Policy::Fixed(0), failover)).expect("one disk")
    }

    /// A user of the disk, when both paths are connected.
    fn rig(&self, failover: Failover) -> Rig {
        let mut rig = Rig::in_world(&self.one.shared.place, &self.disk(failover));
        let connections = || (self.one.open_connections(), self.other.open_connections());
        rig.until("both paths are connected", |_| connections() == (2, 2));
        rig
    }
}

/// A script that answers reads and writes so while the switch is on.
fn answering(
    switch: &Switch,
    answer: impl Fn(&mut Link, &Command) -> std::io::Result<()> + Send + Sync + 'static,
) -> Script {
    let switch = switch.clone();
    let command = move |link: &mut Link, it: &Command| {
        let is_io = link.qid.is_some_and(|qid| qid > 0) && !it.entry.is_fabrics();
        if !is_io || !switch.is_on() {
            return Ok(Then::Usual);
        }
        answer(link, it)?;
        Ok(Then::Done)
    };
    Script {
        command: Box::new(command),
        ..Script::default()
    }
}

/// A target that executes nothing and answers nothing while the switch is on.
pub(super) fn swallowing(switch: &Switch) -> Script {
    answering(switch, |_, _| Ok(()))
}

/// How long requests take after the loss of a path, over targets that know no resets.
fn times_after_a_loss(failover: Failover) -> [Duration; 6] {
    let switch = Switch::default();
    let two = Two::new(swallowing(&switch));
    times_after_the_loss_of(&two, &switch, failover)
}

/// How long requests take after the loss of a path that has two writes, by their slot: 1 and 2 are
/// these writes, 3 meets one of them, 4 is a read of its blocks, and 5 meets none. The first target
/// swallows requests while the switch is on.
fn times_after_the_loss_of(two: &Two, switch: &Switch, failover: Failover) -> [Duration; 6] {
    let mut rig = two.rig(failover);
    switch.turn(true);
    let ask = |rig: &mut Rig, slot, operation, lba| {
        let payload = match operation {
            Operation::Read => Payload::Lend,
            _ => Payload::Borrowed(&[7; 512]),
        };
        let asked = rig.ask(slot, operation, (lba, 1), payload);
        assert!(matches!(asked, Asked::Pending));
    };
    ask(&mut rig, 1, WRITE, 0);
    ask(&mut rig, 2, WRITE, 8);
    rig.turn_for(Duration::from_millis(100));
    two.one.disconnect_all();
    switch.turn(false);
    rig.turn_for(Duration::from_millis(10));
    let began = rig.now();
    ask(&mut rig, 3, WRITE, 0);
    ask(&mut rig, 4, Operation::Read, 0);
    ask(&mut rig, 5, WRITE, 16);
    let mut times = [Duration::ZERO; 6];
    for _ in 1..=5 {
        let (slot, status, _) = rig.next();
        assert_eq!(status, Status::Ok);
        times[slot as usize] = rig.now() - began;
    }
    times
}

#[test]
fn a_write_of_a_lost_path_waits_until_its_target_has_given_up_and_others_go_on() {
    let times = times_after_a_loss(Failover::Safe);
    for slot in 1..=3 {
        let range = KEEP_ALIVE * 2 - Duration::from_millis(50)..KEEP_ALIVE * 4;
        assert!(range.contains(&times[slot]), "request {slot}: {times:?}");
    }
    assert!(times[4].max(times[5]) < Duration::from_secs(1), "{times:?}");
}

/// Resets that a target was asked for.
type Resets = Arc<Mutex<Vec<ControllerInstance>>>;

/// A target whose controllers say that they are instance 5 with this random number, and carry out
/// four resets at a time.
fn naming(random: u64, script: Script) -> Script {
    let page = move |cns, page: &mut [u8]| {
        if cns == 1 {
            page[135] = 5;
            page[136..144].copy_from_slice(&random.to_le_bytes());
            page[1807] = 4;
        }
    };
    Script {
        page: Box::new(page),
        ..script
    }
}

/// A target that answers Cross-Controller Reset so. None: not at all.
fn resetting(resets: &Resets, answer: Option<(Nvme, u64)>) -> Script {
    let resets = Arc::clone(resets);
    let command = move |link: &mut Link, it: &Command| {
        let is_admin = link.qid == Some(0) && !it.entry.is_fabrics();
        let parsed = AdminCommand::parse(&it.entry);
        let (true, Ok(AdminCommand::CrossControllerReset(lost))) = (is_admin, parsed) else {
            return Ok(Then::Usual);
        };
        resets.lock().expect("no panic").push(lost);
        if let Some((status, result)) = answer {
            link.respond(it.cid, status, result)?;
        }
        Ok(Then::Done)
    };
    Script {
        command: Box::new(command),
        ..Script::default()
    }
}

/// How long requests take after a loss, if the other target answers a reset so.
fn times_with_reset(answer: Option<(Nvme, u64)>) -> ([Duration; 6], Vec<ControllerInstance>) {
    let (switch, resets) = (Switch::default(), Resets::default());
    let one = Fake::in_world(naming(0x77, swallowing(&switch)));
    let script = naming(0x88, resetting(&resets, answer));
    let other = Fake::start_at(&one.shared.place, script);
    let two = Two::of(one, other);
    let times = times_after_the_loss_of(&two, &switch, Failover::Safe);
    let resets = resets.lock().expect("no panic").clone();
    (times, resets)
}

#[test]
fn a_write_of_a_lost_path_goes_on_when_another_target_has_ended_its_controller() {
    let (times, resets) = times_with_reset(Some((Nvme::SUCCESS, 1)));
    assert!(
        times.iter().max() < Some(&Duration::from_secs(1)),
        "{times:?}"
    );
    let [lost] = resets[..] else {
        panic!("one reset for one loss: {resets:?}");
    };
    assert_eq!((lost.uniquifier, lost.random), (5, 0x77));
    assert!(lost.controller_id > 0);
}

#[test]
fn a_reset_that_is_refused_or_not_complete_or_not_answered_changes_nothing() {
    for answer in [
        Some((Nvme::SUCCESS, 0)),
        Some((Nvme::INVALID_FIELD, 1)),
        Some((Nvme::CROSS_RESET_LIMIT_EXCEEDED, 0)),
        None,
    ] {
        let (times, resets) = times_with_reset(answer);
        assert_eq!(resets.len(), 1, "{answer:?}: each path is asked once");
        for slot in 1..=3 {
            let range = KEEP_ALIVE * 2 - Duration::from_millis(50)..KEEP_ALIVE * 4;
            assert!(range.contains(&times[slot]), "{answer:?}: {times:?}");
        }
        assert!(times[4].max(times[5]) < Duration::from_secs(1), "{times:?}");
    }
}

#[test]
fn a_path_that_is_back_ends_its_former_controller_itself() {
    let (switch, resets) = (Switch::default(), Resets::default());
    let (swallow, reset) = (
        swallowing(&switch).command,
        resetting(&resets, Some((Nvme::SUCCESS, 1))).command,
    );
    let command = move |link: &mut Link, it: &Command| match swallow(link, it)? {
        Then::Usual => reset(link, it),
        Then::Done => Ok(Then::Done),
    };
    let script = Script {
        command: Box::new(command),
        ..Script::default()
    };
    // The other target knows no resets.
    let two = Two::new(naming(0x77, script));
    let times = times_after_the_loss_of(&two, &switch, Failover::Safe);
    assert!(
        times.iter().max() < Some(&Duration::from_secs(1)),
        "{times:?}"
    );
    assert_eq!(resets.lock().expect("no panic").len(), 1);
}

#[test]
fn with_fast_failover_a_write_of_a_lost_path_is_repeated_at_once() {
    let times = times_after_a_loss(Failover::Fast);
    assert!(
        times.iter().max() < Some(&Duration::from_secs(1)),
        "{times:?}"
    );
}

#[test]
fn a_target_that_executes_nothing_now_is_avoided_and_taken_again_later() {
    let switch = Switch::default();
    let refuse = |link: &mut Link, it: &Command| link.respond(it.cid, Nvme::ANA_INACCESSIBLE, 0);
    let two = Two::new(answering(&switch, refuse));
    let mut rig = two.rig(Failover::Safe);
    switch.turn(true);
    for lba in 0..20 {
        assert_eq!(rig.write(lba, &[3; 512]), Status::Ok);
    }
    assert_eq!(two.other.count(Opcode::WRITE), 20);
    switch.turn(false);
    rig.turn_for(Duration::from_secs(1));
    assert_eq!(rig.write(0, &[4; 512]), Status::Ok);
    assert_eq!(two.one.count(Opcode::WRITE), 1);
}

#[test]
fn paths_are_taken_out_of_use_and_preferred_while_requests_come() {
    let two = Two::new(Script::default());
    let disk = two.disk(Failover::Safe);
    let switches = disk.roster().switches();
    let mut rig = Rig::in_world(&two.one.shared.place, &disk);
    let writes = || (two.one.count(Opcode::WRITE), two.other.count(Opcode::WRITE));
    assert_eq!(rig.write(0, &[1; 512]), Status::Ok);
    assert_eq!(writes(), (1, 0), "the first is the policy's");
    switches.set_failed(0, true);
    assert_eq!(rig.write(0, &[2; 512]), Status::Ok);
    assert_eq!(writes(), (1, 1));
    switches.set_failed(0, false);
    assert_eq!(rig.write(0, &[3; 512]), Status::Ok);
    assert_eq!(writes(), (2, 1));
    switches.prefer(Some(1));
    assert_eq!(rig.write(0, &[4; 512]), Status::Ok);
    assert_eq!(writes(), (2, 2));
    // A path that is preferred and cannot be used leaves the others to the policy.
    switches.set_failed(1, true);
    assert_eq!(rig.write(0, &[5; 512]), Status::Ok);
    assert_eq!(writes(), (3, 2));
    // Without a path requests wait for one.
    switches.set_failed(0, true);
    let asked = rig.ask(1, WRITE, (0, 1), Payload::Borrowed(&[6; 512]));
    assert!(matches!(asked, Asked::Pending));
    rig.turn_for(Duration::from_secs(1));
    switches.set_failed(1, false);
    assert_eq!(rig.next().1, Status::Ok);
    assert_eq!(writes(), (3, 3));
}

#[test]
fn requests_fail_in_time_when_no_target_executes_them_or_none_is_there() {
    let switch = Switch::default();
    let refuse = |link: &mut Link, it: &Command| link.respond(it.cid, Nvme::ANA_TRANSITION, 0);
    let one = Fake::in_world(answering(&switch, refuse));
    let other = Fake::start_at(&one.shared.place, answering(&switch, refuse));
    let mut two = Two::of(one, other);
    two.options.fast_io_fail = Some(Duration::from_secs(3));
    let mut rig = two.rig(Failover::Safe);
    switch.turn(true);
    let began = rig.now();
    assert_eq!(rig.write(0, &[1; 512]), Status::NotReady);
    let took = rig.now() - began;
    assert!(
        took >= Duration::from_secs(3) && took < Duration::from_secs(5),
        "{took:?}"
    );
    switch.turn(false);
    assert_eq!(rig.write(0, &[2; 512]), Status::Ok);
}

#[test]
fn a_pool_that_is_closed_at_any_time_ends_its_requests_and_leaves_nothing_behind() {
    let switch = Switch::default();
    let two = Two::new(swallowing(&switch));
    let mut rig = two.rig(Failover::Safe);
    switch.turn(true);
    let asked = rig.ask(1, WRITE, (0, 1), Payload::Borrowed(&[7; 512]));
    assert!(matches!(asked, Asked::Pending));
    rig.turn_for(Duration::from_millis(50));
    two.one.disconnect_all();
    rig.turn_for(Duration::from_millis(50));
    let flush = rig.ask(2, Operation::Flush, (0, 0), Payload::None);
    assert!(matches!(flush, Asked::Pending), "it waits for the write");
    rig.channel = None;
    let mut ended = [rig.next(), rig.next()].map(|(slot, status, loan)| {
        assert!(matches!(loan, Loan::None));
        (slot, status)
    });
    ended.sort_by_key(|(slot, _)| *slot);
    assert_eq!(ended, [(1, Status::Aborted), (2, Status::Aborted)]);
    rig.until("all is closed", |rig| rig.shard.operations_in_flight() == 0);
    assert_eq!(rig.shard.buffer_bytes_in_use(), 0);
    assert_eq!(two.one.faults(), Vec::<String>::new());
}

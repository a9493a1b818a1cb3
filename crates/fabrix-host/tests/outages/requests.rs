//! Requests in an outage: they wait, are sent again, or fail in time. Each completes once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fabrix_block::{Operation, Payload, Status};
use fabrix_host::{Options, connect};
use fabrix_proto::nvme::spec::{Opcode, Status as Nvme};
use fabrix_rt::{Engine, Loan};

use super::common::{Asked, Command, Fake, Link, Notes, Rig, Script, Then, options, within};
use super::{Switch, closing, disk, rig, rig_in_world, silent, world};
use crate::on_both_engines;

on_both_engines!(
    data_is_right_after_many_cuts_under_load,
    the_first_connection_is_not_an_outage,
    requests_wait_for_a_target_that_comes_back_in_time,
    a_channel_dropped_at_any_time_leaves_nothing_behind,
);

const WRITE: Operation = Operation::Write { durable: false };

fn data_is_right_after_many_cuts_under_load(engine: Engine) {
    // Connections are cut after a random number of bytes, in the middle of whatever is being said.
    let seed = AtomicU64::new(42);
    let budget = move |number: usize| {
        let mixed = seed.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst);
        let random = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40;
        // The probe's is not cut, and the admin queue's seldom before the I/O queues are up.
        if number == 0 {
            u64::MAX
        } else {
            20_000 + random % 900_000
        }
    };
    let fake = Fake::start(Script {
        budget: Box::new(budget),
        ..Script::default()
    });
    let (options, notes) = options(engine);
    let options = Options {
        nr_io_queues: 2,
        ..options
    };
    let mut rig = rig(&fake, &options);
    let mut load = rig.load(99, 16);
    while fake.shared.cuts.load(Ordering::Relaxed) < 12 {
        load.run(100);
    }
    load.check_all();
    assert!(notes.say("reconnecting") && notes.say("connected again"));
}

#[test]
fn requests_fail_when_the_connection_has_been_gone_for_the_bound() {
    let switch = Switch::default();
    let (fake, options, notes) = world(closing(&switch));
    // The tries come 0.05, 0.15, 0.35, 0.75, 1.55 and 3.15 s after the loss.
    let bound = Duration::from_millis(1700);
    let options = Options {
        fast_io_fail: Some(bound),
        ..options
    };
    let mut rig = rig_in_world(&fake, &options);
    rig.read(0, 1).expect("connected");
    switch.turn(true);
    let began = rig.now();
    fake.disconnect_all();
    rig.until("the loss is told", |_| notes.say("reconnecting"));
    // Some come while it rests, and all are told at the bound, not at the next try.
    for slot in 0..20 {
        let asked = rig.ask(slot, Operation::Read, (0, 1), Payload::Lend);
        assert!(matches!(asked, Asked::Pending), "{asked:?}");
        rig.turn_for(Duration::from_millis(1));
    }
    for _ in 0..20 {
        assert_eq!(rig.next().1, Status::NotReady);
    }
    let took = rig.now() - began;
    assert!(
        took >= bound && took < bound + Duration::from_millis(50),
        "after {took:?}"
    );
    assert_eq!(rig.read(0, 1), Err(Status::NotReady), "at once from now on");
    switch.turn(false);
    rig.until("reconnecting went on", |_| notes.say("connected again"));
    assert_eq!(rig.read(0, 1), Ok(vec![0; 512]));
}

fn the_first_connection_is_not_an_outage(engine: Engine) {
    let at_once = Some(Duration::ZERO);
    for (fast_io_fail, ctrl_loss) in [(at_once, None), (None, at_once)] {
        let fake = Fake::start(Script::default());
        let (options, notes) = options(engine);
        let options = Options {
            fast_io_fail,
            ctrl_loss,
            ..options
        };
        let mut rig = rig(&fake, &options);
        assert_eq!(rig.read(0, 1), Ok(vec![0; 512]), "the target lives");
        fake.disconnect_all();
        rig.until("the loss is told", |_| notes.say("reconnecting"));
        if ctrl_loss.is_some() {
            rig.until("it is over", |_| notes.say("given up"));
            assert_eq!(rig.read(0, 1), Err(Status::NotReady), "from now on");
        } else {
            rig.until("reconnecting went on", |_| notes.say("connected again"));
            assert_eq!(rig.read(0, 1), Ok(vec![0; 512]));
        }
    }
}

fn requests_wait_for_a_target_that_comes_back_in_time(engine: Engine) {
    let switch = Switch::default();
    let fake = Fake::start(closing(&switch));
    let (options, notes) = options(engine);
    let mut rig = rig(&fake, &options);
    rig.read(0, 1).expect("connected");
    switch.turn(true);
    fake.disconnect_all();
    rig.until("the loss is told", |_| notes.say("reconnecting"));
    let mut asked = 0;
    while matches!(
        rig.ask(
            asked,
            WRITE,
            (asked.into(), 1),
            Payload::Borrowed(&[4; 512])
        ),
        Asked::Pending
    ) {
        asked += 1;
        assert!(asked <= 1000, "what waits is bounded");
    }
    assert_eq!(asked, 127, "as many wait as could be in progress");
    rig.turn_for(Duration::from_millis(200));
    assert!(rig.ending().is_none(), "nothing has failed");
    switch.turn(false);
    for _ in 0..asked {
        assert_eq!(rig.next().1, Status::Ok);
    }
    assert_eq!(rig.read(0, asked), Ok(vec![4; asked as usize * 512]));
}

fn a_channel_dropped_at_any_time_leaves_nothing_behind(engine: Engine) {
    let switch = Switch::default();
    let swallow = Switch::default();
    let swallowing = swallow.clone();
    let mut script = closing(&switch);
    script.command = Box::new(move |link, it| {
        let read = link.qid == Some(1) && it.entry.io_opcode() == Opcode::READ;
        Ok(if read && swallowing.is_on() {
            Then::Done
        } else {
            Then::Usual
        })
    });
    let fake = Fake::start(script);
    let (options, _) = options(engine);
    let disk = disk(&fake, &options);
    let gone = |rig: &mut Rig, when: &str| {
        assert!(matches!(
            rig.ask(5, Operation::Read, (0, 1), Payload::Lend),
            Asked::Pending
        ));
        rig.turn_for(Duration::from_millis(5));
        rig.channel = None;
        let began = Instant::now();
        let (slot, status, loan) = rig.next();
        assert_eq!((slot, status), (5, Status::Aborted), "{when}");
        drop(loan);
        rig.until(when, |rig| rig.shard.operations_in_flight() == 0);
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{when}: {:?}",
            began.elapsed()
        );
        assert_eq!(rig.shard.buffer_bytes_in_use(), 0, "{when}");
        within(when, || fake.open_connections() == 0);
    };
    // Live, idle: nothing to tell.
    let mut rig = Rig::new(engine, &disk);
    rig.read(0, 1).expect("connected");
    rig.channel = None;
    rig.until("idle", |rig| rig.shard.operations_in_flight() == 0);
    within("the connections end", || fake.open_connections() == 0);
    // Live, with a request in progress.
    let mut rig = Rig::new(engine, &disk);
    rig.read(0, 1).expect("connected");
    swallow.turn(true);
    gone(&mut rig, "live");
    // Resting between two tries, long after the first.
    switch.turn(true);
    let mut rig = Rig::new(engine, &disk);
    rig.turn_for(Duration::from_millis(500));
    gone(&mut rig, "resting");
    drop(fake);

    // Rising, and nobody answers.
    let silence = Switch::default();
    let fake = Fake::start(silent(&silence));
    let disk = connect(&fake.address(), &options).expect("an honest bring-up");
    silence.turn(true);
    let mut rig = Rig::new(engine, &disk);
    assert!(matches!(
        rig.ask(5, Operation::Read, (0, 1), Payload::Lend),
        Asked::Pending
    ));
    rig.turn_for(Duration::from_millis(20));
    rig.channel = None;
    assert_eq!(rig.next().1, Status::Aborted);
    rig.until("rising", |rig| rig.shard.operations_in_flight() == 0);
    within("the connections end", || fake.open_connections() == 0);
}

/// A pair whose connection is cut when the target has both halves.
fn pair_cut(after_compare: bool) -> (Status, usize) {
    let writes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&writes);
    let command = move |link: &mut Link, it: &Command| {
        if link.qid != Some(1) || it.entry.fuse_bits() != 2 {
            return Ok(Then::Usual);
        }
        count.fetch_add(1, Ordering::SeqCst);
        if after_compare {
            let compare = it.cid ^ 1; // slots are taken one after the other
            link.respond(compare, Nvme::COMPARE_FAILURE, 0)?;
        }
        Err(link.cut())
    };
    let (fake, options, notes) = world(Script {
        command: Box::new(command),
        ..Script::default()
    });
    let mut rig = rig_in_world(&fake, &options);
    let pair = rig.buf(1024, 0);
    let (status, loan) = rig.call(
        Operation::CompareAndWrite { durable: false },
        (0, 1),
        Payload::Owned(pair),
    );
    let Loan::Buf(buf) = loan else {
        panic!("the buffer comes back")
    };
    assert!(buf.is_unique());
    rig.until("the connection is back", |_| notes.say("connected again"));
    assert_eq!(rig.read(0, 1), Ok(vec![0; 512]));
    (status, writes.load(Ordering::SeqCst))
}

#[test]
fn a_pair_that_was_sent_is_never_sent_again() {
    assert_eq!(pair_cut(false), (Status::Aborted, 1));
}

#[test]
fn a_pair_that_was_not_sent_waits_like_any_other_request() {
    let switch = Switch::default();
    let (fake, options, notes) = world(closing(&switch));
    let mut rig = rig_in_world(&fake, &options);
    rig.read(0, 1).expect("connected");
    switch.turn(true);
    fake.disconnect_all();
    rig.until("the loss is told", |_| notes.say("reconnecting"));
    let mut pair = rig.buf(1024, 0);
    pair.bytes_mut()[512..].fill(9);
    let asked = rig.ask(
        1,
        Operation::CompareAndWrite { durable: false },
        (0, 1),
        Payload::Owned(pair),
    );
    assert!(matches!(asked, Asked::Pending), "{asked:?}");
    switch.turn(false);
    assert_eq!(rig.next().1, Status::Ok);
    assert_eq!(rig.read(0, 1), Ok(vec![9; 512]));
}

#[test]
fn a_request_that_loses_every_connection_ends_after_the_bound() {
    // The controller always comes up, and every read costs it: there is never a long outage.
    let reads = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reads);
    let command = move |link: &mut Link, it: &Command| {
        if link.qid == Some(1) && it.entry.io_opcode() == Opcode::READ {
            count.fetch_add(1, Ordering::SeqCst);
            return Err(link.cut());
        }
        Ok(Then::Usual)
    };
    let (fake, options, notes) = world(Script {
        command: Box::new(command),
        ..Script::default()
    });
    let options = Options {
        fast_io_fail: Some(Duration::from_millis(400)),
        ..options
    };
    let mut rig = rig_in_world(&fake, &options);
    let began = rig.now();
    assert_eq!(rig.read(0, 1), Err(Status::NotReady));
    let took = rig.now() - began;
    assert!(took < Duration::from_secs(1), "after {took:?}");
    let tries = reads.load(Ordering::SeqCst);
    assert!(
        (2..12).contains(&tries),
        "with pauses that grow: {tries} tries"
    );
    let back = |notes: &Notes| notes.all().iter().filter(|it| it.contains("again")).count();
    let before = back(&notes);
    rig.until("the connection is back", |_| back(&notes) > before);
    assert_eq!(rig.write(0, &[1; 512]), Status::Ok, "others are not harmed");
}

#[test]
fn a_request_that_every_controller_sends_away_ends_after_the_bound() {
    let command = |link: &mut Link, it: &Command| {
        if link.qid == Some(1) && it.entry.io_opcode() == Opcode::READ {
            link.respond(it.cid, Nvme::ABORTED_SQ_DELETION, 0)?;
            return Err(link.cut());
        }
        Ok(Then::Usual)
    };
    let (fake, options, _) = world(Script {
        command: Box::new(command),
        ..Script::default()
    });
    let options = Options {
        fast_io_fail: Some(Duration::from_millis(400)),
        ..options
    };
    let mut rig = rig_in_world(&fake, &options);
    assert_eq!(rig.read(0, 1), Err(Status::NotReady));
}

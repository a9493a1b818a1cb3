//! A disk at an iSCSI target that is slow, busy, reserved, unreachable, or wrong.

mod common;

use std::cell::RefCell;
use std::io::Read;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Notes, Reply, Rig, Unit, address, initiator, options, options_in_world};
use fabrix_block::{Channel, Deallocate, Device, Operation, Payload, Status};
use fabrix_host::iscsi::{Account, Address, RemoteUnit, connect};
use fabrix_host::{ConnectErrorKind, Options, PathEvent};
use fabrix_proto::iscsi::target::Answer;
use fabrix_rt::{Completion, Engine, Shard, ShardConfig, Task, Wait, spawn};
use fabrix_sim::Place;

on_both_engines!(
    a_disk_is_what_its_pages_say,
    a_reservation_ends_the_request_and_is_told,
    success_without_all_the_data_is_no_success,
    a_command_that_lost_its_connection_is_sent_again,
    the_first_session_is_not_an_outage,
    a_login_follows_redirections,
    a_permanent_redirection_is_remembered,
    redirections_do_not_go_on_without_end,
    a_target_that_hangs_up_during_the_login_may_want_a_secret,
    a_shard_that_is_stopped_still_logs_its_sessions_out,
);

fn open(engine: Engine, unit: &Unit) -> (RemoteUnit, Rig, Notes) {
    let (options, notes) = options(engine);
    let disk = open_with(options, unit);
    let rig = Rig::new(engine, &disk);
    (disk, rig, notes)
}

/// In the world of this thread, where waiting takes no real time.
fn open_in_world(place: &Place, unit: &Unit) -> (RemoteUnit, Rig, Notes) {
    let (options, notes) = options_in_world(place);
    let disk = open_with(options, unit);
    let rig = Rig::in_world(place, &disk);
    (disk, rig, notes)
}

fn open_with(options: Options, unit: &Unit) -> RemoteUnit {
    let options = Options {
        fast_io_fail: Some(Duration::from_secs(2)),
        ..options
    };
    connect(&address(unit), &initiator(), &options).expect("an honest target")
}

fn a_disk_is_what_its_pages_say(engine: Engine) {
    let unit = Unit::honest();
    let (disk, mut rig, _) = open(engine, &unit);
    let geometry = disk.geometry();
    assert_eq!((geometry.block_bytes, geometry.blocks), (512, 4096));
    assert!(!geometry.volatile_cache && !geometry.read_only);
    assert_eq!(geometry.deallocate, Deallocate::No);
    assert!(!disk.compares_and_writes());
    let data: Vec<u8> = (0..64 << 10)
        .map(|at: u32| (at >> 8).to_le_bytes()[0])
        .collect();
    assert_eq!(rig.write(100, &data), Status::Ok);
    assert_eq!(rig.read(100, 128), Ok(data));
    let zeroes = Operation::WriteZeroes {
        deallocate: true,
        durable: true,
    };
    assert_eq!(rig.call(zeroes, (100, 8), Payload::None).0, Status::Ok);
    assert_eq!(rig.read(100, 8), Ok(vec![0; 4096]));
    assert_eq!(
        rig.call(Operation::Flush, (0, 0), Payload::None).0,
        Status::Ok
    );
    let unmapped = rig.call(Operation::Deallocate, (0, 8), Payload::None).0;
    assert_eq!(unmapped, Status::Unsupported);
}

#[test]
fn attentions_and_busy_targets_are_not_the_users_trouble() {
    let attention = [0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0, 0, 0, 0, 0];
    let place = Place::world();
    let unit = Unit::start_at(&place, move |number, _| match number {
        0 => Reply::Say(Answer::check_condition(&attention)),
        1 => Reply::Say(Answer::status(0x08, 0)),
        2 => Reply::Say(Answer::status(0x28, 0)),
        _ => Reply::Usual,
    });
    let (_disk, mut rig, _) = open_in_world(&place, &unit);
    assert_eq!(rig.read(0, 8), Ok(vec![0; 4096]));
    // One that is busy for ever ends in time.
    let busy = Unit::start_at(&place, |_, _| Reply::Say(Answer::status(0x08, 0)));
    let (_disk, mut rig, _) = open_in_world(&place, &busy);
    assert_eq!(rig.read(0, 8), Err(Status::NotReady));
}

fn a_reservation_ends_the_request_and_is_told(engine: Engine) {
    let unit = Unit::with(|_, _| Reply::Say(Answer::status(0x18, 0)));
    let (_disk, mut rig, notes) = open(engine, &unit);
    assert_eq!(rig.write(0, &[1; 512]), Status::Aborted);
    assert_eq!(rig.write(0, &[1; 512]), Status::Aborted);
    let told = notes.all();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(notes.say("reserved by another initiator"), "{told:?}");
}

fn success_without_all_the_data_is_no_success(engine: Engine) {
    let unit = Unit::with(|_, _| Reply::Say(Answer::good(0)));
    let (_disk, mut rig, _) = open(engine, &unit);
    assert_eq!(rig.read(0, 8), Err(Status::MediaRead));
    assert_eq!(rig.write(0, &[1; 512 << 10]), Status::MediaWrite);
}

fn a_command_that_lost_its_connection_is_sent_again(engine: Engine) {
    let unit = Unit::with(|number, _| match number {
        0 | 2 | 5 => Reply::Cut,
        _ => Reply::Usual,
    });
    let (_disk, mut rig, notes) = open(engine, &unit);
    assert_eq!(rig.write(7, &[9; 4096]), Status::Ok);
    assert_eq!(rig.read(7, 8), Ok(vec![9; 4096]));
    assert!(notes.say("reconnecting") && notes.say("connected again"));
    assert!(unit.sessions() >= 4, "one to ask, three and more to work");
}

#[test]
fn another_disk_after_a_reconnect_is_not_used() {
    let place = Place::world();
    let unit = Unit::start_at(&place, |_, _| Reply::Usual);
    let (_disk, mut rig, notes) = open_in_world(&place, &unit);
    assert_eq!(rig.write(0, &[1; 512]), Status::Ok);
    unit.rename(0x6B);
    unit.cut();
    assert_eq!(rig.write(0, &[2; 512]), Status::NotReady);
    assert!(notes.say("another disk"), "{:?}", notes.all());
    unit.rename(0x6A);
    rig.until("the same disk again", |_| notes.say("connected again"));
    assert_eq!(rig.read(0, 1), Ok(vec![1; 512]));
}

#[test]
fn requests_fail_when_the_target_has_been_gone_for_long() {
    let place = Place::world();
    let unit = Unit::start_at(&place, |_, _| Reply::Usual);
    let at = address(&unit);
    let (_disk, mut rig, _) = open_in_world(&place, &unit);
    assert_eq!(rig.write(0, &[1; 512]), Status::Ok);
    drop(unit);
    assert_eq!(rig.write(0, &[2; 512]), Status::NotReady);
    let (options, _) = options_in_world(&place);
    let error = connect(&at, &initiator(), &options)
        .err()
        .expect("nobody listens");
    assert_eq!(error.kind(), ConnectErrorKind::Unreachable, "{error}");
}

fn the_first_session_is_not_an_outage(engine: Engine) {
    let at_once = Some(Duration::ZERO);
    for (fast_io_fail, ctrl_loss) in [(at_once, None), (None, at_once)] {
        let unit = Unit::honest();
        let (options, _) = options(engine);
        let options = Options {
            fast_io_fail,
            ctrl_loss,
            ..options
        };
        let disk = connect(&address(&unit), &initiator(), &options).expect("an honest target");
        let mut rig = Rig::new(engine, &disk);
        assert_eq!(rig.write(0, &[1; 512]), Status::Ok, "the target lives");
        drop(unit);
        assert_eq!(rig.write(0, &[2; 512]), Status::NotReady);
    }
}

fn a_login_follows_redirections(engine: Engine) {
    let (unit, other) = (Unit::honest(), Unit::honest());
    let there = format!("127.0.0.1:{}", other.port());
    unit.redirect(false, Some(format!("{there},1")));
    let (_disk, mut rig, notes) = open(engine, &unit);
    assert_eq!(rig.write(0, &[1; 512]), Status::Ok);
    assert_eq!(unit.sessions(), 0);
    assert!(notes.say(&format!("the target redirects us to {there}")));
    assert!(!notes.say("reconnecting"), "{:?}", notes.all());
    // For now: the next session asks the first portal again.
    unit.redirect(false, None);
    other.cut();
    rig.until("the first portal is back", |_| unit.sessions() > 0);
    assert_eq!(
        rig.read(0, 1),
        Ok(vec![0; 512]),
        "that one has blocks of its own"
    );
}

fn a_permanent_redirection_is_remembered(engine: Engine) {
    let (unit, other) = (Unit::honest(), Unit::honest());
    unit.redirect(true, Some(format!("127.0.0.1:{}", other.port())));
    let (_disk, mut rig, _) = open(engine, &unit);
    assert_eq!(rig.write(0, &[1; 512]), Status::Ok);
    unit.redirect(true, None);
    let before = other.sessions();
    other.cut();
    rig.until("a session follows", |_| other.sessions() > before);
    assert_eq!(rig.read(0, 1), Ok(vec![1; 512]));
    assert_eq!(unit.sessions(), 0);
}

fn redirections_do_not_go_on_without_end(engine: Engine) {
    let unit = Unit::honest();
    let refused = |place: String, words: &str| {
        unit.redirect(false, Some(place));
        let (options, _) = options(engine);
        let error = connect(&address(&unit), &initiator(), &options).err();
        let error = error.expect("nobody is there").to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(
        format!("127.0.0.1:{}", unit.port()),
        "redirected the login 4 times",
    );
    refused(
        "box.example:3260".to_owned(),
        "redirects us for now to box.example, port 3260; connect to that address instead",
    );
    refused("127.0.0.1:1".to_owned(), "redirected to 127.0.0.1:1");
}

#[test]
fn a_logout_waits_for_its_answer_and_not_for_ever() {
    let place = Place::world();
    let unit = Unit::start_at(&place, |_, _| Reply::Usual);
    unit.logout_takes(Duration::from_millis(900));
    let (_disk, mut rig, _) = open_in_world(&place, &unit);
    assert_eq!(
        unit.logouts(),
        (1, 0),
        "the session that looked at the disk"
    );
    assert_eq!(rig.read(0, 8), Ok(vec![0; 4096]));
    unit.logout_takes(Duration::from_millis(1100));
    rig.channel = None;
    rig.turn_for(Duration::from_secs(2));
    assert_eq!(unit.logouts(), (1, 1));
}

/// A user of a disk who never closes it.
struct Keeper {
    _channel: Box<dyn Channel>,
}

impl Task for Keeper {
    fn completed(&mut self, _: &mut Shard, _: u32, _: Completion) {}
}

fn a_shard_that_is_stopped_still_logs_its_sessions_out(engine: Engine) {
    for is_closed in [true, false] {
        stopped_with(engine, is_closed);
    }
}

/// Stops a shard with a session, whose channel was closed just before, or is not.
fn stopped_with(engine: Engine, is_closed: bool) {
    let unit = Unit::honest();
    let is_connected = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&is_connected);
    let options = Options {
        watch: Arc::new(move |_, event| {
            tell.fetch_or(event == PathEvent::Connected, Ordering::AcqRel);
        }),
        ..options(engine).0
    };
    let disk = open_with(options, &unit);
    unit.logout_takes(Duration::from_millis(50));
    is_connected.store(false, Ordering::Release);
    let config = ShardConfig {
        engine,
        ..ShardConfig::default()
    };
    let ended = spawn(config, None, move |shard| {
        let channel = disk.open(shard).expect("opening waits for nothing");
        while !is_connected.load(Ordering::Acquire) {
            shard.turn(Wait::AtMost(Duration::from_millis(10)));
        }
        if !is_closed {
            let keeper = Keeper { _channel: channel };
            shard.add(Rc::new(RefCell::new(keeper)));
        }
        shard.stop();
    });
    let ended = ended.expect("a shard").join.join();
    ended.expect("no panic");
    assert_eq!(unit.logouts(), (2, 0), "{is_closed}");
}

/// LIO does so to who offers nothing where it wants CHAP.
fn a_target_that_hangs_up_during_the_login_may_want_a_secret(engine: Engine) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = Address {
        transport: fabrix_host::Transport::Tcp,
        host: "127.0.0.1".to_owned(),
        port: listener.local_addr().expect("bound").port(),
        target: Some("iqn.2026-01.example:mute".to_owned()),
        lun: None,
    };
    let target = std::thread::spawn(move || {
        for socket in listener.incoming().take(2) {
            let (mut socket, mut header) = (socket.expect("a connection"), [0; 48]);
            socket.read_exact(&mut header).expect("a Login Request");
            let bytes = u64::from(header[6]) << 8 | u64::from(header[7]);
            let segment = (&mut socket).take(bytes.next_multiple_of(4));
            // All of it: with something unread, closing would be a reset.
            let read = std::io::copy(&mut { segment }, &mut std::io::sink());
            assert!(read.expect("its text") > 0);
        }
    });
    let (options, _) = options(engine);
    let said = |ours| {
        let who = fabrix_host::iscsi::Initiator {
            ours,
            ..initiator()
        };
        let error = connect(&at, &who, &options).err().expect("nobody let in");
        assert_eq!(error.kind(), ConnectErrorKind::Closed, "{error}");
        error.to_string()
    };
    let without = said(None);
    assert!(without.contains("want a secret"), "{without}");
    let with = said(Some(Account {
        user: "me".to_owned(),
        secret: "a secret of ours".to_owned(),
    }));
    assert!(with.contains("during the login") && !with.contains("want a secret"));
    target.join().expect("two logins");
}

//! Silent targets: commands or keep-alives without an answer make the host disconnect.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fabrix_block::Status;
use fabrix_host::Options;
use fabrix_proto::nvme::identify::IdentifyController;
use fabrix_proto::nvme::spec::{AdminOpcode, Opcode, Status as Nvme};
use fabrix_rt::{Engine, SpinPolicy};
use zerocopy::FromBytes;

use super::common::{Command, Fake, Link, Rig, Script, Then, options};
use super::{Switch, disk, rig, rig_in_world, silent, world};
use crate::on_both_engines;

on_both_engines!(connects_that_hang_are_given_up_and_their_late_endings_are_nobodys,);

#[test]
fn a_target_that_stops_answering_is_noticed() {
    let mute = Switch::default();
    let muted = mute.clone();
    let command = move |_: &mut Link, _: &Command| {
        Ok(if muted.is_on() {
            Then::Done
        } else {
            Then::Usual
        })
    };
    let (fake, options, notes) = world(Script {
        command: Box::new(command),
        ..Script::default()
    });
    let options = Options {
        keep_alive: Duration::from_millis(300),
        ..options
    };
    let mut rig = rig_in_world(&fake, &options);
    rig.read(0, 1).expect("connected");
    rig.turn_for(Duration::from_millis(700));
    assert!(fake.shared.keep_alives.load(Ordering::Relaxed) >= 2);
    assert_eq!(notes.all(), Vec::<String>::new());
    mute.turn(true);
    rig.until("the silence", |_| notes.say("no answer to Keep Alive"));
    mute.turn(false);
    rig.until("the way back", |_| notes.say("connected again"));
    assert_eq!(rig.read(0, 1), Ok(vec![0; 512]));
}

#[test]
fn a_controller_that_counts_traffic_is_sent_keep_alives_only_without_traffic() {
    let counts_traffic = |cns: u8, page: &mut [u8]| {
        if cns == 1 {
            page[96] |= 1 << 6; // CTRATT, TBKAS
        }
    };
    let (fake, options, notes) = world(Script {
        page: Box::new(counts_traffic),
        ..Script::default()
    });
    let options = Options {
        keep_alive: Duration::from_secs(2),
        ..options
    };
    let mut rig = rig_in_world(&fake, &options);
    rig.read(0, 1).expect("connected");
    let began = rig.now();
    while rig.now() - began < Duration::from_millis(2500) {
        rig.read(0, 1).expect("an honest controller");
        rig.turn_for(Duration::from_millis(5));
    }
    let keep_alives = || fake.shared.keep_alives.load(Ordering::Relaxed);
    assert_eq!(keep_alives(), 0);
    let silent = rig.now();
    rig.until("a keep-alive", |_| keep_alives() > 0);
    let waited = rig.now() - silent;
    assert!(waited < Duration::from_secs(2), "after {waited:?}");
    assert_eq!(notes.all(), Vec::<String>::new());
}

#[test]
fn a_command_that_is_never_answered_costs_the_connection_and_is_sent_again() {
    let swallowed = AtomicBool::new(false);
    let command = move |link: &mut Link, it: &Command| {
        let read = link.qid == Some(1) && it.entry.io_opcode() == Opcode::READ;
        let swallow = read && !swallowed.swap(true, Ordering::SeqCst);
        Ok(if swallow { Then::Done } else { Then::Usual })
    };
    let (fake, options, notes) = world(Script {
        command: Box::new(command),
        ..Script::default()
    });
    let options = Options {
        io_timeout: Duration::from_millis(200),
        ..options
    };
    let mut rig = rig_in_world(&fake, &options);
    assert_eq!(rig.read(0, 1), Ok(vec![0; 512]));
    assert!(notes.say("no answer to a command"), "{:?}", notes.all());
}

#[test]
fn a_controller_without_keep_alive_is_sent_none() {
    let page = |cns: u8, page: &mut [u8]| {
        if cns == 1 {
            let page = IdentifyController::mut_from_bytes(page).expect("a page");
            page.keep_alive_granularity = 0.into();
        }
    };
    let (fake, options, notes) = world(Script {
        page: Box::new(page),
        ..Script::default()
    });
    let options = Options {
        keep_alive: Duration::from_millis(20),
        ..options
    };
    let mut rig = rig_in_world(&fake, &options);
    rig.read(0, 1).expect("connected");
    rig.turn_for(Duration::from_millis(200));
    assert_eq!(fake.shared.keep_alives.load(Ordering::Relaxed), 0);
    assert_eq!(notes.all(), Vec::<String>::new());
}

#[test]
fn a_keep_alive_answered_with_an_error_costs_the_connection() {
    let command = |link: &mut Link, it: &Command| {
        if link.qid == Some(0) && it.entry.admin_opcode() == AdminOpcode::KEEP_ALIVE {
            link.respond(it.cid, Nvme::KEEP_ALIVE_EXPIRED, 0)?;
            return Ok(Then::Done);
        }
        Ok(Then::Usual)
    };
    let (fake, options, notes) = world(Script {
        command: Box::new(command),
        ..Script::default()
    });
    let options = Options {
        keep_alive: Duration::from_millis(50),
        ..options
    };
    let mut rig = rig_in_world(&fake, &options);
    rig.read(0, 1).expect("connected");
    rig.until("the error", |_| notes.say("Keep Alive Timeout Expired"));
}

#[test]
fn without_a_keep_alive_an_idle_session_sleeps() {
    let fake = Fake::honest();
    let (options, _) = options(Engine::Epoll);
    let options = Options {
        keep_alive: Duration::ZERO,
        ..options
    };
    let mut rig = Rig::with_spin(Engine::Epoll, &disk(&fake, &options), SpinPolicy::Never);
    rig.read(0, 1).expect("connected");
    let turns = rig.turn_for(Duration::from_millis(300));
    assert!(turns < 20, "{turns} turns while nothing happens");
    assert_eq!(fake.shared.keep_alives.load(Ordering::Relaxed), 0);
}

#[test]
fn a_target_that_hangs_while_we_reconnect_is_given_up_too() {
    let silence = Switch::default();
    let (fake, options, notes) = world(silent(&silence));
    let options = Options {
        bringup_timeout: Duration::from_millis(200),
        ..options
    };
    let mut rig = rig_in_world(&fake, &options);
    rig.read(0, 1).expect("connected");
    silence.turn(true);
    fake.disconnect_all();
    rig.until("the timeout", |_| notes.say("did not answer ICReq"));
    silence.turn(false);
    assert_eq!(rig.read(0, 1), Ok(vec![0; 512]));
}

/// SYNs are dropped because the backlog is full; what was begun meanwhile may connect long after it
/// was given up.
fn connects_that_hang_are_given_up_and_their_late_endings_are_nobodys(engine: Engine) {
    let deaf = Switch::default();
    let hearing = deaf.clone();
    let accepting = move || !hearing.is_on();
    let fake = Fake::start(Script {
        accepting: Box::new(accepting),
        ..Script::default()
    });
    let (options, notes) = options(engine);
    let options = Options {
        bringup_timeout: Duration::from_millis(300),
        ..options
    };
    let mut rig = rig(&fake, &options);
    rig.read(0, 1).expect("connected");
    deaf.turn(true);
    let mut waiting = Vec::new();
    let short = Duration::from_millis(100);
    while let Ok(stream) = TcpStream::connect_timeout(&fake.socket_address, short) {
        waiting.push(stream);
        assert!(waiting.len() < 10_000, "this system's backlog has no end");
    }
    fake.disconnect_all();
    rig.until("the loss is told", |_| notes.say("reconnecting"));
    rig.until("a connect hangs", |_| notes.say("no connection within"));
    rig.turn_for(Duration::from_millis(1500));
    drop(waiting);
    deaf.turn(false);
    assert_eq!(rig.write(3, &[8; 512]), Status::Ok);
    rig.turn_for(Duration::from_millis(1500)); // the kernel has tried again what was given up
    assert_eq!(rig.read(3, 1), Ok(vec![8; 512]));
    let told = notes.all().iter().filter(|it| it.contains("again")).count();
    assert_eq!(told, 1, "one outage, and it is over: {:?}", notes.all());
}

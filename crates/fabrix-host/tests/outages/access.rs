//! Access states (ALUA) of iSCSI paths: when they are read, and which path requests take.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fabrix_block::{Operation, Payload, Status};
use fabrix_host::iscsi::{RemoteUnit, connect};
use fabrix_host::multipath::{self, Access, Failover, Multipath, PathDisk, Policy};
use fabrix_host::{Options, PathEvent};
use fabrix_sim::Place;

use super::common::{Asked, Reply, Rig, Unit, address, initiator, options_in_world};

const WRITE: Operation = Operation::Write { durable: false };
const KEEP_ALIVE: Duration = Duration::from_secs(2);
const OPTIMIZED: u8 = 0x0;
const NON_OPTIMIZED: u8 = 0x1;
const STANDBY: u8 = 0x2;
const UNAVAILABLE: u8 = 0x3;
const TRANSITIONING: u8 = 0xF;

/// A target whose disk has access states, with the number of its reads and writes.
struct Portal {
    unit: Unit,
    io: Arc<AtomicUsize>,
}

impl Portal {
    fn new(place: &Place) -> Self {
        let io = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&io);
        let unit = Unit::start_at(place, move |_, cdb| {
            counted.fetch_add(usize::from(matches!(cdb[0], 0x88 | 0x8A)), Ordering::SeqCst);
            Reply::Usual
        });
        unit.serves(OPTIMIZED);
        Self { unit, io }
    }

    fn io(&self) -> usize {
        self.io.load(Ordering::SeqCst)
    }
}

/// The last state that the sessions with a target have reported.
type Reported = Arc<Mutex<Vec<(u16, Access)>>>;

/// Options whose sessions report to the list.
fn watched(place: &Place) -> (Options, Reported) {
    let (options, _) = options_in_world(place);
    let reported = Reported::default();
    let list = Arc::clone(&reported);
    let options = Options {
        keep_alive: KEEP_ALIVE,
        fast_io_fail: Some(Duration::from_secs(10)),
        watch: Arc::new(move |at, event| {
            if let PathEvent::Access(access) = event {
                list.lock().expect("no panic").push((at.port(), access));
            }
        }),
        ..options
    };
    (options, reported)
}

fn last(reported: &Reported, portal: &Portal) -> Option<Access> {
    let reported = reported.lock().expect("no panic");
    let mut states = reported.iter().rev();
    let found = states.find(|(port, _)| *port == portal.unit.port());
    found.map(|(_, access)| *access)
}

fn unit(portal: &Portal, options: &Options) -> RemoteUnit {
    connect(&address(&portal.unit), &initiator(), options).expect("an honest target")
}

/// A disk over both, of which requests prefer the first.
fn both(portals: [&Portal; 2], options: &Options) -> Multipath {
    let path = |portal| Arc::new(unit(portal, options)) as Arc<dyn PathDisk>;
    let paths = portals.map(path).to_vec();
    multipath::connect("two", paths, (Policy::Fixed(0), Failover::Safe)).expect("one disk")
}

#[test]
fn a_state_is_read_at_the_login_and_after_each_change_while_the_disk_is_idle() {
    let place = Place::world();
    let portal = Portal::new(&place);
    portal.unit.serves(NON_OPTIMIZED);
    let (options, reported) = watched(&place);
    let disk = unit(&portal, &options);
    let mut rig = Rig::in_world(&place, &disk);
    let mut is = |state: Option<u8>, access: Access| {
        if let Some(state) = state {
            portal.unit.serves(state);
        }
        let began = rig.now();
        rig.until("the state", |_| last(&reported, &portal) == Some(access));
        assert!(rig.now() - began <= KEEP_ALIVE * 2, "{access:?}");
    };
    is(None, Access::NonOptimized);
    is(Some(OPTIMIZED), Access::Optimized);
    is(Some(UNAVAILABLE), Access::Inaccessible);
    is(Some(NON_OPTIMIZED), Access::NonOptimized);
    is(Some(STANDBY), Access::Inaccessible);
    is(Some(OPTIMIZED), Access::Optimized);
}

#[test]
fn requests_take_the_path_with_the_best_state_and_go_to_another_one_when_it_refuses() {
    let place = Place::world();
    let [one, other] = [(); 2].map(|()| Portal::new(&place));
    let (options, reported) = watched(&place);
    let mut rig = Rig::in_world(&place, &both([&one, &other], &options));
    rig.until("both paths", |_| {
        last(&reported, &one).is_some() && last(&reported, &other).is_some()
    });
    assert_eq!(rig.write(0, &[1; 512]), Status::Ok);
    assert_eq!((one.io(), other.io()), (1, 0), "the first is the policy's");
    let mut written = 1;
    for state in [UNAVAILABLE, STANDBY, TRANSITIONING, NON_OPTIMIZED] {
        one.unit.serves(state);
        let before = one.io();
        // The first request hears of the change. None fails.
        for lba in 0..20 {
            assert_eq!(rig.write(lba, &[2; 512]), Status::Ok);
        }
        written += 20;
        assert!(one.io() <= before + 1, "state {state:x}h");
        assert_eq!(one.io() + other.io(), written, "state {state:x}h");
        one.unit.serves(OPTIMIZED);
        rig.until("it is optimized again", |_| {
            last(&reported, &one) == Some(Access::Optimized)
        });
        let before = one.io();
        assert_eq!(rig.write(0, &[3; 512]), Status::Ok);
        written += 1;
        assert_eq!(one.io(), before + 1, "state {state:x}h");
    }
}

#[test]
fn a_state_that_refuses_is_read_again_without_keep_alives_too() {
    let place = Place::world();
    let portal = Portal::new(&place);
    let (options, reported) = watched(&place);
    let options = Options {
        keep_alive: Duration::ZERO,
        ..options
    };
    let mut rig = Rig::in_world(&place, &unit(&portal, &options));
    assert_eq!(rig.write(0, &[1; 512]), Status::Ok);
    portal.unit.serves(UNAVAILABLE);
    assert_eq!(rig.write(0, &[2; 512]), Status::NotReady);
    rig.until("it refuses", |_| {
        last(&reported, &portal) == Some(Access::Inaccessible)
    });
    // Answers that are under way tell of the old state.
    rig.turn_for(Duration::from_millis(100));
    let sessions = portal.unit.sessions();
    portal.unit.serves(OPTIMIZED);
    rig.until("it is optimized again", |_| {
        last(&reported, &portal) == Some(Access::Optimized)
    });
    assert_eq!(portal.unit.sessions(), sessions, "without a new login");
    assert_eq!(rig.write(0, &[3; 512]), Status::Ok);
}

#[test]
fn a_path_that_does_not_serve_yet_connects_and_serves_later() {
    let place = Place::world();
    let [one, other] = [(); 2].map(|()| Portal::new(&place));
    other.unit.serves(UNAVAILABLE);
    let (options, reported) = watched(&place);
    let mut rig = Rig::in_world(&place, &both([&one, &other], &options));
    rig.until("both states", |_| {
        last(&reported, &one) == Some(Access::Optimized)
            && last(&reported, &other) == Some(Access::Inaccessible)
    });
    assert_eq!(rig.write(0, &[1; 512]), Status::Ok);
    other.unit.serves(OPTIMIZED);
    one.unit.serves(UNAVAILABLE);
    assert_eq!(rig.write(1, &[2; 512]), Status::Ok);
    assert_eq!((one.io(), other.io()).1, 1);
}

#[test]
fn requests_wait_while_no_path_serves() {
    let place = Place::world();
    let [one, other] = [(); 2].map(|()| Portal::new(&place));
    let (options, reported) = watched(&place);
    let mut rig = Rig::in_world(&place, &both([&one, &other], &options));
    rig.until("both paths", |_| {
        last(&reported, &one).is_some() && last(&reported, &other).is_some()
    });
    one.unit.serves(UNAVAILABLE);
    other.unit.serves(TRANSITIONING);
    let asked = rig.ask(1, WRITE, (0, 1), Payload::Borrowed(&[7; 512]));
    assert!(matches!(asked, Asked::Pending));
    rig.turn_for(Duration::from_secs(1));
    assert_eq!((one.io(), other.io()), (0, 0));
    other.unit.serves(NON_OPTIMIZED);
    assert_eq!(rig.next().1, Status::Ok);
    assert_eq!((one.io(), other.io()), (0, 1));
}

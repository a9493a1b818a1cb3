//! Paths that join and leave a disk while it is in use: no request fails, none is executed twice,
//! and paths that cannot be are refused.

use std::sync::Arc;
use std::time::Duration;

use fabrix_block::{Operation, Payload, Status};
use fabrix_host::multipath::{self, Failover, MOST_PATHS, Multipath, PathDisk, Policy, Roster};
use fabrix_proto::nvme::spec::Opcode;

use super::common::{Asked, Fake, Rig, Script, put_descriptors};
use super::paths::{KEEP_ALIVE, Two, WRITE, swallowing};
use super::{Switch, disk};

/// The disk over some of its paths. Requests take the path with the fewest in progress.
fn over(two: &Two, fakes: &[&Fake]) -> Multipath {
    let paths = fakes.iter().map(|fake| path(two, fake)).collect();
    let how = (Policy::QueueDepth, Failover::Safe);
    multipath::connect("a disk", paths, how).expect("one disk")
}

fn path(two: &Two, fake: &Fake) -> Arc<dyn PathDisk> {
    Arc::new(disk(fake, &two.options))
}

fn numbers(roster: &Roster) -> Vec<usize> {
    let members = roster.members();
    members.iter().map(|member| member.number).collect()
}

fn writes(fake: &Fake) -> usize {
    fake.count(Opcode::WRITE)
}

/// Writes of different blocks, eight of which are in progress at a time.
struct Load<'r> {
    rig: &'r mut Rig,
    begun: u32,
    ended: Vec<u32>,
}

impl<'r> Load<'r> {
    fn new(rig: &'r mut Rig) -> Self {
        let (begun, ended) = (0, Vec::new());
        Self { rig, begun, ended }
    }

    /// Writes until something is so, and at most 1000 times.
    fn until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        for _ in 0..1000 {
            if is_so() {
                return;
            }
            while self.begun < self.ended() + 8 {
                self.begin();
            }
            self.end_one();
        }
        panic!("{what} did not happen");
    }

    fn ended(&self) -> u32 {
        u32::try_from(self.ended.len()).expect("few")
    }

    fn begin(&mut self) {
        let (slot, lba) = (self.begun, u64::from(self.begun));
        let asked = self
            .rig
            .ask(slot, WRITE, (lba, 1), Payload::Borrowed(&[7; 512]));
        assert!(matches!(asked, Asked::Pending));
        self.begun += 1;
    }

    fn end_one(&mut self) {
        let (slot, status, _) = self.rig.next();
        assert_eq!(status, Status::Ok);
        self.ended.push(slot);
    }

    /// Every write has ended once. Returns their number.
    fn end(mut self) -> usize {
        while self.ended() < self.begun {
            self.end_one();
        }
        self.ended.sort_unstable();
        assert_eq!(self.ended, (0..self.begun).collect::<Vec<_>>());
        self.ended.len()
    }
}

#[test]
fn a_path_that_joins_under_load_gets_requests() {
    let two = Two::new(Script::default());
    let disk = over(&two, &[&two.one]);
    let mut rig = Rig::in_world(&two.one.shared.place, &disk);
    let mut load = Load::new(&mut rig);
    load.until("the first writes", || writes(&two.one) >= 16);
    assert_eq!(writes(&two.other), 0);
    let number = disk.roster().free_number().expect("room");
    let joined = disk.roster().join(number, path(&two, &two.other));
    joined.expect("the same disk");
    load.until("writes over the new path", || writes(&two.other) >= 16);
    let all = load.end();
    assert_eq!(writes(&two.one) + writes(&two.other), all, "each once");
    assert_eq!(numbers(disk.roster()), [0, 1]);
}

#[test]
fn a_path_leaves_under_load_and_no_request_fails_or_is_executed_twice() {
    let two = Two::new(Script::default());
    let disk = over(&two, &[&two.one, &two.other]);
    let mut rig = Rig::in_world(&two.one.shared.place, &disk);
    let mut load = Load::new(&mut rig);
    load.until("writes over both", || {
        writes(&two.one).min(writes(&two.other)) >= 16
    });
    disk.roster().leave(0).expect("another path is left");
    load.until("the end of the path", || two.one.open_connections() == 0);
    let (before, others) = (writes(&two.one), writes(&two.other));
    load.until("more writes", || writes(&two.other) >= others + 16);
    let all = load.end();
    assert_eq!(writes(&two.one), before, "the path that has left gets none");
    assert_eq!(before + writes(&two.other), all, "each once");
    assert_eq!(numbers(disk.roster()), [1]);
}

#[test]
fn a_write_on_a_path_that_leaves_waits_as_on_a_lost_one_and_the_next_path_of_its_number_comes_behind()
 {
    let switch = Switch::default();
    let two = Two::new(swallowing(&switch));
    let disk = over(&two, &[&two.one, &two.other]);
    let mut rig = Rig::in_world(&two.one.shared.place, &disk);
    let connections = || (two.one.open_connections(), two.other.open_connections());
    rig.until("both paths are connected", |_| connections() == (2, 2));
    disk.roster().switches().prefer(Some(0));
    switch.turn(true);
    let write = |rig: &mut Rig, slot, lba| {
        let asked = rig.ask(slot, WRITE, (lba, 1), Payload::Borrowed(&[7; 512]));
        assert!(matches!(asked, Asked::Pending));
    };
    write(&mut rig, 1, 0);
    rig.turn_for(Duration::from_millis(50));
    disk.roster().leave(0).expect("another path is left");
    disk.roster()
        .join(0, path(&two, &two.one))
        .expect("it comes back");
    rig.turn_for(Duration::from_millis(1));
    // Its request is still in progress there. New ones go elsewhere.
    (10..14).for_each(|slot| write(&mut rig, slot, u64::from(slot)));
    (10..14).for_each(|_| assert_eq!(rig.next().1, Status::Ok));
    rig.turn_for(Duration::from_secs(1));
    assert_eq!((writes(&two.other), connections().0), (4, 2));
    two.one.disconnect_all();
    let began = rig.now();
    rig.turn_for(Duration::from_millis(50));
    write(&mut rig, 2, 0);
    switch.turn(false);
    let mut ended = [(); 2].map(|()| rig.next());
    ended.sort_by_key(|(slot, ..)| *slot);
    assert!(ended.iter().all(|(_, status, _)| *status == Status::Ok));
    let (took, most) = (rig.now() - began, KEEP_ALIVE * 4);
    assert!(
        took >= KEEP_ALIVE * 2 - Duration::from_millis(100) && took < most,
        "{took:?}"
    );
    rig.until("the path is back", |_| connections() == (2, 2));
    switch.turn(true);
    let read = rig.ask(3, Operation::Read, (0, 1), Payload::Lend);
    assert!(matches!(read, Asked::Pending));
}

#[test]
fn a_path_that_cannot_be_is_refused_with_the_reason() {
    let two = Two::new(Script::default());
    let disk = over(&two, &[&two.one]);
    let roster = disk.roster();
    let refused = |path: Arc<dyn PathDisk>| {
        let number = roster.free_number().expect("room");
        roster.join(number, path).expect_err("no path").to_string()
    };
    let twice = refused(path(&two, &two.one));
    assert!(twice.contains("are the same path"), "{twice}");
    let another = |cns, page: &mut [u8]| {
        if cns == 3 {
            put_descriptors(page, [0x77; 16]);
        }
    };
    let script = Script {
        page: Box::new(another),
        ..Script::default()
    };
    let another = Fake::start_at(&two.one.shared.place, script);
    let other = refused(path(&two, &another));
    for uuid in ["5a5a5a5a-5a5a", "77777777-7777"] {
        assert!(other.contains(uuid), "{other}");
    }
    assert!(
        other.contains("are not the same disk: their UUIDs are"),
        "{other}"
    );
    let last = roster.leave(0).expect_err("the last path").to_string();
    assert!(last.contains("path 0 is the last one"), "{last}");
    let none = roster.leave(3).expect_err("no path").to_string();
    assert!(
        none.contains("there is no path 3: the disk has 0"),
        "{none}"
    );
    let both = vec![path(&two, &two.one), path(&two, &two.one)];
    let how = (Policy::QueueDepth, Failover::Safe);
    let twice = multipath::connect("a disk", both, how)
        .err()
        .expect("twice");
    assert!(twice.to_string().contains("are the same path"), "{twice}");
    assert!(multipath::check_number(MOST_PATHS).is_ok());
    assert!(multipath::check_number(MOST_PATHS + 1).is_err());
}

#[test]
fn numbers_stay_and_a_new_path_takes_the_lowest_that_is_free() {
    let two = Two::new(Script::default());
    let third = Fake::start_at(&two.one.shared.place, Script::default());
    let disk = over(&two, &[&two.one, &two.other, &third]);
    let roster = disk.roster();
    roster.switches().set_failed(1, true);
    roster.switches().prefer(Some(1));
    roster.leave(1).expect("others are left");
    assert_eq!(numbers(roster), [0, 2]);
    assert_eq!(roster.free_number().expect("room"), 1);
    roster
        .join(1, path(&two, &two.other))
        .expect("it comes back");
    let switches = roster.switches();
    assert!(!switches.is_failed(1) && switches.preferred().is_none());
    assert_eq!(numbers(roster), [0, 1, 2]);
    assert_eq!(roster.free_number().expect("room"), 3);
}

//! Reconnection: to another disk, to a smaller one, to a restarted target, or after a long absence.

use std::time::Duration;

use fabrix_block::{Operation, Payload, Status};
use fabrix_host::Options;
use fabrix_proto::nvme::identify::IdentifyNamespace;
use fabrix_proto::nvme::spec::{Opcode, Status as Nvme};
use zerocopy::FromBytes;

use super::common::{Asked, Command, Link, Rig, Script, Then};
use super::{Switch, closing, disk, rig_in_world, world};

#[test]
fn another_disk_at_the_same_address_is_refused_until_the_first_is_back() {
    let changed = Switch::default();
    let other = changed.clone();
    let page = move |cns: u8, page: &mut [u8]| {
        if cns == 3 && other.is_on() {
            super::common::put_descriptors(page, [0x77; 16]);
        }
    };
    let (fake, options, notes) = world(Script {
        page: Box::new(page),
        ..Script::default()
    });
    let options = Options {
        fast_io_fail: Some(Duration::from_millis(300)),
        ..options
    };
    let mut rig = rig_in_world(&fake, &options);
    assert_eq!(rig.write(0, &[1; 512]), Status::Ok);
    changed.turn(true);
    fake.disconnect_all();
    rig.until("it is told", |_| notes.say("another disk"));
    assert_eq!(rig.write(0, &[2; 512]), Status::NotReady);
    assert_eq!(
        fake.shared.read((0, 1)),
        [1; 512],
        "the other disk was not touched"
    );
    changed.turn(false);
    rig.until("the first is back", |_| notes.say("connected again"));
    assert_eq!(rig.write(0, &[3; 512]), Status::Ok);
    let told = notes
        .all()
        .iter()
        .filter(|note| note.contains("another disk"))
        .count();
    assert_eq!(told, 1, "once for each reason: {:?}", notes.all());
}

#[test]
fn a_disk_that_has_shrunk_or_changed_its_blocks_is_refused() {
    let check = |change: fn(&mut IdentifyNamespace), word: &str| {
        let changed = Switch::default();
        let other = changed.clone();
        let page = move |cns: u8, page: &mut [u8]| {
            if cns == 0 && other.is_on() {
                change(IdentifyNamespace::mut_from_bytes(page).expect("a page"));
            }
        };
        let (fake, options, notes) = world(Script {
            page: Box::new(page),
            ..Script::default()
        });
        let mut rig = rig_in_world(&fake, &options);
        rig.read(0, 1).expect("connected");
        changed.turn(true);
        fake.disconnect_all();
        rig.until(word, |_| notes.say(word));
    };
    check(
        |it| (it.size, it.capacity) = (100.into(), 100.into()),
        "smaller than before",
    );
    check(|it| it.lba_formats[0].data_shift = 12, "another block size");
}

#[test]
fn a_target_that_ends_its_queues_is_waited_for_and_its_successor_left_alone() {
    let leaving = Switch::default();
    let leaves = leaving.clone();
    let command = move |link: &mut Link, it: &Command| {
        let read = link.qid == Some(1) && it.entry.io_opcode() == Opcode::READ;
        if !read || !leaves.is_on() {
            return Ok(Then::Usual);
        }
        link.respond(it.cid, Nvme::ABORTED_SQ_DELETION, 0)?;
        leaves.turn(false);
        Ok(Then::Done)
    };
    let (fake, options, notes) = world(Script {
        command: Box::new(command),
        ..Script::default()
    });
    let mut rig = rig_in_world(&fake, &options);
    rig.read(0, 1).expect("connected");
    leaving.turn(true);
    let asked = rig.ask(1, Operation::Read, (0, 1), Payload::Lend);
    assert!(matches!(asked, Asked::Pending), "{asked:?}");
    rig.until("the answer", |_| !leaving.is_on());
    rig.turn_for(Duration::from_millis(100));
    assert!(rig.ending().is_none(), "it waits for the next connection");
    assert_eq!(
        notes.all(),
        Vec::<String>::new(),
        "the target closes, not we"
    );
    fake.disconnect_all();
    assert_eq!(rig.next().1, Status::Ok);
    rig.turn_for(Duration::from_millis(5500)); // what was set for the old controller is not for the new
    assert_eq!(
        notes.all().len(),
        2,
        "lost once, back once: {:?}",
        notes.all()
    );
}

#[test]
fn a_disk_opened_while_its_target_is_away_connects_when_it_comes() {
    let switch = Switch::default();
    let (fake, options, notes) = world(closing(&switch));
    let disk = disk(&fake, &options);
    switch.turn(true);
    let mut rig = Rig::in_world(&fake.shared.place, &disk);
    let asked = rig.ask(1, Operation::Read, (0, 1), Payload::Lend);
    assert!(matches!(asked, Asked::Pending), "{asked:?}");
    rig.until("it is told", |_| notes.say("reconnecting"));
    switch.turn(false);
    assert_eq!(rig.next().1, Status::Ok);
}

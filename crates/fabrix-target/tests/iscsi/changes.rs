//! Exports that change while initiators are logged in. A unit attention notifies each session once.

use fabrix_rt::Engine;
use fabrix_target::Export;

use crate::common::{Stage, ram};
use crate::initiator::Initiator;
use crate::{READ_CAPACITY_10, good, on_both_engines, rw, session};

on_both_engines!(
    sessions_are_told_of_another_size,
    sessions_are_told_of_disks_that_come_and_go,
    sessions_are_told_that_a_disk_that_returns_may_have_another_size,
    a_session_ends_when_its_unit_becomes_another_disk,
);

const TEST_UNIT_READY: [u8; 6] = [0; 6];

/// Expects this unit attention at the next command, and none at the one after that.
fn is_told(initiator: &mut Initiator, attention: [u8; 3]) {
    let told = initiator.command(&TEST_UNIT_READY, 0).sense;
    assert_eq!(told, Some(attention));
    good(&initiator.command(&TEST_UNIT_READY, 0));
}

fn sessions_are_told_of_another_size(engine: Engine) {
    let stage = Stage::new(engine);
    // Connections go to the shards in turn.
    let mut sessions = [1, 2].map(|last| session(&stage, last, false));
    let device = ram("first", 512, 8 << 20);
    let replaced = stage.replace(Export::new(1, device));
    replaced.expect("the same disk");
    for initiator in &mut sessions {
        is_told(initiator, [6, 0x2A, 9]);
        let capacity = initiator.command(&READ_CAPACITY_10, 8).data;
        assert_eq!(capacity, [0, 0, 0x3F, 0xFF, 0, 0, 2, 0]);
        let behind = initiator.command(&rw(0x28, 0x4000, 1), 512);
        assert_eq!(behind.sense, Some([5, 0x21, 0]));
    }
}

fn sessions_are_told_of_disks_that_come_and_go(engine: Engine) {
    let stage = Stage::new(engine);
    let mut sessions = [1, 2].map(|last| session(&stage, last, false));
    let device = ram("second", 512, 1 << 20);
    let added = stage.add(Export::new(2, device));
    added.expect("room for it");
    for initiator in &mut sessions {
        is_told(initiator, [6, 0x3F, 0x0E]);
        let luns = initiator.command(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256);
        assert_eq!(luns.data[3], 16, "two of them");
        initiator.lun = 1;
        is_told(initiator, [6, 0x29, 0]);
        initiator.lun = 0;
    }
    stage.remove(2).expect("it is there");
    for initiator in &mut sessions {
        is_told(initiator, [6, 0x3F, 0x0E]);
        initiator.lun = 1;
        let gone = initiator.command(&rw(0x28, 0, 1), 512);
        assert_eq!(gone.sense, Some([5, 0x25, 0]));
    }
}

fn sessions_are_told_that_a_disk_that_returns_may_have_another_size(engine: Engine) {
    let stage = Stage::new(engine);
    let mut sessions = [1, 2].map(|last| session(&stage, last, false));
    stage.remove(1).expect("it is there");
    let device = ram("first", 512, 8 << 20);
    let added = stage.add(Export::new(1, device));
    added.expect("the number is free");
    for initiator in &mut sessions {
        let power_on = initiator.command(&TEST_UNIT_READY, 0).sense;
        assert_eq!(power_on, Some([6, 0x29, 0]));
        is_told(initiator, [6, 0x2A, 9]);
    }
}

/// An initiator that stays logged in reads no identity: its next write would land on the other
/// disk.
fn a_session_ends_when_its_unit_becomes_another_disk(engine: Engine) {
    let stage = Stage::new(engine);
    let mut sessions = [1, 2].map(|last| session(&stage, last, false));
    let first = stage.remove(1).expect("it is there");
    stage.add(first).expect("the number is free");
    for initiator in &mut sessions {
        let power_on = initiator.command(&TEST_UNIT_READY, 0).sense;
        assert_eq!(power_on, Some([6, 0x29, 0]), "the same disk");
    }
    stage.remove(1).expect("it is there");
    let device = ram("another", 512, 16 << 20);
    let added = stage.add(Export::new(1, device));
    added.expect("the number is free");
    for initiator in &mut sessions {
        assert!(initiator.is_closed());
    }
}

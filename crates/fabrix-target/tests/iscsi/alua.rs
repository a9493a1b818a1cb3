//! Access states (ALUA): the states of ANA groups as initiators see them, their unit attentions,
//! refused commands, and the wait for those that came before.

use std::net::SocketAddr;
use std::thread;

use fabrix_block::Status as DiskStatus;
use fabrix_proto::nvme::spec::Status;
use fabrix_proto::scsi::alua::{AccessState, state_of_group};
use fabrix_rt::Engine;
use fabrix_target::{AnaState, Export, Listen};

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::{IQN, Plan, Stage, pattern, ram};
use crate::initiator::{FINAL, Initiator, WRITE};
use crate::{good, on_both_engines, portal, rw, session};

on_both_engines!(
    a_state_holds_at_its_listener_and_for_its_group_only,
    a_path_has_the_port_and_the_group_of_its_listener,
    one_session_identifier_serves_at_two_listeners,
    initiators_that_come_later_find_the_state,
    a_state_is_set_when_the_commands_before_it_have_ended,
    commands_that_have_not_reached_the_disk_are_refused,
    hosts_and_initiators_share_the_states_of_a_group,
    a_disk_whose_storage_refuses_the_target_is_reached_by_another_path,
);

const TEST_UNIT_READY: [u8; 6] = [0; 6];
const CHANGED: Option<[u8; 3]> = Some([6, 0x2A, 6]);
const UNAVAILABLE: Option<[u8; 3]> = Some([2, 4, 0xC]);
const TRANSITION: Option<[u8; 3]> = Some([2, 4, 0xA]);

/// A stage with LUN 0 in group 1, LUN 1 in group 2, and a second listener.
fn stage(engine: Engine) -> (Stage, SocketAddr) {
    let stage = Stage::new(engine);
    let second = Export {
        ana_group: 2,
        ..Export::new(2, ram("second", 512, 1 << 20))
    };
    stage.add(second).expect("it is added");
    let other = with_listener(&stage);
    (stage, other)
}

fn with_listener(stage: &Stage) -> SocketAddr {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    stage.open_port(Listen::iscsi(any)).expect("a port")
}

/// A session at a listener, with the unit attentions of new sessions behind it.
fn session_at(address: SocketAddr, last: u8) -> Initiator {
    let mut initiator = Initiator::log_in(address, last, false);
    for lun in [1, 0] {
        initiator.lun = lun;
        initiator.command(&TEST_UNIT_READY, 0);
    }
    initiator
}

/// Sets the state of group 1 at the listeners of an address, or at all.
fn set(stage: &Stage, state: AnaState, address: Option<SocketAddr>) {
    let at = |listen: &Listen| address.is_none_or(|address| listen.portal.address == address);
    let set = stage.target.set_ana_state(1, state, at);
    set.expect("the state is set");
}

/// What REPORT TARGET PORT GROUPS says of the first and of the second listener.
fn states(initiator: &mut Initiator) -> [Option<AccessState>; 2] {
    let cdb = [0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    let told = initiator.command(&cdb, 255);
    assert_eq!(told.status, 0, "{told:?}");
    [1, 2].map(|group| state_of_group(&told.data, group))
}

/// Expects the unit attention of a change at the next command, and none at the one after that.
fn is_told(initiator: &mut Initiator) {
    assert_eq!(initiator.command(&TEST_UNIT_READY, 0).sense, CHANGED);
    let again = initiator.command(&TEST_UNIT_READY, 0).sense;
    assert_ne!(again, CHANGED);
}

fn a_state_holds_at_its_listener_and_for_its_group_only(engine: Engine) {
    let (stage, other) = stage(engine);
    let here = portal(&stage);
    let (mut one, mut two) = (session_at(here, 1), session_at(other, 2));
    let steps = [
        (AnaState::NonOptimized, AccessState::NonOptimized, None),
        (
            AnaState::Inaccessible,
            AccessState::Unavailable,
            UNAVAILABLE,
        ),
        (
            AnaState::PersistentLoss,
            AccessState::Unavailable,
            UNAVAILABLE,
        ),
        (AnaState::Optimized, AccessState::Optimized, None),
    ];
    let expected = |state| [Some(state), Some(AccessState::Optimized)];
    let mut before = AccessState::Optimized;
    for (set_to, state, refusal) in steps {
        set(&stage, set_to, Some(here));
        for initiator in [&mut one, &mut two] {
            if before != state {
                is_told(initiator);
            }
            assert_eq!(states(initiator), expected(state));
            initiator.lun = 1;
            good(&initiator.command(&TEST_UNIT_READY, 0));
            assert_eq!(states(initiator), expected(AccessState::Optimized));
            initiator.lun = 0;
        }
        assert_eq!(one.command(&rw(0x28, 0, 1), 512).sense, refusal);
        good(&two.command(&rw(0x28, 0, 1), 512));
        before = state;
    }
}

/// Relative target port and target port group of VPD page 83h, and the name of the target port.
fn designators(initiator: &mut Initiator) -> (u32, u32, String) {
    let page = initiator.command(&[0x12, 1, 0x83, 0, 255, 0], 255).data;
    let (mut port, mut group, mut name, mut rest) = (0, 0, String::new(), &page[4..]);
    while let [_, kind, _, length, after @ ..] = rest {
        let (id, next) = after.split_at(usize::from(*length));
        let number = || u32::from_be_bytes(id.try_into().expect("four bytes"));
        match kind & 0x3F {
            0x14 => port = number(),
            0x15 => group = number(),
            0x18 => {
                name = String::from_utf8_lossy(id)
                    .trim_end_matches('\0')
                    .to_owned()
            }
            _ => {}
        }
        rest = next;
    }
    (port, group, name)
}

fn a_path_has_the_port_and_the_group_of_its_listener(engine: Engine) {
    let (stage, other) = stage(engine);
    let here = portal(&stage);
    for (address, port, group) in [(here, 1, 1), (other, 1025, 2)] {
        let name = format!("{IQN},t,0x{group:04x}");
        let mut initiator = session_at(address, 1);
        assert_eq!(designators(&mut initiator), (port, group, name));
        let mut discovery = Initiator::dial(address);
        let keys = [
            "InitiatorName=iqn.2026-01.example:a",
            "SessionType=Discovery",
        ];
        assert_eq!(discovery.try_login(&keys).bhs[36..38], [0, 0]);
        let told = discovery.send_targets();
        for (portal, tag) in [(here, 1), (other, 2)] {
            let line = format!("TargetAddress={portal},{tag}\0");
            assert!(told.contains(&line), "{told}");
        }
    }
    let mut login = Initiator::dial(other);
    let target = format!("TargetName={IQN}");
    let answer = login.try_login(&["InitiatorName=iqn.2026-01.example:a", &target]);
    let text = String::from_utf8_lossy(&answer.data).into_owned();
    assert!(text.contains("TargetPortalGroupTag=2\0"), "{text}");
}

/// Initiators may use one ISID at every portal group: RFC 7143, section 4.4.3 (conservative reuse).
fn one_session_identifier_serves_at_two_listeners(engine: Engine) {
    let (stage, other) = stage(engine);
    let mut here = session(&stage, 1, false);
    let mut there = session_at(other, 1);
    good(&here.command(&TEST_UNIT_READY, 0));
    good(&there.command(&TEST_UNIT_READY, 0));
    assert_eq!(stage.target.sessions(), 2);
    // They are two nexuses: a registration holds at the port by which it came.
    let mut key = [0; 24];
    key[15] = 7;
    let register = [0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0];
    good(&there.write(&register, &key, 24, 0));
    (key[7], key[15]) = (7, 0);
    good(&there.write(&[0x5F, 1, 5, 0, 0, 0, 0, 0, 24, 0], &key, 24, 0));
    assert_eq!(here.write(&rw(0x2A, 0, 1), &[1; 512], 512, 0).status, 0x18);
    good(&there.write(&rw(0x2A, 0, 1), &[1; 512], 512, 0));
    let status = there
        .command(&[0x5E, 3, 0, 0, 0, 0, 0, 0, 255, 0], 255)
        .data;
    assert_eq!(status[8 + 18..8 + 20], 1025_u16.to_be_bytes());
}

fn initiators_that_come_later_find_the_state(engine: Engine) {
    let (stage, other) = stage(engine);
    set(&stage, AnaState::Inaccessible, Some(other));
    let mut there = Initiator::log_in(other, 1, false);
    assert_eq!(there.command(&[0x12, 0, 0, 0, 36, 0], 36).status, 0);
    let power_on = there.command(&TEST_UNIT_READY, 0).sense;
    assert_eq!(power_on, Some([6, 0x29, 0]));
    let refused = there.command(&TEST_UNIT_READY, 0).sense;
    assert_eq!(refused, UNAVAILABLE);
    good(&session(&stage, 2, false).command(&TEST_UNIT_READY, 0));
    stage.close_port(other).expect("it is open");
    let refused = there.command(&TEST_UNIT_READY, 0).sense;
    assert_eq!(refused, UNAVAILABLE, "the listener is closed");
    let expected = [AccessState::Optimized, AccessState::Unavailable];
    assert_eq!(states(&mut there), expected.map(Some));
}

fn a_state_is_set_when_the_commands_before_it_have_ended(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let other = with_listener(&stage);
    let (mut here, mut there) = (session_at(portal(&stage), 1), session_at(other, 2));
    disk.when(Kind::Write, Do::Keep);
    let data = pattern(4096, 3);
    here.begin(FINAL | WRITE, &rw(0x2A, 0, 8), 4096, &data);
    disk.until_kept(1);
    thread::scope(|scope| {
        let change = scope.spawn(|| set(&stage, AnaState::Inaccessible, Some(portal(&stage))));
        stage.until("the state", |_| {
            there.command(&TEST_UNIT_READY, 0).sense == CHANGED
        });
        let changing = [AccessState::Transitioning, AccessState::Optimized];
        assert_eq!(states(&mut there), changing.map(Some));
        good(&there.command(&rw(0x28, 64, 8), 4096));
        let mut late = Initiator::log_in(portal(&stage), 3, false);
        late.command(&TEST_UNIT_READY, 0);
        assert_eq!(late.command(&rw(0x28, 0, 8), 4096).sense, TRANSITION);
        assert!(!change.is_finished(), "the write is at the disk");
        disk.release();
        good(&here.end(&[]));
        change.join().expect("it ends with the write");
    });
    is_told(&mut here);
    assert_eq!(here.command(&rw(0x28, 0, 8), 4096).sense, UNAVAILABLE);
    is_told(&mut there);
    assert!(there.command(&rw(0x28, 0, 8), 4096).data == data);
}

fn commands_that_have_not_reached_the_disk_are_refused(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let mut initiator = session_at(portal(&stage), 1);
    let data = pattern(4096, 3);
    // The data of the first write is asked for (R2T). The disk has no room for the second one.
    let fetching = initiator.begin(FINAL | WRITE, &rw(0x2A, 0, 8), 4096, &[]);
    let r2t = initiator.receive();
    assert_eq!(r2t.opcode(), 0x31);
    disk.when(Kind::Write, Do::Busy);
    initiator.begin(FINAL | WRITE, &rw(0x2A, 8, 8), 4096, &data);
    disk.until_refused();
    set(&stage, AnaState::Inaccessible, None);
    initiator.data_out(fetching, r2t.u32(20), &data, (0, 4096));
    for _ in 0..2 {
        // The second one may have been refused while the state changed.
        let sense = initiator.end(&[]).sense;
        assert!([UNAVAILABLE, TRANSITION].contains(&sense), "{sense:?}");
    }
    disk.when(Kind::Write, Do::Obey);
    set(&stage, AnaState::Optimized, None);
    is_told(&mut initiator);
    let read = initiator.command(&rw(0x28, 0, 16), 8192);
    assert!(read.data == [0; 8192], "nothing was written");
}

fn hosts_and_initiators_share_the_states_of_a_group(engine: Engine) {
    let (stage, _) = stage(engine);
    let (_admin, mut io) = stage.admin_and_io();
    let mut initiator = session_at(portal(&stage), 1);
    set(&stage, AnaState::Inaccessible, None);
    let refused = io.try_read(1, 0, 1, 512).status;
    assert_eq!(refused, Status::ANA_INACCESSIBLE);
    is_told(&mut initiator);
    assert_eq!(initiator.command(&rw(0x28, 0, 1), 512).sense, UNAVAILABLE);
    set(&stage, AnaState::Optimized, Some(portal(&stage)));
    let refused = io.try_read(1, 0, 1, 512).status;
    assert_eq!(refused, Status::ANA_INACCESSIBLE);
    is_told(&mut initiator);
    good(&initiator.command(&rw(0x28, 0, 1), 512));
}

fn a_disk_whose_storage_refuses_the_target_is_reached_by_another_path(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let mut initiator = session(&stage, 1, false);
    for kind in [Kind::Read, Kind::Write] {
        disk.when(kind, Do::Answer(DiskStatus::Refused));
    }
    assert_eq!(initiator.command(&rw(0x28, 0, 1), 512).sense, UNAVAILABLE);
    let write = initiator.write(&rw(0x2A, 0, 1), &[1; 512], 512, 0);
    assert_eq!(write.sense, UNAVAILABLE);
}

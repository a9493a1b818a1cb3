//! The full-feature phase: task management, pings, logout.

use fabrix_proto::iscsi::pdu::{Lun, TaskFunction, TaskManagementOutcome};
use fabrix_proto::iscsi::target::{Event, LogoutReason};

use crate::wire::Outcome::{Rejected, Silent};
use crate::wire::*;

const NO_TAG: u32 = u32::MAX;

fn management(function: u8, referenced: u32) -> Pdu {
    Pdu::new(0x42, 0x80 | function)
        .put(8, &[0, 3])
        .itt(0x99)
        .ttt(referenced)
        .cmd_sn(FIRST + 1)
}

#[test]
fn an_abort_names_its_task_and_is_answered_when_it_is_gone() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(READ, 7, FIRST, 4));
    let slot = wire.command();
    wire.send(&management(1, 7));
    let event = wire.event();
    let Event::TaskManagement { id, .. } = event else {
        panic!("{event:?}");
    };
    let expected = Event::TaskManagement {
        id,
        function: TaskFunction::ABORT_TASK,
        lun: Lun::flat(3),
        referenced: Some(slot),
    };
    assert_eq!(event, expected);
    assert_eq!(
        wire.target().commands().collect::<Vec<_>>(),
        [(slot, Lun::flat(3))]
    );
    assert!(wire.abort(slot));
    let complete = TaskManagementOutcome::Complete;
    wire.with(|target, out| target.answer_management(id, complete, out));
    let reply = wire.reply();
    assert_eq!(
        (reply.bhs[0], reply.bhs[2], reply.get32(16)),
        (0x22, 0, 0x99)
    );
    wire.with(|target, out| target.answer_management(id, complete, out));
    assert!(wire.said().is_empty(), "it is answered once");
    assert_eq!(wire.target().commands().count(), 0);
}

#[test]
fn what_needs_no_adapter_is_answered_at_once() {
    for (function, response) in [(1, 1), (8, 4), (0, 5), (9, 5), (12, 5), (127, 5)] {
        let mut wire = logged_in(limits(), &[]);
        wire.send(&management(function, 55));
        let reply = wire.reply();
        assert_eq!((reply.bhs[0], reply.bhs[2]), (0x22, response), "{function}");
        assert!(wire.take_events().is_empty());
    }
}

#[test]
fn task_management_requests_at_once_are_bounded() {
    let mut wire = logged_in(limits(), &[]);
    for _ in 0..8 {
        wire.send(&management(5, NO_TAG));
        wire.event();
    }
    wire.send(&management(5, NO_TAG));
    assert_eq!(outcome(&mut wire), Rejected(6));
}

#[test]
fn pings_of_the_initiator_are_answered_as_far_as_it_takes_them() {
    let mut wire = logged_in(limits(), &["MaxRecvDataSegmentLength=512"]);
    wire.send(&Pdu::new(0x40, 0x80).itt(2).ttt(NO_TAG).data(&[7; 600]));
    assert_eq!(wire.reply().data, [7; 512]);
    wire.send(&Pdu::new(0x40, 0x80).itt(2).ttt(NO_TAG).data(&[7; 8193]));
    assert_eq!(outcome(&mut wire), Rejected(9));
    wire.send(&Pdu::new(0x40, 0x80).itt(NO_TAG).ttt(0x1234).data(&[7; 600]));
    assert_eq!(outcome(&mut wire), Silent);
}

#[test]
fn a_silent_initiator_is_pinged_and_then_given_up() {
    let mut wire = logged_in(limits(), &[]);
    let tick = |wire: &mut Wire, s: u64| {
        wire.with(|target, out| target.tick(START.plus_ms(s * 1000), out))
    };
    assert_eq!(tick(&mut wire, 1), None);
    assert_eq!((tick(&mut wire, 15), wire.said().len()), (None, 0));
    assert_eq!(tick(&mut wire, 16), None);
    let ping = wire.reply();
    assert_eq!((ping.bhs[0], ping.get32(16)), (0x20, NO_TAG));
    wire.send(&Pdu::new(0x40, 0x80).itt(NO_TAG).ttt(ping.get32(20)));
    assert_eq!(tick(&mut wire, 46), None, "it has answered");
    assert_eq!(tick(&mut wire, 61), None);
    assert_eq!(wire.said().len(), 1);
    assert_eq!(tick(&mut wire, 90), None);
    assert_eq!(tick(&mut wire, 91), Some(Event::Silent));
    assert!(wire.is_closed());
    assert_eq!(tick(&mut wire, 200), None);
}

#[test]
fn a_logout_is_answered_once_and_is_the_end() {
    let mut wire = logged_in(limits(), &[]);
    wire.send(&command_pdu(READ, 1, FIRST, 4));
    let slot = wire.command();
    wire.send(&Pdu::new(0x46, 0x81).itt(2).put(20, &[0, 7]).cmd_sn(FIRST));
    assert_eq!(wire.event(), Event::Logout(LogoutReason::CloseConnection));
    assert!(wire.abort(slot));
    wire.with(|target, out| target.answer_logout(out));
    assert_eq!(wire.reply().bhs[2], 0);
    assert!(wire.is_closed());
    wire.with(|target, out| target.answer_logout(out));
    assert!(wire.said().is_empty());
}

#[test]
fn logouts_that_are_not_ours_are_refused() {
    for (reason, cid, response) in [(0x81, 8, 1), (0x82, 7, 2)] {
        let mut wire = logged_in(limits(), &[]);
        wire.send(&Pdu::new(0x46, reason).itt(2).put(20, &[0, cid]));
        assert_eq!(wire.reply().bhs[2], response);
        assert!(!wire.is_closed() && wire.take_events().is_empty());
    }
    let mut wire = logged_in(limits(), &[]);
    wire.send(&Pdu::new(0x46, 0x83).itt(2));
    assert_eq!(outcome(&mut wire), Rejected(9));
}

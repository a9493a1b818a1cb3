//! Commands and their answers: one at a time in a slot, each answered once, under ids that do not
//! come again soon.

use fabrix_proto::Slot;
use fabrix_proto::nvme::queue::{HostEvent, HostTransfer};
use fabrix_proto::nvme::spec::{CompletionEntry, Status, SubmissionEntry};
use fabrix_proto::nvme::tcp::host::{Host, HostLimits};
use fabrix_proto::nvme::tcp::pdu::{FLAG_LAST, FLAG_SUCCESS, InitializeResponse};
use zerocopy::IntoBytes;

use super::tcp_wire::*;
use super::{READ, SEQUENCE, busy, c2h, command, refuses, state};

#[test]
fn no_command_leaves_before_the_controller_has_agreed() {
    let mut side = state(0);
    side.take_sent();
    let mut entry = SubmissionEntry::new(0x02);
    assert!(!side.with(|host, out| host.command(Slot(0), &mut entry, READ, out)));
    assert_eq!(
        (side.take_sent().len(), side.machine.slots_in_use()),
        (0, 0)
    );
}

#[test]
fn a_slot_holds_one_command_at_a_time() {
    let (mut side, _) = busy(READ, NONE);
    let mut entry = SubmissionEntry::new(0x02);
    for slot in [2, 8, u16::MAX] {
        assert!(!side.with(|host, out| host.command(Slot(slot), &mut entry, READ, out)));
    }
    assert_eq!(
        (side.take_sent().len(), side.machine.slots_in_use()),
        (0, 1)
    );
}

#[test]
fn a_response_and_a_small_read_cost_one_and_two_calls() {
    let (mut side, command_id) = busy(READ, NONE);
    side.calls = 0;
    side.feed(&c2h(command_id, 0, 4096, FLAG_LAST | FLAG_SUCCESS));
    assert_eq!((side.calls, side.events.len()), (2, 1));
    let command_id = command(&mut side, 2, HostTransfer::None);
    side.feed(&response(command_id, Status::SUCCESS, NONE));
    assert_eq!((side.calls, side.events.len()), (3, 2));
}

#[test]
fn answers_to_nobody_end_the_connection() {
    let (side, command_id) = busy(READ, NONE);
    drop(side);
    for wrong in [
        0,
        command_id ^ 1,
        command_id ^ 0x08,
        command_id | 0x8000,
        2,
        u16::MAX,
    ] {
        refuses(
            state(2),
            &response(wrong, Status::SUCCESS, NONE),
            SEQUENCE,
            0,
        );
        refuses(state(2), &c2h(wrong, 0, 512, 0), SEQUENCE, 0);
        refuses(state(3), &r2t(wrong, 0, 0, 4096, NONE), SEQUENCE, 0);
    }
}

#[test]
fn an_answer_to_the_slots_last_command_is_not_taken_for_this_one() {
    let (mut side, stale) = busy(READ, NONE);
    side.feed(&response(stale, Status::SUCCESS, NONE));
    let fresh = command(&mut side, 2, READ);
    assert_ne!(stale, fresh);
    refuses(side, &response(stale, Status::SUCCESS, NONE), SEQUENCE, 0);
}

#[test]
fn a_command_id_comes_again_only_after_all_generations_and_is_never_ffff() {
    for (max_slots, slot) in [(8, 7), (1, 0), (4096, 4095), (u16::MAX, 4095), (100, 99)] {
        let limits = HostLimits {
            max_slots,
            ..host_limits()
        };
        let mut side = Side::new(Host::new(limits, crc32c), 1, 0);
        side.with(|host, out| host.start(out));
        side.feed(InitializeResponse::new(0, NONE, 4096).as_bytes());
        let mut last = Vec::new();
        for _ in 0..40 {
            let command_id = command(&mut side, slot, HostTransfer::None);
            assert_ne!(command_id, u16::MAX);
            assert!(
                !last
                    .iter()
                    .rev()
                    .take(14)
                    .any(|earlier| *earlier == command_id)
            );
            last.push(command_id);
            side.feed(&response(command_id, Status::SUCCESS, NONE));
        }
        assert_eq!((side.violation, side.machine.slots_in_use()), (None, 0));
    }
}

#[test]
fn a_command_is_answered_once() {
    let (mut side, command_id) = busy(READ, NONE);
    side.feed(&c2h(command_id, 0, 4096, FLAG_LAST | FLAG_SUCCESS));
    let event = HostEvent::Completed {
        slot: Slot(2),
        data_bytes: 4096,
        intact: true,
    };
    assert_eq!(side.event(), event);
    let entry = side.machine.entry();
    assert_eq!(
        (entry.status(), entry.command_id.get()),
        (Status::SUCCESS, command_id)
    );
    refuses(
        side,
        &response(command_id, Status::SUCCESS, NONE),
        SEQUENCE,
        0,
    );
}

#[test]
fn the_answer_carries_status_and_result_as_they_came() {
    let (mut side, command_id) = busy(READ, NONE);
    let mut pdu = response(command_id, Status::UNRECOVERED_READ_ERROR, NONE);
    pdu[8..16].copy_from_slice(&u64::to_le_bytes(0x1122_3344_5566_7788));
    side.feed(&pdu);
    let mut expected = CompletionEntry::new(Status::UNRECOVERED_READ_ERROR, 0x1122_3344_5566_7788);
    expected.command_id.set(command_id);
    let event = HostEvent::Completed {
        slot: Slot(2),
        data_bytes: 0,
        intact: true,
    };
    assert_eq!(side.event(), event);
    assert_eq!(*side.machine.entry(), expected);
}

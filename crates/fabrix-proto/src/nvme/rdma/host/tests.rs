//! Tests of the host side without a transport.

use alloc::vec::Vec;

use zerocopy::IntoBytes;

use super::*;

const WINDOW: WindowAddress = WindowAddress {
    address: 0x1000,
    key: 0x0700,
};

/// Begins a command in a slot. Returns its entry as bytes.
fn begin(host: &mut Host, slot: u16, transfer: HostTransfer) -> Vec<u8> {
    let mut entry = SubmissionEntry::read(1, 0, 8);
    let carriage = host.carriage(Slot(slot), transfer).expect("a free slot");
    let window = match carriage {
        Carriage::Read { .. } | Carriage::Write { .. } => Some(WINDOW),
        Carriage::None | Carriage::InCapsule { .. } => None,
    };
    host.begin(Slot(slot), &mut entry, (carriage, window));
    entry.as_bytes().to_vec()
}

/// A response to the command of an entry.
fn response(entry: &[u8], status: Status) -> Vec<u8> {
    let mut response = CompletionEntry::new(status, 0);
    response.command_id = U16::new(u16::from_le_bytes([entry[2], entry[3]]));
    response.as_bytes().to_vec()
}

fn completed(slot: u16, data_bytes: u32) -> HostEvent {
    HostEvent::Completed {
        slot: Slot(slot),
        data_bytes,
        intact: true,
    }
}

#[test]
fn data_in_a_window_has_an_address_a_length_and_a_key_to_invalidate() {
    let mut host = Host::new(4);
    let bytes = 0x0001_2345;
    let entry = begin(&mut host, 2, HostTransfer::Read { bytes });
    assert_eq!(entry[1], 0x40);
    assert_eq!(entry[24..32], 0x1000_u64.to_le_bytes());
    assert_eq!(entry[32..35], [0x45, 0x23, 0x01]);
    assert_eq!(entry[35..39], 0x0700_u32.to_le_bytes());
    assert_eq!(entry[39], 0x4F);
}

#[test]
fn short_writes_travel_in_their_capsules_once_the_controller_allows_it() {
    let mut host = Host::new(4);
    let write = |bytes| HostTransfer::Write { bytes };
    let slot = Slot(0);
    assert_eq!(
        host.carriage(slot, write(512)),
        Some(Carriage::Read { bytes: 512 })
    );
    host.set_in_capsule(8192);
    for (bytes, expected) in [
        (0, Carriage::None),
        (4096, Carriage::InCapsule { bytes: 4096 }),
        (4097, Carriage::Read { bytes: 4097 }),
    ] {
        assert_eq!(host.carriage(slot, write(bytes)), Some(expected));
    }
    host.set_in_capsule(1024);
    assert_eq!(
        host.carriage(slot, write(1025)),
        Some(Carriage::Read { bytes: 1025 })
    );
    let entry = begin(&mut host, 0, write(1024));
    assert_eq!(entry[24..32], [0; 8]);
    assert_eq!(entry[32..36], 1024_u32.to_le_bytes());
    assert_eq!(entry[39], 0x01);
}

#[test]
fn a_command_without_data_has_an_empty_keyed_descriptor() {
    let mut host = Host::new(4);
    let entry = begin(&mut host, 0, HostTransfer::None);
    assert_eq!(entry[24..39], [0; 15]);
    assert_eq!(entry[39], 0x40);
}

#[test]
fn a_command_completes_when_answer_message_and_window_are_done_in_any_order() {
    let bytes = 512;
    for order in 0..3 {
        let mut host = Host::new(2);
        let entry = begin(&mut host, 1, HostTransfer::Read { bytes });
        let answer = response(&entry, Status::SUCCESS);
        if order == 0 {
            assert_eq!(host.sent(Slot(1)), None);
        }
        let responded = host.response(&answer, Some(WINDOW.key));
        assert_eq!(responded, Ok(Responded::Close(Slot(1))));
        if order == 1 {
            assert_eq!(host.sent(Slot(1)), None);
        }
        let closed = host.closed(Slot(1));
        if order == 2 {
            assert_eq!(closed, None);
            assert_eq!(host.sent(Slot(1)), Some(completed(1, bytes)));
        } else {
            assert_eq!(closed, Some(completed(1, bytes)));
        }
        assert!(host.carriage(Slot(1), HostTransfer::None).is_some());
    }
}

#[test]
fn an_answer_before_the_end_of_its_message_waits_for_it() {
    let mut host = Host::new(2);
    let entry = begin(&mut host, 0, HostTransfer::None);
    let answer = response(&entry, Status::INVALID_FIELD);
    assert_eq!(host.response(&answer, None), Ok(Responded::Waiting));
    assert_eq!(host.carriage(Slot(0), HostTransfer::None), None);
    assert_eq!(host.sent(Slot(0)), Some(completed(0, 0)));
    assert_eq!(host.entry().status(), Status::INVALID_FIELD);
}

#[test]
fn a_response_that_answers_nothing_is_a_violation() {
    let mut host = Host::new(3);
    let first = begin(&mut host, 0, HostTransfer::None);
    host.sent(Slot(0));
    let answer = response(&first, Status::SUCCESS);
    assert!(host.response(&answer, None).is_ok());
    assert!(host.response(&answer, None).is_err(), "it was answered");
    begin(&mut host, 0, HostTransfer::None);
    assert!(host.response(&answer, None).is_err(), "an earlier command");
    let mut unknown = answer;
    unknown[12..14].copy_from_slice(&3_u16.to_le_bytes());
    assert!(host.response(&unknown, None).is_err(), "there is no slot 3");
}

#[test]
fn a_message_of_another_length_is_a_violation() {
    let mut host = Host::new(1);
    let entry = begin(&mut host, 0, HostTransfer::None);
    let mut answer = response(&entry, Status::SUCCESS);
    answer.push(0);
    for end in (0..16).chain([17]) {
        assert!(host.response(&answer[..end], None).is_err(), "{end}");
    }
    assert!(host.response(&answer[..16], None).is_ok());
}

#[test]
fn a_response_invalidates_the_key_of_its_command_and_no_other() {
    let mut host = Host::new(2);
    let bytes = 512;
    let with = begin(&mut host, 0, HostTransfer::Read { bytes });
    let without = begin(&mut host, 1, HostTransfer::None);
    let other = host.response(&response(&with, Status::SUCCESS), Some(1));
    assert!(other.is_err());
    let none = host.response(&response(&without, Status::SUCCESS), Some(WINDOW.key));
    assert!(none.is_err());
    let right = host.response(&response(&with, Status::SUCCESS), None);
    assert_eq!(right, Ok(Responded::Close(Slot(0))));
}

#[test]
fn no_descriptor_holds_16_mebibytes() {
    let host = Host::new(1);
    let carriage = |bytes| host.carriage(Slot(0), HostTransfer::Read { bytes });
    assert_eq!(carriage(1 << 24), None);
    assert!(carriage((1 << 24) - 1).is_some());
    assert_eq!(host.carriage(Slot(1), HostTransfer::None), None);
}

//! What the tests of the controller's side share: doing what an adapter does, and holding a refusal
//! to its rules.

use super::*;

pub const FIELD: u16 = 1;
pub const SEQUENCE: u16 = 2;
pub const HEADER_DIGEST: u16 = 3;
pub const RANGE: u16 = 4;
pub const LIMIT: u16 = 5;
pub const UNSUPPORTED: u16 = 6;

pub const DATA_PDU: PduType = PduType::HOST_DATA;

pub fn success() -> CompletionEntry {
    CompletionEntry::new(Status::SUCCESS, 0)
}

pub fn answer(side: &mut Side<Target>, slot: u16, entry: CompletionEntry, bytes: u32) -> bool {
    side.with(|target, out| target.answer(Slot(slot), entry, bytes, out))
}

pub fn fetch(side: &mut Side<Target>, slot: u16) {
    side.with(|target, out| target.fetch(Slot(slot), out));
}

/// The status of the CapsuleResp that is all that was sent.
pub fn only_response(side: &mut Side<Target>, command_id: u16) -> Status {
    let sent = side.take_sent();
    assert_eq!(
        (sent.len(), sent[0]),
        (24, 0x05),
        "one CapsuleResp was expected"
    );
    let entry = CompletionEntry::from_array(sent[8..].try_into().expect("16 bytes"));
    assert_eq!(entry.command_id.get(), command_id);
    entry.status()
}

/// A target that has asked for the 8192 bytes of write 0x11, in slot 0.
pub fn fetching(digests: Digests) -> Side<Target> {
    let mut side = ready_target(target_limits(), digests);
    side.feed(&write_capsule(0x11, 8192, digests));
    fetch(&mut side, 0);
    side.take_sent();
    side.take_events();
    side
}

/// Feeds a PDU that must end the connection, and checks that nothing comes after the goodbye.
pub fn refuses(mut side: Side<Target>, pdu: &[u8], fes: u16, fei: u32) {
    side.take_events();
    side.take_sent();
    let in_use = side.machine.slots_in_use();
    side.feed(pdu);
    assert_eq!(side.fatal(), (fes, fei), "{:?}", side.violation);
    assert_eq!(side.take_events(), []);
    let goodbye = side.take_sent();
    assert_eq!(
        (goodbye[0], goodbye[8]),
        (0x03, u8::try_from(fes).expect("small"))
    );
    assert!(goodbye.len() <= 152);
    side.feed(&read_capsule(0x77, 512, NONE));
    for slot in 0..8 {
        answer(&mut side, slot, success(), 0);
    }
    assert_eq!((side.take_events().len(), side.take_sent().len()), (0, 0));
    assert!(side.machine.slots_in_use() <= in_use);
}

//! The target over another framing than TCP's: messages of whole PDUs in memory, as iSER has them,
//! and data that moves between the memories of both sides by slot and range. No R2T and no Data
//! PDU exists here.

use fabrix_proto::iscsi::framing::{Endpoint, Framing, Piece, ReadData, Segment};
use fabrix_proto::iscsi::login::Auth;
use fabrix_proto::iscsi::pdu::{BHS_BYTES, ReadyToTransfer, ScsiCommand, TaskManagementOutcome};
use fabrix_proto::iscsi::target::{Answer, Event, Target, Transfer};
use fabrix_proto::{Claim, Slot, Violation};

use crate::wire::{
    FIRST, INITIATOR, Pdu, READ, START, TARGET, TO_FULL, WRITE, command_pdu, grant, limits,
    login_pdu, pattern, tsih,
};

/// What precedes the basic header of every message, in bytes.
const HEADER_BYTES: usize = 28;
const SLOT_BYTES: usize = 64 << 10;

/// Both memories of a connection, and what the target has said.
struct Messages {
    /// Data of the target's slots.
    ours: Vec<Vec<u8>>,
    /// Data of the initiator's commands, by the target's slot.
    theirs: Vec<Vec<u8>>,
    /// Ranges that the target reads at the moment.
    reads: Vec<Piece>,
    sent: Vec<Vec<u8>>,
}

impl Framing for Messages {
    fn pdu(&mut self, header: &[u8; BHS_BYTES], segment: &[u8]) {
        self.sent
            .push([&[0; HEADER_BYTES], &header[..], segment].concat());
    }

    fn payload(&mut self, _: &[u8; BHS_BYTES], _: Slot, _: u32, _: u32) {
        panic!("a target sends no PDU with a slot's data");
    }

    fn command(&mut self, _: &ScsiCommand, _: Slot, _: u32) -> bool {
        panic!("a target sends no command");
    }

    fn task(&mut self, _: Slot) {}

    fn response(&mut self, _: Slot, header: &[u8; BHS_BYTES], segment: &[u8]) {
        self.pdu(header, segment);
    }

    fn fetch(&mut self, slot: Slot, r2t: &ReadyToTransfer) -> bool {
        self.reads.push(Piece {
            slot,
            offset: r2t.buffer_offset.get(),
            bytes: r2t.desired_bytes.get(),
        });
        true
    }

    fn send(&mut self, slot: Slot, read: &ReadData<'_>) -> Option<u32> {
        let (slot, bytes) = (usize::from(slot.0), read.bytes as usize);
        self.theirs[slot][..bytes].copy_from_slice(&self.ours[slot][..bytes]);
        Some(0)
    }
}

struct Connection {
    target: Target,
    framing: Messages,
}

impl Connection {
    fn logged_in() -> Self {
        let memory = vec![vec![0; SLOT_BYTES]; usize::from(limits().slots())];
        let mut connection = Self {
            target: Target::new(limits(), START),
            framing: Messages {
                ours: memory.clone(),
                theirs: memory,
                reads: Vec::new(),
                sent: Vec::new(),
            },
        };
        let keys = [INITIATOR, TARGET, "SessionType=Normal", "ImmediateData=Yes"];
        let asked = connection.receive(&login_pdu(TO_FULL, &keys));
        assert_eq!(asked, Some(Event::Authorize));
        let Self { target, framing } = &mut connection;
        assert_eq!(
            target.admit(grant(Auth::None), framing),
            Some(Event::Proved)
        );
        assert_eq!(target.enter(Ok(tsih()), framing), Some(Event::LoggedIn));
        assert_eq!(connection.reply().bhs[0], 0x23);
        connection
    }

    /// A message arrives; gives its event, or that of its data.
    fn receive(&mut self, pdu: &Pdu) -> Option<Event> {
        let message = [&[0; HEADER_BYTES], &pdu.bytes((false, false))[..]].concat();
        let told = self.take(&message[HEADER_BYTES..]);
        told.expect("no rule is broken")
    }

    fn take(&mut self, pdu: &[u8]) -> Result<Option<Event>, Violation> {
        let (bhs, data) = pdu.split_first_chunk().expect("a header");
        let received = self.target.pdu(bhs, &[], &mut self.framing)?;
        let of_data = match received.segment {
            Segment::Skipped => None,
            Segment::Whole => self.target.segment(data, true, &mut self.framing)?,
            Segment::Kept(piece) => {
                self.range(piece)
                    .copy_from_slice(&data[..piece.bytes as usize]);
                self.target.arrived(piece, true, &mut self.framing)
            }
            Segment::Dropped(piece) => self.target.arrived(piece, true, &mut self.framing),
        };
        Ok(received.event.or(of_data))
    }

    fn range(&mut self, piece: Piece) -> &mut [u8] {
        let start = piece.offset as usize;
        let memory = &mut self.framing.ours[usize::from(piece.slot.0)];
        &mut memory[start..start + piece.bytes as usize]
    }

    /// The oldest read of the initiator's memory ends.
    fn read_ends(&mut self) -> Option<Event> {
        let piece = self.framing.reads.remove(0);
        let start = piece.offset as usize;
        let theirs = &self.framing.theirs[usize::from(piece.slot.0)];
        let data = theirs[start..start + piece.bytes as usize].to_vec();
        self.range(piece).copy_from_slice(&data);
        self.target.arrived(piece, true, &mut self.framing)
    }

    /// A command arrives; gives its slot and how its data moves.
    fn command(&mut self, pdu: &Pdu) -> (Slot, Transfer) {
        match self.receive(pdu) {
            Some(Event::Command {
                claim, transfer, ..
            }) => (claim.slot(), transfer),
            other => panic!("a command was expected: {other:?}"),
        }
    }

    fn fetch(&mut self, slot: Slot) {
        self.target.fetch(slot, &mut self.framing);
        assert!(self.framing.sent.is_empty(), "no R2T");
    }

    fn answer(&mut self, slot: Slot, moved: u32) -> bool {
        let answer = Answer::good(moved);
        let claim = Claim::new(slot);
        self.target.answer(claim, &answer, &mut self.framing).1
    }

    /// The only message since the last look.
    fn reply(&mut self) -> Pdu {
        let mut sent = std::mem::take(&mut self.framing.sent);
        assert_eq!(sent.len(), 1, "one message was expected: {sent:x?}");
        let (bhs, data) = sent.remove(0)[HEADER_BYTES..]
            .split_first_chunk()
            .map(|(bhs, data)| (*bhs, data.to_vec()))
            .expect("a header");
        Pdu {
            bhs,
            ahs: Vec::new(),
            data,
        }
    }

    /// The only message is a SCSI Response: GOOD, no residual, no Data PDU counted.
    fn check_good(&mut self, itt: u32) {
        let response = self.reply();
        assert_eq!(response.bhs[..4], [0x21, 0x80, 0, 0]);
        assert_eq!((response.get32(16), response.get32(44)), (itt, 0));
    }
}

#[test]
fn a_write_is_read_from_the_initiators_memory_behind_its_immediate_data() {
    for immediate in [0, 512] {
        let mut connection = Connection::logged_in();
        let data = pattern(8192, 3);
        let (now, later) = data.split_at(immediate);
        let pdu = command_pdu(WRITE, 7, FIRST, 8192).data(now);
        let (slot, transfer) = connection.command(&pdu);
        let (bytes, arriving) = (8192, immediate > 0);
        assert_eq!(transfer, Transfer::Fetch { bytes, arriving });
        connection.framing.theirs[usize::from(slot.0)][immediate..8192].copy_from_slice(later);
        connection.fetch(slot);
        assert_eq!(connection.framing.reads.len(), 1);
        let intact = true;
        assert_eq!(
            connection.read_ends(),
            Some(Event::Fetched { slot, intact })
        );
        assert_eq!(connection.framing.ours[usize::from(slot.0)][..8192], data);
        assert!(connection.answer(slot, 8192));
        connection.check_good(7);
    }
}

#[test]
fn a_read_is_written_to_the_initiators_memory_and_answered_apart() {
    let mut connection = Connection::logged_in();
    let (slot, transfer) = connection.command(&command_pdu(READ, 8, FIRST, 4096));
    assert_eq!(transfer, Transfer::Send { bytes: 4096 });
    let data = pattern(4096, 5);
    connection.framing.ours[usize::from(slot.0)][..4096].copy_from_slice(&data);
    assert!(connection.answer(slot, 4096));
    assert_eq!(connection.framing.theirs[usize::from(slot.0)][..4096], data);
    connection.check_good(8);
}

#[test]
fn an_aborted_write_keeps_its_slot_until_the_read_of_its_data_has_ended() {
    let mut connection = Connection::logged_in();
    let (slot, _) = connection.command(&command_pdu(WRITE, 9, FIRST, 4096));
    connection.fetch(slot);
    let abort = Pdu::new(0x42, 0x81).put(8, &[0, 3]).itt(10).put32(20, 9);
    let told = connection.receive(&abort.cmd_sn(FIRST.wrapping_add(1)));
    let Some(Event::TaskManagement { id, referenced, .. }) = told else {
        panic!("task management was expected: {told:?}");
    };
    assert_eq!(referenced, Some(slot));
    assert!(
        !connection.target.abort_unclaimed(slot),
        "its memory is being written"
    );
    assert_eq!(connection.read_ends(), Some(Event::Released { slot }));
    assert!(
        connection.framing.sent.is_empty(),
        "no answer to what was aborted"
    );
    let Connection { target, framing } = &mut connection;
    target.answer_management(id, TaskManagementOutcome::Complete, framing);
    let reply = connection.reply();
    assert_eq!((reply.bhs[0], reply.bhs[2], reply.get32(16)), (0x22, 0, 10));
    assert_eq!(connection.target.slots_in_use(), 0);
}

#[test]
fn a_write_that_is_answered_early_waits_for_the_read_of_its_data() {
    let mut connection = Connection::logged_in();
    let (slot, _) = connection.command(&command_pdu(WRITE, 11, FIRST, 4096));
    connection.fetch(slot);
    assert!(!connection.answer(slot, 4096));
    assert_eq!(connection.read_ends(), Some(Event::Released { slot }));
    connection.check_good(11);
}

//! The target over RDMA: what a login agrees on, what goes where by which tag, and which tag a
//! response invalidates. Messages and data are in memory.

use fabrix_proto::iscsi::framing::{Piece, Segment};
use fabrix_proto::iscsi::iser::framing::{Messages, Outgoing, WrittenData};
use fabrix_proto::iscsi::iser::message::{Message, RemoteMemory};
use fabrix_proto::iscsi::iser::{Iser, wishes};
use fabrix_proto::iscsi::login::Auth;
use fabrix_proto::iscsi::target::{Answer, Event, Target, TargetLimits, Transfer};
use fabrix_proto::{Claim, Slot, Violation};

use crate::wire::{
    FIRST, INITIATOR, Pdu, READ, START, TARGET, TO_FULL, WRITE, command_pdu, data_out, grant,
    limits, logged_in, login_pdu, tsih,
};

/// What ib_iser sends at a login.
const KEYS: [&str; 7] = [
    "RDMAExtensions=Yes",
    "InitiatorRecvDataSegmentLength=262144",
    "TargetRecvDataSegmentLength=8192",
    "InitialR2T=No",
    "ImmediateData=Yes",
    "MaxBurstLength=16776192",
    "FirstBurstLength=262144",
];

/// A message of the target.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    data: Option<WrittenData>,
    invalidate: Option<u32>,
    pdu: Pdu,
}

/// What the target has sent and read.
#[derive(Default)]
struct Log {
    sent: Vec<Sent>,
    reads: Vec<(Piece, RemoteMemory)>,
}

impl Messages for &mut Log {
    fn send(&mut self, message: Outgoing<'_>) {
        let (iser, bhs) = message.headers.split_at(28);
        assert_eq!((iser[0], &iser[1..]), (0x10, &[0; 27][..]));
        let length = usize::from(bhs[6]) << 8 | usize::from(bhs[7]);
        self.sent.push(Sent {
            data: message.data,
            invalidate: message.invalidate,
            pdu: Pdu {
                bhs: bhs.try_into().expect("48 bytes"),
                ahs: Vec::new(),
                data: message.segment[..length].to_vec(),
            },
        });
    }

    fn read(&mut self, piece: Piece, from: RemoteMemory) {
        self.reads.push((piece, from));
    }
}

struct Connection {
    machine: Iser<Target>,
    log: Log,
}

/// The tags of a message: flags, write STag and address, read STag and address.
type Tags = (u8, (u32, u64), (u32, u64));

const NO_TAGS: Tags = (0x10, (0, 0), (0, 0));
const WRITE_TAG: Tags = (0x18, (7, 0x10_000), (0, 0));
const READ_TAG: Tags = (0x14, (0, 0), (9, 0x20_000));

fn message((flags, write, read): Tags, pdu: &Pdu) -> Vec<u8> {
    let mut message = vec![flags, 0, 0, 0];
    for (key, address) in [write, read] {
        message.extend(key.to_be_bytes());
        message.extend(address.to_be_bytes());
    }
    message.extend(pdu.bytes((false, false)));
    message
}

impl Connection {
    fn new(invalidates: bool) -> Self {
        let limits = TargetLimits {
            wishes: wishes(),
            ..limits()
        };
        Self {
            machine: Iser::new(Target::new(limits, START), limits.slots(), invalidates),
            log: Log::default(),
        }
    }

    fn logged_in(invalidates: bool) -> Self {
        let mut connection = Self::new(invalidates);
        connection.log_in(&KEYS);
        assert_eq!(connection.log.sent.remove(0).pdu.get32(36), 0);
        connection
    }

    /// Logs in with these keys. The last message is the answer.
    fn log_in(&mut self, keys: &[&str]) -> Option<Event> {
        let keys = [&[INITIATOR, TARGET, "SessionType=Normal"], keys].concat();
        let asked = self.receive(NO_TAGS, &login_pdu(TO_FULL, &keys));
        assert_eq!(asked.expect("right"), Some(Event::Authorize));
        let (target, mut out) = self.machine.speak(&mut self.log);
        match target.admit(grant(Auth::None), &mut out) {
            Some(Event::Proved) => target.enter(Ok(tsih()), &mut out),
            other => other,
        }
    }

    /// A message arrives; gives its event, or that of its data.
    fn receive(&mut self, tags: Tags, pdu: &Pdu) -> Result<Option<Event>, Violation> {
        let bytes = message(tags, pdu);
        let message = Message::parse(&bytes)?;
        let additional = &bytes[message.additional.clone()];
        let received = self.machine.message(&message, additional, &mut self.log)?;
        let data = match received.segment {
            Segment::Whole => &bytes[message.data],
            _ => &[],
        };
        let event = self
            .machine
            .segment(received.segment, data, &mut self.log)?;
        Ok(received.event.or(event))
    }

    #[track_caller]
    fn command(&mut self, tags: Tags, pdu: &Pdu) -> (Slot, Transfer) {
        match self.receive(tags, pdu) {
            Ok(Some(Event::Command {
                claim, transfer, ..
            })) => (claim.slot(), transfer),
            other => panic!("a command was expected: {other:?}"),
        }
    }

    fn answer(&mut self, slot: Slot, moved: u32) -> bool {
        let (target, mut out) = self.machine.speak(&mut self.log);
        target
            .answer(Claim::new(slot), &Answer::good(moved), &mut out)
            .1
    }

    fn fetch(&mut self, slot: Slot) {
        let (target, mut out) = self.machine.speak(&mut self.log);
        target.fetch(slot, &mut out);
    }

    /// The only message since the last look.
    fn reply(&mut self) -> Sent {
        assert_eq!(self.log.sent.len(), 1, "{:?}", self.log.sent);
        self.log.sent.remove(0)
    }
}

#[test]
fn a_login_agrees_on_the_keys_of_rdma() {
    let mut connection = Connection::new(true);
    let keys = [&KEYS[..], &["HeaderDigest=None", "DataDigest=CRC32C"]].concat();
    assert_eq!(connection.log_in(&keys), Some(Event::LoggedIn));
    let text = connection.reply().pdu.text();
    for expected in [
        "RDMAExtensions=Yes",
        "InitiatorRecvDataSegmentLength=1024",
        "TargetRecvDataSegmentLength=8192",
        "InitialR2T=Yes",
        "ImmediateData=Yes",
        "HeaderDigest=None",
        "DataDigest=Reject",
    ] {
        assert!(text.split(' ').any(|pair| pair == expected), "{text}");
    }
    assert!(!text.contains("MaxRecvDataSegmentLength"), "{text}");
}

#[test]
fn a_session_without_rdma_extensions_is_refused() {
    for keys in [&KEYS[1..], &["RDMAExtensions=No"]] {
        let mut connection = Connection::new(true);
        let event = connection.log_in(keys);
        assert!(matches!(event, Some(Event::LoginFailed(_))), "{event:?}");
        assert_eq!(connection.reply().pdu.bhs[36..38], [2, 7]);
    }
}

#[test]
fn over_tcp_the_keys_of_rdma_have_no_meaning() {
    let mut wire = crate::wire::Wire::new(limits());
    let keys = [&[INITIATOR, TARGET, "SessionType=Normal"], &KEYS[..3]].concat();
    wire.send(&login_pdu(TO_FULL, &keys));
    let text = wire.reply().text();
    for expected in [
        "RDMAExtensions=No",
        "InitiatorRecvDataSegmentLength=Irrelevant",
        "TargetRecvDataSegmentLength=Irrelevant",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    drop(logged_in(limits(), &KEYS));
}

#[test]
fn a_discovery_session_needs_no_rdma_extensions() {
    let mut connection = Connection::new(true);
    let keys = [INITIATOR, "SessionType=Discovery"];
    let asked = connection.receive(NO_TAGS, &login_pdu(TO_FULL, &keys));
    assert_eq!(asked.expect("right"), Some(Event::Authorize));
    let (target, mut out) = connection.machine.speak(&mut connection.log);
    assert_eq!(
        target.admit(grant(Auth::None), &mut out),
        Some(Event::Proved)
    );
    assert_eq!(target.enter(Ok(tsih()), &mut out), Some(Event::LoggedIn));
}

#[test]
fn a_discovery_session_that_declares_its_length_again_gets_no_longer_messages() {
    let mut connection = Connection::new(true);
    let keys = [INITIATOR, "SessionType=Discovery"];
    let asked = connection.receive(NO_TAGS, &login_pdu(TO_FULL, &keys));
    assert_eq!(asked.expect("right"), Some(Event::Authorize));
    let (target, mut out) = connection.machine.speak(&mut connection.log);
    target.admit(grant(Auth::None), &mut out);
    assert_eq!(target.enter(Ok(tsih()), &mut out), Some(Event::LoggedIn));
    connection.log.sent.clear();
    let keys = b"MaxRecvDataSegmentLength=65536\0";
    let text = Pdu::new(0x04, 0x80)
        .itt(7)
        .ttt(u32::MAX)
        .cmd_sn(FIRST)
        .data(keys);
    assert_eq!(connection.receive(NO_TAGS, &text).expect("right"), None);
    connection.reply();
    let ping = Pdu::new(0x40, 0x80).itt(8).ttt(u32::MAX).data(&[5; 4096]);
    assert_eq!(connection.receive(NO_TAGS, &ping).expect("right"), None);
    let answer = connection.reply();
    assert_eq!(answer.pdu.data.len(), 1024, "the room of a message");
}

#[test]
fn a_read_is_written_by_its_tag_and_its_response_invalidates_it() {
    for (invalidates, expected) in [(true, Some(9)), (false, None)] {
        let mut connection = Connection::logged_in(invalidates);
        let (slot, transfer) = connection.command(READ_TAG, &command_pdu(READ, 5, FIRST, 4096));
        assert_eq!(transfer, Transfer::Send { bytes: 4096 });
        assert!(connection.answer(slot, 1024));
        let reply = connection.reply();
        let to = RemoteMemory {
            key: 9,
            address: 0x20_000,
        };
        let bytes = 1024;
        assert_eq!(reply.data, Some(WrittenData { slot, bytes, to }));
        assert_eq!(reply.invalidate, expected);
        // A SCSI Response with the residual, and no Data-In before it.
        assert_eq!(reply.pdu.bhs[..4], [0x21, 0x82, 0, 0]);
        assert_eq!((reply.pdu.get32(36), reply.pdu.get32(44)), (0, 3072));
    }
}

#[test]
fn a_write_is_read_from_exactly_the_address_that_was_given() {
    for immediate in [0, 512] {
        let mut connection = Connection::logged_in(true);
        let pdu = command_pdu(WRITE, 6, FIRST, 1 << 20).data(&vec![1; immediate]);
        let (slot, _) = connection.command(WRITE_TAG, &pdu);
        connection.fetch(slot);
        let offset = u32::try_from(immediate).expect("short");
        let piece = Piece {
            slot,
            offset,
            bytes: (1 << 20) - offset,
        };
        let from = RemoteMemory {
            key: 7,
            address: 0x10_000,
        };
        // One RDMA READ: MaxBurstLength has no meaning.
        assert_eq!(connection.log.reads, [(piece, from)]);
        assert!(!connection.answer(slot, 1 << 20), "its data is on its way");
        assert!(connection.log.sent.is_empty());
        let event = connection.machine.fetched(piece, &mut connection.log);
        assert_eq!(event, Some(Event::Released { slot }));
        let reply = connection.reply();
        assert_eq!((reply.data, reply.invalidate), (None, Some(7)));
        assert_eq!(reply.pdu.bhs[..4], [0x21, 0x80, 0, 0]);
    }
}

#[test]
fn nothing_is_invalidated_where_there_is_no_tag() {
    let mut connection = Connection::logged_in(true);
    let pdu = command_pdu(WRITE, 6, FIRST, 512).data(&[1; 512]);
    let (slot, transfer) = connection.command(NO_TAGS, &pdu);
    assert_eq!(transfer, Transfer::Inline { bytes: 512 });
    assert!(connection.answer(slot, 512));
    assert_eq!(connection.reply().invalidate, None);
    // A ping between two commands has no part in their tags.
    let ping = Pdu::new(0x40, 0x80).itt(8).ttt(u32::MAX);
    assert_eq!(connection.receive(READ_TAG, &ping).expect("right"), None);
    assert_eq!(connection.reply().invalidate, None);
}

#[test]
fn of_two_tags_the_read_one_is_invalidated() {
    let mut connection = Connection::logged_in(true);
    let both = (0x1C, WRITE_TAG.1, READ_TAG.2);
    let (slot, _) = connection.command(both, &command_pdu(READ, 5, FIRST, 512));
    assert!(connection.answer(slot, 512));
    assert_eq!(connection.reply().invalidate, Some(9));
}

#[test]
fn a_command_without_the_tag_that_it_needs_ends_the_connection() {
    for (tags, flags, immediate) in [
        (NO_TAGS, READ, 0),
        (WRITE_TAG, READ, 0),
        (NO_TAGS, WRITE, 0),
        (READ_TAG, WRITE, 512),
    ] {
        let mut connection = Connection::logged_in(true);
        let pdu = command_pdu(flags, 5, FIRST, 1024).data(&vec![0; immediate]);
        let violation = connection.receive(tags, &pdu).expect_err("no tag");
        assert!(violation.sentence().contains("STag"), "{violation}");
        connection
            .machine
            .terminate(&violation, &mut connection.log);
        assert_eq!(connection.reply().pdu.bhs[0], 0x3F);
    }
    let mut connection = Connection::logged_in(true);
    let (_, transfer) = connection.command(NO_TAGS, &command_pdu(READ, 5, FIRST, 0));
    assert_eq!(transfer, Transfer::None);
}

#[test]
fn a_data_out_ends_the_connection_before_any_of_its_data_counts() {
    let mut connection = Connection::logged_in(true);
    let (slot, _) = connection.command(WRITE_TAG, &command_pdu(WRITE, 5, FIRST, 512));
    connection.fetch(slot);
    let ttt = u32::from(slot.0) << 16 | 1;
    for ttt in [ttt, u32::MAX] {
        let pdu = data_out(0x80, 5, ttt, (0, 0), &[1; 512]);
        let violation = connection.receive(NO_TAGS, &pdu).expect_err("no Data-Out");
        assert!(violation.sentence().contains("Data-Out"), "{violation}");
    }
}

#[test]
fn a_command_that_the_machine_refuses_itself_invalidates_its_tag() {
    let mut connection = Connection::logged_in(true);
    let pdu = command_pdu(WRITE, 5, FIRST, 2 << 20);
    assert_eq!(connection.receive(WRITE_TAG, &pdu).expect("right"), None);
    let reply = connection.reply();
    assert_eq!((reply.pdu.bhs[3], reply.invalidate), (2, Some(7)));
    assert!(reply.pdu.data.len() <= 128, "the room of ib_iser");
}

//! An initiator's connection over queue pairs in memory. The test is the target.

use fabrix_proto::iscsi::initiator::{LoginConfig, TaskOutcome, Transfer};
use fabrix_proto::iscsi::iser::HEADERS_BYTES;
use fabrix_proto::iscsi::iser::message::{RemoteMemory, Tags};
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_rt::{Loan, ShardConfig};
use sys_rdma::{Part, Remote};

use super::wire::{OTHER_MESSAGES, REQUESTS_OF_A_COMMAND};
use super::*;
use crate::rdma::simulated::{SimulatedPair, SimulatedSizes, link};
use crate::rdma::{Pair, RDMA_READY};

const SLOTS: u16 = 4;
const RECEIVES: u32 = 12;
/// Token of what the target sends.
const TARGET: u64 = 77;
const KEYS: &str = "RDMAExtensions=Yes\0InitialR2T=Yes\0ImmediateData=Yes\0\
                    TargetRecvDataSegmentLength=8192\0InitiatorRecvDataSegmentLength=1024\0";
/// Opcodes of a target.
const RESPONSE: u8 = 0x21;
const DATA_IN: u8 = 0x25;
const R2T: u8 = 0x31;
const NOP_IN: u8 = 0x20;

struct Stage {
    shard: Shard,
    queue: IserInitiatorQueue<SimulatedPair>,
    target: SimulatedPair,
    /// Receives of the target that have messages.
    taken: Vec<u32>,
}

/// A message that has reached the target.
struct Arrived {
    tags: Tags,
    bhs: [u8; 48],
    data: Vec<u8>,
}

impl Arrived {
    fn itt(&self) -> [u8; 4] {
        self.bhs[16..20].try_into().expect("4 bytes")
    }

    /// The memory that a command names.
    fn memory(&self) -> RemoteMemory {
        let memory = self.tags.read.or(self.tags.write);
        memory.expect("a command with a tag")
    }
}

/// A PDU of the target, with the numbers of an open window.
fn pdu(opcode: u8, flags: u8, itt: [u8; 4], data: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADERS_BYTES];
    message[0] = 0x10;
    let bhs = &mut message[28..];
    (bhs[0], bhs[1]) = (opcode, flags);
    bhs[6..8].copy_from_slice(&u16::try_from(data.len()).expect("short").to_be_bytes());
    bhs[16..20].copy_from_slice(&itt);
    bhs[28..32].copy_from_slice(&1_u32.to_be_bytes());
    bhs[32..36].copy_from_slice(&1000_u32.to_be_bytes());
    message.extend_from_slice(data);
    message
}

impl Stage {
    /// A connection whose login was not answered.
    fn new() -> Self {
        let config = ShardConfig {
            arena_bytes: 16 << 20,
            ..ShardConfig::default()
        };
        let initiator = SimulatedSizes {
            requests: (u32::from(SLOTS) * REQUESTS_OF_A_COMMAND + OTHER_MESSAGES) as usize,
            receives: RECEIVES as usize,
            first_receives: RECEIVES as usize,
            receive_bytes: HEADERS_BYTES + 8192,
            reads: 0,
        };
        let target = SimulatedSizes {
            requests: 256,
            receives: 64,
            first_receives: 64,
            reads: 16,
            ..initiator
        };
        let (mut initiator, mut target) = link([initiator, target]);
        (0..RECEIVES).for_each(|slot| initiator.post_receive(slot));
        (0..64).for_each(|slot| target.post_receive(slot));
        initiator.flush().expect("in memory");
        target.flush().expect("in memory");
        let login = LoginConfig {
            initiator: "iqn.2026-01.example:host".into(),
            target: Some("iqn.2026-01.example:disk".into()),
            isid: [0x80, 1, 2, 3, 0, 1],
            auth: None,
            header_digest: false,
            data_digest: false,
            rdma: true,
        };
        let mut queue = IserInitiatorQueue::new(initiator, Initiator::new(SLOTS, login), SLOTS);
        queue.start();
        Self {
            shard: Shard::new(config).expect("a shard"),
            queue,
            target,
            taken: Vec::new(),
        }
    }

    fn logged_in() -> Self {
        let mut stage = Self::new();
        assert_eq!(stage.log_in(KEYS), Ok(Some(Event::LoggedIn)));
        stage
    }

    /// Answers both requests of the login, the last with these keys.
    fn log_in(&mut self, keys: &str) -> Result<Option<Event>, String> {
        for (flags, keys) in [
            (0x81, "TargetPortalGroupTag=1\0AuthMethod=None\0"),
            (0x87, keys),
        ] {
            let asked = self.only();
            assert_eq!(asked.bhs[0], 0x43, "a Login Request");
            let mut response = pdu(0x23, flags, asked.itt(), keys.as_bytes());
            response[28 + 14..28 + 16].copy_from_slice(&1_u16.to_be_bytes());
            self.say(&response, None);
            let next = self.queue.next().map_err(|ended| format!("{ended:?}"))?;
            if next.is_some() {
                return Ok(next);
            }
        }
        Ok(None)
    }

    fn command(&mut self, slot: u16, transfer: Transfer) {
        let (initiator, mut out) = self.queue.speak();
        assert!(initiator.command(Slot(slot), Lun::flat(0), &[0x88; 16], transfer, &mut out));
    }

    /// Sends a read of so many bytes, to a place at an offset of its buffer.
    fn read(&mut self, slot: u16, bytes: u32) -> Arrived {
        let buf = self.shard.take_buf(64 + bytes as usize).expect("room");
        self.queue.receive_into(Slot(slot), Incoming::Buf(buf, 64));
        self.command(slot, Transfer::Read { bytes });
        self.only()
    }

    /// Sends a write of bytes that differ.
    fn write(&mut self, slot: u16, bytes: u32) -> Arrived {
        let mut buf = self.shard.take_buf(bytes as usize).expect("room");
        buf.bytes_mut()[..bytes as usize].copy_from_slice(&pattern(bytes));
        self.queue.send_from(Slot(slot), Outgoing::Buf(buf, 0));
        self.command(slot, Transfer::Write { bytes });
        self.only()
    }

    /// The initiator hands over what it has, and its device carries it out.
    fn settle(&mut self) {
        self.queue.flush(&mut self.shard).expect("open");
        let pair = self.queue.wire.pair.as_ref().expect("open");
        while pair.step() {}
    }

    /// The messages that have reached the target.
    fn arrived(&mut self) -> Vec<Arrived> {
        self.settle();
        let mut all = Vec::new();
        while let Some(done) = self.target.next_done() {
            if let Done::Received { slot, bytes, .. } = done {
                let bytes = self.target.message(slot, bytes).to_vec();
                let message = Message::parse(&bytes).expect("a right one");
                all.push(Arrived {
                    tags: message.tags,
                    bhs: message.bhs,
                    data: bytes[message.data].to_vec(),
                });
                self.taken.push(slot);
            }
        }
        self.taken
            .drain(..)
            .for_each(|slot| self.target.post_receive(slot));
        self.target.flush().expect("in memory");
        all
    }

    #[track_caller]
    fn only(&mut self) -> Arrived {
        let mut all = self.arrived();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    /// The target sends a message, and it arrives.
    fn say(&mut self, message: &[u8], invalidate: Option<u32>) {
        let sent = self.target.send(message, invalidate, TARGET);
        sent.expect("room");
        self.target.flush().expect("in memory");
        while self.target.step() {}
        self.hear(RDMA_READY);
    }

    /// The hub tells its word.
    fn hear(&mut self, result: i32) {
        let loan = Loan::None;
        let heard = self.queue.completed(0, Completion { result, loan });
        heard.expect("open");
    }

    fn respond(&mut self, command: &Arrived, invalidate: Option<u32>) {
        let response = pdu(RESPONSE, 0x80, command.itt(), &[]);
        self.say(&response, invalidate);
    }

    /// The target writes into memory of the initiator. False: it may not.
    fn put(&mut self, bytes: &[u8], to: RemoteMemory, offset: u64) -> bool {
        let mut buf = self.shard.take_buf(bytes.len()).expect("room");
        buf.bytes_mut().copy_from_slice(bytes);
        let part = part(bytes.len(), to, offset);
        let memory = Memory::Buf(buf);
        self.target.write(memory, &[part], 0).is_ok() && self.moves().is_some()
    }

    /// The target reads memory of the initiator. None: it may not.
    fn get(&mut self, bytes: usize, from: RemoteMemory, offset: u64) -> Option<Vec<u8>> {
        let buf = self.shard.take_buf(bytes).expect("room");
        let part = part(bytes, from, offset);
        self.target.read(buf, &[part], 0).expect("room");
        match self.moves()? {
            Memory::Buf(buf) => Some(buf.bytes()[..bytes].to_vec()),
            Memory::Lent(_) => None,
        }
    }

    fn moves(&mut self) -> Option<Memory> {
        self.target.flush().expect("in memory");
        while self.target.step() {}
        while let Some(done) = self.target.next_done() {
            match done {
                Done::Ended {
                    is_ok,
                    memory,
                    token: 0,
                } => return memory.filter(|_| is_ok),
                Done::Received { slot, .. } => self.taken.push(slot),
                Done::Ended { .. } | Done::Failed(_) => {}
            }
        }
        None
    }

    #[track_caller]
    fn next(&mut self) -> Option<Event> {
        self.queue.next().expect("open")
    }

    /// A command has ended well. Yields its buffer's bytes.
    #[track_caller]
    fn completed(&mut self, slot: u16, data_bytes: u32) -> Vec<u8> {
        let outcome = TaskOutcome {
            delivered: true,
            status: 0,
            data_bytes,
            intact: true,
        };
        let slot = Slot(slot);
        assert_eq!(self.next(), Some(Event::Completed { slot, outcome }));
        let buf = self.queue.release(slot).expect("its data comes back");
        assert!(buf.is_unique(), "nobody else has the data");
        buf.bytes().to_vec()
    }

    /// Why the connection has ended.
    #[track_caller]
    fn violation(&mut self) -> String {
        match self.queue.next() {
            Err(Ended::Violation(violation)) => violation.sentence().to_owned(),
            other => panic!("the connection goes on: {other:?}"),
        }
    }

    /// Closes the connection: every buffer is there, and the target reaches nothing.
    fn close(mut self, used: &[u16], memory: Option<RemoteMemory>) {
        self.queue.close();
        assert!(self.queue.is_quiet() && self.queue.is_drained());
        for slot in used {
            let buf = self.queue.release(Slot(*slot)).expect("it comes back");
            assert!(buf.is_unique());
        }
        if let Some(memory) = memory {
            assert!(!self.put(&[0; 16], memory, 0));
        }
        assert!(matches!(self.queue.next(), Err(Ended::Closed)));
    }
}

fn pattern(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 % 251) as u8).collect()
}

fn part(bytes: usize, memory: RemoteMemory, offset: u64) -> Part {
    Part {
        start: 0,
        bytes: u32::try_from(bytes).expect("short"),
        remote: Remote {
            address: memory.address + offset,
            key: memory.key,
        },
    }
}

#[test]
fn a_login_offers_what_rdma_needs_and_nothing_that_it_has_not() {
    let mut stage = Stage::new();
    let first = stage.only();
    assert!(first.tags.read.is_none() && first.tags.write.is_none());
    let mut response = pdu(0x23, 0x81, first.itt(), b"AuthMethod=None\0");
    response[28 + 14..28 + 16].copy_from_slice(&1_u16.to_be_bytes());
    stage.say(&response, None);
    assert_eq!(stage.next(), None);
    let text = String::from_utf8(stage.only().data).expect("text");
    let pairs: Vec<&str> = text.split('\0').collect();
    for pair in [
        "RDMAExtensions=Yes",
        "InitialR2T=Yes",
        "ImmediateData=Yes",
        "InitiatorRecvDataSegmentLength=8192",
        "TargetRecvDataSegmentLength=8192",
    ] {
        assert!(pairs.contains(&pair), "{text}");
    }
    assert!(
        !text.contains("Digest") && !text.contains("\0MaxRecvData"),
        "{text}"
    );
}

#[test]
fn a_login_without_what_rdma_needs_fails_with_its_reason() {
    for (keys, why) in [
        ("RDMAExtensions=No\0", "RDMAExtensions"),
        ("InitialR2T=Yes\0", "RDMAExtensions"),
        ("RDMAExtensions=Yes\0InitialR2T=No\0", "not offered"),
        ("RDMAExtensions=Yes\0HeaderDigest=CRC32C\0", "not offered"),
        (
            "RDMAExtensions=Yes\0TargetRecvDataSegmentLength=8193\0",
            "not offered",
        ),
    ] {
        let mut stage = Stage::new();
        match stage.log_in(keys) {
            Ok(Some(Event::LoginFailed(failure))) => {
                assert!(failure.to_string().contains(why), "{failure}");
            }
            other => panic!("{keys} is taken: {other:?}"),
        }
    }
}

#[test]
fn a_target_writes_a_reads_data_and_its_response_ends_its_access() {
    let mut stage = Stage::logged_in();
    let command = stage.read(2, 512);
    assert!(command.tags.write.is_none() && command.data.is_empty());
    assert_eq!(command.bhs[1] & 0x60, 0x40, "a read");
    let memory = command.memory();
    assert!(stage.put(&[7; 512], memory, 0));
    assert_eq!(stage.next(), None, "no response yet");
    stage.respond(&command, Some(memory.key));
    let bytes = stage.completed(2, 512);
    assert_eq!(bytes[..64], [0; 64], "the data begins at its offset");
    assert_eq!(bytes[64..576], [7; 512]);
    assert!(!stage.put(&[8; 512], memory, 0), "the tag is invalid");
}

#[test]
fn a_short_write_goes_with_its_command_and_names_no_memory() {
    let mut stage = Stage::logged_in();
    let command = stage.write(0, 8192);
    assert!(command.tags.write.is_none() && command.tags.read.is_none());
    assert_eq!(command.data, pattern(8192));
    stage.respond(&command, None);
    stage.completed(0, 8192);
}

#[test]
fn the_rest_of_a_long_write_is_read_behind_its_immediate_data() {
    let mut stage = Stage::logged_in();
    let command = stage.write(1, 20_000);
    let all = pattern(20_000);
    assert_eq!(command.data, all[..8192]);
    assert_eq!(command.bhs[1] & 0xE0, 0xA0, "a final write");
    let memory = command.memory();
    assert_eq!(stage.get(11_808, memory, 0).as_deref(), Some(&all[8192..]));
    stage.respond(&command, Some(memory.key));
    stage.completed(1, 20_000);
}

#[test]
fn a_target_reaches_only_the_data_of_a_command_and_in_its_direction() {
    for wrong in 0..4 {
        let mut stage = Stage::logged_in();
        let command = match wrong {
            0 | 1 => stage.write(0, 20_000),
            _ => stage.read(0, 512),
        };
        let memory = command.memory();
        let reached = match wrong {
            0 => stage.put(&[0; 16], memory, 0),
            1 => stage.get(16, memory, 11_800).is_some(),
            2 => stage.put(&[0; 16], memory, 500),
            _ => stage.get(16, memory, 0).is_some(),
        };
        assert!(!reached, "{wrong}");
        assert!(matches!(stage.queue.next(), Err(Ended::Closed)));
        stage.close(&[0], Some(memory));
    }
}

#[test]
fn a_window_that_the_target_leaves_open_is_closed_before_the_command_ends() {
    let mut stage = Stage::logged_in();
    let command = stage.read(1, 512);
    let memory = command.memory();
    assert!(stage.put(&[7; 512], memory, 0));
    stage.respond(&command, None);
    assert_eq!(stage.next(), None, "the window is open");
    stage.settle();
    assert_eq!(stage.completed(1, 512)[64..576], [7; 512]);
    assert!(!stage.put(&[8; 512], memory, 0), "the tag is invalid");
}

#[test]
fn sense_data_stays_with_its_command_while_a_window_is_closed() {
    let mut stage = Stage::logged_in();
    let commands = [stage.read(0, 512), stage.read(1, 512)];
    for (command, key) in commands.iter().zip([6, 5]) {
        let sense = [0, 4, 0x72, key, 0x29, 0];
        let mut response = pdu(RESPONSE, 0x80, command.itt(), &sense);
        response[28 + 3] = 2;
        stage.say(&response, None);
    }
    assert_eq!(stage.next(), None);
    stage.settle();
    for (slot, key) in [(Slot(0), 6), (Slot(1), 5)] {
        match stage.next() {
            Some(Event::Completed {
                slot: found,
                outcome,
            }) => {
                assert_eq!((found, outcome.status), (slot, 2));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(stage.queue.endpoint().sense(), [0x72, key, 0x29, 0]);
    }
}

#[test]
fn a_read_with_less_data_says_so() {
    let mut stage = Stage::logged_in();
    let command = stage.read(0, 512);
    let mut response = pdu(RESPONSE, 0x82, command.itt(), &[]);
    response[28 + 44..28 + 48].copy_from_slice(&100_u32.to_be_bytes());
    let key = command.memory().key;
    stage.say(&response, Some(key));
    stage.completed(0, 412);
}

#[test]
fn all_slots_run_for_long_with_every_receive_and_window_in_use() {
    for invalidates in [true, false] {
        let mut stage = Stage::logged_in();
        for round in 0..100_u8 {
            let commands: Vec<Arrived> = (0..SLOTS)
                .map(|slot| match round % 2 {
                    0 => stage.read(slot, 512),
                    _ => stage.write(slot, 20_000),
                })
                .collect();
            for command in &commands {
                let memory = command.memory();
                let moved = match round % 2 {
                    0 => stage.put(&[round; 512], memory, 0),
                    _ => stage.get(11_808, memory, 0).is_some(),
                };
                assert!(moved);
                stage.respond(command, invalidates.then_some(memory.key));
            }
            if !invalidates {
                assert_eq!(stage.next(), None);
                stage.settle();
            }
            for slot in 0..SLOTS {
                match round % 2 {
                    0 => assert_eq!(stage.completed(slot, 512)[64..576], [round; 512]),
                    _ => drop(stage.completed(slot, 20_000)),
                }
            }
        }
    }
}

#[test]
fn wrong_messages_of_a_target_end_the_connection_with_a_reason() {
    type Wrong = fn(&Arrived) -> (Vec<u8>, Option<u32>);
    let all: [(&str, Wrong); 9] = [
        ("Data-In or R2T over RDMA", |command| {
            (pdu(DATA_IN, 0x80, command.itt(), &[1; 512]), None)
        }),
        ("Data-In or R2T over RDMA", |command| {
            (pdu(R2T, 0x80, command.itt(), &[]), None)
        }),
        ("a message is no iSCSI PDU", |command| {
            let mut message = pdu(RESPONSE, 0x80, command.itt(), &[]);
            message[0] = 0x30;
            (message, None)
        }),
        ("names memory by a tag", |command| {
            let mut message = pdu(RESPONSE, 0x80, command.itt(), &[]);
            message[0] = 0x14;
            (message, None)
        }),
        ("not in progress", |command| {
            let mut itt = command.itt();
            itt[0] ^= 1;
            (pdu(RESPONSE, 0x80, itt, &[]), None)
        }),
        ("a ping that was not sent", |_| {
            (pdu(NOP_IN, 0x80, [0; 4], &[]), None)
        }),
        ("does not send", |command| {
            (pdu(0x01, 0x80, command.itt(), &[]), None)
        }),
        ("additional header segments", |command| {
            let mut message = pdu(RESPONSE, 0x80, command.itt(), &[0; 4]);
            (message[28 + 4], message[28 + 7]) = (1, 0);
            (message, None)
        }),
        ("not its command's", |command| {
            let mut ping = pdu(NOP_IN, 0x80, [0xFF; 4], &[]);
            ping[28 + 20..28 + 24].copy_from_slice(&[0xFF; 4]);
            (ping, Some(command.memory().key))
        }),
    ];
    for (why, wrong) in all {
        let mut stage = Stage::logged_in();
        let command = stage.read(0, 512);
        let (message, key) = wrong(&command);
        stage.say(&message, key);
        let violation = stage.violation();
        assert!(violation.contains(why), "{violation}");
        stage.close(&[0], Some(command.memory()));
    }
}

#[test]
fn a_response_that_invalidates_the_key_of_another_command_ends_the_connection() {
    let mut stage = Stage::logged_in();
    let commands = [stage.read(0, 512), stage.read(1, 512)];
    stage.respond(&commands[0], Some(commands[1].memory().key));
    assert!(stage.violation().contains("not its command's"));
    stage.close(&[0, 1], Some(commands[0].memory()));
}

#[test]
fn a_message_that_is_cut_anywhere_ends_the_connection() {
    let mut itt = [0; 4];
    for bytes in 0..HEADERS_BYTES + 6 {
        let mut stage = Stage::logged_in();
        itt.copy_from_slice(&stage.read(0, 512).itt());
        let sense = [0, 4, 0x72, 6, 0x29, 0];
        stage.say(&pdu(RESPONSE, 0x80, itt, &sense)[..bytes], None);
        assert!(stage.violation().contains("shorter"), "{bytes}");
        stage.close(&[0], None);
    }
}

#[test]
fn a_second_response_to_a_command_ends_the_connection() {
    let mut stage = Stage::logged_in();
    let command = stage.read(0, 512);
    stage.respond(&command, None);
    stage.respond(&command, None);
    assert!(stage.violation().contains("not in progress"));
    stage.close(&[0], Some(command.memory()));
}

#[test]
fn a_connection_that_ends_gives_every_buffer_back_at_once() {
    let mut stage = Stage::logged_in();
    let first = stage.read(0, 512);
    stage.write(1, 20_000);
    stage.write(2, 512);
    let last = stage.read(3, 512);
    // The window of the last command is being closed.
    stage.respond(&last, None);
    assert_eq!(stage.next(), None);
    stage.queue.flush(&mut stage.shard).expect("open");
    stage.close(&[0, 1, 2, 3], Some(first.memory()));
}

#[test]
fn what_a_target_said_before_it_went_is_heard() {
    let mut stage = Stage::new();
    let asked = stage.only();
    let mut response = pdu(0x23, 0, asked.itt(), &[]);
    response[28 + 36..28 + 38].copy_from_slice(&[2, 1]);
    stage.say(&response, None);
    stage.hear(RDMA_LOST);
    match stage.next() {
        Some(Event::LoginFailed(failure)) => {
            assert!(failure.to_string().contains("authentication"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(stage.queue.next(), Err(Ended::Closed)));
}

#[test]
fn the_target_ends_the_connection_after_a_logout() {
    let mut stage = Stage::logged_in();
    let (initiator, mut out) = stage.queue.speak();
    assert!(initiator.logout(&mut out));
    drop(out);
    stage.queue.discard();
    stage.queue.flush(&mut stage.shard).expect("open");
    assert!(!stage.queue.is_drained());
    let request = stage.only();
    assert_eq!(request.bhs[0] & 0x3F, 0x06, "a Logout Request");
    stage.say(&pdu(0x26, 0x80, request.itt(), &[]), None);
    assert!(!stage.queue.is_drained());
    stage.hear(RDMA_LOST);
    assert!(stage.queue.is_drained());
    stage.close(&[], None);
}

#[test]
fn a_target_that_pings_and_takes_no_answers_is_told_so() {
    let mut stage = Stage::logged_in();
    let mut ping = pdu(NOP_IN, 0x80, [0xFF; 4], &[]);
    ping[28 + 20..28 + 24].copy_from_slice(&[0, 0, 0, 1]);
    for _ in 0..OTHER_MESSAGES {
        stage.say(&ping, None);
        assert_eq!(stage.next(), None);
        stage.queue.flush(&mut stage.shard).expect("open");
    }
    stage.say(&ping, None);
    match stage.queue.next() {
        Err(Ended::Rdma(failure)) => assert!(failure.why.contains("does not take"), "{failure:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_connection_that_fails_says_why() {
    let mut stage = Stage::logged_in();
    stage.read(0, 512);
    let pair = stage.queue.wire.pair.as_ref().expect("open");
    pair.break_with(12, "transport retry counter exceeded");
    match stage.queue.next() {
        Err(Ended::Rdma(failure)) => assert!(failure.why.contains("retry counter"), "{failure:?}"),
        other => panic!("the connection goes on: {other:?}"),
    }
    stage.close(&[0], None);
}

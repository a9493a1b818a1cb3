//! An initiator's connection over queue pairs in memory. The test is the target.

mod data;
mod ends;
mod login;
mod violations;

use fabrix_proto::iscsi::initiator::{LoginConfig, TaskOutcome, Transfer};
use fabrix_proto::iscsi::iser::HEADERS_BYTES;
use fabrix_proto::iscsi::iser::message::{RemoteMemory, Tags};
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_rt::Loan;
use sys_rdma::Remote;

use super::wire::{OTHER_MESSAGES, REQUESTS_OF_A_COMMAND};
use super::*;
use crate::rdma::simulated::{SimulatedPair, SimulatedSizes};
use crate::rdma::{Pair, RDMA_READY, testing};

const SLOTS: u16 = 4;
const RECEIVES: usize = 12;
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
        let initiator = SimulatedSizes {
            requests: (u32::from(SLOTS) * REQUESTS_OF_A_COMMAND + OTHER_MESSAGES) as usize,
            receives: RECEIVES,
            first_receives: RECEIVES,
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
        let (initiator, target) = testing::linked([initiator, target]);
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
            shard: testing::shard(),
            queue,
            target,
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
                self.target.post_receive(slot);
            }
        }
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
        let to = place(to, offset);
        testing::put(&mut self.target, &mut self.shard, bytes, to)
    }

    /// The target reads memory of the initiator. None: it may not.
    fn get(&mut self, bytes: usize, from: RemoteMemory, offset: u64) -> Option<Vec<u8>> {
        let from = place(from, offset);
        testing::get(&mut self.target, &mut self.shard, bytes, from)
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

fn place(memory: RemoteMemory, offset: u64) -> Remote {
    Remote {
        address: memory.address + offset,
        key: memory.key,
    }
}

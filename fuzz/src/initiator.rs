//! A hostile target for the initiator's machine: whatever it sends, it costs its connection and
//! nothing more.
//!
//! The script plays the target, from the first byte or after a login that works, and the owner as
//! well, which sends commands, pings and leaves. Beside the machine runs a model of its slots: data
//! may move only inside of a command that is in progress, and only its own way.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use fabrix_proto::iscsi::initiator::{Event, Initiator, LoginConfig, Transfer};
use fabrix_proto::iscsi::pdu::Lun;
use fabrix_proto::iscsi::tcp::{Tcp, TcpFraming};
use fabrix_proto::{Machine, Pass, Sink, Slot, Want};

use crate::iscsi::{Script, built, checksum};

const SLOTS: u16 = 4;
/// No command of the script has more data, in bytes.
const DATA_BYTES_MAX: u32 = 16 << 10;
/// What a target sends, and one kind that nobody does.
const OPCODES: [u8; 12] = [
    0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x25, 0x26, 0x31, 0x32, 0x3F, 0x01,
];

/// A connection from its first byte on; the first byte of the script says whether it is logged in
/// to begin with.
pub fn iscsi_initiator(data: &[u8]) {
    let mut script = Script(data);
    let logged_in = script.byte() & 1 == 1;
    let digests = script.byte() & 1 == 1;
    let mut rig = Rig::new(digests);
    rig.with(|machine, sent| machine.start(sent));
    if logged_in {
        rig.log_in(digests);
    }
    while !script.0.is_empty() {
        rig.step(&mut script);
    }
}

struct Rig {
    machine: Tcp<Initiator>,
    /// What each slot moves.
    tasks: [Option<Transfer>; SLOTS as usize],
    tags: [u32; SLOTS as usize],
    waiting: VecDeque<u8>,
    digests: bool,
}

impl Rig {
    fn new(digests: bool) -> Self {
        let login = LoginConfig {
            initiator: "iqn.a".into(),
            target: Some("iqn.b".into()),
            isid: [0x80, 0, 0, 1, 0, 0],
            auth: None,
            header_digest: digests,
            data_digest: digests,
            rdma: false,
        };
        Self {
            machine: Tcp::new(Initiator::new(SLOTS, login), checksum),
            tasks: [None; SLOTS as usize],
            tags: [0; SLOTS as usize],
            waiting: VecDeque::new(),
            digests: false,
        }
    }

    /// A login in two steps, as targets without authentication have it.
    fn log_in(&mut self, digests: bool) {
        let digest = if digests { "CRC32C" } else { "None" };
        let mut bhs = [0; 48];
        (bhs[0], bhs[1], bhs[31], bhs[35]) = (0x23, 0x81, 1, 40);
        self.receive(&built(
            bhs,
            b"AuthMethod=None\0TargetPortalGroupTag=1\0",
            false,
        ));
        let text = format!(
            "HeaderDigest={digest}\0DataDigest={digest}\0InitialR2T=No\0ImmediateData=Yes\0MaxBurstLength=8192\0\
             FirstBurstLength=4096\0MaxRecvDataSegmentLength=4096\0MaxOutstandingR2T=1\0ErrorRecoveryLevel=0\0"
        );
        (bhs[1], bhs[15], bhs[27]) = (0x87, 7, 1);
        self.receive(&built(bhs, text.as_bytes(), false));
        self.digests = digests;
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 8 {
            0 => {
                let count = script.byte();
                self.receive(script.take(count.into()));
            }
            1..=4 => {
                let pdu = self.pdu(script);
                self.receive(&pdu);
            }
            5 => self.command(script),
            6 => {
                let _is_sent = self.with(|machine, sent| machine.ping(sent));
            }
            _ => match script.byte() % 8 {
                0 => _ = self.with(|machine, sent| machine.logout(sent)),
                1 => _ = self.with(|machine, sent| machine.send_targets(sent)),
                _ => self.machine.endpoint_mut().renew(),
            },
        }
        let busy = self.tasks.iter().filter(|task| task.is_some()).count();
        assert_eq!(self.machine.endpoint().slots_in_use(), busy);
    }

    /// A PDU as the script says; its lengths and digests are right, and its numbers near those that
    /// are.
    fn pdu(&self, script: &mut Script<'_>) -> Vec<u8> {
        let mut bhs = [0; 48];
        let [opcode, flags, itt, numbers, place, length] = script.array();
        bhs[0] = OPCODES[usize::from(opcode) % OPCODES.len()];
        (bhs[1], bhs[2], bhs[3]) = (flags, numbers >> 6, numbers >> 4 & 2);
        let tag = match itt {
            0xFF => u32::MAX,
            itt if itt & 0x40 != 0 => 0x0001_FFF0 | u32::from(itt & 3),
            itt => self.tags[usize::from(itt) % self.tags.len()],
        };
        bhs[16..20].copy_from_slice(&tag.to_be_bytes());
        if numbers & 8 != 0 {
            bhs[20..24].fill(0xFF);
        }
        // ExpCmdSN and MaxCmdSN, DataSN or R2TSN, an offset, a length.
        (bhs[31], bhs[35]) = (numbers & 7, 40);
        (bhs[39], bhs[42], bhs[46]) = (numbers & 3, place, length);
        let data = vec![0x3D; usize::from(length) * 16];
        built(bhs, &data, self.digests)
    }

    fn command(&mut self, script: &mut Script<'_>) {
        let [slot, kind, blocks] = script.array();
        let slot = u16::from(slot) % (SLOTS + 1);
        let bytes = u32::from(blocks) * 512 % (DATA_BYTES_MAX + 1);
        let transfer = match kind % 3 {
            0 => Transfer::None,
            1 => Transfer::Read { bytes },
            _ => Transfer::Write { bytes },
        };
        // Data that goes with the command is the slot's already.
        let before = self.tasks.get(usize::from(slot)).copied();
        let is_free = before == Some(None);
        if is_free {
            self.tasks[usize::from(slot)] = Some(transfer);
        }
        let (mut tag, tasks) = (0, self.tasks);
        let sent = Sent {
            tasks: &tasks,
            tag: &mut tag,
        };
        let (lun, cdb) = (Lun::flat(0), [0; 16]);
        let (initiator, mut framing) = self.machine.speak(sent);
        let is_sent = initiator.command(Slot(slot), lun, &cdb, transfer, &mut framing);
        assert!(is_free || !is_sent, "a slot in use was taken");
        match is_sent {
            true => self.tags[usize::from(slot)] = tag,
            false if is_free => self.tasks[usize::from(slot)] = None,
            false => {}
        }
    }

    /// Calls the machine with a sink that watches what it sends.
    fn with<R>(&mut self, call: impl FnOnce(&mut Initiator, &mut TcpFraming<Sent<'_>>) -> R) -> R {
        let mut tag = 0;
        let sent = Sent {
            tasks: &self.tasks,
            tag: &mut tag,
        };
        let (initiator, mut framing) = self.machine.speak(sent);
        call(initiator, &mut framing)
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
        loop {
            let want = self.machine.want();
            let needed = match want {
                Want::Closed => return,
                Want::Header { bytes } => bytes,
                Want::Payload {
                    slot,
                    offset,
                    bytes,
                    pass,
                } => {
                    let task = self.tasks.get(usize::from(slot.0)).copied().flatten();
                    let Some(Transfer::Read { bytes: most }) = task else {
                        panic!("data of nobody who reads: {task:?}");
                    };
                    assert!(bytes > 0 && offset.checked_add(bytes).is_some_and(|end| end <= most));
                    bytes.next_multiple_of(4) as usize + pass.trailer_bytes()
                }
            };
            assert!((1..=9000 + DATA_BYTES_MAX as usize).contains(&needed));
            if self.waiting.len() < needed {
                return;
            }
            let given: Vec<u8> = self.waiting.drain(..needed).collect();
            let mut tag = 0;
            let mut sent = Sent {
                tasks: &self.tasks,
                tag: &mut tag,
            };
            let result = match want {
                Want::Payload { .. } => self.machine.payload(given[0] != 0xFF, &mut sent),
                _ => self
                    .machine
                    .header(&given, &mut sent)
                    .map(|taken| taken.event),
            };
            match result {
                Ok(event) => self.told(event.as_ref()),
                Err(violation) => {
                    assert_eq!(self.machine.want(), Want::Closed);
                    assert!(!violation.sentence().is_empty());
                    return;
                }
            }
        }
    }

    fn told(&mut self, event: Option<&Event>) {
        match event {
            Some(Event::Completed { slot, outcome }) => {
                let task = self.tasks[usize::from(slot.0)].take();
                let most = match task.expect("a task ends once") {
                    Transfer::None => 0,
                    Transfer::Read { bytes } | Transfer::Write { bytes } => bytes,
                };
                assert!(outcome.data_bytes <= most);
                assert!(self.machine.endpoint().sense().len() <= 252);
            }
            Some(Event::LoginFailed(_) | Event::LoggedOut) => {
                assert_eq!(self.machine.want(), Want::Closed);
            }
            Some(Event::Text) => drop(self.machine.endpoint().targets()),
            _ => {}
        }
    }
}

/// What the machine sends: one PDU at a time, and payload only of commands that write.
struct Sent<'a> {
    tasks: &'a [Option<Transfer>],
    /// The tag in the last header.
    tag: &'a mut u32,
}

impl Sink for Sent<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= 9000, "one PDU");
        if let (Some(0x01), Some(tag)) = (bytes.first(), bytes.get(16..20)) {
            *self.tag = u32::from_be_bytes(tag.try_into().unwrap_or_default());
        }
    }

    fn payload(&mut self, slot: Slot, offset: u32, bytes: u32, _pass: Pass) {
        let task = self.tasks.get(usize::from(slot.0)).copied().flatten();
        let Some(Transfer::Write { bytes: most }) = task else {
            panic!("data of nobody who writes: {task:?}");
        };
        assert!(bytes > 0 && offset.checked_add(bytes).is_some_and(|end| end <= most));
    }
}

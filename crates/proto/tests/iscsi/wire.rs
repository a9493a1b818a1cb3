//! A wire in memory for the iSCSI target: what a stream driver does, without sockets, in one place, and PDUs built
//! byte by byte, so that the tests do not trust the layouts they test.

use std::collections::VecDeque;
use std::num::NonZeroU16;

use fabrix_proto::iscsi::login::{Admission, Auth, Grant};
use fabrix_proto::iscsi::target::{Answer, Event, Target, TargetLimits};
use fabrix_proto::{Machine, Nanos, Sink, Slot, Violation, Want};

/// CRC32C, one bit at a time.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                crc >> 1 ^ 0x82F6_3B78
            } else {
                crc >> 1
            }
        })
    })
}

/// Data that differs from place to place.
pub(crate) fn pattern(bytes: u32, seed: u8) -> Vec<u8> {
    (0..bytes)
        .map(|i| (i.wrapping_mul(31) >> 3 ^ i).to_le_bytes()[0] ^ seed)
        .collect()
}

fn pad(bytes: usize) -> usize {
    bytes.wrapping_neg() % 4
}

/// Header digest, data digest.
pub(crate) type Digests = (bool, bool);
pub(crate) const NONE: Digests = (false, false);
pub(crate) const BOTH: Digests = (true, true);

/// A PDU being built, or one that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pdu {
    pub(crate) bhs: [u8; 48],
    pub(crate) ahs: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

impl Pdu {
    pub(crate) fn new(opcode: u8, flags: u8) -> Self {
        let mut bhs = [0; 48];
        (bhs[0], bhs[1]) = (opcode, flags);
        Self {
            bhs,
            ahs: Vec::new(),
            data: Vec::new(),
        }
    }

    pub(crate) fn put(mut self, offset: usize, bytes: &[u8]) -> Self {
        self.bhs[offset..offset + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn put32(self, offset: usize, value: u32) -> Self {
        self.put(offset, &value.to_be_bytes())
    }

    pub(crate) fn itt(self, itt: u32) -> Self {
        self.put32(16, itt)
    }

    pub(crate) fn ttt(self, ttt: u32) -> Self {
        self.put32(20, ttt)
    }

    pub(crate) fn cmd_sn(self, cmd_sn: u32) -> Self {
        self.put32(24, cmd_sn)
    }

    pub(crate) fn data(mut self, data: &[u8]) -> Self {
        let length = u32::try_from(data.len()).expect("short").to_be_bytes();
        self.bhs[5..8].copy_from_slice(&length[1..]);
        self.data = data.to_vec();
        self
    }

    pub(crate) fn ahs(mut self, ahs: &[u8]) -> Self {
        self.bhs[4] = u8::try_from(ahs.len() / 4).expect("short");
        self.ahs = ahs.to_vec();
        self
    }

    pub(crate) fn bytes(&self, digests: Digests) -> Vec<u8> {
        let mut bytes = [&self.bhs[..], &self.ahs].concat();
        if digests.0 {
            bytes.extend(crc32c(&bytes).to_le_bytes());
        }
        let mut data = self.data.clone();
        data.resize(data.len() + pad(data.len()), 0);
        if digests.1 && !data.is_empty() {
            data.extend(crc32c(&data).to_le_bytes());
        }
        [bytes, data].concat()
    }

    pub(crate) fn get32(&self, offset: usize) -> u32 {
        u32::from_be_bytes(self.bhs[offset..offset + 4].try_into().expect("four"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.data.clone())
            .expect("text")
            .replace('\0', " ")
            .trim_end()
            .to_owned()
    }
}

/// Takes the PDUs of a target out of its bytes; digests must be right.
pub(crate) fn split(bytes: &[u8], digests: Digests) -> Vec<Pdu> {
    let (mut rest, mut pdus) = (bytes, Vec::new());
    let mut take = |count: usize| {
        let (taken, left) = rest.split_at(count);
        rest = left;
        (taken.to_vec(), left.is_empty())
    };
    let mut over = bytes.is_empty();
    while !over {
        let (bhs, mut last) = take(48);
        if digests.0 {
            let (digest, end) = take(4);
            assert_eq!(digest, crc32c(&bhs).to_le_bytes(), "header digest");
            last = end;
        }
        let length = usize::from(bhs[5]) << 16 | usize::from(bhs[6]) << 8 | usize::from(bhs[7]);
        let (padded, end) = take(length + pad(length));
        last = if length > 0 { end } else { last };
        assert!(padded[length..].iter().all(|byte| *byte == 0), "padding");
        if digests.1 && length > 0 {
            let (digest, end) = take(4);
            assert_eq!(digest, crc32c(&padded).to_le_bytes(), "data digest");
            last = end;
        }
        pdus.push(Pdu {
            bhs: bhs.try_into().expect("48"),
            ahs: Vec::new(),
            data: padded[..length].to_vec(),
        });
        over = last;
    }
    pdus
}

pub(crate) struct Out<'a> {
    pub(crate) sent: &'a mut Vec<u8>,
    pub(crate) memory: &'a [Vec<u8>],
}

impl Sink for Out<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
    }

    fn payload(&mut self, slot: Slot, offset: u32, bytes: u32, digest: bool) {
        let (start, end) = (offset as usize, (offset + bytes) as usize);
        let mut payload = self.memory[usize::from(slot.0)][start..end].to_vec();
        payload.resize(payload.len() + fill(payload.len()), 0);
        self.sent.extend_from_slice(&payload);
        if digest {
            self.sent.extend_from_slice(&crc32c(&payload).to_le_bytes());
        }
    }
}

/// What fills payload up to the machine's unit.
fn fill(bytes: usize) -> usize {
    bytes.next_multiple_of(<Target as Machine>::PAYLOAD_UNIT as usize) - bytes
}

/// A target, the memory of its slots, what it has sent and what it was sent.
pub(crate) struct Wire {
    pub(crate) target: Target,
    pub(crate) memory: Vec<Vec<u8>>,
    pub(crate) sent: Vec<u8>,
    pub(crate) waiting: VecDeque<u8>,
    pub(crate) events: Vec<Event>,
    pub(crate) violation: Option<Violation>,
    pub(crate) digests: Digests,
    /// What is said to who wants to log in, at once; nothing: the test says it.
    pub(crate) admission: Option<Admission>,
}

/// What a login yields that has one whole text.
pub(crate) const LOGIN: [Event; 3] = [Event::Authorize, Event::Proved, Event::LoggedIn];
pub(crate) const SLOT_BYTES: usize = 1 << 20;
pub(crate) const START: Nanos = Nanos(1_000_000_000);

/// The number that sessions have here.
pub(crate) fn tsih() -> NonZeroU16 {
    NonZeroU16::new(0x0102).expect("not zero")
}

pub(crate) fn grant(auth: Auth) -> Admission {
    Admission::Admit(Grant {
        portal_group_tag: 1,
        auth,
    })
}

impl Wire {
    pub(crate) fn new(limits: TargetLimits) -> Self {
        Self {
            target: Target::new(limits, crc32c, START),
            memory: vec![vec![0; SLOT_BYTES]; usize::from(limits.slots())],
            sent: Vec::new(),
            waiting: VecDeque::new(),
            events: Vec::new(),
            violation: None,
            digests: NONE,
            admission: Some(grant(Auth::None)),
        }
    }

    /// Gives the target bytes, as far as it wants them.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
        while self.step() {}
    }

    /// Sends a PDU.
    pub(crate) fn send(&mut self, pdu: &Pdu) {
        let bytes = pdu.bytes(self.digests);
        self.feed(&bytes);
    }

    fn step(&mut self) -> bool {
        let want = self.target.want();
        let needed = match want {
            Want::Header { bytes } => bytes,
            Want::Payload { bytes, digest, .. } => {
                let bytes = bytes as usize;
                bytes + fill(bytes) + if digest { 4 } else { 0 }
            }
            Want::Closed => return false,
        };
        assert!(needed > 0, "a machine never wants nothing");
        assert!(
            needed <= SLOT_BYTES,
            "a machine wants no more than was agreed"
        );
        if self.waiting.len() < needed {
            return false;
        }
        let input: Vec<u8> = self.waiting.drain(..needed).collect();
        let intact = self.place(want, &input);
        let mut out = Out {
            sent: &mut self.sent,
            memory: &self.memory,
        };
        let result = match want {
            Want::Payload { .. } => self.target.payload(intact, &mut out),
            _ => self.target.header(&input, &mut out),
        };
        match result {
            Ok(event) => self.take(event),
            Err(violation) => self.end(violation),
        }
        true
    }

    fn place(&mut self, want: Want, input: &[u8]) -> bool {
        let Want::Payload {
            slot,
            offset,
            bytes,
            digest,
        } = want
        else {
            return true;
        };
        let (start, bytes) = (offset as usize, bytes as usize);
        self.memory[usize::from(slot.0)][start..start + bytes].copy_from_slice(&input[..bytes]);
        let (padded, after) = input.split_at(bytes + fill(bytes));
        !digest || crc32c(padded).to_le_bytes() == after
    }

    fn end(&mut self, violation: Violation) {
        assert_eq!(self.target.want(), Want::Closed, "a violation ends all");
        self.with(|target, out| target.terminate(&violation, out));
        self.violation = Some(violation);
    }

    fn take(&mut self, event: Option<Event>) {
        let Some(event) = event else { return };
        self.events.push(event.clone());
        let Some(admission) = self.admission.clone() else {
            return;
        };
        match event {
            Event::Authorize => {
                let event = self.with(|target, out| target.admit(admission, out));
                self.take(event);
            }
            Event::Proved => {
                let event = self.with(|target, out| target.enter(Ok(tsih()), out));
                self.take(event);
            }
            _ => {}
        }
    }

    /// Calls the target with the sink that the driver would give it.
    pub(crate) fn with<R>(&mut self, call: impl FnOnce(&mut Target, &mut Out<'_>) -> R) -> R {
        let mut out = Out {
            sent: &mut self.sent,
            memory: &self.memory,
        };
        call(&mut self.target, &mut out)
    }

    pub(crate) fn answer(&mut self, slot: Slot, answer: Answer) -> bool {
        self.with(|target, out| target.answer(slot, &answer, out))
    }

    pub(crate) fn fetch(&mut self, slot: Slot) {
        self.with(|target, out| target.fetch(slot, out));
    }

    /// What the target has said since the last look.
    pub(crate) fn said(&mut self) -> Vec<Pdu> {
        split(&std::mem::take(&mut self.sent), self.digests)
    }

    /// The only PDU since the last look.
    pub(crate) fn reply(&mut self) -> Pdu {
        let mut said = self.said();
        assert_eq!(said.len(), 1, "one PDU was expected: {said:x?}");
        said.remove(0)
    }

    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The only event since the last look.
    pub(crate) fn event(&mut self) -> Event {
        let mut events = self.take_events();
        assert_eq!(events.len(), 1, "one event was expected: {events:?}");
        events.remove(0)
    }

    /// The only event since the last look, a command; its slot.
    pub(crate) fn command(&mut self) -> Slot {
        match self.event() {
            Event::Command { slot, .. } => slot,
            other => panic!("a command was expected: {other:?}"),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.target.want() == Want::Closed
    }
}

pub(crate) const ISID: [u8; 6] = [0x00, 0x02, 0x3D, 0, 0, 1];
/// T from operational to full feature.
pub(crate) const TO_FULL: u8 = 0x87;
pub(crate) const INITIATOR: &str = "InitiatorName=iqn.2026-01.example:host";
pub(crate) const TARGET: &str = "TargetName=iqn.2026-01.example:disk";
/// The CmdSN with which every session of the tests begins.
pub(crate) const FIRST: u32 = 0xFFFF_FFFE;

pub(crate) fn text(pairs: &[&str]) -> Vec<u8> {
    pairs
        .iter()
        .flat_map(|pair| [pair.as_bytes(), b"\0"].concat())
        .collect()
}

pub(crate) fn login_pdu(flags: u8, pairs: &[&str]) -> Pdu {
    Pdu::new(0x43, flags)
        .put(8, &ISID)
        .put(20, &[0, 7])
        .itt(0x10)
        .cmd_sn(FIRST)
        .put32(28, 100)
        .data(&text(pairs))
}

/// A session of the tests: operational keys in `pairs`, digests as they say.
pub(crate) fn logged_in(limits: TargetLimits, pairs: &[&str]) -> Wire {
    let mut wire = Wire::new(limits);
    let all = [&[INITIATOR, TARGET, "SessionType=Normal"], pairs].concat();
    wire.send(&login_pdu(TO_FULL, &all));
    assert_eq!(wire.take_events(), LOGIN);
    let reply = wire.reply();
    assert_eq!(reply.get32(36), 0, "{}", reply.text());
    let on = |pair| pairs.contains(&pair);
    wire.digests = (on("HeaderDigest=CRC32C"), on("DataDigest=CRC32C"));
    wire
}

pub(crate) const DIGESTS: [&str; 2] = ["HeaderDigest=CRC32C", "DataDigest=CRC32C"];

pub(crate) fn limits() -> TargetLimits {
    TargetLimits {
        window: 4,
        immediate: 2,
        max_write_bytes: 1 << 20,
        ..TargetLimits::default()
    }
}

pub(crate) const READ: u8 = 0xC1;
pub(crate) const WRITE: u8 = 0xA1;
/// A write whose unsolicited data follows.
pub(crate) const WRITE_MORE: u8 = 0x21;

/// A SCSI Command for LUN 3 with a CDB that the target does not look at.
pub(crate) fn command_pdu(flags: u8, itt: u32, cmd_sn: u32, expected: u32) -> Pdu {
    Pdu::new(0x01, flags)
        .put(8, &[0, 3])
        .itt(itt)
        .put32(20, expected)
        .cmd_sn(cmd_sn)
        .put(32, &[0x28, 0, 0, 0, 0, 9, 0, 0, 8, 0])
}

pub(crate) fn data_out(
    flags: u8,
    itt: u32,
    ttt: u32,
    (data_sn, offset): (u32, u32),
    data: &[u8],
) -> Pdu {
    Pdu::new(0x05, flags)
        .itt(itt)
        .ttt(ttt)
        .put32(36, data_sn)
        .put32(40, offset)
        .data(data)
}

/// A discovery session.
pub(crate) fn discovery() -> Wire {
    let mut wire = Wire::new(limits());
    wire.send(&login_pdu(TO_FULL, &[INITIATOR, "SessionType=Discovery"]));
    wire.take_events();
    wire.reply();
    wire
}

/// What a connection makes of a PDU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// An event for the adapter.
    Told,
    /// A PDU of this kind.
    Said(u8),
    /// Reject with this reason, and the connection goes on.
    Rejected(u8),
    /// Nothing at all.
    Silent,
    /// Reject with this reason, and the end.
    Ended(u8),
    /// A Login Response with this status, and the end.
    Refused(u16),
}

/// What became of the PDU that was sent last.
pub(crate) fn outcome(wire: &mut Wire) -> Outcome {
    use Outcome::{Ended, Refused, Rejected, Said, Silent, Told};
    let said = wire.said();
    let first = said.first();
    match (wire.is_closed(), first) {
        (true, Some(pdu)) if pdu.bhs[0] == 0x23 => {
            Refused(u16::from_be_bytes([pdu.bhs[36], pdu.bhs[37]]))
        }
        (true, Some(pdu)) => Ended(pdu.bhs[2]),
        (false, Some(pdu)) if pdu.bhs[0] == 0x3F => Rejected(pdu.bhs[2]),
        (false, Some(pdu)) => Said(pdu.bhs[0]),
        (_, None) if wire.events.is_empty() => Silent,
        (_, None) => Told,
    }
}

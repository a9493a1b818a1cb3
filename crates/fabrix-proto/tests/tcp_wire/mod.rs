//! A wire in memory for the NVMe/TCP machines: what a stream driver does, without sockets, in one
//! place, so that the tests speak of PDUs and events only.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unreachable_pub, reason = "a module of several test binaries")]

pub mod adapter;

use std::collections::VecDeque;

use fabrix_proto::nvme::queue::{ControllerEvent, HostEvent, HostTransfer, Transfer};
use fabrix_proto::nvme::spec::{CompletionEntry, SglDescriptor, Status, SubmissionEntry};
use fabrix_proto::nvme::tcp::host::{Host, HostLimits};
use fabrix_proto::nvme::tcp::pdu::{
    CommandHeader, CommonHeader, DataHeader, Digests, InitializeRequest, InitializeResponse,
    PduType, R2tHeader, ResponseHeader,
};
use fabrix_proto::nvme::tcp::target::{Target, TargetLimits};
use fabrix_proto::{Machine, Pass, Sink, Slot, Violation, Want};
use zerocopy::IntoBytes;

/// CRC32C, one bit at a time.
pub fn crc32c(bytes: &[u8]) -> u32 {
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
pub fn pattern(bytes: u32, seed: u8) -> Vec<u8> {
    (0..bytes)
        .map(|i| (i.wrapping_mul(31) >> 3 ^ i).to_le_bytes()[0] ^ seed)
        .collect()
}

/// One machine, the memory of its slots, what it wants to send and what it was sent.
pub struct Side<M: Machine> {
    pub machine: M,
    pub memory: Vec<Vec<u8>>,
    pub sent: Vec<u8>,
    pub waiting: VecDeque<u8>,
    pub events: Vec<M::Event>,
    pub violation: Option<Violation>,
    /// How often the machine was called.
    pub calls: usize,
}

/// The sink of one call.
pub struct Out<'a> {
    pub sent: &'a mut Vec<u8>,
    pub memory: &'a [Vec<u8>],
}

impl Sink for Out<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
    }

    fn payload(&mut self, slot: Slot, offset: u32, bytes: u32, pass: Pass) {
        let (start, end) = (offset as usize, (offset + bytes) as usize);
        let payload = &self.memory[usize::from(slot.0)][start..end];
        self.sent.extend_from_slice(payload);
        if pass == Pass::Crc32c {
            self.sent.extend_from_slice(&crc32c(payload).to_le_bytes());
        }
    }
}

impl<M: Machine> Side<M> {
    pub fn new(machine: M, slots: usize, slot_bytes: usize) -> Self {
        Self {
            machine,
            memory: vec![vec![0; slot_bytes]; slots],
            sent: Vec::new(),
            waiting: VecDeque::new(),
            events: Vec::new(),
            violation: None,
            calls: 0,
        }
    }

    /// Gives the machine bytes, as far as it wants them.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
        while self.step() {}
        let mut out = Out {
            sent: &mut self.sent,
            memory: &self.memory,
        };
        while self.machine.send_data(&mut out) > 0 {}
    }

    fn step(&mut self) -> bool {
        let want = self.machine.want();
        let needed = match want {
            Want::Header { bytes } => bytes,
            Want::Payload { bytes, pass, .. } => bytes as usize + pass.trailer_bytes(),
            Want::Closed => return false,
        };
        assert!(needed > 0, "a machine never wants nothing");
        if self.waiting.len() < needed {
            return false;
        }
        let mut out = Out {
            sent: &mut self.sent,
            memory: &self.memory,
        };
        self.calls += 1;
        let result = match want {
            Want::Header { .. } => {
                let arrived = self.waiting.make_contiguous();
                let taken = self.machine.header(arrived, &mut out);
                taken.map(|taken| {
                    assert!(taken.bytes >= needed, "what was wanted is taken");
                    self.waiting.drain(..taken.bytes);
                    taken.event
                })
            }
            Want::Payload {
                slot,
                offset,
                bytes,
                pass,
            } => {
                let input: Vec<u8> = self.waiting.drain(..needed).collect();
                let (payload, after) = input.split_at(bytes as usize);
                let start = offset as usize;
                self.memory[usize::from(slot.0)][start..start + payload.len()]
                    .copy_from_slice(payload);
                let intact = pass == Pass::None || crc32c(payload).to_le_bytes() == after;
                let mut out = Out {
                    sent: &mut self.sent,
                    memory: &self.memory,
                };
                self.machine.payload(intact, &mut out)
            }
            Want::Closed => unreachable!(),
        };
        match result {
            Ok(event) => self.events.extend(event),
            Err(violation) => {
                assert_eq!(
                    self.machine.want(),
                    Want::Closed,
                    "a violation ends everything"
                );
                self.machine.terminate(
                    &violation,
                    &mut Out {
                        sent: &mut self.sent,
                        memory: &self.memory,
                    },
                );
                self.violation = Some(violation);
            }
        }
        true
    }

    /// Calls the machine with the sink that the driver would give it.
    pub fn with<R>(&mut self, call: impl FnOnce(&mut M, &mut Out<'_>) -> R) -> R {
        let mut out = Out {
            sent: &mut self.sent,
            memory: &self.memory,
        };
        call(&mut self.machine, &mut out)
    }

    pub fn take_sent(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.sent)
    }

    pub fn take_events(&mut self) -> Vec<M::Event> {
        std::mem::take(&mut self.events)
    }

    /// The only event since the last look.
    pub fn event(&mut self) -> M::Event {
        let mut events = self.take_events();
        assert_eq!(events.len(), 1, "one event was expected");
        events.remove(0)
    }

    /// FES and FEI of the violation that ended this side.
    pub fn fatal(&self) -> (u16, u32) {
        let violation = self.violation.expect("a violation was expected");
        (violation.fes(), violation.fei())
    }
}

pub const SLOT_BYTES: usize = 256 << 10;

pub fn target_limits() -> TargetLimits {
    TargetLimits {
        max_slots: 8,
        in_capsule_bytes: 4096,
        max_data_bytes: 256 << 10,
        max_h2c_bytes: 8192,
        ..TargetLimits::default()
    }
}

/// A target on which no byte has passed.
pub fn fresh_target(limits: TargetLimits) -> Side<Target> {
    Side::new(
        Target::new(limits, crc32c),
        usize::from(limits.max_slots),
        SLOT_BYTES,
    )
}

/// A target after ICReq and ICResp.
pub fn ready_target(limits: TargetLimits, digests: Digests) -> Side<Target> {
    let mut side = fresh_target(limits);
    side.feed(InitializeRequest::new(0, digests, 1).as_bytes());
    assert_eq!(side.take_sent().len(), 128);
    side
}

pub fn host_limits() -> HostLimits {
    HostLimits {
        max_slots: 8,
        ..HostLimits::default()
    }
}

/// A host after ICReq and ICResp; the target takes `max_h2c_bytes` and wants CPDA `alignment`.
pub fn ready_host(digests: Digests, alignment: u8, max_h2c_bytes: u32) -> Side<Host> {
    let limits = HostLimits {
        header_digest: digests.header,
        data_digest: digests.data,
        ..host_limits()
    };
    let mut side = Side::new(Host::new(limits, crc32c), 8, SLOT_BYTES);
    side.with(|host, out| host.start(out));
    assert_eq!(side.take_sent().len(), 128);
    side.feed(InitializeResponse::new(alignment, digests, max_h2c_bytes).as_bytes());
    assert_eq!(side.event(), HostEvent::Ready);
    assert_eq!(side.machine.digests(), digests);
    side
}

pub const NONE: Digests = Digests {
    header: false,
    data: false,
};
pub const HEADER: Digests = Digests {
    header: true,
    data: false,
};
pub const DATA: Digests = Digests {
    header: false,
    data: true,
};
pub const BOTH: Digests = Digests {
    header: true,
    data: true,
};

/// A PDU from its header: the digests and the padding are added, not the data.
pub fn sealed(header: &[u8], digests: Digests) -> Vec<u8> {
    let mut pdu = header.to_vec();
    if digests.header {
        pdu.extend_from_slice(&crc32c(header).to_le_bytes());
    }
    let padded = pdu.len().max(usize::from(header[3]));
    pdu.resize(padded, 0);
    pdu
}

fn with_payload(mut pdu: Vec<u8>, payload: &[u8], digests: Digests) -> Vec<u8> {
    pdu.extend_from_slice(payload);
    if digests.data && !payload.is_empty() {
        pdu.extend_from_slice(&crc32c(payload).to_le_bytes());
    }
    pdu
}

pub fn entry(opcode: u8, command_id: u16, sgl: SglDescriptor) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(opcode);
    entry.command_id.set(command_id);
    entry.nsid.set(1);
    entry.sgl = sgl;
    entry
}

/// A CapsuleCmd without data.
pub fn capsule(entry: &SubmissionEntry, digests: Digests) -> Vec<u8> {
    let common = CommonHeader::without_data(PduType::COMMAND, digests);
    sealed(
        CommandHeader {
            common,
            entry: entry.to_array(),
        }
        .as_bytes(),
        digests,
    )
}

/// A CapsuleCmd with in-capsule data.
pub fn capsule_with(entry: &SubmissionEntry, payload: &[u8], digests: Digests) -> Vec<u8> {
    let bytes = u32::try_from(payload.len()).expect("small");
    let common = CommonHeader::with_data(PduType::COMMAND, digests, 0, bytes).expect("small");
    let header = CommandHeader {
        common,
        entry: entry.to_array(),
    };
    with_payload(sealed(header.as_bytes(), digests), payload, digests)
}

pub fn read_capsule(command_id: u16, bytes: u32, digests: Digests) -> Vec<u8> {
    capsule(
        &entry(0x02, command_id, SglDescriptor::transport(bytes)),
        digests,
    )
}

pub fn write_capsule(command_id: u16, bytes: u32, digests: Digests) -> Vec<u8> {
    capsule(
        &entry(0x01, command_id, SglDescriptor::transport(bytes)),
        digests,
    )
}

pub fn inline_capsule(command_id: u16, payload: &[u8], digests: Digests) -> Vec<u8> {
    let bytes = u32::try_from(payload.len()).expect("small");
    capsule_with(
        &entry(0x01, command_id, SglDescriptor::in_capsule(bytes)),
        payload,
        digests,
    )
}

/// H2CData or C2HData; `flags` beyond those of the digests.
pub fn data_pdu(
    kind: PduType,
    ids: (u16, u16),
    offset: u32,
    payload: &[u8],
    flags: u8,
    digests: Digests,
) -> Vec<u8> {
    let bytes = u32::try_from(payload.len()).expect("small");
    let mut common = CommonHeader::with_data(kind, digests, 0, bytes).expect("small");
    common.flags |= flags;
    let header = DataHeader::new(common, ids.0, ids.1, offset, bytes);
    with_payload(sealed(header.as_bytes(), digests), payload, digests)
}

pub fn r2t(command_id: u16, tag: u16, offset: u32, bytes: u32, digests: Digests) -> Vec<u8> {
    sealed(
        R2tHeader::new(digests, command_id, tag, offset, bytes).as_bytes(),
        digests,
    )
}

pub fn response(command_id: u16, status: Status, digests: Digests) -> Vec<u8> {
    let mut entry = CompletionEntry::new(status, 0);
    entry.command_id.set(command_id);
    let common = CommonHeader::without_data(PduType::RESPONSE, digests);
    sealed(
        ResponseHeader {
            common,
            entry: entry.to_array(),
        }
        .as_bytes(),
        digests,
    )
}

/// A host and a target, joined; the target's adapter is a disk that every command begins at the
/// start of.
pub struct Pair {
    pub host: Side<Host>,
    pub target: Side<Target>,
    /// What the target's adapter remembers: the last data written.
    pub disk: Vec<u8>,
    /// How many bytes travel at once; 0 is as many as there are.
    pub chunk: usize,
    /// What the target's adapter was told, without slots: which is free depends on when answers
    /// leave.
    pub log: Vec<String>,
}

impl Pair {
    pub fn new(host_limits: HostLimits, target_limits: TargetLimits, chunk: usize) -> Self {
        let slots = usize::from(host_limits.max_slots);
        let mut pair = Self {
            host: Side::new(Host::new(host_limits, crc32c), slots, SLOT_BYTES),
            target: fresh_target(target_limits),
            disk: pattern(SLOT_BYTES.try_into().expect("small"), 9),
            chunk,
            log: Vec::new(),
        };
        pair.host.with(|host, out| host.start(out));
        pair.run();
        pair
    }

    /// Sends a command of the host's; the completion is in `host.events` after `run`.
    pub fn command(&mut self, slot: u16, opcode: u8, transfer: HostTransfer) {
        let mut entry = SubmissionEntry::new(opcode);
        assert!(
            self.host
                .with(|host, out| host.command(Slot(slot), &mut entry, transfer, out))
        );
    }

    /// Until nothing moves.
    pub fn run(&mut self) {
        loop {
            let (to_target, to_host) = (self.host.take_sent(), self.target.take_sent());
            if to_target.is_empty() && to_host.is_empty() {
                break;
            }
            for piece in cut(&to_target, self.chunk) {
                self.target.waiting.extend(piece);
                while self.target.step() {
                    self.serve();
                }
            }
            for piece in cut(&to_host, self.chunk) {
                self.host.feed(piece);
            }
        }
        assert_eq!(self.host.violation, None);
        assert_eq!(self.target.violation, None);
    }

    /// What an adapter does, with one write's worth of disk.
    fn serve(&mut self) {
        for event in self.target.take_events() {
            self.log.push(match &event {
                ControllerEvent::Command { transfer, .. } => {
                    format!("{transfer:?} {:?}", self.target.machine.entry().to_array())
                }
                ControllerEvent::Fetched { intact, .. } => format!("fetched, intact: {intact}"),
                other => format!("{other:?}"),
            });
            let success = CompletionEntry::new(Status::SUCCESS, 0);
            let (slot, bytes) = match event {
                ControllerEvent::Command {
                    claim,
                    transfer,
                    intact,
                } => {
                    assert!(intact);
                    let slot = claim.slot();
                    match transfer {
                        Transfer::Fetch { .. } => {
                            self.target.with(|target, out| target.fetch(slot, out));
                            continue;
                        }
                        Transfer::Send { bytes } => {
                            self.target.memory[usize::from(slot.0)] = self.disk.clone();
                            (slot, bytes)
                        }
                        Transfer::Inline { .. } => {
                            self.disk = self.target.memory[usize::from(slot.0)].clone();
                            (slot, 0)
                        }
                        Transfer::None => (slot, 0),
                    }
                }
                ControllerEvent::Fetched { slot, intact } => {
                    assert!(intact);
                    self.disk = self.target.memory[usize::from(slot.0)].clone();
                    (slot, 0)
                }
                other => panic!("{other:?} was not expected"),
            };
            self.target
                .with(|target, out| assert!(target.answer(slot, success, bytes, out)));
        }
    }
}

fn cut(bytes: &[u8], chunk: usize) -> impl Iterator<Item = &[u8]> {
    bytes.chunks(if chunk == 0 { usize::MAX } else { chunk })
}

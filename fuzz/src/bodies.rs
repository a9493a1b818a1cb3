//! One function per fuzz target: any bytes in, a panic if something is not as it must be.
//!
//! The parsers get the bytes as they are. The machines get a script: each step either feeds raw
//! bytes, or builds a PDU from the script so that input gets past the lengths and digests, or does
//! what an owner may do. Beside each machine runs a model of what it has promised; every event,
//! every want and every byte sent is held against it.
//!
//! Included by path into crates/fabrix-proto/tests/corpus.rs.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

use fabrix_proto::nvme::admin::AdminCommand;
use fabrix_proto::nvme::bringup::{Bringup, BringupConfig, Purpose, Step};
use fabrix_proto::nvme::fabrics::{Connect, FabricsCommand};
use fabrix_proto::nvme::identify::{Descriptors, NamespaceList};
use fabrix_proto::nvme::log_page::DiscoveryEntry;
use fabrix_proto::nvme::nqn::{Nqn, Printable};
use fabrix_proto::nvme::queue::{ControllerEvent, HostEvent, HostTransfer, Transfer};
use fabrix_proto::nvme::spec::{
    AdminOpcode, CompletionEntry, SglDescriptor, SglKind, Status, SubmissionEntry,
};
use fabrix_proto::nvme::tcp::host::{Host, HostLimits};
use fabrix_proto::nvme::tcp::pdu::{
    ADMIN_IN_CAPSULE_BYTES, CommandHeader, CommonHeader, DataHeader, Digests, InitializeRequest,
    InitializeResponse, PduType, R2tHeader, ResponseHeader, TerminateRequest, data_offset,
};
use fabrix_proto::nvme::tcp::target::{Target, TargetLimits};
use fabrix_proto::{Machine, Nanos, Pass, Sink, Slot, Violation, Want};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

// ---- parsers

/// The headers of NVMe/TCP: reading them and writing them back changes nothing.
pub fn parse_tcp_pdu(data: &[u8]) {
    let Ok((common, _)) = CommonHeader::read_from_prefix(data) else {
        return;
    };
    let digests = Digests::from_wire(common.flags);
    assert!(common.header_end(digests) <= 255 + 4);
    let offset = data_offset(24, digests.header, common.data_offset);
    assert!(offset >= 24 && offset.is_multiple_of(4));
    if let Ok((header, _)) = InitializeRequest::read_from_prefix(data) {
        assert_eq!(header.as_bytes(), &data[..128]);
    }
    if let Ok((header, _)) = CommandHeader::read_from_prefix(data) {
        assert_eq!(
            SubmissionEntry::from_array(header.entry).to_array(),
            header.entry
        );
    }
    if let Ok((header, _)) = DataHeader::read_from_prefix(data) {
        let built = DataHeader::new(
            header.common,
            header.command_id.get(),
            header.transfer_tag.get(),
            header.offset_bytes.get(),
            header.data_bytes.get(),
        );
        assert_eq!(&built.as_bytes()[..20], &data[..20]);
    }
}

/// Admin and fabrics commands.
pub fn parse_command(data: &[u8]) {
    let Ok((entry, _)) = SubmissionEntry::read_from_prefix(data) else {
        return;
    };
    let _ = (
        entry.direction(),
        entry.fuse_bits(),
        entry.psdt(),
        entry.sgl.keyed().length_bytes(),
    );
    if let Ok(command) = AdminCommand::parse(&entry) {
        let _ = command.data_bytes();
    }
    let _ = FabricsCommand::parse(&entry);
}

/// Connect with its data, and names that nobody has checked.
pub fn parse_connect(data: &[u8]) {
    let Ok((entry, rest)) = SubmissionEntry::read_from_prefix(data) else {
        return;
    };
    if let Ok(connect) = Connect::parse(&entry, rest, 1024) {
        let (again, again_data) = connect.to_wire();
        assert_eq!(
            Connect::parse(&again, again_data.as_bytes(), 1024).as_ref(),
            Ok(&connect)
        );
        assert!((2..=1024).contains(&connect.queue_entries));
    }
    let shown = Printable(rest).to_string();
    assert!(
        !shown.chars().any(char::is_control),
        "a stranger's name moves the cursor"
    );
}

/// The lists that Identify returns, and discovery records.
pub fn parse_identify(data: &[u8]) {
    for descriptor in Descriptors::new(data).take(data.len() + 1) {
        if descriptor.is_err() {
            break;
        }
    }
    if let Ok((list, _)) = NamespaceList::read_from_prefix(data) {
        assert!(list.iter().all(|nsid| nsid != 0));
    }
    if let Ok((entry, _)) = DiscoveryEntry::read_from_prefix(data) {
        let _ = (entry.nqn(), entry.address_text(), entry.service_text());
    }
}

/// Bring-up against a controller that answers with the input.
pub fn bringup(data: &[u8]) {
    let mut script = Script::new(data);
    let purpose = match script.byte() % 3 {
        0 => Purpose::Discovery,
        1 => Purpose::Io {
            nsid: None,
            queues: 4,
        },
        _ => Purpose::Io {
            nsid: Some(script.byte().into()),
            queues: 0,
        },
    };
    let name = Nqn::new("nqn.2026-01.io.fabrix:fuzz").expect("a name");
    let mut bringup = Bringup::new(BringupConfig {
        host: name.clone(),
        host_id: [1; 16],
        subsystem: name,
        purpose,
        admin_queue_entries: script.byte().into(),
        keep_alive_ms: 0,
        disable_sq_flow_control: false,
    });
    let mut now = Nanos(0);
    while !script.is_over() {
        match bringup.next(now) {
            Step::Ready(_) => return,
            Step::Wait { until } => {
                assert!(until > now, "it waits for what has been");
                now = until;
            }
            Step::Send { data_in_bytes, .. } => {
                let mut entry = CompletionEntry::new(Status::SUCCESS, script.long());
                if script.byte() == 0xFF {
                    entry.status.set(script.short());
                }
                let mut page = vec![0; data_in_bytes as usize];
                let count = usize::from(script.short()).min(page.len());
                let given = script.take(count);
                page[..given.len()].copy_from_slice(given);
                if let Err(error) = bringup.answered(entry, &page, now) {
                    assert!(!error.to_string().is_empty());
                    return;
                }
            }
        }
    }
}

// ---- the controller's side

const SLOTS: u16 = 4;
const TARGET_DATA_BYTES: u32 = 12 << 10;

/// The controller's side of a connection.
pub fn tcp_target(data: &[u8]) {
    let mut script = Script::new(data);
    let options = script.byte();
    let limits = TargetLimits {
        max_slots: SLOTS,
        in_capsule_bytes: 4096,
        max_data_bytes: TARGET_DATA_BYTES,
        max_h2c_bytes: 8192,
        max_r2t_bytes: if options & 1 == 0 { 4096 } else { u32::MAX },
        header_digest_allowed: options & 2 != 0,
        data_digest_allowed: options & 4 != 0,
        success_flag: options & 8 != 0,
    };
    let mut rig = TargetRig {
        feed: Feed::default(),
        target: Target::new(limits, checksum),
        slots: [Owner::Machine; SLOTS as usize],
    };
    while !script.is_over() {
        rig.step(&mut script);
    }
}

/// Whose turn a slot's command is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Owner {
    /// Free, or its in-capsule data is arriving.
    Machine,
    Adapter {
        command_id: u16,
        transfer: Transfer,
        fetched: bool,
    },
    /// The adapter has an Asynchronous Event Request. The host may give its id to another command.
    Event {
        command_id: u16,
    },
    /// The host has given the id of this event request to another command. Its answer is not sent.
    Forgotten,
    Fetching {
        command_id: u16,
        answered: bool,
    },
}

struct TargetRig {
    feed: Feed,
    target: Target,
    slots: [Owner; SLOTS as usize],
}

impl TargetRig {
    fn step(&mut self, script: &mut Script<'_>) {
        let digests = self.target.digests();
        match script.byte() % 8 {
            0 => {
                let count = script.byte();
                self.receive(script.take(count.into()));
            }
            1 => {
                let wanted = Digests::from_wire(script.byte());
                let request = InitializeRequest::new(script.byte(), wanted, 1);
                self.receive(request.as_bytes());
            }
            2 => {
                let pdu = command_pdu(script, digests);
                self.receive_built(pdu);
            }
            3 => {
                let pdu = data_pdu(PduType::HOST_DATA, script, digests, None);
                self.receive_built(pdu);
            }
            4 => self.answer(script),
            5 => self.fetch(script),
            6 => self.feed.damage = Some((script.byte(), script.byte())),
            _ => {
                self.target.set_flow_control(script.byte() & 1 == 0);
                self.target
                    .set_queue(script.byte() & 1 == 0, script.short().into());
            }
        }
        assert!(self.target.slots_in_use() <= usize::from(SLOTS));
    }

    fn receive_built(&mut self, pdu: Vec<u8>) {
        let pdu = self.feed.damaged(pdu);
        self.receive(&pdu);
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.feed.waiting.extend(bytes);
        loop {
            let want = self.target.want();
            if let Want::Payload {
                slot,
                offset,
                bytes,
                ..
            } = want
            {
                let room = TARGET_DATA_BYTES.max(ADMIN_IN_CAPSULE_BYTES);
                assert!(slot.0 < SLOTS && bytes > 0 && offset + bytes <= room);
                let owner = self.slots[usize::from(slot.0)];
                assert!(
                    !matches!(owner, Owner::Adapter { .. }),
                    "data into the adapter's slot"
                );
            }
            let Some(given) = self.feed.satisfy(want) else {
                return;
            };
            let mut sent = Sent::default();
            let result = match given {
                Given::Header(bytes) => self
                    .target
                    .header(&bytes, &mut sent)
                    .map(|taken| taken.event),
                Given::Payload(intact) => self.target.payload(intact, &mut sent),
            };
            assert_eq!(sent.payload, [], "only answers send data");
            match result {
                Ok(event) => self.told(event),
                Err(violation) => return self.end(&violation),
            }
        }
    }

    fn told(&mut self, event: Option<ControllerEvent>) {
        match event {
            None => {}
            Some(ControllerEvent::Command {
                claim, transfer, ..
            }) => {
                let slot = claim.slot();
                let entry = self.target.entry();
                let command_id = entry.command_id.get();
                let is_event = self.target.is_admin()
                    && transfer == Transfer::None
                    && entry.admin_opcode() == AdminOpcode::ASYNC_EVENT_REQUEST;
                self.give_up_id(command_id);
                let owner = &mut self.slots[usize::from(slot.0)];
                assert_eq!(*owner, Owner::Machine, "the slot is in use");
                *owner = match is_event {
                    true => Owner::Event { command_id },
                    false => Owner::Adapter {
                        command_id,
                        transfer,
                        fetched: false,
                    },
                };
            }
            Some(ControllerEvent::Fetched { slot, .. }) => {
                let owner = &mut self.slots[usize::from(slot.0)];
                let Owner::Fetching {
                    command_id,
                    answered: false,
                } = *owner
                else {
                    panic!("nothing was fetched for {owner:?}");
                };
                *owner = Owner::Adapter {
                    command_id,
                    transfer: Transfer::None,
                    fetched: true,
                };
            }
            Some(ControllerEvent::Released { slot }) => {
                let owner = &mut self.slots[usize::from(slot.0)];
                assert!(matches!(
                    owner,
                    Owner::Machine | Owner::Fetching { answered: true, .. }
                ));
                *owner = Owner::Machine;
            }
            Some(ControllerEvent::Terminated) => {
                assert_eq!(self.target.want(), Want::Closed);
                assert!(self.target.goodbye().is_some());
            }
        }
    }

    /// A command with this id begins: only an event request may have had the id until now.
    fn give_up_id(&mut self, command_id: u16) {
        for owner in &mut self.slots {
            if *owner == (Owner::Event { command_id }) {
                *owner = Owner::Forgotten;
            }
            assert!(!owner.holds(command_id), "a duplicate id");
        }
    }

    fn answer(&mut self, script: &mut Script<'_>) {
        let index = usize::from(script.byte()) % self.slots.len();
        let slot = Slot(u16::from(script.byte()) % SLOTS);
        let slot = if index == 0 { Slot(0) } else { slot };
        let owner = self.slots[usize::from(slot.0)];
        let most = match owner {
            Owner::Adapter {
                transfer: Transfer::Send { bytes },
                ..
            } => bytes,
            _ => 0,
        };
        let bytes = u32::from(script.short()).min(most);
        let entry = CompletionEntry::new(Status::SUCCESS, u64::from(script.byte() & 1));
        let closed = self.target.want() == Want::Closed;
        let mut sent = Sent::default();
        let freed = self.target.answer(slot, entry, bytes, &mut sent);
        let answerable = matches!(
            owner,
            Owner::Adapter { .. } | Owner::Event { .. } | Owner::Forgotten
        );
        assert_eq!(freed, answerable, "{owner:?}");
        let data: Vec<_> = (freed && !closed && bytes > 0)
            .then_some((slot, 0, bytes))
            .into_iter()
            .collect();
        assert_eq!(sent.payload, data);
        // A refused command may have taken an event request's id as well. The rig sees no refusals.
        if !matches!(owner, Owner::Event { .. }) {
            let silent = closed || !freed || owner == Owner::Forgotten;
            assert_eq!(sent.bytes == 0, silent);
        }
        let owner = &mut self.slots[usize::from(slot.0)];
        match owner {
            Owner::Adapter { .. } | Owner::Event { .. } | Owner::Forgotten => {
                *owner = Owner::Machine;
            }
            Owner::Fetching { answered, .. } => *answered = true,
            Owner::Machine => {}
        }
    }

    fn fetch(&mut self, script: &mut Script<'_>) {
        let slot = u16::from(script.byte()) % SLOTS;
        let owner = &mut self.slots[usize::from(slot)];
        let Owner::Adapter {
            command_id,
            transfer: Transfer::Fetch { .. },
            fetched: false,
        } = *owner
        else {
            return;
        };
        *owner = Owner::Fetching {
            command_id,
            answered: false,
        };
        let mut sent = Sent::default();
        self.target.fetch(Slot(slot), &mut sent);
        assert_eq!(sent.bytes == 0, self.target.want() == Want::Closed);
    }

    fn end(&mut self, violation: &Violation) {
        assert_eq!(self.target.want(), Want::Closed);
        assert!((1..=6).contains(&violation.fes()) && !violation.header().is_empty());
        let mut sent = Sent::default();
        self.target.terminate(violation, &mut sent);
        assert!((24..=152).contains(&sent.bytes));
    }
}

impl Owner {
    fn holds(self, id: u16) -> bool {
        match self {
            Self::Machine | Self::Forgotten => false,
            Self::Adapter { command_id, .. }
            | Self::Event { command_id }
            | Self::Fetching { command_id, .. } => command_id == id,
        }
    }
}

// ---- the host's side

const HOST_DATA_BYTES: u32 = 40 << 10;

/// The host's side of a connection.
pub fn tcp_host(data: &[u8]) {
    let mut script = Script::new(data);
    let options = script.byte();
    let digests = Digests {
        header: options & 1 != 0,
        data: options & 2 != 0,
    };
    let limits = HostLimits {
        max_slots: SLOTS,
        max_r2t: 1 + u32::from(options >> 6),
        header_digest: digests.header,
        data_digest: digests.data,
        fewer_digests: options & 4 != 0,
    };
    let mut host = Host::new(limits, checksum);
    host.start(&mut Sent::default());
    let mut rig = HostRig {
        feed: Feed::default(),
        host,
        digests: Digests::default(),
        commands: [None; SLOTS as usize],
        data_lags: options & 8 != 0,
    };
    while !script.is_over() {
        rig.step(&mut script, digests);
    }
}

/// A command that was sent and not answered.
#[derive(Clone, Copy, Debug)]
struct Sending {
    command_id: u16,
    transfer: HostTransfer,
    /// How much of a write has left; how much of a read has been wanted.
    moved: u32,
}

struct HostRig {
    feed: Feed,
    host: Host,
    digests: Digests,
    commands: [Option<Sending>; SLOTS as usize],
    /// Of the data that was asked for, one piece leaves with every step, not all of it.
    data_lags: bool,
}

impl HostRig {
    fn step(&mut self, script: &mut Script<'_>, wanted: Digests) {
        let digests = self.digests;
        match script.byte() % 8 {
            0 => {
                let count = script.byte();
                self.receive(script.take(count.into()));
            }
            1 => {
                let digests = if script.byte() & 1 == 0 {
                    wanted
                } else {
                    Digests::default()
                };
                let response = InitializeResponse::new(script.byte(), digests, script.word());
                self.receive(response.as_bytes());
            }
            2 => self.command(script),
            3 => {
                let id = self.id(script);
                let (tag, offset, bytes) = (script.short(), script.place(), script.place());
                let header = R2tHeader::new(digests, id, tag, offset, bytes);
                let pdu = sealed(header.as_bytes(), digests);
                self.receive_built(pdu);
            }
            4 => {
                let id = self.id(script);
                let pdu = data_pdu(PduType::CONTROLLER_DATA, script, digests, Some(id));
                self.receive_built(pdu);
            }
            5 => {
                let mut entry = CompletionEntry::new(Status::SUCCESS, script.byte().into());
                entry.command_id.set(self.id(script));
                let common = CommonHeader::without_data(PduType::RESPONSE, digests);
                let header = ResponseHeader {
                    common,
                    entry: entry.to_array(),
                };
                let pdu = sealed(header.as_bytes(), digests);
                self.receive_built(pdu);
            }
            6 => self.feed.damage = Some((script.byte(), script.byte())),
            _ => {
                let quoted = script.byte();
                let kind = PduType::CONTROLLER_TERMINATE;
                let header = TerminateRequest::new(kind, script.short(), script.word(), quoted);
                self.receive_built(header.as_bytes().to_vec());
            }
        }
        self.send_data();
        let in_progress = self.commands.iter().flatten().count();
        assert_eq!(self.host.slots_in_use(), in_progress);
    }

    fn send_data(&mut self) {
        loop {
            let mut sent = Sent::default();
            let bytes = self.host.send_data(&mut sent);
            self.check_sent(&sent);
            if bytes == 0 || self.data_lags {
                return;
            }
        }
    }

    /// Mostly the id of a command in progress.
    fn id(&self, script: &mut Script<'_>) -> u16 {
        let (slot, change) = (
            usize::from(script.byte()) % self.commands.len(),
            script.byte(),
        );
        let id = self.commands[slot].map_or(0, |sending| sending.command_id);
        if change > 0xF0 {
            id ^ 1 << (change & 0xF)
        } else {
            id
        }
    }

    fn command(&mut self, script: &mut Script<'_>) {
        let slot = u16::from(script.byte()) % (SLOTS + 1);
        let bytes = script.place().min(HOST_DATA_BYTES);
        let (opcode, transfer) = match script.byte() % 3 {
            0 => (0x00, HostTransfer::None),
            1 => (0x01, HostTransfer::Write { bytes }),
            _ => (0x02, HostTransfer::Read { bytes }),
        };
        self.host.set_in_capsule(u32::from(script.byte()) * 64);
        let mut entry = SubmissionEntry::new(opcode);
        let mut sent = Sent::default();
        let accepted = self
            .host
            .command(Slot(slot), &mut entry, transfer, &mut sent);
        let free = self
            .commands
            .get(usize::from(slot))
            .is_some_and(Option::is_none);
        assert_eq!(accepted, free && self.host.is_ready());
        assert_eq!(sent.bytes == 0, !accepted);
        if accepted {
            let command_id = entry.command_id.get();
            self.commands[usize::from(slot)] = Some(Sending {
                command_id,
                transfer,
                moved: 0,
            });
        }
        self.check_sent(&sent);
    }

    fn receive_built(&mut self, pdu: Vec<u8>) {
        let pdu = self.feed.damaged(pdu);
        self.receive(&pdu);
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.feed.waiting.extend(bytes);
        loop {
            let want = self.host.want();
            if let Want::Payload {
                slot,
                offset,
                bytes,
                ..
            } = want
            {
                let sending = self.commands[usize::from(slot.0)]
                    .as_ref()
                    .expect("in progress");
                let HostTransfer::Read { bytes: most } = sending.transfer else {
                    panic!("data for {sending:?}");
                };
                assert_eq!(offset, sending.moved);
                assert!(bytes > 0 && bytes <= most - offset);
            }
            let Some(given) = self.feed.satisfy(want) else {
                return;
            };
            if let Want::Payload { slot, bytes, .. } = want {
                let sending = self.commands[usize::from(slot.0)]
                    .as_mut()
                    .expect("in progress");
                sending.moved += bytes;
            }
            let mut sent = Sent::default();
            let result = match given {
                Given::Header(bytes) => {
                    self.host.header(&bytes, &mut sent).map(|taken| taken.event)
                }
                Given::Payload(intact) => self.host.payload(intact, &mut sent),
            };
            self.check_sent(&sent);
            match result {
                Ok(event) => self.told(event),
                Err(violation) => return self.end(&violation),
            }
        }
    }

    /// Data leaves once, in order, and only that of a write.
    fn check_sent(&mut self, sent: &Sent) {
        for (slot, offset, bytes) in &sent.payload {
            let sending = self.commands[usize::from(slot.0)]
                .as_mut()
                .expect("in progress");
            let HostTransfer::Write { bytes: most } = sending.transfer else {
                panic!("data of {sending:?}");
            };
            assert_eq!(*offset, sending.moved);
            assert!(*bytes <= most - offset);
            sending.moved += bytes;
        }
    }

    fn told(&mut self, event: Option<HostEvent>) {
        match event {
            None => {}
            Some(HostEvent::Ready) => self.digests = self.host.digests(),
            Some(HostEvent::Completed {
                slot, data_bytes, ..
            }) => {
                let sending = self.commands[usize::from(slot.0)]
                    .take()
                    .expect("in progress");
                assert_eq!(sending.command_id, self.host.entry().command_id.get());
                assert_eq!(sending.moved, data_bytes);
            }
            Some(HostEvent::Terminated) => {
                assert_eq!(self.host.want(), Want::Closed);
                assert!(self.host.goodbye().is_some());
            }
        }
    }

    fn end(&mut self, violation: &Violation) {
        assert_eq!(self.host.want(), Want::Closed);
        assert!((1..=6).contains(&violation.fes()) && !violation.header().is_empty());
        let mut sent = Sent::default();
        self.host.terminate(violation, &mut sent);
        assert!((24..=152).contains(&sent.bytes));
    }
}

// ---- what both share

/// The input, read from its front; past its end everything is zero.
struct Script<'a> {
    bytes: &'a [u8],
}

impl<'a> Script<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(count.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// An offset or a length: mostly a small multiple of 512, sometimes anything.
    fn place(&mut self) -> u32 {
        match self.byte() {
            0xFF => self.word(),
            small => u32::from(small) * 512,
        }
    }
}

/// What the peer has sent and the machine has not wanted yet.
#[derive(Default)]
struct Feed {
    waiting: VecDeque<u8>,
    /// Flips bits of the next PDU that is built: where, and which.
    damage: Option<(u8, u8)>,
}

enum Given {
    Header(Vec<u8>),
    Payload(bool),
}

impl Feed {
    fn damaged(&mut self, mut pdu: Vec<u8>) -> Vec<u8> {
        if let Some((place, bits)) = self.damage.take()
            && let Some(byte) = pdu.get_mut(usize::from(place))
        {
            *byte ^= bits;
        }
        pdu
    }

    /// What a driver does for a want, if enough has been sent.
    fn satisfy(&mut self, want: Want) -> Option<Given> {
        match want {
            Want::Closed => None,
            Want::Header { bytes } => {
                assert!(
                    (1..=4096).contains(&bytes),
                    "no header is {bytes} bytes long"
                );
                (self.waiting.len() >= bytes)
                    .then(|| Given::Header(self.waiting.drain(..bytes).collect()))
            }
            Want::Payload { bytes, pass, .. } => {
                let (bytes, after) = (bytes as usize, pass.trailer_bytes());
                (self.waiting.len() >= bytes + after).then(|| {
                    let payload: Vec<u8> = self.waiting.drain(..bytes).collect();
                    let digest: Vec<u8> = self.waiting.drain(..after).collect();
                    let intact = after == 0 || checksum(&payload).to_le_bytes() == digest[..];
                    Given::Payload(intact)
                })
            }
        }
    }
}

/// What a machine sent in one call.
#[derive(Default)]
struct Sent {
    bytes: usize,
    payload: Vec<(Slot, u32, u32)>,
}

impl Sink for Sent {
    fn bytes(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
    }

    fn payload(&mut self, slot: Slot, offset: u32, bytes: u32, _pass: Pass) {
        assert!(bytes > 0);
        self.payload.push((slot, offset, bytes));
    }
}

/// In the place of CRC32C: quick, and different for different bytes.
fn checksum(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(1, |sum: u32, byte| sum.rotate_left(5) ^ u32::from(*byte))
}

/// A header with its digest and padding.
fn sealed(header: &[u8], digests: Digests) -> Vec<u8> {
    let mut pdu = header.to_vec();
    if digests.header {
        pdu.extend(checksum(header).to_le_bytes());
    }
    let padded = pdu.len().max(usize::from(header[3]));
    pdu.resize(padded, 0);
    pdu
}

fn with_payload(mut pdu: Vec<u8>, bytes: u32, digests: Digests) -> Vec<u8> {
    let payload = vec![0xA5; bytes.min(64 << 10) as usize];
    pdu.extend(&payload);
    if digests.data && bytes > 0 {
        pdu.extend(checksum(&payload).to_le_bytes());
    }
    pdu
}

/// A CapsuleCmd as the script says, its lengths right.
fn command_pdu(script: &mut Script<'_>, digests: Digests) -> Vec<u8> {
    let mut entry = SubmissionEntry::new_zeroed();
    let [opcode, command_id, nsid, kind] = script.array();
    entry.opcode = opcode;
    entry.flags = 0x40;
    entry.command_id.set(u16::from(command_id % 8) * 0x1111);
    entry.nsid.set(nsid.into());
    let bytes = script.place();
    let mut carried = 0;
    entry.sgl = SglDescriptor::transport(bytes);
    match kind % 4 {
        0 | 1 => {}
        2 => {
            carried = bytes.min(16 << 10);
            entry.sgl = SglDescriptor::in_capsule(carried);
        }
        _ => entry.sgl.kind = SglKind(kind),
    }
    let common = match carried {
        0 => CommonHeader::without_data(PduType::COMMAND, digests),
        _ => CommonHeader::with_data(PduType::COMMAND, digests, 0, carried).expect("small"),
    };
    let header = CommandHeader {
        common,
        entry: entry.to_array(),
    };
    with_payload(sealed(header.as_bytes(), digests), carried, digests)
}

/// An H2CData or C2HData as the script says, its lengths right as far as they can be.
fn data_pdu(
    kind: PduType,
    script: &mut Script<'_>,
    digests: Digests,
    command_id: Option<u16>,
) -> Vec<u8> {
    let [id, tag, flags] = script.array();
    let command_id = command_id.unwrap_or_else(|| u16::from(id % 8) * 0x1111);
    let (offset, bytes) = (script.place(), script.place());
    let mut common = CommonHeader::with_data(kind, digests, 0, bytes)
        .unwrap_or_else(|| CommonHeader::without_data(kind, digests));
    common.flags |= (flags & 0b11) << 2;
    let header = DataHeader::new(
        common,
        command_id,
        u16::from(tag) % (2 * SLOTS),
        offset,
        bytes,
    );
    with_payload(sealed(header.as_bytes(), digests), bytes, digests)
}

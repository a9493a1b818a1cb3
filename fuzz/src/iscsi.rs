//! The same for iSCSI: any bytes in, a panic if something is not as it must be.
//!
//! Parsers get the bytes as they are; the login and the whole machine get a script, of which each
//! step is a PDU whose lengths are right, raw bytes, or something that the owner may do. Beside the
//! machine runs a model of its slots.
//!
//! Included by path into crates/fabrix-proto/tests/corpus.rs.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::num::NonZeroU16;

use fabrix_proto::iscsi::auth::{Algorithm, Challenges, ChapPolicy, Credentials, Response, Secret};
use fabrix_proto::iscsi::keys::{Key, Negotiation, Reply, Wishes};
use fabrix_proto::iscsi::login::{Admission, Auth, Grant, Login, Step, name};
use fabrix_proto::iscsi::pdu::{self, LoginRequest, LoginStatus, TaskManagementOutcome};
use fabrix_proto::iscsi::target::{Answer, Event, Target, TargetLimits, Transfer};
use fabrix_proto::iscsi::tcp::Tcp;
use fabrix_proto::iscsi::text::{TextBuffer, TextWriter, binary, boolean, list, number, pairs};
use fabrix_proto::{Claim, Machine, Nanos, Pass, Sink, Slot, Want};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

// ---- parsers

/// Text: what is read as pairs can be written, and reads the same.
pub fn parse_iscsi_text(data: &[u8]) {
    let mut writer = TextWriter::default();
    let mut read = Vec::new();
    for pair in pairs(data) {
        let Ok(pair) = pair else { break };
        assert!((1..=63).contains(&pair.key.len()) && !pair.key.contains('='));
        assert!(!pair.value.contains('\0'));
        let _ = (number(pair.value), boolean(pair.value), name(pair.value));
        assert!(list(pair.value).count() <= pair.value.len() + 1);
        if let Some(bytes) = binary::decode(pair.value, 1024) {
            assert!((1..=1024).contains(&bytes.len()));
            let again = binary::decode(&binary::encode_hex(&bytes), 1024);
            assert_eq!(again.as_ref(), Some(&bytes));
        }
        writer.pair(pair.key, pair.value);
        read.push((pair.key.to_owned(), pair.value.to_owned()));
    }
    let written = writer.into_bytes();
    let again: Vec<_> = pairs(&written)
        .map(|pair| pair.expect("written by us"))
        .map(|pair| (pair.key.to_owned(), pair.value.to_owned()))
        .collect();
    assert_eq!(again, read);
    let mut buffer = TextBuffer::default();
    for piece in data.chunks(7) {
        if buffer.push(piece, true).is_err() {
            break;
        }
    }
    assert!(buffer.bytes().len() <= data.len());
}

/// Negotiation: whatever is offered in whatever order, what is agreed on keeps to the standard's
/// bounds.
pub fn iscsi_keys(data: &[u8]) {
    let mut negotiation = Negotiation::new(Wishes::default());
    let (options, text) = data.split_first().unwrap_or((&0, &[]));
    for pair in pairs(text) {
        let Ok(pair) = pair else { break };
        let Some(key) = Key::parse(pair.key) else {
            continue;
        };
        let reply = negotiation.agree(key, pair.value, options & 1 == 1);
        assert!(matches!(reply, Reply::None) || !reply.to_string().is_empty());
        let agreed = negotiation.agreed();
        assert!((512..=pdu::DATA_SEGMENT_MAX).contains(&agreed.initiator_segment_bytes));
        assert!((512..=pdu::DATA_SEGMENT_MAX).contains(&agreed.max_burst_bytes));
        assert!(agreed.first_burst_bytes >= 512);
    }
}

/// Headers of both directions: 48 bytes each, and nothing is lost on the way.
pub fn parse_iscsi_pdu(data: &[u8]) {
    fn both_ways<T: FromBytes + IntoBytes + zerocopy::Immutable>(data: &[u8]) {
        if let Ok((header, _)) = T::read_from_prefix(data) {
            assert_eq!(header.as_bytes(), &data[..48]);
        }
    }
    both_ways::<pdu::NopOut>(data);
    both_ways::<pdu::ScsiCommand>(data);
    both_ways::<pdu::TaskManagementRequest>(data);
    both_ways::<LoginRequest>(data);
    both_ways::<pdu::DataOut>(data);
    both_ways::<pdu::NopIn>(data);
    both_ways::<pdu::ScsiResponse>(data);
    both_ways::<pdu::LoginResponse>(data);
    both_ways::<pdu::DataIn>(data);
    both_ways::<pdu::ReadyToTransfer>(data);
    both_ways::<pdu::AsyncMessage>(data);
    both_ways::<pdu::Reject>(data);
    if let Ok((basic, _)) = pdu::BasicHeader::read_from_prefix(data) {
        assert!(basic.segment_bytes() <= pdu::DATA_SEGMENT_MAX as usize);
        let _ = (basic.is_immediate(), basic.is_final());
    }
}

/// CHAP: no bytes are the answer to a challenge whose secret they do not have.
pub fn iscsi_chap(data: &[u8]) {
    let policy = policy();
    let (algorithm, rest) = data.split_first().unwrap_or((&5, &[]));
    let Some(algorithm) = policy.choose([u32::from(*algorithm)].into_iter()) else {
        return;
    };
    if let Some(response) = Response::new(rest) {
        let proved = policy.verify(algorithm, "alice", &response);
        assert!(proved.is_err(), "a guess has proved it");
        assert!(policy.verify(algorithm, "", &response).is_err());
    }
    match policy.prove(algorithm, 7, rest) {
        Ok((name, response)) => {
            assert_eq!(
                (name, response.as_bytes().len()),
                ("us", algorithm.response_bytes())
            );
            assert_ne!(rest, policy.challenge().bytes(), "a reflected challenge");
        }
        Err(error) => assert!(!error.sentence().is_empty()),
    }
}

fn policy() -> ChapPolicy {
    let credentials = |name, secret: &[u8]| {
        Credentials::new(name, Secret::new(secret).expect("long")).expect("short")
    };
    let challenge: [u8; 16] = core::array::from_fn(|at| b'a' + u8::try_from(at).unwrap_or(0));
    let challenge = Challenges::default().issue(1, &challenge).expect("new");
    let (initiator, target) = (
        credentials("alice", b"a secret of hers"),
        credentials("us", b"another one, of ours"),
    );
    ChapPolicy::new(&Algorithm::ALL, initiator, Some(target), challenge).expect("two secrets")
}

// ---- a login

/// Requests of a login: with CHAP nobody gets in, for nobody knows the secret; without it all ends
/// within bounds.
pub fn iscsi_login(data: &[u8]) {
    let mut script = Script(data);
    let guarded = script.byte() & 1 == 1;
    let mut login = Login::new(Wishes::default());
    let mut rounds = 0;
    while !script.0.is_empty() {
        rounds += 1;
        let mut header = LoginRequest::new_zeroed();
        header.flags = script.byte();
        if script.byte() == 0xFF {
            header.isid[0] = script.byte();
        }
        let count = script.short() % 1024;
        let mut step = login.request(&header, script.take(count.into()));
        if matches!(step, Step::Authorize) {
            let auth = match guarded {
                true => Auth::Chap(Box::new(policy())),
                false => Auth::None,
            };
            step = login.admit(Admission::Admit(Grant {
                portal_group_tag: 1,
                auth,
            }));
        }
        if matches!(step, Step::Proved) {
            assert!(!guarded, "somebody has proved what nobody knows");
            step = login.enter(Ok(NonZeroU16::MIN));
        }
        match step {
            Step::Respond(response) => assert!(response.text.len() <= 8192),
            Step::Complete(response, session) => {
                assert!(response.text.len() <= 8192 && response.tsih == session.tsih.get());
                return;
            }
            Step::Refuse(refusal) => return assert!(!refusal.sentence.is_empty()),
            Step::Authorize | Step::Proved => panic!("asked twice"),
        }
        assert!(rounds <= 40, "a login without end");
    }
}

// ---- the whole machine

const WINDOW: u16 = 4;
const WRITE_BYTES_MAX: u32 = 16 << 10;

/// Whose turn a slot is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Owner {
    Machine,
    Adapter {
        fetchable: bool,
    },
    /// Answered or aborted while data was on its way.
    Waiting,
    Fetching,
}

/// A connection from its first byte on; the first byte of the script says whether it is logged in
/// to begin with.
pub fn iscsi_target(data: &[u8]) {
    let mut script = Script(data);
    let limits = TargetLimits {
        window: WINDOW,
        immediate: 2,
        max_write_bytes: WRITE_BYTES_MAX,
        max_inline_bytes: 4096,
        ..TargetLimits::default()
    };
    let mut rig = Rig {
        machine: Tcp::new(Target::new(limits, Nanos(0)), checksum),
        slots: vec![Owner::Machine; usize::from(limits.slots())],
        waiting: VecDeque::new(),
        sent: 0,
        now: 0,
    };
    if script.byte() & 1 == 1 {
        rig.log_in(script.byte());
    }
    while !script.0.is_empty() {
        rig.step(&mut script);
    }
}

struct Rig {
    machine: Tcp<Target>,
    slots: Vec<Owner>,
    waiting: VecDeque<u8>,
    sent: usize,
    now: u64,
}

impl Rig {
    fn log_in(&mut self, options: u8) {
        let digest = if options & 1 == 1 { "CRC32C" } else { "None" };
        let session = if options & 2 == 2 {
            "Discovery"
        } else {
            "Normal"
        };
        let r2t = if options & 4 == 4 { "Yes" } else { "No" };
        let text = format!(
            "InitiatorName=iqn.a\0TargetName=iqn.b\0SessionType={session}\0HeaderDigest={digest}\0DataDigest={digest}\0\
             InitialR2T={r2t}\0FirstBurstLength=4096\0MaxBurstLength=8192\0"
        );
        let mut bhs = [0; 48];
        (bhs[0], bhs[1], bhs[27]) = (0x43, 0x87, 1);
        self.receive(&built(bhs, text.as_bytes(), false));
        assert!(self.machine.endpoint().session().is_some());
    }

    fn digests(&self) -> bool {
        let session = self.machine.endpoint().session();
        session.is_some_and(|session| session.parameters.digests.header)
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 8 {
            0 => {
                let count = script.byte();
                self.receive(script.take(count.into()));
            }
            1..=3 => {
                let pdu = self.pdu(script);
                self.receive(&pdu);
            }
            4 => self.answer(script),
            5 => self.fetch(script),
            6 => {
                self.now += u64::from(script.byte()) << 30;
                let (target, mut out) = self.machine.speak(Sent(&mut self.sent));
                let event = target.tick(Nanos(self.now), &mut out);
                self.told(event);
            }
            _ => {
                let slot = Slot(u16::from(script.byte()) % (WINDOW + 2));
                let owned = matches!(self.owner(slot), Owner::Adapter { .. } | Owner::Fetching);
                if owned {
                    let free = self.machine.endpoint_mut().abort_unclaimed(slot);
                    *self.owner(slot) = if free { Owner::Machine } else { Owner::Waiting };
                }
            }
        }
        assert!(self.machine.endpoint().slots_in_use() <= self.slots.len());
    }

    fn owner(&mut self, slot: Slot) -> &mut Owner {
        &mut self.slots[usize::from(slot.0)]
    }

    /// A PDU as the script says; its lengths and digests are right, and its numbers near those that
    /// are.
    fn pdu(&self, script: &mut Script<'_>) -> Vec<u8> {
        let mut bhs = [0; 48];
        let [opcode, flags, itt, ttt, sn, place] = script.array();
        (bhs[0], bhs[1], bhs[19]) = (opcode & 0x7F, flags, itt % 8);
        let tag = if ttt == 0xFF {
            u32::MAX
        } else {
            u32::from(ttt) << 16 | u32::from(sn)
        };
        bhs[20..24].copy_from_slice(&tag.to_be_bytes());
        bhs[27] = sn;
        bhs[42] = place;
        bhs[32..36].copy_from_slice(&script.array::<4>());
        let count = usize::from(script.byte()) * 16;
        built(bhs, &vec![0xA5; count], self.digests())
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
                    assert!(offset + bytes <= WRITE_BYTES_MAX && bytes > 0);
                    assert!(usize::from(slot.0) < self.slots.len());
                    bytes.next_multiple_of(4) as usize + pass.trailer_bytes()
                }
            };
            assert!((1..=9000 + WRITE_BYTES_MAX as usize).contains(&needed));
            if self.waiting.len() < needed {
                return;
            }
            let given: Vec<u8> = self.waiting.drain(..needed).collect();
            let mut out = Sent(&mut self.sent);
            let result = match want {
                Want::Payload { .. } => self.machine.payload(given[0] != 0xFF, &mut out),
                _ => self
                    .machine
                    .header(&given, &mut out)
                    .map(|taken| taken.event),
            };
            match result {
                Ok(event) => self.told(event),
                Err(violation) => {
                    assert_eq!(self.machine.want(), Want::Closed);
                    self.machine
                        .terminate(&violation, &mut Sent(&mut self.sent));
                    return;
                }
            }
        }
    }

    fn told(&mut self, event: Option<Event>) {
        let (target, mut out) = self.machine.speak(Sent(&mut self.sent));
        match event {
            Some(Event::Authorize) => {
                let grant = Grant {
                    portal_group_tag: 1,
                    auth: Auth::None,
                };
                let event = target.admit(Admission::Admit(grant), &mut out);
                self.told(event);
            }
            Some(Event::Proved) => {
                let event = target.enter(Ok(NonZeroU16::MIN), &mut out);
                self.told(event);
            }
            Some(Event::LoginFailed(refusal)) => {
                assert_ne!(refusal.status, LoginStatus::SUCCESS);
                assert_eq!(self.machine.want(), Want::Closed);
            }
            Some(Event::Command {
                claim, transfer, ..
            }) => {
                let slot = claim.slot();
                assert_eq!(*self.owner(slot), Owner::Machine, "the slot is in use");
                let fetchable = matches!(transfer, Transfer::Fetch { .. });
                *self.owner(slot) = Owner::Adapter { fetchable };
            }
            Some(Event::Fetched { slot, .. }) => {
                assert_eq!(*self.owner(slot), Owner::Fetching);
                *self.owner(slot) = Owner::Adapter { fetchable: false };
            }
            Some(Event::Released { slot }) => {
                // One that the machine has refused by itself is released too, when its data have
                // come.
                let owner = *self.owner(slot);
                assert!(
                    matches!(owner, Owner::Waiting | Owner::Machine),
                    "{owner:?}"
                );
                *self.owner(slot) = Owner::Machine;
            }
            Some(Event::TaskManagement { id, .. }) => {
                let outcome = TaskManagementOutcome::Complete;
                target.answer_management(id, outcome, &mut out);
            }
            Some(Event::SendTargets(_)) => {
                target.answer_targets([("iqn.b", &["a"][..])], &mut out);
            }
            Some(Event::Logout(_)) => target.answer_logout(&mut out),
            Some(Event::LoggedIn | Event::Silent) | None => {}
        }
    }

    fn answer(&mut self, script: &mut Script<'_>) {
        let slot = Slot(u16::from(script.byte()) % (WINDOW + 2));
        let answer = match script.byte() & 1 {
            0 => Answer::good(0),
            _ => Answer::check_condition(&[0x70; 18]),
        };
        if !matches!(self.owner(slot), Owner::Adapter { .. } | Owner::Fetching) {
            return;
        }
        let (target, mut out) = self.machine.speak(Sent(&mut self.sent));
        let (_, free) = target.answer(Claim::new(slot), &answer, &mut out);
        *self.owner(slot) = if free { Owner::Machine } else { Owner::Waiting };
    }

    fn fetch(&mut self, script: &mut Script<'_>) {
        let slot = Slot(u16::from(script.byte()) % (WINDOW + 2));
        if *self.owner(slot) == (Owner::Adapter { fetchable: true }) {
            *self.owner(slot) = Owner::Fetching;
            let (target, mut out) = self.machine.speak(Sent(&mut self.sent));
            target.fetch(slot, &mut out);
        }
    }
}

/// What a machine sent: it is enough that it is bounded.
struct Sent<'a>(&'a mut usize);

impl Sink for Sent<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= 9000, "one PDU");
        *self.0 += bytes.len();
    }

    fn payload(&mut self, _slot: Slot, _offset: u32, bytes: u32, _pass: Pass) {
        assert!(bytes > 0);
    }
}

/// Bytes that say what happens.
pub(crate) struct Script<'a>(pub(crate) &'a [u8]);

impl<'a> Script<'a> {
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }
}

/// A PDU: header, digest, data, padding, digest.
pub(crate) fn built(mut bhs: [u8; 48], data: &[u8], digests: bool) -> Vec<u8> {
    let bytes = u32::try_from(data.len()).unwrap_or(0).to_be_bytes();
    bhs[5..8].copy_from_slice(&bytes[1..]);
    let mut pdu = bhs.to_vec();
    if digests {
        pdu.extend(checksum(&bhs).to_le_bytes());
    }
    let mut padded = data.to_vec();
    padded.resize(data.len().next_multiple_of(4), 0);
    if digests && !data.is_empty() {
        padded.extend(checksum(&padded).to_le_bytes());
    }
    pdu.extend(padded);
    pdu
}

/// In the place of CRC32C: quick, and different for different bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| sum.rotate_left(5) ^ u32::from(*byte);
    bytes.iter().fold(1, step)
}

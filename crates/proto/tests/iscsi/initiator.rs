//! The initiator's machine: joined with our target's in memory, cut at every byte, and against a target that lies.

mod iscsi_wire;

use std::collections::VecDeque;

use fabrix_proto::iscsi::auth::{Challenges, ChapProof, Credentials, Secret};
use fabrix_proto::iscsi::initiator::{
    Ending, Event, Initiator, LoginConfig, LoginFailure, Transfer,
};
use fabrix_proto::iscsi::pdu::{AsyncEvent, LoginStatus, Lun};
use fabrix_proto::iscsi::target::{self, Answer, TargetLimits};
use fabrix_proto::{Breach, Machine, Slot, Violation, Want};
use iscsi_wire::{BOTH, Digests, NONE, Out, Pdu, Wire, crc32c, pattern, split};

const SLOTS: u16 = 8;
const NO_TAG: u32 = u32::MAX;
const CDB: [u8; 16] = [0x88; 16];

/// An initiator, the memory of its slots, what it has sent and what it was told.
struct Host {
    machine: Initiator,
    memory: Vec<Vec<u8>>,
    sent: Vec<u8>,
    waiting: VecDeque<u8>,
    events: Vec<Event>,
    violation: Option<Violation>,
    digests: Digests,
}

fn config() -> LoginConfig {
    LoginConfig {
        initiator: "iqn.2026-01.example:host".into(),
        target: Some("iqn.2026-01.example:disk".into()),
        isid: [0x80, 1, 2, 3, 0, 1],
        auth: None,
        header_digest: false,
        data_digest: false,
    }
}

impl Host {
    fn new(config: LoginConfig) -> Self {
        let mut host = Self {
            machine: Initiator::new(SLOTS, config, crc32c),
            memory: vec![vec![0; 1 << 20]; usize::from(SLOTS)],
            sent: Vec::new(),
            waiting: VecDeque::new(),
            events: Vec::new(),
            violation: None,
            digests: NONE,
        };
        host.with(|machine, out| machine.start(out));
        host
    }

    fn with<R>(&mut self, call: impl FnOnce(&mut Initiator, &mut Out<'_>) -> R) -> R {
        let mut out = Out {
            sent: &mut self.sent,
            memory: &self.memory,
        };
        call(&mut self.machine, &mut out)
    }

    fn command(&mut self, slot: u16, transfer: Transfer) -> bool {
        let lun = Lun::flat(3);
        self.with(|machine, out| machine.command(Slot(slot), lun, &CDB, transfer, out))
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
        while self.step() {}
    }

    fn send(&mut self, pdu: &Pdu) {
        let bytes = pdu.bytes(self.digests);
        self.feed(&bytes);
    }

    fn step(&mut self) -> bool {
        let want = self.machine.want();
        let needed = match want {
            Want::Header { bytes } => bytes,
            Want::Payload { bytes, digest, .. } => {
                (bytes as usize).next_multiple_of(4) + if digest { 4 } else { 0 }
            }
            Want::Closed => return false,
        };
        assert!(needed > 0, "a machine never wants nothing");
        if self.waiting.len() < needed {
            return false;
        }
        let input: Vec<u8> = self.waiting.drain(..needed).collect();
        let result = match want {
            Want::Payload {
                slot,
                offset,
                bytes,
                digest,
            } => {
                let (start, bytes) = (offset as usize, bytes as usize);
                let memory = &mut self.memory[usize::from(slot.0)];
                memory[start..start + bytes].copy_from_slice(&input[..bytes]);
                let (padded, after) = input.split_at(bytes.next_multiple_of(4));
                let intact = !digest || crc32c(padded).to_le_bytes() == after;
                self.with(|machine, out| machine.payload(intact, out))
            }
            _ => self.with(|machine, out| machine.header(&input, out)),
        };
        match result {
            Ok(event) => self.events.extend(event),
            Err(violation) => {
                assert_eq!(self.machine.want(), Want::Closed, "a violation ends all");
                self.violation = Some(violation);
            }
        }
        true
    }

    fn said(&mut self) -> Vec<Pdu> {
        split(&std::mem::take(&mut self.sent), self.digests)
    }

    fn event(&mut self) -> Event {
        assert!(self.violation.is_none(), "{:?}", self.violation);
        assert_eq!(self.events.len(), 1, "{:?}", self.events);
        self.events.remove(0)
    }

    #[track_caller]
    fn broke(&mut self, breach: Breach, word: &str) {
        let violation = self.violation.expect("a violation");
        assert_eq!(violation.breach(), breach, "{violation}");
        let sentence = violation.sentence();
        assert!(sentence.contains(word), "`{word}` is not in `{sentence}`");
    }
}

// ---- joined with our target

/// A target that keeps a disk of bytes: slot N of every write is kept as what the next read of slot N gives.
struct Pair {
    host: Host,
    target: Wire,
    /// Bytes that pass at once.
    step: usize,
    disk: Vec<u8>,
}

impl Pair {
    fn new(config: LoginConfig, limits: TargetLimits, step: usize) -> Self {
        let mut pair = Self {
            host: Host::new(config),
            target: Wire::new(limits),
            step,
            disk: vec![0; 1 << 20],
        };
        pair.run();
        pair
    }

    /// Lets bytes pass both ways until there are none.
    fn run(&mut self) {
        loop {
            let out = std::mem::take(&mut self.host.sent);
            let back = std::mem::take(&mut self.target.sent);
            if out.is_empty() && back.is_empty() {
                return;
            }
            for piece in out.chunks(self.step) {
                self.target.feed(piece);
                self.serve();
            }
            for piece in back.chunks(self.step) {
                self.host.feed(piece);
            }
        }
    }

    /// Carries out what the target was asked.
    fn serve(&mut self) {
        for event in self.target.take_events() {
            match event {
                target::Event::Command { slot, transfer, .. } => match transfer {
                    target::Transfer::Send { bytes } => {
                        let bytes = bytes as usize;
                        let memory = &mut self.target.memory[usize::from(slot.0)];
                        memory[..bytes].copy_from_slice(&self.disk[..bytes]);
                        let moved = u32::try_from(bytes).expect("small");
                        self.target.answer(slot, Answer::good(moved));
                    }
                    target::Transfer::Fetch { .. } => self.target.fetch(slot),
                    target::Transfer::Inline { bytes } => self.write(slot, bytes),
                    target::Transfer::None => {
                        let sense = [0x70, 0, 6, 0, 0, 0, 0, 10];
                        self.target.answer(slot, Answer::check_condition(&sense));
                    }
                },
                target::Event::Fetched { slot, .. } => self.write(slot, 1 << 20),
                target::Event::SendTargets(_) => {}
                target::Event::Logout(_) => {
                    self.target.with(|target, out| target.answer_logout(out))
                }
                _ => {}
            }
        }
    }

    fn write(&mut self, slot: Slot, bytes: u32) {
        let memory = &self.target.memory[usize::from(slot.0)];
        self.disk[..bytes as usize].copy_from_slice(&memory[..bytes as usize]);
        self.target.answer(slot, Answer::good(bytes));
    }
}

fn moves_data_both_ways(config: LoginConfig, limits: TargetLimits, step: usize) {
    let mut pair = Pair::new(config, limits, step);
    assert_eq!(pair.host.event(), Event::LoggedIn);
    // With the command, unasked, and by R2T.
    for bytes in [512, 5000, 100_000, 1 << 20] {
        let data = pattern(bytes, 7);
        pair.host.memory[1][..bytes as usize].copy_from_slice(&data);
        assert!(pair.host.command(1, Transfer::Write { bytes }));
        pair.run();
        let ending = Ending {
            delivered: true,
            status: 0,
            data_bytes: bytes,
            intact: true,
        };
        let slot = Slot(1);
        assert_eq!(
            pair.host.event(),
            Event::Completed { slot, ending },
            "{bytes}"
        );
        assert!(pair.disk[..bytes as usize] == data, "{bytes} bytes arrive");
        assert!(pair.host.command(2, Transfer::Read { bytes }));
        pair.run();
        let slot = Slot(2);
        assert_eq!(
            pair.host.event(),
            Event::Completed { slot, ending },
            "{bytes}"
        );
        assert!(
            pair.host.memory[2][..bytes as usize] == data,
            "{bytes} bytes come back"
        );
    }
    assert!(pair.host.command(3, Transfer::None));
    pair.run();
    assert!(matches!(pair.host.event(), Event::Completed { ending, .. } if ending.status == 2));
    assert_eq!(pair.host.machine.sense()[2], 6);
    assert!(pair.host.with(|machine, out| machine.ping(out)));
    pair.run();
    assert_eq!(pair.host.event(), Event::Pong);
    assert!(pair.host.with(|machine, out| machine.logout(out)));
    pair.run();
    assert_eq!(pair.host.event(), Event::LoggedOut);
    assert_eq!(pair.host.machine.want(), Want::Closed);
}

fn small_segments() -> TargetLimits {
    let mut limits = TargetLimits::default();
    limits.wishes.segment_bytes = 4096;
    limits.wishes.first_burst_bytes = 8192;
    limits.wishes.max_burst_bytes = 65_536;
    limits
}

#[test]
fn data_moves_both_ways_by_every_kind_of_pdu() {
    moves_data_both_ways(config(), TargetLimits::default(), usize::MAX);
    moves_data_both_ways(config(), small_segments(), usize::MAX);
    let mut waits = small_segments();
    (waits.wishes.initial_r2t, waits.wishes.immediate_data) = (true, false);
    moves_data_both_ways(config(), waits, usize::MAX);
}

#[test]
fn data_moves_both_ways_with_digests() {
    let digests = LoginConfig {
        header_digest: true,
        data_digest: true,
        ..config()
    };
    moves_data_both_ways(digests, small_segments(), usize::MAX);
}

#[test]
fn a_wire_that_is_cut_at_every_byte_changes_nothing() {
    for step in [1, 3, 47, 49] {
        moves_data_both_ways(config(), small_segments(), step);
    }
}

#[test]
fn a_digest_that_the_target_does_not_use_is_the_end() {
    let digests = LoginConfig {
        data_digest: true,
        ..config()
    };
    let mut limits = TargetLimits::default();
    limits.wishes.data_digest = fabrix_proto::iscsi::keys::Permission::Refused;
    let mut pair = Pair::new(digests, limits, usize::MAX);
    let Event::LoginFailed(failure) = pair.host.event() else {
        panic!("a session without the digest")
    };
    assert!(failure.to_string().contains("DataDigest"), "{failure}");
}

// ---- a target that lies

/// A Login Response of our stage, with T or without.
fn login_response(flags: u8, text: &[&str]) -> Pdu {
    let text: Vec<u8> = text
        .iter()
        .flat_map(|pair| [pair.as_bytes(), b"\0"].concat())
        .collect();
    Pdu::new(0x23, flags)
        .put32(24, 1)
        .put32(28, 1)
        .put32(32, 64)
        .data(&text)
}

/// A session of the tests, with what the target says in the operational stage.
fn logged_in(text: &[&str]) -> Host {
    let mut host = Host::new(config());
    host.said();
    host.send(&login_response(
        0x81,
        &["AuthMethod=None", "TargetPortalGroupTag=1"],
    ));
    host.said();
    host.send(&login_response(0x87, text));
    assert_eq!(host.event(), Event::LoggedIn);
    host
}

/// A session with a command in slot 0, and its tag.
fn busy(transfer: Transfer) -> (Host, u32) {
    let mut host = logged_in(&["InitialR2T=Yes", "ImmediateData=No", "MaxBurstLength=65536"]);
    assert!(host.command(0, transfer));
    let itt = host.said()[0].get32(16);
    (host, itt)
}

fn numbered(opcode: u8, flags: u8) -> Pdu {
    Pdu::new(opcode, flags).put32(28, 2).put32(32, 64)
}

fn data_in(flags: u8, itt: u32, (data_sn, offset): (u32, u32), data: &[u8]) -> Pdu {
    let pdu = numbered(0x25, flags).itt(itt).ttt(NO_TAG);
    pdu.put32(36, data_sn).put32(40, offset).data(data)
}

fn r2t(itt: u32, (sn, offset, bytes): (u32, u32, u32)) -> Pdu {
    let pdu = numbered(0x31, 0x80).itt(itt).ttt(9);
    pdu.put32(36, sn).put32(40, offset).put32(44, bytes)
}

const A_READ: Transfer = Transfer::Read { bytes: 4096 };
const A_WRITE: Transfer = Transfer::Write { bytes: 100_000 };

#[track_caller]
fn ends(transfer: Transfer, lie: impl Fn(u32) -> Pdu, breach: Breach, word: &str) {
    let (mut host, itt) = busy(transfer);
    host.send(&lie(itt));
    host.broke(breach, word);
}

#[test]
fn data_outside_of_a_read_costs_the_connection() {
    let read = |at, data: &'static [u8]| move |itt| data_in(0x80, itt, at, data);
    ends(
        A_READ,
        read((0, 0), &[0; 4100]),
        Breach::DataRange,
        "more data",
    );
    ends(
        A_READ,
        read((0, 512), &[0; 512]),
        Breach::DataRange,
        "continue",
    );
    ends(A_READ, read((1, 0), &[0; 512]), Breach::Sequence, "DataSN");
    ends(A_READ, read((0, 0), &[]), Breach::HeaderField, "neither");
    ends(
        A_WRITE,
        read((0, 0), &[0; 512]),
        Breach::Sequence,
        "not read",
    );
    let early_status = |itt| data_in(0x01, itt, (0, 0), &[0; 512]);
    ends(A_READ, early_status, Breach::HeaderField, "not the last");
    let twice = |host: &mut Host, itt| {
        host.send(&data_in(0x80, itt, (0, 0), &[1; 512]));
        host.send(&data_in(0x80, itt, (1, 0), &[2; 512]));
    };
    let (mut host, itt) = busy(A_READ);
    twice(&mut host, itt);
    host.broke(Breach::DataRange, "continue");
    assert_eq!(host.memory[0][..512], [1; 512], "not written a second time");
}

#[test]
fn an_r2t_outside_of_a_write_costs_the_connection() {
    let r2t = |piece| move |itt| r2t(itt, piece);
    ends(A_WRITE, r2t((0, 0, 0)), Breach::Limit, "no data");
    ends(
        A_WRITE,
        r2t((0, 0, 65_537)),
        Breach::Limit,
        "MaxBurstLength",
    );
    ends(A_WRITE, r2t((0, 512, 512)), Breach::DataRange, "continue");
    ends(A_WRITE, r2t((1, 0, 512)), Breach::Sequence, "R2TSN");
    ends(A_READ, r2t((0, 0, 512)), Breach::Sequence, "without data");
    let (mut host, itt) = busy(A_WRITE);
    host.send(&super_r2t(itt, 0, 0, 65_536));
    host.send(&super_r2t(itt, 1, 65_536, 65_536));
    host.broke(Breach::DataRange, "past the end");
    let no_tag = |itt| super_r2t(itt, 0, 0, 512).ttt(NO_TAG);
    ends(A_WRITE, no_tag, Breach::HeaderField, "without a tag");
}

fn super_r2t(itt: u32, sn: u32, offset: u32, bytes: u32) -> Pdu {
    r2t(itt, (sn, offset, bytes))
}

#[test]
fn many_tiny_r2ts_do_not_make_us_drown() {
    let (mut host, itt) = busy(A_WRITE);
    let mut sn = 0;
    while host.violation.is_none() {
        host.send(&super_r2t(itt, sn, sn, 1));
        sn += 1;
        assert!(sn < 1000, "an R2T for every byte");
    }
    host.broke(Breach::Sequence, "more R2Ts");
}

#[test]
fn several_r2ts_are_answered_each_with_its_own_data() {
    let (mut host, itt) = busy(A_WRITE);
    host.memory[0][..100_000].copy_from_slice(&pattern(100_000, 3));
    host.send(&super_r2t(itt, 0, 0, 8192));
    host.send(&super_r2t(itt, 1, 8192, 10_000));
    let said = host.said();
    let seen: Vec<_> = said
        .iter()
        .map(|pdu| (pdu.bhs[1], pdu.get32(36), pdu.get32(40), pdu.data.len()))
        .collect();
    assert_eq!(
        seen,
        [
            (0x80, 0, 0, 8192),
            (0, 0, 8192, 8192),
            (0x80, 1, 16_384, 1808)
        ]
    );
    assert!(
        said.iter()
            .all(|pdu| (pdu.get32(16), pdu.get32(20)) == (itt, 9))
    );
    let data: Vec<u8> = said.into_iter().flat_map(|pdu| pdu.data).collect();
    assert!(data == pattern(100_000, 3)[..18_192]);
}

#[test]
fn wrong_tags_cost_the_connection() {
    let response = |itt| numbered(0x21, 0x80).itt(itt);
    ends(
        A_READ,
        |itt| response(itt ^ 0x1_0000),
        Breach::Sequence,
        "not in progress",
    );
    ends(
        A_READ,
        |itt| response(itt + 1),
        Breach::Sequence,
        "not in progress",
    );
    ends(
        A_READ,
        |_| response(NO_TAG),
        Breach::Sequence,
        "not in progress",
    );
    let (mut host, itt) = busy(A_READ);
    host.send(&response(itt));
    assert!(matches!(host.event(), Event::Completed { .. }));
    host.send(&response(itt));
    host.broke(Breach::Sequence, "not in progress");
    let unasked = |opcode| move |_| numbered(opcode, 0x80).itt(5);
    ends(A_READ, unasked(0x20), Breach::Sequence, "ping");
    ends(A_READ, unasked(0x24), Breach::Sequence, "Text");
    ends(A_READ, unasked(0x26), Breach::Sequence, "Logout");
    ends(A_READ, unasked(0x22), Breach::Sequence, "task management");
    ends(A_READ, unasked(0x23), Breach::Sequence, "Login");
    for opcode in [0x01, 0x05, 0x2A, 0x3C] {
        ends(A_READ, unasked(opcode), Breach::HeaderField, "kind");
    }
}

#[test]
fn absurd_sizes_cost_the_connection() {
    let huge = |itt| numbered(0x21, 0x80).itt(itt).data(&[0; 8193]);
    ends(A_READ, huge, Breach::Limit, "8192");
    let ahs = |itt| numbered(0x21, 0x80).itt(itt).ahs(&[0; 8]);
    ends(A_READ, ahs, Breach::HeaderField, "additional");
    let mut host = Host::new(config());
    host.send(&login_response(0x81, &[]).data(&[0; 8193]));
    host.broke(Breach::Limit, "8192");
}

#[test]
fn a_damaged_header_is_the_end_and_damaged_data_is_told() {
    let mut host = Host::new(LoginConfig {
        header_digest: true,
        data_digest: true,
        ..config()
    });
    host.said();
    host.send(&login_response(0x81, &["AuthMethod=None"]));
    host.said();
    host.send(&login_response(
        0x87,
        &["HeaderDigest=CRC32C", "DataDigest=CRC32C"],
    ));
    assert_eq!(host.event(), Event::LoggedIn);
    host.digests = BOTH;
    assert!(host.command(0, A_READ));
    let itt = host.said()[0].get32(16);
    let mut damaged = data_in(0x81, itt, (0, 0), &[5; 4096]).bytes(BOTH);
    damaged[60] ^= 1;
    host.feed(&damaged);
    assert!(matches!(host.event(), Event::Completed { ending, .. } if !ending.intact));
    let mut damaged = numbered(0x20, 0x80).itt(NO_TAG).bytes(BOTH);
    damaged[9] ^= 1;
    host.feed(&damaged);
    host.broke(Breach::HeaderDigest, "header digest");
}

#[test]
fn a_read_that_is_answered_with_less_says_so() {
    let (mut host, itt) = busy(A_READ);
    host.send(&data_in(0x80, itt, (0, 0), &[5; 512]));
    // U with a residual that claims more than that moved.
    host.send(&numbered(0x21, 0x82).itt(itt).put32(44, 1000));
    assert!(matches!(host.event(), Event::Completed { ending, .. } if ending.data_bytes == 512));
    let (mut host, itt) = busy(A_READ);
    host.send(&data_in(0x83, itt, (0, 0), &[5; 4096]).put32(44, 96));
    assert!(matches!(host.event(), Event::Completed { ending, .. } if ending.data_bytes == 4000));
}

#[test]
fn commands_wait_for_the_window_and_are_told_when_it_opens() {
    let mut host = logged_in(&[]);
    let closed = |pdu: Pdu| pdu.put32(28, 2).put32(32, 1);
    // MaxCmdSN never goes back: these two are ignored.
    host.send(&closed(numbered(0x20, 0x80).itt(NO_TAG).ttt(NO_TAG)));
    assert!(host.command(0, A_READ), "the window was open to 64");
    let mut host = Host::new(config());
    host.said();
    host.send(&login_response(0x81, &[]));
    host.said();
    host.send(&login_response(0x87, &[]).put32(32, 1));
    assert_eq!(host.event(), Event::LoggedIn);
    assert!(host.command(0, A_READ), "one");
    assert!(!host.command(1, A_READ), "two are not taken");
    host.send(&numbered(0x20, 0x80).itt(NO_TAG).ttt(NO_TAG).put32(32, 2));
    assert_eq!(host.event(), Event::WindowOpened);
    assert!(host.command(1, A_READ));
    let numbers: Vec<u32> = host.said().iter().map(|pdu| pdu.get32(24)).collect();
    assert_eq!(numbers, [1, 2]);
}

#[test]
fn a_flood_of_pings_is_not_answered_for_ever() {
    let mut host = logged_in(&[]);
    let ping = numbered(0x20, 0x80).itt(NO_TAG).ttt(77).put(8, &[0, 3]);
    for _ in 0..64 {
        host.send(&ping);
    }
    let said = host.said();
    assert_eq!(said.len(), 64);
    let answer = &said[0];
    assert_eq!(
        (answer.bhs[0], answer.get32(16), answer.get32(20)),
        (0x40, NO_TAG, 77)
    );
    host.machine.renew();
    host.send(&ping);
    assert!(host.violation.is_none());
    for _ in 0..64 {
        host.send(&ping);
    }
    host.broke(Breach::Limit, "pings");
}

#[test]
fn what_a_target_says_unasked_is_heard() {
    let said = |event: u8| {
        let mut host = logged_in(&[]);
        host.send(
            &numbered(0x32, 0x80)
                .itt(NO_TAG)
                .put(36, &[event])
                .put(42, &[0, 3]),
        );
        host.events.pop()
    };
    let within_s = 3;
    assert_eq!(
        said(1),
        Some(Event::Said(AsyncEvent::LogoutRequested { within_s }))
    );
    assert!(matches!(
        said(2),
        Some(Event::Said(AsyncEvent::ConnectionDropped { .. }))
    ));
    assert_eq!(said(5), Some(Event::TasksEnded));
    assert_eq!(said(0), None);
    let mut host = logged_in(&[]);
    host.send(&numbered(0x3F, 0x80).put(2, &[4]).data(&[0; 48]));
    assert_eq!(host.event(), Event::Rejected(4));
}

// ---- logins that fail

fn failure(host: &mut Host) -> String {
    match host.event() {
        Event::LoginFailed(failure) => {
            assert_eq!(host.machine.want(), Want::Closed);
            failure.to_string()
        }
        other => panic!("a login that fails: {other:?}"),
    }
}

#[track_caller]
fn fails(responses: &[Pdu], word: &str) {
    let mut host = Host::new(config());
    for response in responses {
        host.said();
        host.send(response);
    }
    let sentence = failure(&mut host);
    assert!(sentence.contains(word), "`{word}` is not in `{sentence}`");
}

#[test]
fn a_login_that_fails_says_why() {
    let to_operational = login_response(0x81, &["AuthMethod=None"]);
    let refused = |status: u16| login_response(0, &[]).put(36, &status.to_be_bytes());
    fails(&[refused(0x0201)], "secret");
    fails(&[refused(0x0203)], "no target of this name");
    let moved = login_response(0, &["TargetAddress=10.0.0.9:3260,1"]).put(36, &[1, 1]);
    fails(&[moved], "10.0.0.9");
    fails(
        &[login_response(0, &["AuthMethod=CHAP"])],
        "user and a secret",
    );
    fails(&[login_response(0x83, &[])], "T where it was not asked for");
    fails(&[login_response(0x85, &[])], "CSG");
    fails(
        &[login_response(0x81, &["HeaderDigest=None"])],
        "may not come",
    );
    let and = |text: &[&str]| [to_operational.clone(), login_response(0x87, text)];
    fails(&and(&["MaxBurstLength=16777215"]), "not offered");
    fails(&and(&["ErrorRecoveryLevel=2"]), "not offered");
    fails(&and(&["DataPDUInOrder=No"]), "not offered");
    fails(&and(&["InitialR2T=perhaps"]), "not offered");
    fails(&and(&["MaxBurstLength=512", "MaxBurstLength=512"]), "twice");
    fails(&and(&["no pair"]), "`=`");
    let endless: Vec<Pdu> = (0..40).map(|_| login_response(0x40, &["A=B"])).collect();
    fails(&endless[..33], "");
}

fn mutual() -> LoginConfig {
    let credentials = |name, secret| {
        Credentials::new(name, Secret::new(secret).expect("long enough")).expect("a name")
    };
    let challenge = Challenges::default().issue(9, b"0123456789abcdef");
    let target = (
        credentials("it", b"the target's own"),
        challenge.expect("random enough"),
    );
    let proof = ChapProof::new(credentials("me", b"my own secret"), Some(target));
    LoginConfig {
        auth: Some(Box::new(proof.expect("two secrets"))),
        ..config()
    }
}

#[test]
fn a_target_that_does_not_prove_who_it_is_gets_no_session() {
    let challenged = || {
        let mut host = Host::new(mutual());
        assert!(host.said()[0].text().contains("AuthMethod=CHAP"));
        host.send(&login_response(0, &["AuthMethod=CHAP"]));
        assert_eq!(host.said()[0].text(), "CHAP_A=8,6,5,7");
        host
    };
    // Our own challenge, sent back for us to answer.
    let ours = "CHAP_C=0x30313233343536373839616263646566";
    let mut host = challenged();
    host.send(&login_response(0, &["CHAP_A=5", "CHAP_I=9", ours]));
    assert!(host.said().is_empty(), "nothing of our secret is shown");
    assert!(failure(&mut host).contains("our own challenge"));
    // A wrong proof, and none at all.
    for (text, word) in [
        (
            &["CHAP_N=it", "CHAP_R=0x00112233445566778899aabbccddeeff"][..],
            "prove",
        ),
        (&[][..], "missing"),
    ] {
        let mut host = challenged();
        host.send(&login_response(
            0,
            &["CHAP_A=5", "CHAP_I=1", "CHAP_C=0xa1b2c3d4"],
        ));
        let answer = host.said()[0].text();
        assert!(
            answer.contains("CHAP_N=me CHAP_R=0x") && answer.contains("CHAP_C=0x"),
            "{answer}"
        );
        host.send(&login_response(0x81, text));
        let sentence = failure(&mut host);
        assert!(sentence.contains(word), "{sentence}");
    }
    // Who wants no proof of us does not get away with it.
    let mut host = Host::new(mutual());
    host.said();
    host.send(&login_response(0, &["AuthMethod=None"]));
    assert!(failure(&mut host).contains("not offered"));
}

#[test]
fn a_refusal_keeps_its_status() {
    let mut host = Host::new(config());
    host.send(&login_response(0, &[]).put(36, &[3, 1]));
    let expected = LoginFailure::Refused(LoginStatus::UNAVAILABLE);
    assert_eq!(host.event(), Event::LoginFailed(Box::new(expected)));
}

#[test]
fn random_bytes_never_hang_and_never_panic() {
    let mut state = 0x1234_5678_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33).to_le_bytes()[0]
    };
    for round in 0..300 {
        let (mut host, itt) = busy(if round % 2 == 0 { A_READ } else { A_WRITE });
        for _ in 0..50 {
            let kinds = [0x20, 0x21, 0x25, 0x31, 0x32, 0x3F, 0x24, 0x26];
            let mut pdu = Pdu::new(kinds[usize::from(random()) % 8], random());
            for at in 8..48 {
                pdu.bhs[at] = if random() < 40 { random() } else { 0 };
            }
            pdu = if random() < 200 { pdu.itt(itt) } else { pdu };
            let data: Vec<u8> = (0..random()).collect();
            host.send(&pdu.data(&data));
        }
    }
}

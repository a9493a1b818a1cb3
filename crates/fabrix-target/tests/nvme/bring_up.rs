//! Discovery, admin queue and I/O queues in Linux's order, and the fields that Linux requires. The
//! tests spell out the standard's offsets again.

use fabrix_proto::nvme::admin::{GetLogPage, Identify};
use fabrix_proto::nvme::fabrics::{Connect, Property};
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::log_page::LogId;
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use zerocopy::IntoBytes;

use crate::common::host::{Answer, CC_DISABLE, CC_ENABLE, Data, Host, wish};
use crate::common::wire::Digests;
use crate::common::{HOST_NQN, NQN, Plan, Stage, ram};
use crate::on_both_engines;

on_both_engines!(
    linux_brings_up_a_controller_and_its_queues,
    every_structure_of_identify_is_what_linux_insists_on,
    log_pages_are_read_in_pieces,
    features_are_what_linux_sets_and_gets,
    an_event_request_is_held_and_can_be_aborted,
    discovery_shows_where_to_connect_and_to_whom,
    windows_fetches_the_data_of_connect_by_r2t,
    hosts_that_are_not_listed_are_refused,
    a_controller_is_reset_and_enabled_again,
);

fn linux_brings_up_a_controller_and_its_queues(engine: Engine) {
    let stage = Stage::new(engine);
    let mut admin = stage.dial();
    admin.open(Digests::NONE);
    let connected = admin.connect(&Connect {
        keep_alive_ms: 5000,
        ..wish()
    });
    assert_eq!(connected.status, Status::SUCCESS);
    admin.controller = u16::try_from(connected.result).expect("a controller's id");
    let capabilities = admin.property(Property::CAP);
    assert_eq!(capabilities & 0xffff, 127, "MQES, zero-based");
    assert_eq!(capabilities >> 37 & 1, 1, "the NVM command set");
    assert_eq!(capabilities >> 48 & 0xf, 0, "pages of 4096 bytes");
    assert_eq!(
        admin.property_set(Property::CC, CC_DISABLE).status,
        Status::SUCCESS
    );
    assert_eq!(
        admin.property(Property::CSTS) & 1,
        0,
        "not ready before it is enabled"
    );
    let early = identify(&mut admin, Cns::CONTROLLER, 0);
    assert_eq!(early.status, Status::COMMAND_SEQUENCE_ERROR, "not enabled");
    admin.enable();
    assert_eq!(admin.property(Property::VS), 0x0001_0400);
    assert_eq!(
        identify(&mut admin, Cns::CONTROLLER, 0).status,
        Status::SUCCESS
    );
    let granted = admin.run(SubmissionEntry::set_number_of_queues(3), Data::None);
    assert_eq!(granted.result, 7 << 16 | 7, "eight each way, zero-based");
    let mut queues: Vec<_> = (1..=3).map(|qid| stage.io(&admin, qid)).collect();
    for (lba, io) in (0..).step_by(8).zip(&mut queues) {
        io.write(1, lba, &[9; 4096]);
        assert_eq!(io.read(1, lba, 8), [9; 4096]);
    }
    let events = SubmissionEntry::set_features(FeatureId::ASYNC_EVENT_CONFIGURATION, 0x100);
    assert_eq!(admin.run(events, Data::None).status, Status::SUCCESS);
    admin.submit(SubmissionEntry::async_event_request(), Data::None);
    assert_eq!(
        admin.run(SubmissionEntry::keep_alive(), Data::None).status,
        Status::SUCCESS
    );
    for shard in 0..2 {
        let bytes = stage.ask(shard, |shard| shard.buffer_bytes_in_use());
        assert!(bytes > 0, "shard {shard} keeps one of the connections");
    }
    drop((admin, queues));
    stage.until_empty();
}

fn identify(host: &mut Host, cns: Cns, nsid: u32) -> Answer {
    host.run(
        SubmissionEntry::identify(Identify::new(cns, nsid)),
        Data::Expect(4096),
    )
}

pub(super) fn page(host: &mut Host, cns: Cns, nsid: u32) -> Vec<u8> {
    let answer = identify(host, cns, nsid);
    assert_eq!(answer.status, Status::SUCCESS, "{cns:?} of {nsid}");
    answer.data
}

pub(super) fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([data[at], data[at + 1]])
}

pub(super) fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(data[at..at + 4].try_into().expect("four"))
}

pub(super) fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().expect("eight"))
}

/// A stage with three namespaces of two block sizes.
fn three_namespaces(engine: Engine) -> Stage {
    let devices = vec![
        ram("a", 512, 16 << 20),
        ram("b", 4096, 32 << 20),
        ram("c", 512, 8 << 20),
    ];
    Stage::set(
        engine,
        Plan {
            devices,
            ..Plan::default()
        },
    )
}

fn every_structure_of_identify_is_what_linux_insists_on(engine: Engine) {
    let stage = three_namespaces(engine);
    let mut admin = stage.admin();
    check_controller(&page(&mut admin, Cns::CONTROLLER, 0), admin.controller);
    let list = page(&mut admin, Cns::ACTIVE_NAMESPACES, 0);
    assert_eq!([0, 4, 8, 12].map(|at| u32_at(&list, at)), [1, 2, 3, 0]);
    let rest = page(&mut admin, Cns::ACTIVE_NAMESPACES, 2);
    assert_eq!(
        [0, 4].map(|at| u32_at(&rest, at)),
        [3, 0],
        "only those after it"
    );
    assert_eq!(
        page(&mut admin, Cns::COMMAND_SET_ACTIVE_NAMESPACES, 0),
        list
    );
    let sizes = [(1, 9, 16 << 20), (2, 12, 32 << 20), (3, 9, 8u64 << 20)];
    let mut names = Vec::new();
    for (nsid, shift, bytes) in sizes {
        let namespace = page(&mut admin, Cns::NAMESPACE, nsid);
        assert_eq!(u64_at(&namespace, 0), bytes >> shift, "NSZE");
        assert_eq!(
            u64_at(&namespace, 8),
            bytes >> shift,
            "NCAP: zero would be gone"
        );
        assert_eq!(namespace[30] & 1, 1, "NMIC: shared");
        let format = 128 + 4 * usize::from(namespace[26] & 0xf);
        assert_eq!(
            (u16_at(&namespace, format), namespace[format + 2]),
            (0, shift),
            "LBAF"
        );
        assert_eq!(
            namespace[33] & 0b1001,
            0b1001,
            "DLFEAT: write zeroes may deallocate"
        );
        assert!(namespace[104..120] != [0; 16], "NGUID");
        names.extend(check_descriptors(
            &page(&mut admin, Cns::DESCRIPTORS, nsid),
            &namespace,
        ));
        let independent = page(&mut admin, Cns::INDEPENDENT_NAMESPACE, nsid);
        assert_eq!(independent[14] & 1, 1, "NSTAT: ready");
        page(&mut admin, Cns::COMMAND_SET_NAMESPACE, nsid);
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3, "each namespace has names of its own");
    page(&mut admin, Cns::COMMAND_SET_CONTROLLER, 0);
    let nobody = identify(&mut admin, Cns::DESCRIPTORS, 4);
    assert_eq!(nobody.status, Status::INVALID_NAMESPACE);
    let unknown = identify(&mut admin, Cns(0x77), 0);
    assert_eq!(unknown.status, Status::INVALID_FIELD);
    let again = stage.admin();
    assert_ne!(again.controller, admin.controller, "CNTLID is unique");
}

fn check_controller(data: &[u8], controller: u16) {
    assert_eq!(&data[4..11], b"FBXTEST", "SN");
    assert_eq!(data[76] & 2, 2, "CMIC: several controllers");
    assert_eq!(data[77], 8, "MDTS: 1 MiB in pages of 4 KiB");
    assert_eq!(u16_at(data, 78), controller, "CNTLID");
    assert_eq!(data[111], 1, "CNTRLTYPE: I/O");
    assert!(u16_at(data, 320) > 0, "KAS");
    assert_eq!((data[512], data[513]), (0x66, 0x44), "SQES, CQES");
    assert!(u32_at(data, 516) >= 3, "NN");
    let commands = u16_at(data, 520);
    assert_eq!(
        commands & 0b1000_1101,
        0b1000_1101,
        "ONCS: compare, DSM, zeroes, verify"
    );
    assert_eq!(u16_at(data, 522) & 1, 1, "FUSES: compare and write");
    assert_ne!(u32_at(data, 536) & 0b11, 0, "SGLS");
    assert_eq!(&data[768..768 + NQN.len()], NQN.as_bytes(), "SUBNQN");
    assert_eq!(data[768 + NQN.len()], 0, "SUBNQN ends");
    assert_eq!(
        u32_at(data, 1792),
        (64 + (128 << 10)) / 16,
        "IOCCSZ: 128 KiB in the capsule"
    );
    assert!(u32_at(data, 1796) >= 1, "IORCSZ");
    assert_eq!(u16_at(data, 1800), 0, "ICDOFF");
}

/// Returns the NGUID and the UUID.
fn check_descriptors(list: &[u8], namespace: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut nguid, mut uuid, mut at) = (None, None, 0);
    while list[at + 1] != 0 {
        let (kind, length) = (list[at], usize::from(list[at + 1]));
        let value = list[at + 4..at + 4 + length].to_vec();
        match kind {
            2 => nguid = Some(value),
            3 => uuid = Some(value),
            4 => assert_eq!(value, [0], "CSI: NVM"),
            kind => panic!("descriptor of type {kind}"),
        }
        at += 4 + length;
    }
    let names = nguid.zip(uuid)?;
    assert_eq!(names.0, namespace[104..120], "both structures say the same");
    Some(names)
}

fn log(page: LogId, offset: u64, bytes: u32) -> (SubmissionEntry, Data<'static>) {
    let log = GetLogPage {
        page,
        nsid: u32::MAX,
        offset,
        bytes: bytes.into(),
        specific: 0,
        retain_event: false,
        command_set: 0,
    };
    (SubmissionEntry::get_log_page(log), Data::Expect(bytes))
}

pub(super) fn read_log(host: &mut Host, page: LogId, offset: u64, bytes: u32) -> Vec<u8> {
    let (entry, data) = log(page, offset, bytes);
    let answer = host.run(entry, data);
    assert_eq!(answer.status, Status::SUCCESS, "{page:?} at {offset}");
    answer.data
}

fn log_pages_are_read_in_pieces(engine: Engine) {
    let stage = Stage::new(engine);
    let mut admin = stage.admin();
    for (id, bytes) in [
        (LogId::HEALTH, 512),
        (LogId::FIRMWARE_SLOT, 512),
        (LogId::COMMAND_EFFECTS, 4096),
        (LogId::CHANGED_NAMESPACES, 4096),
    ] {
        let whole = read_log(&mut admin, id, 0, bytes);
        let half = read_log(&mut admin, id, u64::from(bytes) / 2, bytes / 2);
        assert!(
            half == whole[whole.len() / 2..],
            "{id:?}: the offset counts"
        );
    }
    let effects = read_log(&mut admin, LogId::COMMAND_EFFECTS, 0, 4096);
    for opcode in [0x00, 0x01, 0x02, 0x05, 0x08, 0x09, 0x0c] {
        assert_eq!(
            u32_at(&effects, 1024 + 4 * opcode) & 1,
            1,
            "opcode {opcode:#x}"
        );
    }
    let (entry, data) = log(LogId::DISCOVERY, 0, 1024);
    assert_eq!(admin.run(entry, data).status, Status::INVALID_LOG_PAGE);
    let (entry, data) = log(LogId::HEALTH, 1 << 40, 512);
    assert!(
        !admin.run(entry, data).status.is_success(),
        "an offset past the end"
    );
    let (entry, data) = log(LogId::HEALTH, 0, 2 << 20);
    assert_eq!(
        admin.run(entry, data).status,
        Status::INVALID_FIELD,
        "more than MDTS"
    );
}

fn features_are_what_linux_sets_and_gets(engine: Engine) {
    let stage = Stage::new(engine);
    let mut admin = stage.admin();
    let set = |feature, value| SubmissionEntry::set_features(feature, value);
    for (feature, value, got) in [
        (FeatureId::ASYNC_EVENT_CONFIGURATION, 0x100, 0x100),
        (FeatureId::KEEP_ALIVE_TIMER, 5500, 6000),
    ] {
        assert_eq!(
            admin.run(set(feature, value), Data::None).status,
            Status::SUCCESS
        );
        let answer = admin.run(SubmissionEntry::get_features(feature, 0), Data::None);
        assert_eq!(
            (answer.status, answer.result),
            (Status::SUCCESS, got),
            "{feature:?}"
        );
    }
    let queues = SubmissionEntry::get_features(FeatureId::NUMBER_OF_QUEUES, 0);
    assert_eq!(admin.run(queues, Data::None).result, 7 << 16 | 7);
    let cache = SubmissionEntry::get_features(FeatureId::VOLATILE_WRITE_CACHE, 0);
    let answer = admin.run(cache, Data::None);
    assert_eq!(
        answer.status,
        Status::INVALID_FIELD,
        "a RAM disk has no volatile cache"
    );
    let unknown = SubmissionEntry::get_features(FeatureId(0xee), 0);
    assert_eq!(admin.run(unknown, Data::None).status, Status::INVALID_FIELD);
    let timestamp = set(FeatureId::TIMESTAMP, 0);
    let by_capsule = admin.run(timestamp, Data::Inline(&[1, 2, 3, 4, 5, 6, 0, 0]));
    assert_eq!(by_capsule.status, Status::SUCCESS);
    let by_r2t = admin.run(timestamp, Data::Fetch(&[1, 2, 3, 4, 5, 6, 0, 0]));
    assert_eq!(
        by_r2t.status,
        Status::SUCCESS,
        "admin data may come by R2T, too"
    );
    let clock = SubmissionEntry::get_features(FeatureId::TIMESTAMP, 0);
    assert_eq!(admin.run(clock, Data::Expect(8)).data[2..6], [3, 4, 5, 6]);
}

fn an_event_request_is_held_and_can_be_aborted(engine: Engine) {
    let stage = Stage::new(engine);
    let mut admin = stage.admin();
    let held: Vec<_> = (0..4)
        .map(|_| admin.submit(SubmissionEntry::async_event_request(), Data::None))
        .collect();
    let fifth = admin.run(SubmissionEntry::async_event_request(), Data::None);
    assert_eq!(fifth.status, Status::ASYNC_EVENT_LIMIT_EXCEEDED);
    assert_eq!(
        admin.run(SubmissionEntry::keep_alive(), Data::None).status,
        Status::SUCCESS
    );
    let aborted = admin.run(SubmissionEntry::abort(0, held[2]), Data::None);
    assert_eq!((aborted.status, aborted.result), (Status::SUCCESS, 0));
    assert_eq!(admin.finish(held[2]).status, Status::ABORT_REQUESTED);
    let again = admin.run(SubmissionEntry::abort(0, held[2]), Data::None);
    assert_eq!(
        (again.status, again.result),
        (Status::SUCCESS, 1),
        "nothing to abort"
    );
    let elsewhere = admin.run(SubmissionEntry::abort(1, held[0]), Data::None);
    assert_eq!(elsewhere.result, 1, "on an I/O queue it is another command");
    assert_eq!(
        admin.property_set(Property::CC, CC_DISABLE).status,
        Status::SUCCESS
    );
    for id in [held[0], held[1], held[3]] {
        assert_eq!(
            admin.finish(id).status,
            Status::ABORT_REQUESTED,
            "a reset ends them"
        );
    }
}

fn discovery(stage: &Stage, host_nqn: &str) -> Host {
    let mut host = stage.dial();
    host.open(Digests::NONE);
    let wanted = Connect {
        subsystem: Nqn::discovery(),
        host: Nqn::new(host_nqn).expect("an NQN"),
        ..wish()
    };
    let answer = host.connect(&wanted);
    assert_eq!(answer.status, Status::SUCCESS, "discovery is open to all");
    host.controller = u16::try_from(answer.result).expect("an id");
    host.enable();
    host
}

fn discovery_shows_where_to_connect_and_to_whom(engine: Engine) {
    let stage = Stage::set(
        engine,
        Plan {
            hosts: Some(vec![HOST_NQN.to_owned()]),
            ..Plan::default()
        },
    );
    let mut host = discovery(&stage, HOST_NQN);
    assert_eq!(
        page(&mut host, Cns::CONTROLLER, 0)[111],
        2,
        "CNTRLTYPE: discovery"
    );
    let header = read_log(&mut host, LogId::DISCOVERY, 0, 1024);
    assert_eq!(
        (u64_at(&header, 8), u16_at(&header, 16)),
        (1, 0),
        "NUMREC, RECFMT"
    );
    let record = read_log(&mut host, LogId::DISCOVERY, 1024, 1024);
    assert_eq!(
        (record[0], record[1], record[2]),
        (3, 1, 2),
        "TCP, IPv4, NVM subsystem"
    );
    assert_eq!(u16_at(&record, 6), 0xffff, "CNTLID: dynamic");
    let text = |at: usize| {
        let end = record[at..]
            .iter()
            .position(|byte| matches!(byte, 0 | b' '));
        String::from_utf8_lossy(&record[at..at + end.expect("it ends")]).into_owned()
    };
    assert_eq!(text(32), stage.address.port().to_string(), "TRSVCID");
    assert_eq!((text(256).as_str(), text(512).as_str()), (NQN, "127.0.0.1"));
    let both = read_log(&mut host, LogId::DISCOVERY, 0, 2048);
    assert!(both[1024..] == record, "in one read, too");
    let mut io = stage.dial();
    io.open(Digests::NONE);
    let answer = io.connect(&Connect {
        subsystem: Nqn::discovery(),
        controller_id: host.controller,
        queue_id: 1,
        ..wish()
    });
    assert!(
        !answer.status.is_success(),
        "a discovery controller has no I/O queues"
    );
    let mut stranger = discovery(&stage, "nqn.2014-08.org.example:somebody-else");
    let header = read_log(&mut stranger, LogId::DISCOVERY, 0, 1024);
    assert_eq!(
        u64_at(&header, 8),
        0,
        "a host sees only what it may connect to"
    );
}

fn windows_fetches_the_data_of_connect_by_r2t(engine: Engine) {
    let stage = Stage::new(engine);
    let mut host = stage.dial();
    host.open(Digests::NONE);
    let (entry, data) = wish().to_wire();
    let answer = host.run(entry, Data::Fetch(data.as_bytes()));
    assert_eq!((answer.status, answer.r2ts), (Status::SUCCESS, vec![1024]));
    host.controller = u16::try_from(answer.result).expect("an id");
    host.enable();
    let io = Connect {
        controller_id: host.controller,
        queue_id: 1,
        ..wish()
    };
    let (entry, data) = io.to_wire();
    let mut io = stage.dial();
    io.open(Digests::BOTH);
    assert_eq!(
        io.run(entry, Data::Fetch(data.as_bytes())).status,
        Status::SUCCESS
    );
    io.write(1, 0, &[1; 512]);
}

fn hosts_that_are_not_listed_are_refused(engine: Engine) {
    let stage = Stage::set(
        engine,
        Plan {
            hosts: Some(vec![HOST_NQN.to_owned()]),
            ..Plan::default()
        },
    );
    let mut host = stage.dial();
    host.open(Digests::NONE);
    let other = Nqn::new("nqn.2014-08.org.example:somebody-else").expect("an NQN");
    let stranger = host.connect(&Connect {
        host: other,
        ..wish()
    });
    assert_eq!(stranger.status, Status::CONNECT_INVALID_HOST);
    let elsewhere = Nqn::new("nqn.2014-08.org.example:no-such-subsystem").expect("an NQN");
    let lost = host.connect(&Connect {
        subsystem: elsewhere,
        ..wish()
    });
    let wrong_name = (Status::CONNECT_INVALID_PARAMETERS, 1 << 16 | 256);
    assert_eq!(
        (lost.status, lost.result),
        wrong_name,
        "IPO points at SUBNQN in the data"
    );
    host.connect_admin();
    host.enable();
}

fn a_controller_is_reset_and_enabled_again(engine: Engine) {
    let stage = Stage::new(engine);
    let (mut admin, mut io) = stage.admin_and_io();
    assert_eq!(
        admin.property_set(Property::CC, CC_DISABLE).status,
        Status::SUCCESS
    );
    io.expect_close();
    stage.until("CSTS.RDY follows", |_| {
        admin.property(Property::CSTS) & 1 == 0
    });
    assert_eq!(
        admin.property_set(Property::CC, CC_ENABLE).status,
        Status::SUCCESS
    );
    let mut io = stage.io(&admin, 1);
    io.write(1, 0, &[3; 4096]);
    assert_eq!(io.read(1, 0, 8), [3; 4096]);
}

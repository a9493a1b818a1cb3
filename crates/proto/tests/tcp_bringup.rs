//! Bringing up controllers that behave, and those that do not: each error is a sentence and a kind.

use fabrix_proto::Nanos;
use fabrix_proto::nvme::admin::AdminCommand;
use fabrix_proto::nvme::bringup::{
    Bringup, BringupConfig, BringupError, BringupErrorKind as Kind, DiscoveredFamily,
    DiscoveredSubtype, DiscoveredTransport, Facts, Found, Purpose, Step,
};
use fabrix_proto::nvme::fabrics::{Connect, FabricsCommand, Property};
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::identify::{
    Cns, Descriptor, IdentifyController, IdentifyNamespace, NamespaceList,
};
use fabrix_proto::nvme::log_page::{DiscoveryEntry, DiscoveryHeader, LogId};
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::nvme::spec::{CompletionEntry, Status, SubmissionEntry};
use fabrix_proto::nvme::timing::TimingPage;
use zerocopy::{FromZeros, IntoBytes};

const CNTLID: u16 = 7;
const SUBSYSTEM: &str = "nqn.2026-01.io.fabrix:disk";

fn config(purpose: Purpose) -> BringupConfig {
    let subsystem = match purpose {
        Purpose::Discovery => Nqn::discovery(),
        Purpose::Io { .. } | Purpose::Timing { .. } => Nqn::new(SUBSYSTEM).expect("a name"),
    };
    BringupConfig {
        host: Nqn::new("nqn.2014-08.org.nvmexpress:uuid:1").expect("a name"),
        host_id: [3; 16],
        subsystem,
        purpose,
        admin_queue_entries: 32,
        keep_alive_ms: 5000,
        disable_sq_flow_control: true,
    }
}

const IO: Purpose = Purpose::Io {
    nsid: Some(2),
    queues: 4,
};

/// A controller that answers whatever its fields say.
struct Fake {
    connect: CompletionEntry,
    cap: u64,
    version: u32,
    /// CSTS, one value per question; the last one stays.
    csts: Vec<u64>,
    queues: CompletionEntry,
    controller: Box<IdentifyController>,
    nsids: Vec<u32>,
    namespace: Box<IdentifyNamespace>,
    descriptors: Vec<u8>,
    log: Vec<Vec<u8>>,
    timing: TimingPage,
    /// The generation of the log, one value per question; the last one stays.
    generations: Vec<u64>,
    asked: Vec<String>,
    /// Answers this question with this status instead.
    fails: Option<(&'static str, Status)>,
    /// How much of each page is sent.
    page_bytes: usize,
    cc: u64,
}

fn success(result: u64) -> CompletionEntry {
    CompletionEntry::new(Status::SUCCESS, result)
}

impl Fake {
    fn new(purpose: Purpose) -> Self {
        let mut controller = Box::new(IdentifyController::new_zeroed());
        controller.controller_id.set(CNTLID);
        controller.sgl_support.set(1);
        controller.controller_type = if purpose == Purpose::Discovery { 2 } else { 1 };
        controller.submission_entry_sizes = 0x66;
        controller.completion_entry_sizes = 0x44;
        controller.command_capsule_size.set((64 + 8192) / 16);
        controller.response_capsule_size.set(1);
        controller.max_transfer = 5;
        controller.keep_alive_granularity.set(10);
        controller.namespaces.set(32);
        controller.nvm_commands.set(0b1101);
        controller.fused_operations.set(1);
        controller.volatile_write_cache = 1;
        controller.model[..5].copy_from_slice(b"disk ");
        controller.subsystem_nqn = config(purpose).subsystem.to_field();
        let mut namespace = Box::new(IdentifyNamespace::new_zeroed());
        namespace.size.set(1 << 20);
        namespace.capacity.set(1 << 20);
        namespace.lba_formats[0].data_shift = 9;
        namespace.lba_formats[1].data_shift = 12;
        namespace.formats = 1;
        namespace.format = 1;
        namespace.nguid = [5; 16];
        let mut descriptors = vec![0; 4096];
        let rest = Descriptor::Uuid([6; 16]).write(&mut descriptors);
        let _ = Descriptor::Csi(0).write(rest);
        Self {
            connect: success(CNTLID.into()),
            cap: 127 | 2 << 24 | 1 << 37,
            version: 0x0001_0400,
            csts: vec![0, 0, 1],
            queues: success(0x0001_0002),
            controller,
            nsids: vec![1, 2, 5],
            namespace,
            descriptors,
            log: vec![record(b"10.0.0.1", SUBSYSTEM)],
            timing: TimingPage::new([9; 16], 0),
            generations: vec![1],
            asked: Vec::new(),
            fails: None,
            page_bytes: 4096,
            cc: 0,
        }
    }

    fn answer(&mut self, step: &Step) -> (CompletionEntry, Vec<u8>) {
        let Step::Send {
            entry,
            data_out,
            data_in_bytes,
        } = step
        else {
            panic!("only commands are answered");
        };
        let (what, entry, data) = if entry.is_fabrics() {
            let (what, entry) = self.fabrics(entry, data_out.as_deref());
            (what, entry, Vec::new())
        } else {
            self.admin(entry)
        };
        assert_eq!(data.len(), *data_in_bytes as usize, "{what}");
        self.asked.push(what.clone());
        match self.fails {
            Some((question, status)) if question == what => {
                (CompletionEntry::new(status, 0), vec![])
            }
            _ => (entry, data[..data.len().min(self.page_bytes)].to_vec()),
        }
    }

    fn fabrics(
        &mut self,
        entry: &SubmissionEntry,
        data: Option<&[u8; 1024]>,
    ) -> (String, CompletionEntry) {
        match FabricsCommand::parse(entry).expect("a command") {
            FabricsCommand::Connect => {
                let data = data.expect("Connect has data");
                let connect = Connect::parse(entry, data, 1024).expect("a good Connect");
                assert!(connect.disable_sq_flow_control);
                (
                    format!("connect {} {}", connect.queue_id, connect.queue_entries),
                    self.connect,
                )
            }
            FabricsCommand::PropertyGet {
                property: Property::CAP,
                bytes: 8,
            } => ("cap".into(), success(self.cap)),
            FabricsCommand::PropertyGet {
                property: Property::VS,
                ..
            } => ("vs".into(), success(self.version.into())),
            FabricsCommand::PropertyGet {
                property: Property::CSTS,
                ..
            } => {
                let csts = if self.csts.len() > 1 {
                    self.csts.remove(0)
                } else {
                    self.csts[0]
                };
                ("csts".into(), success(csts))
            }
            FabricsCommand::PropertySet {
                property: Property::CC,
                value,
                ..
            } => {
                self.cc = value;
                ("cc".into(), success(0))
            }
            other => panic!("{other:?} was not expected"),
        }
    }

    fn admin(&mut self, entry: &SubmissionEntry) -> (String, CompletionEntry, Vec<u8>) {
        match AdminCommand::parse(entry).expect("a command") {
            AdminCommand::Identify(identify) => {
                let page = match identify.cns {
                    Cns::CONTROLLER => self.controller.as_bytes().to_vec(),
                    Cns::ACTIVE_NAMESPACES => self.list(identify.nsid),
                    Cns::NAMESPACE => self.namespace.as_bytes().to_vec(),
                    _ => self.descriptors.clone(),
                };
                (
                    format!("identify {} {}", identify.cns.0, identify.nsid),
                    success(0),
                    page,
                )
            }
            AdminCommand::SetFeatures {
                feature: FeatureId::TIMING,
                value,
                ..
            } => {
                self.timing.seconds.set(value);
                (format!("timing {value}"), success(0), Vec::new())
            }
            AdminCommand::GetLogPage(log) if log.page == LogId::TIMING => {
                let page = self.timing.as_bytes().to_vec();
                ("timing page".into(), success(0), page)
            }
            AdminCommand::SetFeatures { value, .. } => (
                format!("queues {}", value & 0xFFFF),
                self.queues,
                Vec::new(),
            ),
            AdminCommand::GetLogPage(log) => {
                assert_eq!(log.page, LogId::DISCOVERY);
                let generation = if log.offset == 0 && self.generations.len() > 1 {
                    self.generations.remove(0)
                } else {
                    self.generations[0]
                };
                let mut header = DiscoveryHeader::new_zeroed();
                header.generation.set(generation);
                header.records.set(self.log.len() as u64);
                let mut page = header.as_bytes().to_vec();
                page.extend(self.log.concat());
                let start = usize::try_from(log.offset).expect("small");
                let bytes = usize::try_from(log.bytes).expect("small");
                let data = page[start..start + bytes].to_vec();
                (
                    format!("log {} {}", log.offset, log.bytes),
                    success(0),
                    data,
                )
            }
            other => panic!("{other:?} was not expected"),
        }
    }

    fn list(&self, above: u32) -> Vec<u8> {
        let mut list = NamespaceList::new_zeroed();
        let ids = self
            .nsids
            .iter()
            .filter(|nsid| **nsid == 0 || **nsid > above);
        for (place, nsid) in list.ids.iter_mut().zip(ids) {
            place.set(*nsid);
        }
        list.as_bytes().to_vec()
    }
}

fn record(address: &[u8], nqn: &str) -> Vec<u8> {
    let mut entry = DiscoveryEntry::new_zeroed();
    entry.transport = 3;
    entry.address_family = 1;
    entry.subtype = 2;
    entry.requirements = 1;
    entry.transport_specific[0] = 2;
    entry.address[..address.len()].copy_from_slice(address);
    entry.service[..4].copy_from_slice(b"4420");
    entry.subsystem_nqn[..nqn.len()].copy_from_slice(nqn.as_bytes());
    entry.as_bytes().to_vec()
}

/// Runs to the end, with a clock that only waiting moves.
fn drive(bringup: &mut Bringup, fake: &mut Fake) -> Result<Facts, BringupError> {
    let mut now = Nanos(1_000);
    for _ in 0..20_000 {
        match bringup.next(now) {
            Step::Ready(facts) => return Ok(*facts),
            Step::Wait { until } => {
                assert!(
                    until > now && until < Nanos(u64::MAX),
                    "it waits for nothing"
                );
                now = until;
            }
            step @ Step::Send { .. } => {
                let forever = Step::Wait {
                    until: Nanos(u64::MAX),
                };
                assert_eq!(bringup.next(now), forever, "one command at a time");
                let (entry, data) = fake.answer(&step);
                if let Err(error) = bringup.answered(entry, &data, now) {
                    assert_eq!(bringup.next(now), forever, "an error is the end");
                    return Err(error);
                }
            }
        }
    }
    panic!("bring-up does not end");
}

fn run(fake: &mut Fake, purpose: Purpose) -> Result<Facts, BringupError> {
    drive(&mut Bringup::new(config(purpose)), fake)
}

/// What a change to a good controller leads to.
fn check(purpose: Purpose, change: impl FnOnce(&mut Fake), kind: Kind, words: &str) {
    let mut fake = Fake::new(purpose);
    change(&mut fake);
    let error = run(&mut fake, purpose).expect_err(words);
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

// ---- what works

#[test]
fn a_good_controller_is_brought_up_in_the_order_of_linux() {
    let mut fake = Fake::new(IO);
    let facts = run(&mut fake, IO).expect("it is good");
    assert_eq!(
        fake.asked,
        [
            "connect 0 32",
            "cap",
            "vs",
            "cc",
            "csts",
            "csts",
            "csts",
            "identify 1 0",
            "queues 3",
            "identify 2 0",
            "identify 0 2",
            "identify 3 2",
        ]
    );
    assert_eq!(fake.cc, 0x46_0001);
    let controller = &facts.controller;
    assert_eq!(
        (controller.controller_id, controller.model.as_str()),
        (CNTLID, "disk")
    );
    assert_eq!(
        (controller.max_data_bytes, controller.in_capsule_bytes),
        (128 << 10, 8192)
    );
    assert_eq!(controller.keep_alive_unit_ms, Some(1000));
    assert!(controller.volatile_cache && controller.compare_and_write && !controller.ana);
    let Found::Io {
        queues: 2,
        nsids,
        namespace,
    } = &facts.found
    else {
        panic!("an I/O controller with two queues was expected: {facts:?}");
    };
    assert_eq!(nsids, &[1, 2, 5]);
    assert_eq!(
        (namespace.nsid, namespace.blocks, namespace.block_bytes),
        (2, 1 << 20, 4096)
    );
    assert_eq!((namespace.uuid, namespace.nguid), ([6; 16], [5; 16]));
}

#[test]
fn command_sets_and_page_size_follow_cap() {
    let mut fake = Fake::new(IO);
    fake.cap |= 1 << 43 | 3 << 48;
    let facts = run(&mut fake, IO).expect("it is good");
    assert_eq!(fake.cc, 0x46_0001 | 6 << 4 | 3 << 7);
    assert_eq!(
        facts.controller.max_data_bytes,
        1 << 20,
        "MDTS counts the smallest pages"
    );
}

#[test]
fn the_first_namespace_is_taken_when_none_is_named() {
    let purpose = Purpose::Io {
        nsid: None,
        queues: 1,
    };
    let facts = run(&mut Fake::new(purpose), purpose).expect("it is good");
    assert!(matches!(facts.found, Found::Io { queues: 1, namespace, .. } if namespace.nsid == 1));
}

#[test]
fn a_namespace_beyond_the_first_list_is_found() {
    let purpose = Purpose::Io {
        nsid: Some(5000),
        queues: 1,
    };
    let mut fake = Fake::new(purpose);
    fake.controller.namespaces.set(6000);
    fake.nsids = (1..=6000).collect();
    let facts = run(&mut fake, purpose).expect("it is good");
    assert!(fake.asked.contains(&"identify 2 4999".to_string()));
    let Found::Io {
        nsids, namespace, ..
    } = facts.found
    else {
        panic!("I/O was expected")
    };
    assert_eq!((nsids.len(), namespace.nsid), (1024, 5000));
}

#[test]
fn a_controller_before_1_3_is_not_asked_for_descriptors() {
    let mut fake = Fake::new(IO);
    fake.version = 0x0001_0201;
    fake.fails = Some(("identify 3 2", Status::INVALID_FIELD));
    assert!(run(&mut fake, IO).is_ok());
}

#[test]
fn limits_that_are_not_named_or_too_large_to_say_are_no_limits() {
    for mdts in [0, 20, 32, 52, 255] {
        let mut fake = Fake::new(IO);
        fake.controller.max_transfer = mdts;
        fake.controller.command_capsule_size.set(u32::MAX);
        fake.controller.namespaces.set(u32::MAX);
        let facts = run(&mut fake, IO).expect("it is good");
        assert_eq!(facts.controller.max_data_bytes, u32::MAX);
        assert_eq!(facts.controller.in_capsule_bytes, 1 << 20);
    }
}

#[test]
fn an_io_queue_connects_to_the_same_controller() {
    let facts = run(&mut Fake::new(IO), IO).expect("it is good");
    let queue = || Bringup::io_queue(config(IO), facts.controller.clone(), 3, 500);
    let mut fake = Fake::new(IO);
    let found = drive(&mut queue(), &mut fake).expect("it is good").found;
    assert_eq!(
        found,
        Found::Queue {
            queue_id: 3,
            entries: 128
        }
    );
    assert_eq!(fake.asked, ["connect 3 128"]);
    fake.connect = success(u64::from(CNTLID) + 1);
    let error = drive(&mut queue(), &mut fake).expect_err("another controller");
    assert_eq!(error.kind(), Kind::Broken);
    fake.connect = CompletionEntry::new(Status::CONNECT_INVALID_PARAMETERS, 42);
    let error = drive(&mut queue(), &mut fake).expect_err("refused");
    assert!(error.to_string().contains("queue id"), "{error}");
}

// ---- Connect

#[test]
fn a_refused_connect_says_what_to_do() {
    let check = |status, dword0, kind, words| {
        check(
            IO,
            |fake| fake.connect = CompletionEntry::new(status, dword0),
            kind,
            words,
        );
    };
    let wrong = Status::CONNECT_INVALID_PARAMETERS;
    check(
        Status::CONNECT_INVALID_HOST,
        0,
        Kind::Refused,
        "does not allow this host",
    );
    check(wrong, 1 << 16 | 256, Kind::WrongNqn, "no such subsystem");
    check(wrong, 1 << 16 | 512, Kind::Refused, "host NQN");
    check(wrong, 1 << 16, Kind::Refused, "host id");
    check(wrong, 1 << 16 | 16, Kind::Broken, "controller id");
    check(wrong, 44, Kind::Broken, "queue's size");
    check(wrong, 256, Kind::Broken, "a parameter of Connect");
    check(
        Status::AUTHENTICATION_REQUIRED,
        0,
        Kind::AuthRequired,
        "authentication",
    );
    check(
        Status::CONNECT_INCOMPATIBLE_FORMAT,
        0,
        Kind::Unsupported,
        "Incompatible Format",
    );
    check(Status::INTERNAL_ERROR, 0, Kind::Broken, "Internal Error");
    check(
        Status::SUCCESS,
        1 << 17 | 7,
        Kind::AuthRequired,
        "authentication",
    );
    check(
        Status::SUCCESS,
        1 << 18 | 7,
        Kind::AuthRequired,
        "authentication",
    );
    check(Status::SUCCESS, 0xFFFF, Kind::Broken, "reserved id");
    check(Status::SUCCESS, 8, Kind::Broken, "calls itself 7");
}

#[test]
fn what_may_pass_is_worth_a_retry_and_what_lasts_is_not() {
    let retry = |status, dword0| {
        let mut fake = Fake::new(IO);
        fake.connect = CompletionEntry::new(status, dword0);
        run(&mut fake, IO)
            .expect_err("it is refused")
            .is_worth_a_retry()
    };
    assert!(retry(Status::CONNECT_CONTROLLER_BUSY, 0));
    assert!(retry(Status::INTERNAL_ERROR, 0));
    assert!(!retry(Status::CONNECT_INVALID_HOST, 0));
    assert!(!retry(Status::CONNECT_INVALID_PARAMETERS, 1 << 16 | 256));
    assert!(!retry(Status::INTERNAL_ERROR.no_retry(), 0));
}

#[test]
fn a_command_without_an_answer_is_named() {
    let mut bringup = Bringup::new(config(IO));
    let mut fake = Fake::new(IO);
    for _ in 0..2 {
        let step = bringup.next(Nanos(0));
        let (entry, data) = fake.answer(&step);
        bringup
            .answered(entry, &data, Nanos(0))
            .expect("it is good");
    }
    bringup.next(Nanos(0));
    let error = bringup.no_answer();
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(error.to_string().contains("Property Get of VS") && error.is_worth_a_retry());
}

// ---- enabling

#[test]
fn a_controller_that_never_becomes_ready_is_given_up_when_cap_to_has_passed() {
    let mut fake = Fake::new(IO);
    fake.csts = vec![0];
    let error = run(&mut fake, IO).expect_err("it is never ready");
    assert_eq!(error.kind(), Kind::Timeout);
    let polls = fake.asked.iter().filter(|what| *what == "csts").count();
    assert_eq!(polls, 101, "1000 ms, every 10 ms");
}

#[test]
fn a_fatal_status_and_impossible_capabilities_are_errors() {
    check(IO, |fake| fake.csts = vec![0, 3], Kind::Broken, "CSTS.CFS");
    check(IO, |fake| fake.cap &= !0xFFFF, Kind::Broken, "MQES");
    check(
        IO,
        |fake| fake.cap &= !(1 << 37),
        Kind::Unsupported,
        "NVM command set",
    );
    for question in [
        "cap",
        "vs",
        "cc",
        "csts",
        "identify 1 0",
        "queues 3",
        "identify 2 0",
    ] {
        let fails = Some((question, Status::INVALID_FIELD));
        check(
            IO,
            |fake| fake.fails = fails,
            Kind::Broken,
            "Invalid Field in Command",
        );
    }
}

// ---- what the controller and the namespace say

#[test]
fn a_controller_that_cannot_be_used_says_why() {
    let check = |change: fn(&mut IdentifyController), kind, words| {
        check(IO, |fake| change(&mut fake.controller), kind, words);
    };
    check(|it| it.sgl_support.set(0), Kind::Unsupported, "SGL");
    check(
        |it| it.in_capsule_offset.set(1),
        Kind::Unsupported,
        "ICDOFF",
    );
    check(|it| it.command_capsule_size.set(3), Kind::Broken, "IOCCSZ");
    check(|it| it.response_capsule_size.set(0), Kind::Broken, "IOCCSZ");
    check(
        |it| it.submission_entry_sizes = 0x77,
        Kind::Unsupported,
        "SQES",
    );
    check(
        |it| it.completion_entry_sizes = 0x33,
        Kind::Unsupported,
        "CQES",
    );
    check(
        |it| it.controller_type = 2,
        Kind::Unsupported,
        "discovery controller",
    );
    check(|it| it.controller_type = 3, Kind::Unsupported, "no I/O");
    check(
        |it| it.subsystem_nqn[4] = b'3',
        Kind::Broken,
        "calls itself nqn.3026",
    );
    check(
        |it| it.subsystem_nqn = [b'x'; 256],
        Kind::Broken,
        "not ended",
    );
    check(|it| it.namespaces.set(1), Kind::Broken, "above NN");
}

#[test]
fn a_namespace_that_is_not_there_says_so() {
    let check = |nsids: &[u32], kind, words| {
        check(IO, |fake| fake.nsids = nsids.to_vec(), kind, words);
    };
    check(&[], Kind::Unsupported, "no namespace 2");
    check(&[1, 3], Kind::Unsupported, "no namespace 2");
    check(&[2, 1], Kind::Broken, "ascending");
    check(&[2, 2], Kind::Broken, "ascending");
    check(&[2, 0xFFFF_FFFF], Kind::Broken, "above NN");
    let first = Purpose::Io {
        nsid: None,
        queues: 1,
    };
    let mut fake = Fake::new(first);
    fake.nsids = vec![];
    let error = run(&mut fake, first).expect_err("there is none");
    assert!(error.to_string().contains("no namespace"), "{error}");
}

#[test]
fn a_namespace_that_cannot_be_used_says_why() {
    let check = |change: fn(&mut IdentifyNamespace), kind, words| {
        check(IO, |fake| change(&mut fake.namespace), kind, words);
    };
    check(|it| it.size.set(0), Kind::Unsupported, "no capacity");
    check(|it| it.capacity.set(0), Kind::Unsupported, "no capacity");
    check(|it| it.capacity.set(1 << 21), Kind::Broken, "make no sense");
    check(|it| it.size.set(u64::MAX), Kind::Broken, "make no sense");
    check(|it| it.size.set(1 << 52), Kind::Broken, "make no sense");
    check(|it| it.format = 2, Kind::Broken, "no LBA format 2");
    check(|it| it.format = 0x6F, Kind::Broken, "no LBA format 63");
    check(
        |it| it.lba_formats[1].data_shift = 8,
        Kind::Unsupported,
        "2^8",
    );
    check(
        |it| it.lba_formats[1].data_shift = 17,
        Kind::Unsupported,
        "2^17",
    );
    check(
        |it| it.lba_formats[1].data_shift = 255,
        Kind::Unsupported,
        "2^255",
    );
    check(
        |it| it.lba_formats[1].metadata_bytes.set(8),
        Kind::Unsupported,
        "metadata",
    );
    check(|it| it.protection = 1, Kind::Unsupported, "metadata");
}

#[test]
fn descriptors_of_other_command_sets_and_cut_ones_are_errors() {
    check(
        IO,
        |fake| fake.descriptors[24] = 2,
        Kind::Unsupported,
        "command set 2",
    );
    check(
        IO,
        |fake| fake.fails = Some(("identify 3 2", Status::INVALID_FIELD)),
        Kind::Broken,
        "descr",
    );
    let cut = |fake: &mut Fake| {
        fake.descriptors.fill(0xFF); // descriptors of 255 bytes each: the last does not fit
    };
    check(IO, cut, Kind::Broken, "cut short");
}

#[test]
fn a_page_cut_short_is_an_error() {
    for bytes in [0, 1, 1023, 4095] {
        check(
            IO,
            |fake| fake.page_bytes = bytes,
            Kind::Broken,
            "less data",
        );
        check(
            Purpose::Discovery,
            |fake| fake.page_bytes = bytes,
            Kind::Broken,
            "less data",
        );
    }
}

// ---- timing

fn time(fake: &mut Fake, seconds: u32) -> Option<TimingPage> {
    let facts = run(fake, Purpose::Timing { seconds }).expect("it comes up");
    match facts.found {
        Found::Timing(page) => page,
        other => panic!("times were expected: {other:?}"),
    }
}

#[test]
fn a_target_that_times_its_commands_is_told_so_and_asked() {
    let mut fake = Fake::new(Purpose::Timing { seconds: 7 });
    let page = time(&mut fake, 7).expect("the page is ours");
    assert_eq!((page.seconds.get(), page.clock), (7, [9; 16]));
    assert!(fake.asked.ends_with(&[
        "timing page".into(),
        "timing 7".into(),
        "timing page".into()
    ]));
}

#[test]
fn the_feature_is_never_set_where_the_page_is_another_one_or_none() {
    let timing = Purpose::Timing { seconds: 7 };
    let mut fake = Fake::new(timing);
    fake.timing.signature[15] = b'2';
    assert_eq!(time(&mut fake, 7), None);
    assert_eq!(fake.asked.last().map(String::as_str), Some("timing page"));
    let mut fake = Fake::new(timing);
    fake.fails = Some(("timing page", Status::INVALID_LOG_PAGE));
    assert_eq!(time(&mut fake, 7), None);
    assert_eq!(fake.asked.last().map(String::as_str), Some("timing page"));
}

// ---- discovery

fn discover(fake: &mut Fake) -> Result<fabrix_proto::nvme::bringup::DiscoveryLog, BringupError> {
    run(fake, Purpose::Discovery).map(|facts| match facts.found {
        Found::Discovery(log) => log,
        other => panic!("a log was expected: {other:?}"),
    })
}

#[test]
fn a_discovery_log_is_read_whole_and_as_plain_values() {
    let mut fake = Fake::new(Purpose::Discovery);
    fake.log = (0..6)
        .map(|i| record(format!("10.0.0.{i}").as_bytes(), SUBSYSTEM))
        .collect();
    let log = discover(&mut fake).expect("it is good");
    assert_eq!(
        fake.asked[fake.asked.len() - 4..],
        ["log 0 1024", "log 1024 4096", "log 5120 2048", "log 0 1024"]
    );
    assert_eq!(
        (log.generation, log.records.len(), log.unreadable),
        (1, 6, 0)
    );
    let record = &log.records[5];
    assert_eq!(
        (record.address.as_str(), record.service.as_str()),
        ("10.0.0.5", "4420")
    );
    assert_eq!(record.transport, DiscoveredTransport::Tcp);
    assert_eq!(
        (record.family, record.subtype),
        (DiscoveredFamily::Ipv4, DiscoveredSubtype::Nvm)
    );
    assert_eq!((record.secure_channel, record.security), (1, 2));
    assert_eq!(record.subsystem.as_str(), SUBSYSTEM);
}

#[test]
fn an_empty_discovery_log_is_a_log() {
    let mut fake = Fake::new(Purpose::Discovery);
    fake.log = vec![];
    assert_eq!(discover(&mut fake).expect("it is good").records, []);
}

#[test]
fn a_log_that_changed_meanwhile_is_read_again() {
    let mut fake = Fake::new(Purpose::Discovery);
    fake.generations = vec![1, 2, 2];
    let log = discover(&mut fake).expect("it is good");
    assert_eq!((log.generation, log.records.len()), (2, 1));
    let mut fake = Fake::new(Purpose::Discovery);
    fake.generations = (0..100).collect();
    let error = discover(&mut fake).expect_err("it never stops");
    assert!(error.to_string().contains("faster"), "{error}");
    assert!(fake.asked.len() < 40, "it gave up soon");
}

#[test]
fn records_that_cannot_be_read_are_left_out_and_counted() {
    let mut fake = Fake::new(Purpose::Discovery);
    fake.log = vec![
        record(b"", SUBSYSTEM),
        record(b"10.0.0.1\x1b[2J", SUBSYSTEM),
        record(b"10.0.0.1", ""),
        record(b"10.0.0.1", "nqn.bad\x07"),
        record(b"10.0.0.1", SUBSYSTEM),
    ];
    fake.log[3][256..512].fill(b'x');
    let log = discover(&mut fake).expect("it is good");
    assert_eq!((log.records.len(), log.unreadable), (1, 4));
}

#[test]
fn absurd_discovery_headers_are_refused() {
    for (at, value, words) in [
        (8, 4097_u64, "4097 records"),
        (8, u64::MAX, "records"),
        (16, 1, "record format 1"),
    ] {
        let mut bringup = Bringup::new(config(Purpose::Discovery));
        let mut fake = Fake::new(Purpose::Discovery);
        let error = loop {
            let step = bringup.next(Nanos(u64::MAX - 1));
            let (entry, mut data) = fake.answer(&step);
            if fake.asked.last().is_some_and(|what| what == "log 0 1024") {
                data[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
            if let Err(error) = bringup.answered(entry, &data, Nanos(u64::MAX - 1)) {
                break error;
            }
            fake.csts = vec![1];
        };
        assert!(error.to_string().contains(words), "{error}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(500))]

    #[test]
    fn random_answers_end_in_an_error_or_in_facts(
        results in proptest::collection::vec((proptest::num::u64::ANY, 0_u8..6, proptest::num::u8::ANY), 1..60),
        discovery: bool,
    ) {
        let purpose = if discovery { Purpose::Discovery } else { IO };
        let mut bringup = Bringup::new(config(purpose));
        let mut fake = Fake::new(purpose);
        fake.csts = vec![1];
        let mut now = Nanos(0);
        for (result, what, byte) in results {
            match bringup.next(now) {
                Step::Ready(_) => break,
                Step::Wait { until } => now = until,
                step @ Step::Send { .. } => {
                    let (mut entry, mut data) = fake.answer(&step);
                    match what {
                        0 => entry.result.set(result),
                        1 => data.fill(byte),
                        2 => data.truncate(usize::from(byte)),
                        3 if !data.is_empty() => {
                            let at = usize::try_from(result % 4096).expect("small") % data.len();
                            data[at] = byte;
                        }
                        _ => {}
                    }
                    if bringup.answered(entry, &data, now).is_err() {
                        break;
                    }
                }
            }
        }
    }
}

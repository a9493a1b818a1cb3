//! Bringing up controllers that behave, and those that do not: each error is a sentence and a kind.
//! Here is the controller, which answers whatever its fields say.

mod discovery;
mod errors;
mod works;

use fabrix_proto::Nanos;
use fabrix_proto::nvme::admin::AdminCommand;
use fabrix_proto::nvme::bringup::{
    Bringup, BringupConfig, BringupError, Facts, Found, Purpose, Step,
};
use fabrix_proto::nvme::fabrics::{Connect, FabricsCommand, Property};
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::identify::{
    Cns, Descriptor, IdentifyController, IdentifyNamespace, IdentifyNvmController, NamespaceList,
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
    limits: Box<IdentifyNvmController>,
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
            limits: Box::new(IdentifyNvmController::new_zeroed()),
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
                    Cns::COMMAND_SET_CONTROLLER => self.limits.as_bytes().to_vec(),
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
                // Who believes a header that says more than there is asks for what is not there.
                let mut data = page.split_off(start.min(page.len()));
                data.resize(bytes, 0);
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

fn time(fake: &mut Fake, seconds: u32) -> Option<TimingPage> {
    let facts = run(fake, Purpose::Timing { seconds }).expect("it comes up");
    match facts.found {
        Found::Timing(page) => page,
        other => panic!("times were expected: {other:?}"),
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

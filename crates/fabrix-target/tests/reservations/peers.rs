//! Hosts and initiators with commands for reservations, by the standards' tables.

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;

use fabrix_proto::nvme::admin::{GetLogPage, Identify};
use fabrix_proto::nvme::fabrics::Connect;
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::log_page::{LogId, NotificationPage};
use fabrix_proto::nvme::reservation::{
    AcquireAction, RegisterAction, ReportHeader, ReportRegistrant,
};
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_proto::scsi::reservation::Kind;
use zerocopy::FromBytes;

use crate::common::host::{Data, Host, wish};
use crate::common::wire::{Digests, Pdu};
use crate::common::{Stage, pattern};
use crate::initiator::Initiator;

/// RESERVATION CONFLICT.
pub(crate) const CONFLICT: u8 = 0x18;

/// A host with an admin queue and an I/O queue.
pub(crate) struct NvmeHost {
    pub(crate) admin: Host,
    pub(crate) io: Host,
}

impl NvmeHost {
    /// A host whose host identifier is this byte, sixteen times.
    pub(crate) fn new(stage: &Stage, id: u8) -> Self {
        Self::at(stage.address, id)
    }

    pub(crate) fn at(address: SocketAddr, id: u8) -> Self {
        let host_id = [id; 16];
        let mut admin = Host::dial(address);
        admin.open(Digests::NONE);
        let answer = admin.connect(&Connect { host_id, ..wish() });
        assert_eq!(answer.status, Status::SUCCESS, "Connect");
        admin.controller = u16::try_from(answer.result & 0xffff).expect("16 bits");
        admin.enable();
        let mut io = Host::dial(address);
        io.open(Digests::NONE);
        let answer = io.connect(&Connect {
            host_id,
            controller_id: admin.controller,
            queue_id: 1,
            disable_sq_flow_control: true,
            ..wish()
        });
        assert_eq!(answer.status, Status::SUCCESS, "Connect of the I/O queue");
        Self { admin, io }
    }

    /// Registers a key, and expects success.
    pub(crate) fn register(&mut self, key: u64) {
        let status = self.run_register(RegisterAction::Register, false, None, (0, key));
        assert_eq!(status, Status::SUCCESS, "register {key:#x}");
    }

    pub(crate) fn unregister(&mut self, key: u64) -> Status {
        self.run_register(RegisterAction::Unregister, false, None, (key, 0))
    }

    pub(crate) fn run_register(
        &mut self,
        action: RegisterAction,
        ignore: bool,
        persist: Option<bool>,
        keys: (u64, u64),
    ) -> Status {
        let entry = SubmissionEntry::reservation_register(1, action, ignore, persist);
        self.io.run(entry, Data::Inline(&two(keys))).status
    }

    pub(crate) fn acquire(
        &mut self,
        key: u64,
        victim: u64,
        action: AcquireAction,
        kind: Kind,
    ) -> Status {
        let id = self.begin_acquire(key, victim, action, kind);
        self.io.finish(id).status
    }

    /// Begins an Acquire with data by R2T. Other commands use the other kinds of transfer.
    pub(crate) fn begin_acquire(
        &mut self,
        key: u64,
        victim: u64,
        action: AcquireAction,
        kind: Kind,
    ) -> u16 {
        let entry = SubmissionEntry::reservation_acquire(1, action, kind);
        self.io.submit(entry, Data::Fetch(&two((key, victim))))
    }

    pub(crate) fn release(&mut self, key: u64, kind: Option<Kind>) -> Status {
        let entry = SubmissionEntry::reservation_release(1, kind);
        self.io.run(entry, Data::Inline(&key.to_le_bytes())).status
    }

    /// Whether the host may read, and write.
    pub(crate) fn may(&mut self) -> (bool, bool) {
        let read = SubmissionEntry::read(1, 0, 1);
        let read = self.io.run_anyway(read, Data::Expect(512)).status;
        let write = self.io.try_write(1, 0, &pattern(512, 1), 512).status;
        let allowed = |status: Status| {
            let refused = status == Status::RESERVATION_CONFLICT;
            assert!(refused || status == Status::SUCCESS, "{status}");
            !refused
        };
        (allowed(read), allowed(write))
    }

    /// Begins a write, and waits for its R2T.
    pub(crate) fn begin_write(&mut self, bytes: usize) -> (u16, Pdu) {
        let blocks = u32::try_from(bytes / 512).expect("short");
        let entry = SubmissionEntry::write(1, 0, blocks, false);
        let id = self.io.submit(entry, Data::Fetch(&pattern(bytes, 5)));
        let r2t = self.io.receive().expect("an R2T");
        (id, r2t)
    }

    pub(crate) fn report_bytes(&mut self, bytes: u32) -> Vec<u8> {
        let entry = SubmissionEntry::reservation_report(1, bytes);
        let answer = self.io.run(entry, Data::Expect(bytes));
        assert_eq!(answer.status, Status::SUCCESS, "report");
        answer.data
    }

    pub(crate) fn report(&mut self) -> (ReportHeader, Vec<ReportRegistrant>) {
        let data = self.report_bytes(1024);
        let (header, rest) = ReportHeader::read_from_prefix(&data).expect("64 bytes");
        let count = usize::from(header.registrants.get());
        let all = <[ReportRegistrant]>::ref_from_prefix_with_elems(rest, count);
        (header, all.expect("as many as it says").0.to_vec())
    }

    /// The report with identifiers of 64 bits.
    pub(crate) fn short_report(&mut self) -> Status {
        let mut entry = SubmissionEntry::reservation_report(1, 64);
        entry.cdw11.set(0);
        self.io.run_anyway(entry, Data::Expect(64)).status
    }

    pub(crate) fn notification(&mut self) -> NotificationPage {
        let entry = SubmissionEntry::get_log_page(GetLogPage {
            page: LogId::RESERVATION,
            nsid: 0,
            offset: 0,
            bytes: 64,
            specific: 0,
            retain_event: false,
            command_set: 0,
        });
        let data = self.admin.run(entry, Data::Expect(64)).data;
        NotificationPage::read_from_bytes(&data).expect("64 bytes")
    }

    pub(crate) fn set_feature(&mut self, feature: FeatureId, nsid: u32, value: u32) -> Status {
        let mut entry = SubmissionEntry::set_features(feature, value);
        entry.nsid.set(nsid);
        self.admin.run(entry, Data::None).status
    }

    pub(crate) fn feature(&mut self, feature: FeatureId) -> u64 {
        let mut entry = SubmissionEntry::get_features(feature, 0);
        entry.nsid.set(1);
        let answer = self.admin.run(entry, Data::None);
        assert_eq!(answer.status, Status::SUCCESS, "{feature:?}");
        answer.result
    }

    pub(crate) fn set_persistence(&mut self, value: u32) -> Status {
        self.set_feature(FeatureId::RESERVATION_PERSISTENCE, 1, value)
    }

    /// RESCAP, which two structures report: CNS 00h and 08h.
    pub(crate) fn rescap(&mut self) -> u8 {
        let mut at = |cns, byte: usize| {
            let entry = SubmissionEntry::identify(Identify::new(cns, 1));
            self.admin.run(entry, Data::Expect(4096)).data[byte]
        };
        let rescap = at(Cns::NAMESPACE, 31);
        assert_eq!(at(Cns::INDEPENDENT_NAMESPACE, 2), rescap);
        // ONCS bit 5.
        assert_ne!(at(Cns::CONTROLLER, 520) & 0x20, 0);
        rescap
    }
}

fn two((key, other): (u64, u64)) -> [u8; 16] {
    let mut data = [0; 16];
    data[..8].copy_from_slice(&key.to_le_bytes());
    data[8..].copy_from_slice(&other.to_le_bytes());
    data
}

/// An initiator with a session.
pub(crate) struct Scsi(pub(crate) Initiator);

impl Scsi {
    pub(crate) fn new(stage: &Stage, last: u8) -> Self {
        let mut session = Self(Initiator::log_in(stage.target.portals()[0], last, false));
        assert_eq!(
            session.sense(&[0; 6]).map(|[key, asc, _]| [key, asc]),
            Some([6, 0x29])
        );
        session
    }

    pub(crate) fn status(&mut self, cdb: &[u8]) -> u8 {
        self.0.command(cdb, 0).status
    }

    pub(crate) fn sense(&mut self, cdb: &[u8]) -> Option<[u8; 3]> {
        self.0.command(cdb, 0).sense
    }

    pub(crate) fn write_status(&mut self) -> u8 {
        self.0.write(&WRITE_10, &pattern(512, 2), 512, 0).status
    }

    /// Drops received bytes until the target closes.
    pub(crate) fn until_closed(&mut self) {
        match self.0.socket.read_to_end(&mut Vec::new()) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("it stays open"),
            Ok(_) | Err(_) => {}
        }
    }

    /// Whether the initiator may read, and write.
    pub(crate) fn may(&mut self) -> (bool, bool) {
        let allowed = |status: u8| {
            assert!(matches!(status, 0 | CONFLICT), "status {status:#x}");
            status == 0
        };
        let read = self.0.command(&READ_10, 512).status;
        (allowed(read), allowed(self.write_status()))
    }

    /// PERSISTENT RESERVE OUT with a service action, two keys and a type.
    pub(crate) fn reserve_out(&mut self, action: u8, key: u64, other: u64, kind: Kind) -> u8 {
        let (cdb, list) = reserve_out(action, key, other, kind);
        self.0.write(&cdb, &list, 24, 0).status
    }

    pub(crate) fn register(&mut self, key: u64) {
        assert_eq!(self.reserve_out(6, 0, key, Kind::WriteExclusive), 0);
    }

    pub(crate) fn unregister(&mut self, key: u64) {
        assert_eq!(self.reserve_out(0, key, 0, Kind::WriteExclusive), 0);
    }

    /// REGISTER AND IGNORE EXISTING KEY with APTPL.
    pub(crate) fn register_persistent(&mut self, key: u64) -> u8 {
        let (cdb, mut list) = reserve_out(6, 0, key, Kind::WriteExclusive);
        list[20] = 1;
        self.0.write(&cdb, &list, 24, 0).status
    }

    /// REPORT CAPABILITIES.
    pub(crate) fn capabilities(&mut self) -> Vec<u8> {
        self.0.command(&[0x5E, 2, 0, 0, 0, 0, 0, 0, 8, 0], 8).data
    }

    /// Sends a task management request for logical unit 0.
    pub(crate) fn manage(&mut self, function: u8) {
        let mut bhs = [0; 48];
        (bhs[0], bhs[1], bhs[16]) = (0x42, 0x80 | function, 9);
        bhs[20..24].fill(0xFF);
        self.0.send(bhs, &[]);
    }

    /// Receives the response to a task management request.
    pub(crate) fn managed(&mut self) -> u8 {
        let answer = self.0.receive();
        assert_eq!(answer.opcode(), 0x22);
        answer.bhs[2]
    }
}

pub(crate) fn reserve_out(action: u8, key: u64, other: u64, kind: Kind) -> ([u8; 10], [u8; 24]) {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&other.to_be_bytes());
    let kind = match kind {
        Kind::WriteExclusive => 1,
        Kind::ExclusiveAccess => 3,
        Kind::WriteExclusiveRegistrants => 5,
        Kind::ExclusiveAccessRegistrants => 6,
        Kind::WriteExclusiveAll => 7,
        Kind::ExclusiveAccessAll => 8,
    };
    ([0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], list)
}

/// READ KEYS.
pub(crate) fn keys_of_scsi(initiator: &mut Scsi) -> Vec<u64> {
    let data = initiator
        .0
        .command(&[0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0], 256)
        .data;
    let keys = data[8..].chunks_exact(8);
    keys.map(|key| u64::from_be_bytes(key.try_into().expect("eight")))
        .collect()
}

pub(crate) const WRITE_10: [u8; 10] = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const READ_10: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];

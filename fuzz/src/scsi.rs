//! The same for SCSI: commands, their parameter lists, and what is stored of reservations.
//!
//! Included by path into crates/fabrix-proto/tests/corpus.rs.

#![forbid(unsafe_code)]

use fabrix_proto::scsi::alua::AccessState;
use fabrix_proto::scsi::attention::Attentions;
use fabrix_proto::scsi::cdb::{Command, Direction, Features};
use fabrix_proto::scsi::copy::CopyList;
use fabrix_proto::scsi::pages::mode::ModeParameters;
use fabrix_proto::scsi::pages::{
    Deallocate, Disk, Identity, Naa, Target, TargetPort, TaskManagement,
};
use fabrix_proto::scsi::reservation::{Initiator, Nexus, REGISTRANTS_MAX, Reservations};
use fabrix_proto::scsi::spec::Status;
use fabrix_proto::scsi::unit::{Answer, DiskOperation, Outcome, View};

use crate::iscsi::{Script, checksum};

/// CDBs of up to 16 bytes, on a disk that can do everything and on one that can do nothing.
pub fn parse_scsi_cdb(data: &[u8]) {
    let cdb = data.first_chunk::<16>().map_or(data, |cdb| &cdb[..]);
    let all = Features {
        unmap: true,
        atomic: true,
        compare_and_write: true,
        copy: true,
    };
    let none = Features {
        unmap: false,
        atomic: false,
        compare_and_write: false,
        copy: false,
    };
    for features in [all, none] {
        let Ok((command, _)) = Command::parse(cdb, features) else {
            continue;
        };
        let transfer = command.transfer(512);
        assert!(transfer.direction != Direction::None || transfer.bytes == 0);
        let _ = (command.parameter_bytes(), transfer.fits(u64::MAX));
    }
}

/// A TransportID as REGISTER AND MOVE brings it, and reservations as they are stored.
pub fn parse_reservations(data: &[u8]) {
    if let Ok((initiator, rest)) = Initiator::parse(data) {
        let id = initiator.transport_id();
        assert!(id.len() + rest.len() <= data.len() + 4);
        let (again, rest) = Initiator::parse(id).expect("written by us");
        assert_eq!((&again, rest), (&initiator, &[][..]));
    }
    if let Ok(state) = Reservations::from_bytes(data, checksum) {
        let again = Reservations::from_bytes(&state.to_bytes(checksum), checksum);
        assert_eq!(
            again.expect("written by us").registrants(),
            state.registrants()
        );
        let nexus = Nexus {
            initiator: Initiator::nvme([1; 16]),
            port: 1,
        };
        let _ = state.standing(&nexus);
    }
    // The same with a checksum that fits, which nothing at random has.
    let sealed = [data, &checksum(data).to_be_bytes()].concat();
    if let Ok(state) = Reservations::from_bytes(&sealed, checksum) {
        assert_eq!(state.to_bytes(checksum), sealed, "taken and never written");
    }
}

/// A logical unit and two nexuses: commands with their parameter lists, one after the other. What
/// reaches the disk lies on the disk, whatever the lists say, and reservations stay as they can be
/// stored.
pub fn scsi_unit(data: &[u8]) {
    let mut script = Script(data);
    let mut unit = Unit::new(script.byte());
    while !script.0.is_empty() {
        let who = usize::from(script.byte() & 1);
        let cdb: [u8; 16] = script.array();
        let length = script.short() % 2048;
        unit.command(who, &cdb, script.take(length.into()));
    }
}

const BLOCKS: u64 = 0x1_0000;

struct Unit {
    disk: Disk,
    target: Target,
    mode: ModeParameters,
    reservations: Reservations,
    nexuses: [(Nexus, Attentions); 2],
    page: Vec<u8>,
}

impl Unit {
    fn new(options: u8) -> Self {
        let disk = disk(options);
        let nexus = |last: u8| {
            let initiator = Initiator::iscsi("iqn.x:a", [0x40, 0, 0, 1, 0, last]);
            (Nexus { initiator, port: 1 }, Attentions::new())
        };
        Self {
            mode: ModeParameters::new(&disk),
            disk,
            target: Target {
                name: "iqn.x:disk".into(),
                ports: vec![TargetPort {
                    id: 1,
                    group: 1,
                    tag: 1,
                }],
                task_management: TaskManagement::ABORT_TASK,
            },
            reservations: Reservations::new(),
            nexuses: [nexus(0), nexus(1)],
            page: vec![0; 4096],
        }
    }

    fn command(&mut self, who: usize, cdb: &[u8], list: &[u8]) {
        let (nexus, attentions) = &mut self.nexuses[who];
        let view = View {
            disk: &self.disk,
            mode: self.mode,
            target: &self.target,
            port: 1,
            access: AccessState::Optimized,
            states: &[AccessState::Optimized],
            luns: &[0],
            reservations: &self.reservations,
            standing: self.reservations.standing(nexus),
        };
        let mut outcome = view.classify(attentions, cdb, &mut self.page);
        if let Outcome::Parameters(command) = outcome {
            assert!(command.parameter_bytes().is_some_and(|bytes| bytes > 0));
            outcome = view.parameters(&command, list);
        }
        match outcome {
            Outcome::Answer(answer) => self.check_answer(&answer),
            Outcome::Disk(operation) => self.check_operation(&operation),
            Outcome::Copy(copies) => self.check_copy(&copies),
            Outcome::Mode(mode) => self.mode = mode,
            Outcome::LbaStatus { lba, .. } => assert!(lba < BLOCKS),
            Outcome::Reserve(request) => {
                let nexus = nexus.clone();
                let _refused = self.reservations.apply(&nexus, &request);
                let count = self.reservations.registrants().len();
                assert!(count <= REGISTRANTS_MAX);
                let bytes = self.reservations.to_bytes(checksum);
                let again = Reservations::from_bytes(&bytes, checksum).expect("written by us");
                if self.reservations.persists() {
                    assert_eq!(again.registrants(), self.reservations.registrants());
                }
            }
            Outcome::CopyStatus { .. } => {}
            Outcome::Parameters(_) => panic!("a list wants a list"),
        }
    }

    fn check_answer(&self, answer: &Answer) {
        assert!(answer.bytes as usize <= self.page.len());
        assert_eq!(
            answer.sense.is_some(),
            answer.status == Status::CHECK_CONDITION
        );
    }

    fn check_operation(&self, operation: &DiskOperation) {
        use DiskOperation::{
            CompareAndWrite, Deallocate, Flush, OrWrite, Read, Verify, Write, WriteAndVerify,
            WriteSame, WriteZeroes,
        };
        let writes = !matches!(operation, Read { .. } | Verify { .. } | Flush);
        assert!(!writes || !self.disk.read_only && !self.mode.write_protect);
        match operation {
            Flush => {}
            Deallocate(extents) => {
                assert!(!extents.is_empty());
                assert!(extents.iter().all(|extent| self.disk.contains(*extent)));
            }
            CompareAndWrite { extent, .. } => {
                assert!(extent.blocks <= u32::from(self.disk.compare_and_write_blocks));
                assert!(self.disk.contains(*extent));
            }
            Write { extent, atomic, .. } => {
                let most = match atomic {
                    true => self.disk.atomic_write_blocks,
                    false => self.disk.max_transfer_bytes / self.disk.block_bytes,
                };
                assert!((1..=most).contains(&extent.blocks) && self.disk.contains(*extent));
            }
            Read { extent, .. }
            | WriteAndVerify { extent, .. }
            | Verify { extent, .. }
            | OrWrite { extent, .. }
            | WriteSame { extent, .. }
            | WriteZeroes { extent, .. } => {
                assert!(extent.blocks > 0 && self.disk.contains(*extent));
            }
        }
    }

    /// What a list says that was found right can be done, and nothing else can.
    fn check_copy(&self, copies: &CopyList) {
        let named = |name: &fabrix_proto::scsi::copy::Designator| {
            name.names(&self.disk).then_some(&self.disk)
        };
        let disks: Vec<_> = copies.devices.iter().map(named).collect();
        if copies.check(&disks).is_err() {
            return;
        }
        for segment in &copies.segments {
            assert!(disks[segment.source].is_some() && disks[segment.destination].is_some());
            assert!(self.disk.contains(segment.source_extent()));
            assert!(self.disk.contains(segment.destination_extent()));
            assert!(!self.disk.read_only);
        }
    }
}

fn disk(options: u8) -> Disk {
    Disk {
        block_bytes: 512,
        blocks: BLOCKS,
        physical_block_bytes: 4096,
        optimal_io_bytes: 0,
        max_transfer_bytes: 1 << 20,
        volatile_cache: options & 1 == 0,
        read_only: options & 2 != 0,
        deallocate: Deallocate::Zeroes,
        atomic_write_blocks: 8,
        compare_and_write_blocks: 16,
        stores_reservations: options & 4 == 0,
        copies: true,
        identity: Identity {
            vendor: "FABRIX".into(),
            product: "fuzzed".into(),
            revision: "0".into(),
            serial: "1".into(),
            naa: Naa::Local(0x0123_4567_89AB_CDEF),
            eui64: None,
            uuid: Some([0x55; 16]),
        },
    }
}

//! A disk, a target and a nexus to try commands on, and the few helpers that know the interface.

#![allow(dead_code, reason = "each test file uses some of them")]

use fabrix_proto::scsi::alua::AccessState;
use fabrix_proto::scsi::attention::Attentions;
use fabrix_proto::scsi::cdb::Command;
use fabrix_proto::scsi::pages::mode::ModeParameters;
use fabrix_proto::scsi::pages::{
    Deallocate, Disk, Identity, Naa, Target, TargetPort, TaskManagement,
};
use fabrix_proto::scsi::reservation::{Change, Initiator, Nexus, Refusal, Request, Reservations};
use fabrix_proto::scsi::sense::Sense;
use fabrix_proto::scsi::spec::Status;
use fabrix_proto::scsi::unit::{Answer, DiskOperation, Outcome, View};

pub(crate) const BLOCKS: u64 = 0x1_0000;
pub(crate) const TARGET: &str = "iqn.2026-01.dev.fabrix:disk";

pub(crate) fn disk() -> Disk {
    Disk {
        block_bytes: 512,
        blocks: BLOCKS,
        physical_block_bytes: 4096,
        optimal_io_bytes: 65536,
        max_transfer_bytes: 1 << 20,
        volatile_cache: true,
        read_only: false,
        deallocate: Deallocate::Zeroes,
        atomic_write_blocks: 8,
        compare_and_write_blocks: 16,
        stores_reservations: true,
        copies: true,
        identity: Identity {
            vendor: "FABRIX".into(),
            product: "RAM disk".into(),
            revision: "0.1".into(),
            serial: "FBX123".into(),
            naa: Naa::Local(0x0123_4567_89AB_CDEF),
            eui64: None,
            uuid: Some([0x55; 16]),
        },
    }
}

pub(crate) fn target() -> Target {
    let port = |id, tag| TargetPort {
        id,
        group: tag,
        tag,
    };
    Target {
        name: TARGET.into(),
        ports: vec![port(1, 1), port(2, 0xA2)],
        task_management: TaskManagement::ABORT_TASK.and(TaskManagement::LOGICAL_UNIT_RESET),
    }
}

pub(crate) fn nexus(name: &str) -> Nexus {
    let initiator = Initiator::iscsi(&format!("iqn.x:{name}"), [0x40, 0, 0, 1, 0, 0]);
    Nexus { initiator, port: 1 }
}

/// One logical unit and one nexus, with everything that has an owner elsewhere.
pub(crate) struct Bench {
    pub(crate) disk: Disk,
    pub(crate) target: Target,
    pub(crate) mode: ModeParameters,
    pub(crate) reservations: Reservations,
    pub(crate) attentions: Attentions,
    /// States at port 1, the port of the nexus, and at port 2.
    pub(crate) states: [AccessState; 2],
    pub(crate) nexus: Nexus,
    pub(crate) page: Vec<u8>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::of(disk())
    }

    pub(crate) fn of(disk: Disk) -> Self {
        Self {
            mode: ModeParameters::new(&disk),
            disk,
            target: target(),
            reservations: Reservations::new(),
            attentions: Attentions::new(),
            states: [AccessState::Optimized; 2],
            nexus: nexus("a"),
            page: vec![0xEE; 4096],
        }
    }

    pub(crate) fn send(&mut self, cdb: &[u8]) -> Outcome {
        let view = View {
            disk: &self.disk,
            mode: self.mode,
            target: &self.target,
            port: 1,
            access: self.states[0],
            states: &self.states,
            luns: &[0, 1, 300],
            reservations: &self.reservations,
            standing: self.reservations.standing(&self.nexus),
        };
        view.classify(&mut self.attentions, cdb, &mut self.page)
    }

    pub(crate) fn parameters(&mut self, command: &Command, list: &[u8]) -> Outcome {
        let view = View {
            disk: &self.disk,
            mode: self.mode,
            target: &self.target,
            port: 1,
            access: self.states[0],
            states: &self.states,
            luns: &[0],
            reservations: &self.reservations,
            standing: self.reservations.standing(&self.nexus),
        };
        view.parameters(command, list)
    }

    /// Sends a command and the parameter list it wants.
    pub(crate) fn send_list(&mut self, cdb: &[u8], list: &[u8]) -> Outcome {
        match self.send(cdb) {
            Outcome::Parameters(command) => self.parameters(&command, list),
            other => other,
        }
    }

    /// The data of a command that is answered GOOD.
    pub(crate) fn read(&mut self, cdb: &[u8]) -> Vec<u8> {
        match self.send(cdb) {
            Outcome::Answer(Answer {
                status: Status::GOOD,
                bytes,
                ..
            }) => self.page[..bytes as usize].to_vec(),
            other => panic!("{cdb:02x?} was answered {other:?}"),
        }
    }

    pub(crate) fn sense(&mut self, cdb: &[u8]) -> Sense {
        sense(self.send(cdb))
    }

    pub(crate) fn operation(&mut self, cdb: &[u8]) -> DiskOperation {
        match self.send(cdb) {
            Outcome::Disk(operation) => operation,
            other => panic!("{cdb:02x?} was answered {other:?}"),
        }
    }

    pub(crate) fn apply(&mut self, who: &Nexus, request: &Request) -> Result<Change, Refusal> {
        self.reservations.apply(who, request)
    }
}

pub(crate) fn sense(outcome: Outcome) -> Sense {
    match outcome {
        Outcome::Answer(Answer {
            status: Status::CHECK_CONDITION,
            sense: Some(sense),
            ..
        }) => sense,
        other => panic!("expected CHECK CONDITION, got {other:?}"),
    }
}

pub(crate) const GOOD: Outcome = Outcome::Answer(Answer::GOOD);
pub(crate) const CONFLICT: Outcome = Outcome::Answer(Answer::CONFLICT);

/// CRC32C bit by bit.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| crc >> 1 ^ if crc & 1 != 0 { 0x82F6_3B78 } else { 0 };
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(u32::MAX, byte)
}

/// xorshift: the same numbers for the same seed.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_be_bytes()[3]).collect()
    }
}

pub(crate) fn cdb10(opcode: u8, flags: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let (l, b) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [opcode, flags, l[0], l[1], l[2], l[3], 0, b[0], b[1], 0]
}

pub(crate) fn cdb16(opcode: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..2].copy_from_slice(&[opcode, flags]);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

//! Fields of each command, at the positions that the standards define. The caller has already
//! refused meaningless bits.
//!
//! The meaning of the values is documented at [`Command`].
//! Source: SPC-4 and SBC-3, the table of each command.

use super::table::{Features, knows_opcode};
use super::{
    ByteCheck, Command, CommandEntry, Extent, ModeSense, PageControl, Reporting, ReserveOut,
    SelectReport,
};
use crate::scsi::additional::AdditionalSense;
use crate::scsi::sense::Sense;
use crate::scsi::spec::{self, CDB_BYTES_MAX, Opcode};

/// Finds the table row of a CDB. The error tells whether the operation code or only the service
/// action is unsupported.
pub(super) fn entry(
    cdb: &[u8; CDB_BYTES_MAX],
    features: Features,
) -> Result<&'static CommandEntry, Sense> {
    CommandEntry::find(cdb, features).ok_or_else(|| {
        if knows_opcode(cdb[0], features) {
            Sense::field_in_cdb(1, Some(SERVICE_ACTION_TOP_BIT))
        } else {
            Sense::illegal(AdditionalSense::INVALID_COMMAND_OPERATION_CODE)
        }
    })
}

/// Parses a CDB whose length and meaningless bits have been checked.
pub(super) fn command(entry: &CommandEntry, cdb: &[u8; CDB_BYTES_MAX]) -> Result<Command, Sense> {
    let fields = Fields(cdb);
    match entry.opcode {
        Opcode::MODE_SENSE_6 | Opcode::MODE_SENSE_10 => Ok(mode_sense(entry, &fields)),
        Opcode::SERVICE_ACTION_IN_16
        | Opcode::MAINTENANCE_IN
        | Opcode::PERSISTENT_RESERVE_IN
        | Opcode::PERSISTENT_RESERVE_OUT
        | Opcode::EXTENDED_COPY
        | Opcode::RECEIVE_COPY_RESULTS => with_service_action(entry, &fields),
        Opcode::READ_6 | Opcode::WRITE_6 => Ok(six(entry.opcode, &fields)),
        opcode => match fields.extent(opcode) {
            Some(extent) => with_extent(opcode, extent, &fields),
            None => primary(opcode, &fields),
        },
    }
}

/// Parses commands without blocks and without service actions.
fn primary(opcode: Opcode, fields: &Fields<'_>) -> Result<Command, Sense> {
    Ok(match opcode {
        Opcode::TEST_UNIT_READY => Command::TestUnitReady,
        Opcode::REQUEST_SENSE => Command::RequestSense {
            descriptor: fields.bit(1, 0),
            allocation: fields.u8(4).into(),
        },
        Opcode::INQUIRY => return inquiry(fields),
        Opcode::READ_CAPACITY_10 => Command::ReadCapacity10,
        Opcode::REPORT_LUNS => Command::ReportLuns {
            select: select_report(fields.u8(2))?,
            allocation: fields.u32(6),
        },
        Opcode::MODE_SELECT_6 | Opcode::MODE_SELECT_10 => return mode_select(opcode, fields),
        Opcode::UNMAP => Command::Unmap {
            bytes: fields.u16(7).into(),
        },
        Opcode::READ_DEFECT_DATA_10 => Command::ReadDefectData {
            long: false,
            lists: fields.u8(2),
            allocation: fields.u16(7).into(),
        },
        Opcode::READ_DEFECT_DATA_12 => Command::ReadDefectData {
            long: true,
            lists: fields.u8(1),
            allocation: fields.u32(6),
        },
        Opcode::START_STOP_UNIT => Command::StartStopUnit {
            start: fields.bit(4, 0),
            flush: !fields.bit(4, 0) && !fields.bit(4, 2),
        },
        Opcode::PREVENT_ALLOW => Command::PreventAllow {
            prevent: fields.bit(4, 0),
        },
        Opcode::RESERVE_6 | Opcode::RESERVE_10 => Command::Reserve,
        Opcode::RELEASE_6 | Opcode::RELEASE_10 => Command::Release,
        _ => {
            return Err(Sense::illegal(
                AdditionalSense::INVALID_COMMAND_OPERATION_CODE,
            ));
        }
    })
}

/// Parses INQUIRY. A page code without EVPD is refused. Source: SPC-4, "INQUIRY command".
fn inquiry(fields: &Fields<'_>) -> Result<Command, Sense> {
    let (vital, page) = (fields.bit(1, 0), fields.u8(2));
    if !vital && page != 0 {
        return Err(Sense::field_in_cdb(2, None));
    }
    Ok(Command::Inquiry {
        page: vital.then_some(page),
        allocation: fields.u16(3).into(),
    })
}

/// Parses SELECT REPORT. 10h and 12h are refused: they ask for administrative logical units, and
/// the target has none.
fn select_report(select: u8) -> Result<SelectReport, Sense> {
    match select {
        0x00 | 0x02 | 0x11 => Ok(SelectReport::Units),
        0x01 => Ok(SelectReport::WellKnown),
        _ => Err(Sense::field_in_cdb(2, None)),
    }
}

fn mode_sense(entry: &CommandEntry, fields: &Fields<'_>) -> Command {
    let long = entry.opcode == Opcode::MODE_SENSE_10;
    Command::ModeSense(ModeSense {
        long,
        no_block_descriptor: fields.bit(1, 3),
        long_lba: fields.bit(1, 4),
        control: match fields.u8(2) >> 6 {
            0 => PageControl::Current,
            1 => PageControl::Changeable,
            2 => PageControl::Default,
            _ => PageControl::Saved,
        },
        page: fields.u8(2) & 0x3F,
        subpage: fields.u8(3),
        allocation: if long {
            fields.u16(7).into()
        } else {
            fields.u8(4).into()
        },
    })
}

/// Parses MODE SELECT. PF has to be set, because pages without it have a vendor-specific format.
/// Source: SPC-4, "MODE SELECT(6) command".
fn mode_select(opcode: Opcode, fields: &Fields<'_>) -> Result<Command, Sense> {
    let long = opcode == Opcode::MODE_SELECT_10;
    let bytes = if long {
        fields.u16(7).into()
    } else {
        fields.u8(4).into()
    };
    if bytes != 0 && !fields.bit(1, 4) {
        return Err(Sense::field_in_cdb(1, Some(4)));
    }
    Ok(Command::ModeSelect { long, bytes })
}

/// Parses READ(6) and WRITE(6). Only here does a transfer length of zero mean 256 blocks. Source:
/// SBC-3, "READ (6) command".
fn six(opcode: Opcode, fields: &Fields<'_>) -> Command {
    let lba = fields.u32(0) & 0x1F_FFFF;
    let blocks = match fields.u8(4) {
        0 => 256,
        blocks => u32::from(blocks),
    };
    let extent = Extent {
        lba: lba.into(),
        blocks,
    };
    let fua = false;
    match opcode {
        Opcode::READ_6 => Command::Read { extent, fua },
        _ => Command::Write { extent, fua },
    }
}

fn with_extent(opcode: Opcode, extent: Extent, fields: &Fields<'_>) -> Result<Command, Sense> {
    let fua = fields.bit(1, 3) || fields.bit(1, 1);
    Ok(match opcode {
        Opcode::READ_10 | Opcode::READ_12 | Opcode::READ_16 => Command::Read { extent, fua },
        Opcode::WRITE_10 | Opcode::WRITE_12 | Opcode::WRITE_16 => Command::Write { extent, fua },
        Opcode::ORWRITE => Command::OrWrite { extent, fua },
        Opcode::COMPARE_AND_WRITE => Command::CompareAndWrite { extent, fua },
        Opcode::WRITE_ATOMIC_16 => Command::WriteAtomic { extent, fua },
        Opcode::WRITE_SAME_10 | Opcode::WRITE_SAME_16 => Command::WriteSame {
            extent,
            unmap: fields.bit(1, 3),
            no_data: fields.bit(1, 0),
        },
        Opcode::PRE_FETCH_10 | Opcode::PRE_FETCH_16 => Command::PreFetch { extent },
        Opcode::SYNCHRONIZE_CACHE_10 | Opcode::SYNCHRONIZE_CACHE_16 => {
            Command::SynchronizeCache { extent }
        }
        Opcode::VERIFY_10 | Opcode::VERIFY_12 | Opcode::VERIFY_16 => Command::Verify {
            extent,
            check: byte_check(fields)?,
        },
        _ => Command::WriteAndVerify {
            extent,
            compare: fields.bit(1, 1),
        },
    })
}

/// Parses BYTCHK. The value 10b is reserved. Source: SBC-3, "VERIFY (10) command".
fn byte_check(fields: &Fields<'_>) -> Result<ByteCheck, Sense> {
    match fields.u8(1) >> 1 & 0b11 {
        0b00 => Ok(ByteCheck::Medium),
        0b01 => Ok(ByteCheck::Data),
        0b11 => Ok(ByteCheck::OneBlock),
        _ => Err(Sense::field_in_cdb(1, Some(2))),
    }
}

fn with_service_action(entry: &CommandEntry, fields: &Fields<'_>) -> Result<Command, Sense> {
    let action = entry.service_action.unwrap_or(0);
    Ok(match (entry.opcode, action) {
        (Opcode::PERSISTENT_RESERVE_IN, _) => Command::PersistentReserveIn {
            action,
            allocation: fields.u16(7).into(),
        },
        (Opcode::PERSISTENT_RESERVE_OUT, _) => Command::PersistentReserveOut(ReserveOut {
            action,
            scope: fields.u8(2) >> 4,
            kind: fields.u8(2) & 0x0F,
            bytes: fields.u32(5),
        }),
        (Opcode::EXTENDED_COPY, _) => Command::ExtendedCopy {
            bytes: fields.u32(10),
        },
        (Opcode::RECEIVE_COPY_RESULTS, spec::SA_COPY_STATUS_LID1) => Command::ReceiveCopyStatus {
            list: fields.u8(2),
            allocation: fields.u32(10),
        },
        (Opcode::RECEIVE_COPY_RESULTS, _) => Command::ReceiveCopyParameters {
            allocation: fields.u32(10),
        },
        (Opcode::SERVICE_ACTION_IN_16, spec::SA_GET_LBA_STATUS) => Command::GetLbaStatus {
            lba: fields.u64(2),
            allocation: fields.u32(10),
        },
        (Opcode::SERVICE_ACTION_IN_16, _) => Command::ReadCapacity16 {
            allocation: fields.u32(10),
        },
        (_, spec::SA_REPORT_TARGET_PORT_GROUPS) => Command::ReportTargetPortGroups {
            extended: port_group_format(fields.u8(1) >> 5)?,
            allocation: fields.u32(6),
        },
        (_, spec::SA_REPORT_SUPPORTED_OPERATION_CODES) => operation_codes(fields)?,
        _ => Command::ReportTaskManagement {
            extended: fields.bit(2, 7),
            allocation: fields.u32(6),
        },
    })
}

fn port_group_format(format: u8) -> Result<bool, Sense> {
    match format {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Sense::field_in_cdb(1, Some(7))),
    }
}

fn operation_codes(fields: &Fields<'_>) -> Result<Command, Sense> {
    let reporting = match fields.u8(2) & 0b111 {
        0 => Reporting::All,
        1 => Reporting::Opcode,
        2 => Reporting::ServiceAction,
        3 => Reporting::Either,
        _ => return Err(Sense::field_in_cdb(2, Some(2))),
    };
    Ok(Command::ReportOperationCodes {
        timeouts: fields.bit(2, 7),
        reporting,
        opcode: fields.u8(3),
        service_action: fields.u16(4),
        allocation: fields.u32(6),
    })
}

/// Big-endian fields of a padded CDB. All positions are constants below 16.
struct Fields<'c>(&'c [u8; CDB_BYTES_MAX]);

impl Fields<'_> {
    const fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    const fn bit(&self, at: usize, bit: u8) -> bool {
        self.0[at] >> bit & 1 != 0
    }

    const fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from(self.u16(at)) << 16 | u32::from(self.u16(at + 2))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }

    /// LBA and block count of the commands that have them. The positions follow from the length of
    /// the CDB. COMPARE AND WRITE and WRITE ATOMIC are exceptions, because their block counts are
    /// shorter.
    fn extent(&self, opcode: Opcode) -> Option<Extent> {
        let (lba, blocks) = match opcode {
            Opcode::COMPARE_AND_WRITE => (self.u64(2), self.u8(13).into()),
            Opcode::WRITE_ATOMIC_16 => (self.u64(2), self.u16(12).into()),
            Opcode::READ_10
            | Opcode::WRITE_10
            | Opcode::WRITE_AND_VERIFY_10
            | Opcode::VERIFY_10
            | Opcode::PRE_FETCH_10
            | Opcode::SYNCHRONIZE_CACHE_10
            | Opcode::WRITE_SAME_10 => (self.u32(2).into(), self.u16(7).into()),
            Opcode::READ_12
            | Opcode::WRITE_12
            | Opcode::WRITE_AND_VERIFY_12
            | Opcode::VERIFY_12 => (self.u32(2).into(), self.u32(6)),
            Opcode::READ_16
            | Opcode::WRITE_16
            | Opcode::ORWRITE
            | Opcode::WRITE_AND_VERIFY_16
            | Opcode::VERIFY_16
            | Opcode::PRE_FETCH_16
            | Opcode::SYNCHRONIZE_CACHE_16
            | Opcode::WRITE_SAME_16 => (self.u64(2), self.u32(10)),
            _ => return None,
        };
        Some(Extent { lba, blocks })
    }
}

/// Most significant bit of the service action: bits 4:0 of byte 1.
const SERVICE_ACTION_TOP_BIT: u8 = 4;

//! Answers to REPORT SUPPORTED OPERATION CODES and REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
//!
//! Source: SPC-4, "REPORT SUPPORTED OPERATION CODES", "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS".

use super::TaskManagement;
use crate::scsi::cdb::table::{knows_opcode, supported};
use crate::scsi::cdb::{CommandEntry, Features, Reporting};
use crate::scsi::data_in::DataIn;
use crate::scsi::sense::Sense;

/// Writes the list of all commands. With `timeouts` each command has a timeouts descriptor.
pub fn write_all(features: Features, timeouts: bool, out: &mut DataIn<'_>) {
    out.u32(0);
    for entry in supported(features) {
        let flags = if timeouts { CTDP_ALL } else { 0 };
        out.put(&[entry.opcode.0, 0]);
        out.u16(entry.service_action.unwrap_or(0).into());
        out.put(&[0, flags | u8::from(entry.service_action.is_some())]);
        out.u16(u16::try_from(entry.cdb_bytes()).unwrap_or(0));
        if timeouts {
            write_timeouts(out);
        }
    }
    out.close_u32(0);
}

/// Writes the description of one command, or that the command is not supported.
///
/// # Errors
/// INVALID FIELD IN CDB: `reporting` forbids or requires a service action, contrary to the
/// operation code.
pub fn write_one(
    features: Features,
    reporting: Reporting,
    opcode: u8,
    service_action: u16,
    timeouts: bool,
    out: &mut DataIn<'_>,
) -> Result<(), Sense> {
    check_reporting(features, reporting, opcode)?;
    let found = supported(features).find(|entry| {
        entry.opcode.0 == opcode
            && entry
                .service_action
                .is_none_or(|action| u16::from(action) == service_action)
    });
    match found {
        Some(entry) => write_found(entry, features, timeouts, out),
        None => out.put(&[0, NOT_SUPPORTED, 0, 0]),
    }
    Ok(())
}

fn check_reporting(features: Features, reporting: Reporting, opcode: u8) -> Result<(), Sense> {
    let acts =
        supported(features).any(|entry| entry.opcode.0 == opcode && entry.service_action.is_some());
    let wrong = match reporting {
        Reporting::Opcode => acts,
        Reporting::ServiceAction => !acts && knows_opcode(opcode, features),
        Reporting::All | Reporting::Either => false,
    };
    if wrong {
        Err(Sense::field_in_cdb(2, Some(2)))
    } else {
        Ok(())
    }
}

fn write_found(entry: &CommandEntry, features: Features, timeouts: bool, out: &mut DataIn<'_>) {
    let flags = if timeouts { CTDP_ONE } else { 0 };
    out.put(&[0, flags | SUPPORTED]);
    out.u16(u16::try_from(entry.cdb_bytes()).unwrap_or(0));
    for byte in entry.usage(features) {
        out.u8(byte);
    }
    if timeouts {
        write_timeouts(out);
    }
}

/// Writes a timeouts descriptor of zeroes: the target recommends no timeouts.
fn write_timeouts(out: &mut DataIn<'_>) {
    out.u16(10);
    out.zeroes(10);
}

/// Writes the supported task management functions. With `extended` their timeouts follow, all zero:
/// none is recommended.
pub fn write_task_management(functions: TaskManagement, extended: bool, out: &mut DataIn<'_>) {
    out.u16(functions.0);
    out.u8(0);
    out.u8(if extended { 12 } else { 0 });
    out.zeroes(if extended { 12 } else { 0 });
}

/// CTDP bit in a descriptor of the all-commands format.
const CTDP_ALL: u8 = 0x02;
/// CTDP bit in the one-command format.
const CTDP_ONE: u8 = 0x80;
/// SUPPORT 001b: the command is not supported.
const NOT_SUPPORTED: u8 = 0x01;
/// SUPPORT 011b: the command is supported as in the standard.
const SUPPORTED: u8 = 0x03;

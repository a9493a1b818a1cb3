//! Commands that the unit answers from the [`View`] alone, without an operation of the disk.

use super::{Attention, Attentions, Sense, SenseFormat, View};
use crate::scsi::alua;
use crate::scsi::cdb::{Command, Reporting, SelectReport};
use crate::scsi::copy;
use crate::scsi::data_in::DataIn;
use crate::scsi::pages::{capacity, inquiry, support, vital};
use crate::scsi::persistent;
use crate::scsi::sense::SENSE_BYTES_MAX;

impl View<'_> {
    /// Writes the data-in of the answer. Commands without data-in write nothing.
    pub(super) fn write_answer(
        &self,
        command: &Command,
        attentions: &mut Attentions,
        out: &mut DataIn<'_>,
    ) -> Result<(), Sense> {
        let (disk, target) = (self.disk, self.target);
        match *command {
            Command::Inquiry { page: None, .. } => inquiry::write_standard(disk, target, out),
            Command::Inquiry {
                page: Some(code), ..
            } => return self.write_vital(code, out),
            Command::RequestSense { descriptor, .. } => {
                let attention = attentions.take().map(Attention::sense);
                let sense = attention
                    .or_else(|| self.access.sense())
                    .unwrap_or(Sense::NONE);
                write_sense(&sense, descriptor, out);
            }
            Command::ReadCapacity10 => capacity::write_10(disk, out),
            Command::ReadCapacity16 { .. } => capacity::write_16(disk, out),
            Command::ReportLuns { select, .. } => self.write_luns(select, attentions, out),
            Command::ModeSense(asked) => return self.mode.write(&asked, disk, out),
            Command::ReadDefectData { long, lists, .. } => {
                capacity::write_defects(long, lists, out);
            }
            Command::PersistentReserveIn { action, .. } => {
                persistent::write_in(action, self.reservations, disk, out);
            }
            Command::ReportTargetPortGroups { extended, .. } => {
                alua::write_port_groups(target, self.states, extended, out);
            }
            Command::ReportTaskManagement { extended, .. } => {
                support::write_task_management(target.task_management, extended, out);
            }
            Command::ReportOperationCodes { .. } => return self.write_codes(command, out),
            Command::ReceiveCopyParameters { .. } => copy::write_parameters(disk, out),
            _ => {}
        }
        Ok(())
    }

    fn write_vital(&self, code: u8, out: &mut DataIn<'_>) -> Result<(), Sense> {
        match vital::write(code, self.disk, self.target, self.port, out) {
            true => Ok(()),
            false => Err(Sense::field_in_cdb(2, None)),
        }
    }

    /// Writes the answer to REPORT LUNS. The command removes the pending condition "reported LUNs
    /// data has changed", because the initiator reads the new list.
    fn write_luns(&self, select: SelectReport, attentions: &mut Attentions, out: &mut DataIn<'_>) {
        attentions.remove(Attention::LunsChanged);
        match select {
            SelectReport::Units => capacity::write_luns(self.luns, out),
            SelectReport::WellKnown => capacity::write_luns(&[], out),
        }
    }

    fn write_codes(&self, command: &Command, out: &mut DataIn<'_>) -> Result<(), Sense> {
        let Command::ReportOperationCodes {
            timeouts,
            reporting,
            opcode,
            service_action,
            ..
        } = *command
        else {
            return Ok(());
        };
        let features = self.disk.features();
        if reporting == Reporting::All {
            support::write_all(features, timeouts, out);
            return Ok(());
        }
        support::write_one(features, reporting, opcode, service_action, timeouts, out)
    }
}

/// Writes the sense data that REQUEST SENSE returns as data-in.
pub(super) fn write_sense(sense: &Sense, descriptor: bool, out: &mut DataIn<'_>) {
    let format = if descriptor {
        SenseFormat::Descriptor
    } else {
        SenseFormat::Fixed
    };
    let mut bytes = [0; SENSE_BYTES_MAX];
    let length = sense.write(format, &mut bytes);
    out.put(&bytes[..length]);
}

//! Commands with a parameter list, after the list has been received.
//!
//! `list` is the data that the transport received. A list shorter than PARAMETER LIST LENGTH is an
//! error of the initiator.

use alloc::vec::Vec;

use super::{Answer, DiskOperation, Outcome, Sense, View, length_error};
use crate::scsi::additional::AdditionalSense;
use crate::scsi::cdb::{Command, Extent};
use crate::scsi::copy;
use crate::scsi::pages::{UNMAP_BLOCKS_MAX, UNMAP_DESCRIPTORS_MAX};
use crate::scsi::persistent;
use crate::scsi::reservation::Access;

impl View<'_> {
    /// Processes the received parameter list of a command for which [`classify`](View::classify)
    /// returned [`Outcome::Parameters`]. The access state and the reservations are checked again,
    /// because they may have changed since then.
    #[must_use]
    pub fn parameters(&self, command: &Command, list: &[u8]) -> Outcome {
        let access = match command {
            Command::PersistentReserveOut(_) => Access::PersistentOut,
            _ => Access::Write,
        };
        if let Some(sense) = self.access.sense() {
            return Outcome::Answer(Answer::check(sense));
        }
        if self.standing.conflicts(access) {
            return Outcome::Answer(Answer::CONFLICT);
        }
        self.try_parameters(command, list)
            .unwrap_or_else(|sense| Outcome::Answer(Answer::check(sense)))
    }

    pub(super) fn try_parameters(&self, command: &Command, list: &[u8]) -> Result<Outcome, Sense> {
        let bytes = command.parameter_bytes().unwrap_or(0);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let list = list.get(..bytes).ok_or_else(length_error)?;
        match command {
            Command::ModeSelect { long, .. } => {
                let selected = self.mode.select(self.disk, *long, list)?;
                Ok(match selected == self.mode {
                    true => Outcome::Answer(Answer::GOOD),
                    false => Outcome::Mode(selected),
                })
            }
            Command::PersistentReserveOut(command) => {
                persistent::parse_out(command, list, self.disk, self.target).map(Outcome::Reserve)
            }
            Command::Unmap { .. } => self.unmap(list),
            Command::ExtendedCopy { .. } => self.extended_copy(list),
            _ => Ok(Outcome::Answer(Answer::GOOD)),
        }
    }

    fn extended_copy(&self, list: &[u8]) -> Result<Outcome, Sense> {
        let copies = copy::parse(list)?;
        Ok(match copies.segments.is_empty() {
            true => Outcome::Answer(Answer::GOOD),
            false => Outcome::Copy(copies),
        })
    }

    /// Processes UNMAP. All descriptors are checked before any block is deallocated.
    ///
    /// Source: SBC-3, "UNMAP command", "UNMAP parameter list".
    fn unmap(&self, list: &[u8]) -> Result<Outcome, Sense> {
        if list.is_empty() {
            return Ok(Outcome::Answer(Answer::GOOD));
        }
        let (header, body) = list.split_first_chunk::<8>().ok_or_else(length_error)?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let body = body.get(..length).ok_or_else(length_error)?;
        let (descriptors, _) = body.as_chunks::<16>();
        if descriptors.len() > usize::try_from(UNMAP_DESCRIPTORS_MAX).unwrap_or(0) {
            return Err(Sense::field_in_parameters(2, None));
        }
        let mut extents = Vec::with_capacity(descriptors.len());
        let mut blocks = 0u64;
        for (index, bytes) in descriptors.iter().enumerate() {
            let extent = unmap_extent(bytes);
            blocks += u64::from(extent.blocks);
            self.check_unmap(index, extent, blocks)?;
            if extent.blocks > 0 {
                extents.push(extent);
            }
        }
        Ok(match extents.is_empty() {
            true => Outcome::Answer(Answer::GOOD),
            false => Outcome::Disk(DiskOperation::Deallocate(extents)),
        })
    }

    fn check_unmap(&self, index: usize, extent: Extent, blocks: u64) -> Result<(), Sense> {
        if !self.disk.contains(extent) {
            return Err(Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE));
        }
        if blocks > u64::from(UNMAP_BLOCKS_MAX) {
            let byte = 8 + 16 * index + 8;
            let byte = u16::try_from(byte).unwrap_or(u16::MAX);
            return Err(Sense::field_in_parameters(byte, None));
        }
        Ok(())
    }
}

fn unmap_extent(bytes: &[u8; 16]) -> Extent {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *bytes;
    Extent {
        lba: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        blocks: u32::from_be_bytes([i, j, k, l]),
    }
}

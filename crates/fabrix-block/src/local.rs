//! Opens the disks of this machine from their text form. The program composes remote disks and
//! arrays of them, because it knows the protocols. For the options that all disks share it calls
//! [`apply_common_options`].

use std::sync::Arc;

use fabrix_rt::HugePages;

use crate::file::{FileDisk, FileOptions};
use crate::filter::fault::Fault;
use crate::filter::read_only::ReadOnly;
use crate::geometry::{DEFAULT_BLOCK_BYTES, Geometry};
use crate::null::NullDisk;
use crate::raid0::Raid0;
use crate::ram::RamDisk;
use crate::spec::{Common, Disk};
use crate::{Device, Identity, OpenError, OpenErrorKind, Spec};

/// Opens a disk of this machine. The identity is derived from the name, or else from the path or
/// the text.
///
/// Errors: The reason why the disk cannot be opened. `Usage` for a remote disk, which is not opened
/// here.
pub fn open_local(spec: &Spec) -> Result<Arc<dyn Device>, OpenError> {
    open_seeded(spec, None)
}

/// Opens a disk of this machine with an identity derived from `seed`. The seed must differ for all
/// disks that the same hosts may see, for example by the machine's id and the disk's name.
///
/// Errors: Those of [`open_local`].
pub fn open_local_as(spec: &Spec, seed: &str) -> Result<Arc<dyn Device>, OpenError> {
    open_seeded(spec, Some(seed))
}

/// Applies the options that all disks share: injected faults and read-only access.
#[must_use]
pub fn apply_common_options(device: Arc<dyn Device>, common: &Common) -> Arc<dyn Device> {
    let mut device = device;
    if !common.inject.is_empty() {
        device = Fault::new(device, &common.inject, FAULT_SEED);
    }
    if common.read_only && !device.geometry().read_only {
        device = ReadOnly::new(device);
    }
    device
}

fn open_seeded(spec: &Spec, seed: Option<&str>) -> Result<Arc<dyn Device>, OpenError> {
    let common = &spec.common;
    let device: Arc<dyn Device> = match &spec.disk {
        Disk::Ram { bytes, huge_pages } => {
            let huge_pages = if *huge_pages {
                HugePages::Try
            } else {
                HugePages::No
            };
            RamDisk::new(
                sizes(spec, *bytes)?,
                huge_pages,
                identity(spec, seed, "Fabrix RAM disk"),
            )?
        }
        Disk::Null { bytes } => NullDisk::new(
            sizes(spec, *bytes)?,
            identity(spec, seed, "Fabrix null disk"),
        ),
        Disk::File {
            path,
            create_bytes,
            direct,
        } => FileDisk::open(FileOptions {
            path: path.into(),
            create_bytes: *create_bytes,
            direct: *direct,
            read_only: common.read_only,
            block_bytes: common.block_bytes,
            physical_block_bytes: common.physical_block_bytes,
            name: common.name.clone(),
            seed: seed.map(str::to_owned),
        })?,
        Disk::Raid0 {
            chunk_bytes,
            members,
        } => {
            let members: Result<Vec<_>, _> = members.iter().map(open_local).collect();
            Raid0::new(
                *chunk_bytes,
                members?,
                identity(spec, seed, "Fabrix RAID0 array"),
            )?
        }
        Disk::Rbd(_) | Disk::Remote(_) | Disk::Multipath { .. } => {
            let sentence = format!("{spec}: a remote disk cannot be opened as one of this machine");
            return Err(OpenError::new(OpenErrorKind::Usage, sentence));
        }
    };
    Ok(apply_common_options(device, common))
}

/// The geometry of a disk in memory. A partial block at the end is ignored.
fn sizes(spec: &Spec, bytes: u64) -> Result<Geometry, OpenError> {
    let block_bytes = spec.common.block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES);
    let usage = |sentence| OpenError::new(OpenErrorKind::Usage, format!("{spec}: {sentence}"));
    match bytes / u64::from(block_bytes) {
        0 => Err(usage(format!(
            "{bytes} bytes are less than one block of {block_bytes}"
        ))),
        blocks => Geometry::new(block_bytes, blocks)
            .with_physical(spec.common.physical_block_bytes)
            .map_err(usage),
    }
}

fn identity(spec: &Spec, seed: Option<&str>, model: &str) -> Identity {
    let name = spec.common.name.clone().unwrap_or_else(|| spec.to_string());
    Identity::derive(&name, seed.unwrap_or(&name), model)
}

/// Fixed seed: injected faults are the same in every run.
const FAULT_SEED: u64 = 0xfab_0123_4567_89ab;

#[cfg(test)]
mod tests;

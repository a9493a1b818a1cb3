//! The catalog: what a target exports.

mod disk;

pub(crate) use disk::ExportedDisk;

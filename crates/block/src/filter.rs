//! What can stand in front of any disk and is a disk itself: counting, faults on purpose, refusing writes.

pub mod fault;
pub mod read_only;
pub mod stats;

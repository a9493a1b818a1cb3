//! What can stand in front of any disk and is a disk itself: counting, faults on purpose, refusing writes, another
//! name.

pub mod fault;
pub mod named;
pub mod read_only;
pub mod stats;

//! What is fuzzed. The functions are in modules of their own, so that the ordinary tests can replay
//! a corpus with them.

#![forbid(unsafe_code)]

pub mod bodies;
pub mod gateways;
pub mod initiator;
pub mod iscsi;
pub mod nbd;
pub mod scsi;

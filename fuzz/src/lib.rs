//! What is fuzzed. The functions are in [`bodies`] and [`iscsi`], so that the ordinary tests can replay a corpus with
//! them.

#![forbid(unsafe_code)]

pub mod bodies;
pub mod iscsi;

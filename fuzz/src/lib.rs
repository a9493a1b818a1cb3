//! What is fuzzed. The functions are in [`bodies`], so that the ordinary tests can replay a corpus with them.

#![forbid(unsafe_code)]

pub mod bodies;

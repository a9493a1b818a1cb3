//! One file per subcommand: each takes its arguments, composes the crates below, and prints through `terminal`.

pub(crate) mod bench;
pub(crate) mod ctl;
pub(crate) mod demo;
pub(crate) mod discover;
pub(crate) mod doctor;
pub(crate) mod serve;
pub(crate) mod terminal;

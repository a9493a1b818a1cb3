//! One file per subcommand: each takes its arguments, composes the crates below, and prints through
//! `terminal`.

pub(crate) mod attach;
pub(crate) mod bench;
pub(crate) mod ctl;
pub(crate) mod demo;
pub(crate) mod detach;
pub(crate) mod discover;
pub(crate) mod doctor;
pub(crate) mod list;
pub(crate) mod notices;
pub(crate) mod seed;
pub(crate) mod serve;
pub(crate) mod terminal;
pub(crate) mod top;

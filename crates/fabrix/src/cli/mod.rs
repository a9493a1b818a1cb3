//! One file per subcommand. Each takes its parsed arguments, composes the other crates, and prints
//! through `terminal`.

pub(crate) mod attach;
pub(crate) mod bench;
pub(crate) mod ctl;
pub(crate) mod demo;
pub(crate) mod detach;
pub(crate) mod discover;
pub(crate) mod doctor;
pub(crate) mod list;
pub(crate) mod notices;
pub(crate) mod packaging;
pub(crate) mod path;
pub(crate) mod seed;
pub(crate) mod serve;
pub(crate) mod terminal;
pub(crate) mod top;

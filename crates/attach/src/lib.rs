//! Front ends for this machine: a disk as a file, a block device or a socket of the machine that we run on.
//!
//! Knows how the kernel (ublk; FUSE with a loop device) and local programs (NBD over a Unix socket) ask for blocks, and
//! turns that into requests of a [`fabrix_block::Device`]; touches sockets, mounts and devices through `rt` only. Does
//! not know what the disk is, and nothing of a network.
//!
//! A front end lives on one shard, with one channel to its disk. So a flush on any of its connections covers what was
//! answered on all of them. [`ublk`], [`fuse`] and [`nbd`] are begun from a control thread and end by themselves, or
//! when their handle is told.

pub mod fuse;
mod job;
mod lane;
pub mod nbd;
pub mod ublk;

use std::fmt;
use std::sync::mpsc;

use fabrix_rt::{Remote, Shard};

/// Why a front end could not begin: a sentence.
#[derive(Debug)]
pub struct BeginError(pub String);

impl fmt::Display for BeginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BeginError {}

/// Called on the shard's thread, so it must not wait.
pub type Tell = Box<dyn Fn(Told) + Send>;

/// What a front end tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It has ended: nobody uses it any more, and nothing of it is left on the shard.
    Over,
    /// A client broke the rules and was cut off; the sentence says how.
    Violation(String),
}

/// Runs something on a shard and waits for what it gives. Never to be called on that shard.
fn on_shard<T: Send + 'static>(
    remote: &Remote,
    work: impl FnOnce(&mut Shard) -> T + Send + 'static,
) -> Result<T, BeginError> {
    let (tell, told) = mpsc::sync_channel(1);
    let run = Box::new(move |shard: &mut Shard| {
        let _nobody_waits = tell.send(work(shard));
    });
    let lost =
        || BeginError("the data path has ended, or is too busy to begin anything".to_owned());
    remote.run(run).map_err(|_| lost())?;
    told.recv().map_err(|_| lost())
}

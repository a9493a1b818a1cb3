//! Front ends for this machine: a disk as a file, a block device or a socket of the machine that we
//! run on.
//!
//! Knows how the kernel (ublk; FUSE with a loop device) and programs (NBD over a socket) ask for
//! blocks, and turns that into requests of a [`fabrix_block::Device`]; touches sockets, mounts and
//! devices through `rt` only. Does not know what the disk is, and opens no way to a network: a
//! listening socket is handed over.
//!
//! A front end lives on one shard, with one channel to its disk. So a flush on any of its
//! connections covers what was answered on all of them. [`ublk`], [`nbd`], [`fuse`] and [`vhost`]
//! are begun from a control thread and end by themselves, or when their handle is told.

pub mod fuse;
mod job;
mod lane;
pub mod nbd;
#[cfg(test)]
mod testing;
pub mod ublk;
pub mod vhost;

use std::any::Any;
use std::fmt;
use std::sync::{Arc, mpsc};

use fabrix_block::{Device, OpenError};
use fabrix_rt::{Remote, Shard, TaskId};

/// Why a front end could not begin, or not go on with another size: a sentence.
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

/// The same disk in another size, and who waits to hear whether it was taken.
struct Resize {
    disk: Arc<dyn Device>,
    tell: mpsc::SyncSender<Result<(), OpenError>>,
}

/// Has a task go on with the same disk in another size, and waits until it does. Never to be called
/// on its shard.
fn resize<T: Any + Send>(
    (remote, task): (&Remote, TaskId),
    disk: Arc<dyn Device>,
    order: impl FnOnce(Resize) -> T,
) -> Result<(), BeginError> {
    let (tell, told) = mpsc::sync_channel(1);
    let order = Box::new(order(Resize { disk, tell }));
    let lost = || BeginError("it is being detached, or is too busy for another size".to_owned());
    remote.send(task, order).map_err(|_| lost())?;
    let taken = told.recv().map_err(|_| lost())?;
    taken.map_err(|error| BeginError(error.to_string()))
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

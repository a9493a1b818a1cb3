//! Front ends for this machine: a disk as a file, a block device or a socket.
//!
//! The crate translates the block requests of the kernel (ublk; FUSE with a loop device) and of
//! programs (NBD, vhost-user) into requests of a [`fabrix_block::Device`]. It accesses sockets,
//! mounts and devices only through `rt`. It does not know the kind of disk. The caller opens
//! listening sockets and passes them in.
//!
//! A front end runs on one shard with one channel to its disk. A flush on any of its connections
//! therefore covers the answered writes of all of them. [`ublk`], [`nbd`], [`fuse`] and [`vhost`]
//! are started from a control thread. They end by themselves or on an order of their handle.

mod disk_channel;
pub mod fuse;
mod job;
pub mod nbd;
#[cfg(test)]
mod testing;
pub mod ublk;
pub mod vhost;
mod work;

use std::any::Any;
use std::fmt;
use std::sync::{Arc, mpsc};

use fabrix_block::{Device, OpenError};
use fabrix_rt::{Remote, Shard, TaskId};

/// Error of starting or resizing a front end: a sentence.
#[derive(Debug)]
pub struct BeginError(pub String);

impl fmt::Display for BeginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BeginError {}

impl From<OpenError> for BeginError {
    fn from(error: OpenError) -> Self {
        Self(error.sentence)
    }
}

/// Callback for the events of a front end. It runs on the shard's thread, so it must not block.
pub type EventHandler = Box<dyn Fn(FrontEndEvent) + Send>;

/// Event of a front end for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontEndEvent {
    /// The front end has ended and left the shard.
    Ended,
    /// A client broke the protocol and was disconnected. Field: a sentence.
    Violation(String),
}

/// A resized disk, and the channel for the result of the resize.
struct Resize {
    disk: Arc<dyn Device>,
    result: mpsc::SyncSender<Result<(), OpenError>>,
}

/// The address of a front end on its shard. Its functions must not be called on that shard.
#[derive(Debug)]
struct FrontEnd {
    remote: Remote,
    task: TaskId,
}

impl FrontEnd {
    /// Starts a front end on a shard.
    fn begin(
        remote: &Remote,
        open: impl FnOnce(&mut Shard) -> Result<TaskId, BeginError> + Send + 'static,
    ) -> Result<Self, BeginError> {
        let task = on_shard(remote, open)??;
        let remote = remote.clone();
        Ok(Self { remote, task })
    }

    /// Sends an order. A front end that has ended needs none.
    fn send(&self, order: impl Any + Send) {
        let _it_is_over = self.remote.send(self.task, Box::new(order));
    }

    /// Lets the task continue with a resized disk, and waits for the result.
    fn resize<T: Any + Send>(
        &self,
        disk: Arc<dyn Device>,
        order: impl FnOnce(Resize) -> T,
    ) -> Result<(), BeginError> {
        let (result, receiver) = mpsc::sync_channel(1);
        let order = Box::new(order(Resize { disk, result }));
        let lost =
            || BeginError("it is being detached, or is too busy for another size".to_owned());
        self.remote.send(self.task, order).map_err(|_| lost())?;
        Ok(receiver.recv().map_err(|_| lost())??)
    }
}

/// Runs a function on a shard and returns its result. Must not be called on that shard.
fn on_shard<T: Send + 'static>(
    remote: &Remote,
    work: impl FnOnce(&mut Shard) -> T + Send + 'static,
) -> Result<T, BeginError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let run = Box::new(move |shard: &mut Shard| {
        let _nobody_waits = sender.send(work(shard));
    });
    let lost =
        || BeginError("the data path has ended, or is too busy to begin anything".to_owned());
    remote.run(run).map_err(|_| lost())?;
    receiver.recv().map_err(|_| lost())
}

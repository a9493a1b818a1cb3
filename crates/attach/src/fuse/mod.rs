//! The disk as a regular file, over /dev/fuse: for a loop device above it, or as it is.
//!
//! Knows beginning and ending; what the kernel asks meanwhile is `server`. The file is not mounted here: whoever mounts
//! waits for the kernel, and must not be the shard that answers it.

mod server;

use std::fs::File;
use std::sync::Arc;

use fabrix_block::Device;
use fabrix_rt::{Remote, TaskId};

use crate::{BeginError, Tell, on_shard, resize};
use server::{Order, Server};

/// A disk that is served as a file.
#[derive(Debug)]
pub struct FuseFile {
    remote: Remote,
    task: TaskId,
}

impl FuseFile {
    /// Answers the kernel on `device`, an open /dev/fuse, on the shard of `remote`. `owner` is the user and the group
    /// whose file it is. `tell` hears when the kernel needs the file no more.
    ///
    /// # Errors
    /// The disk cannot be opened on the shard.
    pub fn begin(
        remote: &Remote,
        disk: Arc<dyn Device>,
        device: File,
        owner: (u32, u32),
        tell: Tell,
    ) -> Result<Self, BeginError> {
        let task = on_shard(remote, move |shard| {
            // Without the privilege memory may run short in a bad moment; it works all the same.
            let _unprivileged = fabrix_rt::process::carries_io();
            Server::open(shard, disk, device, owner, tell)
        })??;
        Ok(Self {
            remote: remote.clone(),
            task,
        })
    }

    /// The disk has another size. Whoever looks at the file when this has returned sees it.
    ///
    /// # Errors
    /// The disk cannot be opened again, so its old size stays; or it is over.
    pub fn resized(&self, disk: Arc<dyn Device>) -> Result<(), BeginError> {
        resize((&self.remote, self.task), disk, Order::Resized)
    }

    /// From now on everything fails at once, what is in progress included: nobody waits for this disk any more.
    pub fn fail(&self) {
        let _it_is_over = self.remote.send(self.task, Box::new(Order::Fail));
    }
}

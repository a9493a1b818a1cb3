//! The disk as a regular file, over /dev/fuse: for a loop device above it, or as it is.
//!
//! Knows beginning and ending; what the kernel asks meanwhile is `server`. The file is not mounted
//! here: whoever mounts waits for the kernel, and must not be the shard that answers it.

mod server;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::sync::Arc;

use fabrix_block::Device;
use fabrix_rt::{Remote, TaskId};

use crate::{BeginError, Tell, on_shard, resize};
use server::{Order, OverUring, Server};

/// A disk that is served as a file.
#[derive(Debug)]
pub struct FuseFile {
    remote: Remote,
    task: TaskId,
    over_uring: OverUring,
}

/// Whether this machine's FUSE gives its requests out over io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelRing {
    /// It does.
    On,
    /// It can, and its administrator has not switched it on.
    Off,
    /// Before Linux 6.14, or built without it.
    Absent,
}

/// The switch of it, for the whole machine.
pub const RING_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

impl KernelRing {
    /// Looks.
    #[must_use]
    pub fn look() -> Self {
        match fs::read_to_string(RING_SWITCH) {
            Ok(text) if text.trim() == "Y" => Self::On,
            Ok(_) => Self::Off,
            Err(_) => Self::Absent,
        }
    }
}

impl FuseFile {
    /// Answers the kernel on `device`, an open /dev/fuse, on the shard of `remote`. `owner` is the
    /// user and the group whose file it is. `tell` hears when the kernel needs the file no more.
    /// Where the kernel and the shard allow it, requests come over io_uring.
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
        let over_uring = OverUring::default();
        let known = match KernelRing::look() {
            KernelRing::On => None,
            KernelRing::Off => Some(format!("{RING_SWITCH} is N")),
            KernelRing::Absent => Some("this kernel has no such thing".to_owned()),
        };
        if let Some(why) = known {
            let _first = over_uring.set(Err(why));
        }
        let asked = Arc::clone(&over_uring);
        let task = on_shard(remote, move |shard| {
            // Without the privilege memory may run short in a bad moment; it works all the same.
            let _unprivileged = fabrix_rt::process::carries_io();
            Server::open(shard, disk, device, owner, (tell, asked))
        })??;
        Ok(Self {
            remote: remote.clone(),
            task,
            over_uring,
        })
    }

    /// Whether requests come over io_uring, or why they are read; None: the kernel has not asked
    /// for anything yet.
    #[must_use]
    pub fn over_uring(&self) -> Option<Result<(), &str>> {
        let known = self.over_uring.get()?;
        Some(known.as_ref().copied().map_err(String::as_str))
    }

    /// The disk has another size. Whoever looks at the file when this has returned sees it.
    ///
    /// # Errors
    /// The disk cannot be opened again, so its old size stays; or it is over.
    pub fn resized(&self, disk: Arc<dyn Device>) -> Result<(), BeginError> {
        resize((&self.remote, self.task), disk, Order::Resized)
    }

    /// From now on everything fails at once, what is in progress included: nobody waits for this
    /// disk any more.
    pub fn fail(&self) {
        let _it_is_over = self.remote.send(self.task, Box::new(Order::Fail));
    }
}

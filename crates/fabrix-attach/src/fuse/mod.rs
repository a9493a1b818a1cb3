//! The disk as a regular file, served over /dev/fuse: used directly or below a loop device.
//!
//! This file starts and stops the server, and `server` handles the kernel's requests. The program
//! mounts the file, because a mount waits for the kernel and must not block the shard that answers
//! it.

mod server;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::sync::Arc;

use fabrix_block::Device;
use fabrix_rt::Remote;

use crate::{BeginError, EventHandler, FrontEnd};
use server::{Order, OverUring, Server};

/// A disk served as a file.
#[derive(Debug)]
pub struct FuseFile {
    front_end: FrontEnd,
    over_uring: OverUring,
}

/// Availability of FUSE over io_uring on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelRing {
    /// Switched on.
    On,
    /// Supported by the kernel, but not switched on by the administrator.
    Off,
    /// Not supported: Linux before 6.14, or built without it.
    Absent,
}

/// The machine-wide switch of FUSE over io_uring.
pub const RING_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

impl KernelRing {
    /// Reads the switch.
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
    /// Serves `disk` on `device`, an open /dev/fuse, on the shard of `remote`. `owner` is the user
    /// and group that own the file. `on_event` is called when the kernel no longer needs the file.
    /// Requests come over io_uring if the kernel and the shard support it.
    ///
    /// # Errors
    /// The disk cannot be opened on the shard.
    pub fn begin(
        remote: &Remote,
        disk: Arc<dyn Device>,
        device: File,
        owner: (u32, u32),
        on_event: EventHandler,
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
        let shard_over_uring = Arc::clone(&over_uring);
        let front_end = FrontEnd::begin(remote, move |shard| {
            // Without this privilege a memory shortage can block the server. It works nevertheless.
            let _unprivileged = fabrix_rt::process::carries_io();
            Server::open(shard, disk, device, owner, (on_event, shard_over_uring))
        })?;
        Ok(Self {
            front_end,
            over_uring,
        })
    }

    /// Whether requests come over io_uring, or the reason why not. None: the kernel has not sent a
    /// request yet.
    #[must_use]
    pub fn over_uring(&self) -> Option<Result<(), &str>> {
        let known = self.over_uring.get()?;
        Some(known.as_ref().copied().map_err(String::as_str))
    }

    /// Changes the size of the file. The new size is visible when this function returns.
    ///
    /// # Errors
    /// The disk cannot be opened in its new size, so the old size stays; or the server has ended.
    pub fn resized(&self, disk: Arc<dyn Device>) -> Result<(), BeginError> {
        self.front_end.resize(disk, Order::Resized)
    }

    /// Fails all current and future requests at once: the disk's users have given it up.
    pub fn fail(&self) {
        self.front_end.send(Order::Fail);
    }
}

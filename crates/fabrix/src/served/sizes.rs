//! Follows the sizes of exported disks that change from outside, for instance by `rbd resize`.
//!
//! A disk tells that something has changed ([`fabrix_block::Device::watch`]), on a thread that must
//! not wait. A thread of this module then reads the size anew, and hosts are told of it.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};
use std::thread;

use fabrix_block::Watching;
use fabrix_target::Export;

use super::Served;
use crate::failure::Failure;
use crate::locks::lock;
use crate::log;

impl Served {
    /// Follows the sizes of all disks from now on.
    ///
    /// Errors: the thread cannot be started.
    pub(crate) fn follow_sizes(self: &Arc<Self>) -> Result<(), Failure> {
        let (sender, receiver) = channel();
        if self.changed.set(sender).is_err() {
            return Ok(());
        }
        let served = Arc::downgrade(self);
        thread::Builder::new()
            .name("sizes".to_owned())
            .spawn(move || follow(&served, &receiver))
            .map_err(|error| Failure::io(format!("cannot start a thread: {error}")))?;
        let mut state = lock(&self.state);
        for export in self.exports() {
            let watching = self.watch(&export);
            state
                .watches
                .extend(watching.map(|watching| (export.number, watching)));
        }
        Ok(())
    }

    /// Lets a disk tell of changes. None: it does not, or nobody follows.
    pub(super) fn watch(&self, export: &Export) -> Option<Watching> {
        let (sender, nsid) = (self.changed.get()?.clone(), export.number);
        export.device.watch(Box::new(move || {
            // Nobody follows any more: the program is about to end.
            let _ = sender.send(nsid);
        }))
    }
}

/// Reads sizes until the target has ended. Changes that come together are one.
fn follow(served: &Weak<Served>, changed: &Receiver<u32>) {
    while let Ok(first) = changed.recv() {
        let all: BTreeSet<u32> = changed.try_iter().chain([first]).collect();
        let Some(served) = served.upgrade() else {
            return;
        };
        for nsid in all {
            if let Err(failure) = served.resize(nsid, None, true) {
                log::warn(format_args!("namespace {nsid} has changed: {failure}"));
            }
        }
    }
}

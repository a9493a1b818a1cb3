//! Which disk is which namespace: an immutable snapshot that all shards share, and a shard's own way into it.
//!
//! Knows devices and their geometry; makes of it the plain data that hosts are told. Does not know connections.

use std::cell::{Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use fabrix_block::{Channel, Device, OpenError};
use fabrix_rt::Shard;

/// One disk and the namespace id it is exported under.
#[derive(Clone)]
pub struct Export {
    /// Never 0, never 0xFFFF_FFFF.
    pub nsid: u32,
    /// The disk.
    pub device: Arc<dyn Device>,
}

/// A shard's channels to the exported disks, opened when the first connection of the shard needs them.
pub(crate) struct Channels {
    exports: Arc<[Export]>,
    open: RefCell<Vec<Option<SharedChannel>>>,
}

/// One channel, used by all connections of a shard.
pub(crate) type SharedChannel = Rc<RefCell<Box<dyn Channel>>>;

impl Channels {
    pub(crate) fn new(exports: Arc<[Export]>) -> Self {
        let open = RefCell::new(vec![None; exports.len()]);
        Self { exports, open }
    }

    /// Where namespace `nsid` stands in the list.
    pub(crate) fn index(&self, nsid: u32) -> Option<usize> {
        // Ids are dense from 1 unless somebody removed one: then they are still sorted.
        let guess = usize::try_from(nsid.checked_sub(1)?).ok()?;
        match self.exports.get(guess) {
            Some(export) if export.nsid == nsid => Some(guess),
            _ => self
                .exports
                .binary_search_by_key(&nsid, |export| export.nsid)
                .ok(),
        }
    }

    /// The shard's channel to the disk at `index`.
    ///
    /// # Errors
    /// The disk cannot be opened from this shard.
    pub(crate) fn get(
        &self,
        shard: &mut Shard,
        index: usize,
    ) -> Result<Ref<'_, SharedChannel>, OpenError> {
        if self.open.borrow()[index].is_none() {
            let channel = self.exports[index].device.open(shard)?;
            self.open.borrow_mut()[index] = Some(Rc::new(RefCell::new(channel)));
        }
        Ok(Ref::map(self.open.borrow(), |open| {
            open[index].as_ref().expect("opened above")
        }))
    }
}

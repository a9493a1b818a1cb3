//! Memory whose bytes leave through a socket without being copied again.
//!
//! An ordinary send copies into memory of the kernel's, which on one machine the receiver has just read: the
//! processor then fetches every line back from the other core's cache, on some machines at a quarter of the speed
//! (`staging.rs` finds out). Bytes that were copied into memory of our own, which is used in turn and so is cold in
//! both caches, are referred to instead.
//! The price is a promise: the kernel reads the pages until the peer has them, so they must not change before.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use crate::sys::pipe::Pipe;
use crate::{Gather, HugePages, Lent, LocalRegion, Region, Socket};

/// Memory for what one socket sends. Dropped, it is never used again for anything else as long as the kernel still
/// reads it: a connection that ended in the middle of a send can never send another one's bytes.
#[derive(Debug)]
pub struct Stage {
    memory: LocalRegion,
    pipe: Rc<Pipe>,
}

/// Bytes of a [`Stage`] that are not changed before the peer has them.
#[derive(Clone)]
pub struct Referenced {
    pub(crate) lent: Lent,
    pub(crate) pipe: Rc<Pipe>,
}

impl Stage {
    /// Makes one of so many bytes for a connected socket.
    ///
    /// Errors: no memory or no descriptors are left.
    pub fn new(socket: &Socket, bytes: usize) -> io::Result<Self> {
        // Splicing into a socket waits where the kernel as a whole runs out of memory for TCP; all else of ours that
        // sends never waits.
        socket.stream().set_write_timeout(Some(WAIT_MOST))?;
        Ok(Self {
            memory: Region::local(&Region::new(bytes, HugePages::Try)?),
            pipe: Rc::new(Pipe::new()?),
        })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.memory.region().len()
    }

    /// Never: an empty one is refused.
    pub fn is_empty(&self) -> bool {
        self.memory.region().is_empty()
    }

    /// False once the kernel has refused to refer to its bytes: they are copied from then on.
    pub fn is_of_use(&self) -> bool {
        !self.pipe.is_spoiled()
    }

    /// Copies bytes to an offset, and refers to them there. Panics outside. Nothing that the peer may not have yet lies
    /// there.
    pub fn put(&self, offset: usize, bytes: &[u8]) -> Referenced {
        self.memory.region().write(offset, bytes);
        self.refer(offset, bytes.len())
    }

    /// The same of all that is left to be sent of a gather.
    pub fn put_all(&self, offset: usize, gather: &mut Gather) -> Referenced {
        let copy = self.refer(offset, gather.unsent_bytes());
        gather.wire().copy_into(&copy.lent);
        copy
    }

    fn refer(&self, offset: usize, bytes: usize) -> Referenced {
        Referenced {
            lent: self.memory.lend(offset, bytes),
            pipe: Rc::clone(&self.pipe),
        }
    }
}

impl Referenced {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.lent.len()
    }

    /// Whether it is no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.lent.is_empty()
    }

    /// A part of it.
    pub fn slice(&self, start: usize, bytes: usize) -> Self {
        Self {
            lent: self.lent.slice(start, bytes),
            pipe: Rc::clone(&self.pipe),
        }
    }
}

/// The kernel rounds it up to a tick of its clock.
const WAIT_MOST: Duration = Duration::from_millis(1);

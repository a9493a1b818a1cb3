//! Bytes that leave through a socket without being copied by the kernel.
//!
//! An ordinary send copies into memory of the kernel's, which on one machine the receiver has just read: the
//! processor then fetches every line back from the other core's cache, on some machines at a quarter of the speed.
//! Bytes that are referred to stay where they are, or are copied into memory of our own, which is used in turn and so
//! is cold in both caches. The price is a promise: the kernel reads the pages until the peer has them, so they must not
//! change before.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use crate::sys::pipe::Pipe;
use crate::{HugePages, Lent, LocalRegion, Region, Socket};

/// The way on which one socket refers to bytes instead of having them copied.
#[derive(Clone, Debug)]
pub struct Referral {
    pub(crate) pipe: Rc<Pipe>,
}

/// Memory for what one socket sends. Dropped, it is never used again for anything else as long as the kernel still
/// reads it: a connection that ended in the middle of a send can never send another one's bytes.
#[derive(Debug)]
pub struct Stage {
    memory: LocalRegion,
    referral: Referral,
}

/// A part of a [`Stage`] that a gather is sent [through](crate::Gather::send_through), once.
pub struct Staged {
    pub(crate) lent: Lent,
    pub(crate) referral: Referral,
}

impl Referral {
    /// Makes one for a connected socket.
    ///
    /// Errors: no descriptors are left.
    pub fn new(socket: &Socket) -> io::Result<Self> {
        // Splicing into a socket waits where the kernel as a whole runs out of memory for TCP; all else of ours that
        // sends never waits.
        socket.stream().set_write_timeout(Some(WAIT_MOST))?;
        let pipe = Rc::new(Pipe::new()?);
        Ok(Self { pipe })
    }

    /// False once the kernel has refused to refer: all is copied from then on.
    pub fn is_of_use(&self) -> bool {
        !self.pipe.is_spoiled()
    }
}

impl Stage {
    /// Makes one of so many bytes, to be referred to in this way.
    ///
    /// Errors: no memory is left.
    pub fn new(referral: &Referral, bytes: usize) -> io::Result<Self> {
        Ok(Self {
            memory: Region::local(&Region::new(bytes, HugePages::Try)?),
            referral: referral.clone(),
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

    /// So many bytes of it. Panics outside. Nothing that the peer may not have yet lies there.
    pub fn part(&self, offset: usize, bytes: usize) -> Staged {
        Staged {
            lent: self.memory.lend(offset, bytes),
            referral: self.referral.clone(),
        }
    }
}

/// The kernel rounds it up to a tick of its clock.
const WAIT_MOST: Duration = Duration::from_millis(1);

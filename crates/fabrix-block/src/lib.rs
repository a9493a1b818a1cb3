//! What a disk is: anything that reads and writes blocks, whoever asks and whatever lies below.
//!
//! A [`Device`] is shared and immutable: facts. A [`Channel`] is one shard's way into it and never
//! crosses a core. A front end submits [`Request`]s to a channel and gets an answer at once
//! ([`Submit::Done`]), later ([`Submit::Pending`], then [`fabrix_rt::Task::completed`]) or not yet
//! ([`Submit::Busy`]). Files and block devices are reached through `rt` only; this crate knows no
//! protocol and no network.
//!
//! The disks: [`null`], [`ram`], [`file`](mod@file), [`raid0`]. What stands between them and a
//! front end: [`filter`] and [`exclusive`]. The text form of a disk, [`spec`], and its stable
//! names, [`identity`].

pub mod allocation;
pub mod exclusive;
pub mod file;
pub mod filter;
pub mod geometry;
pub mod identity;
mod local;
pub mod null;
pub mod raid0;
pub mod ram;
mod slots;
pub mod spec;
mod status;
mod task;
#[cfg(test)]
mod testing;

pub use allocation::{Allocation, Run};
pub use geometry::{Deallocate, Durability, Geometry};
pub use identity::Identity;
pub use local::{dress, open_local, open_local_as};
pub use spec::Spec;
pub use status::{Failed, OpenError, OpenErrorKind, Status};

use std::sync::Arc;

use fabrix_rt::{Buf, Loan, Registered, Shard, Token};

/// A disk as everybody may see it: shared by all shards, and immutable.
pub trait Device: Send + Sync {
    /// Sizes, limits and promises. They do not change while the device is open.
    fn geometry(&self) -> &Geometry;

    /// The names under which hosts recognise this disk after a restart.
    fn identity(&self) -> &Identity;

    /// Opens this shard's own way into the disk.
    ///
    /// Dropping the channel closes it; what is pending then still ends, and is told to its token's
    /// task.
    ///
    /// Errors: whatever the disk needs for one more shard and cannot get (memory, a file
    /// descriptor).
    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError>;

    /// Whether this disk's channels carry out [`Operation::CompareAndWrite`] by themselves,
    /// atomically towards all who reach the disk: a remote disk whose target does. All others are
    /// put behind [`exclusive::Exclusive`].
    fn compares_and_writes(&self) -> bool {
        false
    }

    /// Whether this disk's channels take a [`Payload::Registered`]: those of a disk whose data the
    /// kernel moves, and of all that passes requests on without a look at their bytes.
    fn takes_registered(&self) -> bool {
        false
    }

    /// How the blocks from `lba` on are kept, and for how many of them that holds: at least one,
    /// and none behind the end of the disk. A disk that cannot tell says that all of them are
    /// [`Allocation::Mapped`].
    ///
    /// Any thread may ask. Below a file the file system is asked, which may have to read its own
    /// tables first: so this is for administration, not for the way of every I/O. What is written
    /// meanwhile may already be in the answer.
    fn allocation(&self, lba: u64) -> Run {
        Run::to_the_end(Allocation::Mapped, lba, self.geometry().blocks)
    }

    /// What the user should be told once, in sentences: for example that a size was rounded down.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// The same disk with another size: the one that what lies below has now (None), or `bytes`,
    /// which it is given first. This one keeps its geometry, and the two may be in use at once:
    /// they share identity, lock and state.
    ///
    /// What is written meanwhile behind a new and nearer end, through a channel of the old disk,
    /// may undo that end: whoever makes a disk smaller sees to it that nobody writes there.
    ///
    /// Errors: `Unsupported` where the size cannot change while the disk is in use; else why this
    /// size cannot be had.
    fn remeasure(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        let _ = bytes;
        let sentence = format!(
            "{} cannot change its size while it is served; only files and block devices can",
            self.identity().name
        );
        Err(OpenError::new(OpenErrorKind::Unsupported, sentence))
    }
}

/// One shard's way into a disk.
pub trait Channel {
    /// Hands one request to the disk.
    ///
    /// The caller has checked range and payload against the [`Geometry`]; a channel asserts that in
    /// debug and answers [`Status::OutOfRange`] (range) or [`Status::Internal`] (payload) in
    /// release.
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a>;
}

/// One thing asked of a disk.
#[derive(Debug)]
pub struct Request<'a> {
    /// What is to be done.
    pub operation: Operation,
    /// The first block, counted from the start of the disk; ignored by [`Operation::Flush`].
    pub lba: u64,
    /// How many blocks; a plain count. Nothing is done for none.
    pub blocks: u32,
    /// Where the bytes are or go.
    pub payload: Payload<'a>,
    /// Whose request it is: the ending of a pending request goes to this task and slot.
    pub token: Token,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read blocks.
    Read,
    /// Write blocks; `durable`: answered when they are on the medium (FUA).
    Write {
        /// Do not answer before the blocks are on the medium.
        durable: bool,
    },
    /// Answered when every write that was answered before is on the medium.
    Flush,
    /// Make blocks read as zeroes without sending zeroes.
    WriteZeroes {
        /// The disk may give the space back.
        deallocate: bool,
        /// Do not answer before the zeroes are on the medium.
        durable: bool,
    },
    /// The blocks are not needed any more: the disk may give the space back.
    Deallocate,
    /// Write the payload's second half if the blocks hold its first half, as one step among all
    /// writes. Only [`exclusive::Exclusive`] does it; `durable`: answered when they are on the
    /// medium.
    CompareAndWrite {
        /// Do not answer before what was written is on the medium.
        durable: bool,
    },
}

impl Operation {
    /// Its name, for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write { .. } => "write",
            Self::Flush => "flush",
            Self::WriteZeroes { .. } => "write of zeroes",
            Self::Deallocate => "deallocation",
            Self::CompareAndWrite { .. } => "compare and write",
        }
    }

    /// Whether it changes what is on the disk.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::Flush)
    }

    /// Whether its answer promises that something is on the medium.
    #[must_use]
    pub const fn promises_durability(self) -> bool {
        matches!(
            self,
            Self::Flush
                | Self::Write { durable: true }
                | Self::WriteZeroes { durable: true, .. }
                | Self::CompareAndWrite { durable: true }
        )
    }

    /// How many times the blocks' bytes its payload has: none, once, or twice to compare and write.
    const fn payload_copies(self) -> u64 {
        match self {
            Self::Read | Self::Write { .. } => 1,
            Self::CompareAndWrite { .. } => 2,
            Self::Flush | Self::WriteZeroes { .. } | Self::Deallocate => 0,
        }
    }
}

/// Where a request's bytes are, or go.
#[derive(Debug)]
pub enum Payload<'a> {
    /// The operation moves no bytes.
    None,
    /// A write's bytes where they lie. They are not looked at after `submit` has returned.
    Borrowed(&'a [u8]),
    /// A write's source or a read's destination, from its start. It comes back with the ending.
    Owned(Buf),
    /// A read without a buffer: the disk lends its own pages, or takes a buffer from the shard.
    Lend,
    /// A write's source or a read's destination that the kernel lends to the shard's ring, and
    /// nobody here can look at: only for disks that take it ([`Device::takes_registered`]). Whoever
    /// asks keeps it in its place until the request has ended, and asks again with a buffer when
    /// the answer is [`Status::Unsupported`]: the kernel could not move all of it so, because of
    /// how its pieces lie in memory, for example.
    Registered(Registered),
}

impl Payload<'_> {
    /// What goes back to the caller with an ending: the buffer, if one was given.
    #[must_use]
    pub fn into_loan(self) -> Loan {
        match self {
            Payload::Owned(buf) => Loan::Buf(buf),
            Payload::None | Payload::Borrowed(_) | Payload::Lend | Payload::Registered(_) => {
                Loan::None
            }
        }
    }

    /// The bytes of a write, wherever they lie, if they can be looked at.
    #[must_use]
    pub fn source(&self) -> Option<&[u8]> {
        match self {
            Payload::Borrowed(bytes) => Some(bytes),
            Payload::Owned(buf) => Some(buf.bytes()),
            Payload::None | Payload::Lend | Payload::Registered(_) => None,
        }
    }
}

/// The first answer to a request.
#[derive(Debug)]
pub enum Submit<'a> {
    /// It is done. A read's bytes are in the loan: at the start of a `Buf`, or exactly a `Lent`.
    Done(Status, Loan),
    /// The ending comes to the token's task, with [`Status::to_result`] as its result and the loan
    /// of `Done`.
    Pending,
    /// Nothing was taken; submit it again after any ending of this channel. A channel says so only
    /// while it has requests in progress, so that there is such an ending.
    Busy(Request<'a>),
}

impl<'a> Request<'a> {
    /// The same request under another token: for those who have something to do on the way back.
    #[must_use]
    pub fn with_token(mut self, token: Token) -> Self {
        self.token = token;
        self
    }

    /// Answers the request at once, and gives its buffer back.
    #[must_use]
    pub fn done(self, status: Status) -> Submit<'a> {
        Submit::Done(status, self.payload.into_loan())
    }

    /// How many bytes the blocks have.
    #[must_use]
    pub fn bytes(&self, geometry: &Geometry) -> u64 {
        u64::from(self.blocks) * u64::from(geometry.block_bytes)
    }

    /// The answer to a request that cannot be carried out, if it is one.
    ///
    /// Range and payload are the caller's duty: those are asserted. A write to a read-only disk is
    /// an answer.
    #[must_use]
    #[inline(always)]
    pub fn refusal(&self, geometry: &Geometry) -> Option<Status> {
        self.refusal_by(geometry, false)
    }

    /// The same for a disk that takes registered memory ([`Device::takes_registered`]).
    #[must_use]
    pub fn refusal_by_taker(&self, geometry: &Geometry) -> Option<Status> {
        self.refusal_by(geometry, true)
    }

    #[inline(always)]
    fn refusal_by(&self, geometry: &Geometry, takes_registered: bool) -> Option<Status> {
        if self.operation.writes() && geometry.read_only {
            return Some(Status::ReadOnly);
        }
        if self.operation == Operation::Flush {
            return None;
        }
        let in_range = geometry.contains(self.lba, self.blocks);
        debug_assert!(
            in_range,
            "{} blocks at {} of {}",
            self.blocks, self.lba, geometry.blocks
        );
        if !in_range {
            return Some(Status::OutOfRange);
        }
        let payload_fits = self.payload_fits(geometry, takes_registered);
        debug_assert!(
            payload_fits,
            "{:?}: the payload does not match the blocks",
            self.operation
        );
        (!payload_fits).then_some(Status::Internal)
    }

    #[inline(always)]
    fn payload_fits(&self, geometry: &Geometry, takes_registered: bool) -> bool {
        let bytes = self.bytes(geometry) * self.operation.payload_copies();
        let reads = self.operation == Operation::Read;
        if self.operation.payload_copies() > 0
            && self.bytes(geometry) > u64::from(geometry.max_transfer_bytes)
        {
            return false;
        }
        match &self.payload {
            Payload::None => bytes == 0,
            Payload::Borrowed(source) => !reads && source.len() as u64 == bytes,
            Payload::Owned(buf) => buf.len() as u64 >= bytes && (!reads || buf.is_unique()),
            Payload::Lend => reads,
            Payload::Registered(memory) => takes_registered && u64::from(memory.bytes) == bytes,
        }
    }
}

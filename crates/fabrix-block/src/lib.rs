//! The disk interface of Fabrix. A disk is anything that reads and writes blocks: local or remote,
//! behind any front end.
//!
//! - A [`Device`] holds the facts about a disk. All shards share it, and it never changes.
//! - A [`Channel`] is one shard's access to a device. It never moves to another core.
//! - A [`Request`] is one I/O. A front end submits it to a channel.
//! - The answer comes at once ([`Submit::Done`]) or later ([`Submit::Pending`], then
//!   [`fabrix_rt::Task::completed`]). [`Submit::Busy`] hands the request back because the channel
//!   is full.
//!
//! The crate reaches files and block devices through `rt` only. It knows no protocol and no
//! network.
//!
//! The disks are [`null`], [`ram`], [`file`](mod@file) and [`raid0`]. The layers between a disk and
//! a front end are [`filter`] and [`exclusive`]. [`spec`] is the text form of a disk, and
//! [`identity`] makes its stable names.

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
pub mod task;
#[cfg(test)]
mod testing;

pub use allocation::{Allocation, Run};
pub use geometry::{Deallocate, Durability, Geometry};
pub use identity::Identity;
pub use local::{apply_common_options, open_local, open_local_as};
pub use spec::Spec;
pub use status::{Failed, OpenError, OpenErrorKind, Status};

use std::any::Any;
use std::sync::Arc;

use fabrix_rt::{Buf, Loan, Registered, Shard, Token};

/// A disk: its facts, and the way to open it. All shards share one `Device`, which never changes.
pub trait Device: Send + Sync {
    /// Sizes, limits and promises. They stay the same while the device is open.
    fn geometry(&self) -> &Geometry;

    /// The names under which hosts recognise this disk after a restart.
    fn identity(&self) -> &Identity;

    /// Opens the disk for one shard.
    ///
    /// Dropping the channel closes it. Pending requests still end, and their completions go to the
    /// tasks named by their tokens.
    ///
    /// Errors: `NoMemory` when memory or a file descriptor for one more shard is missing, or
    /// another kind when the disk itself refuses.
    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError>;

    /// Whether the disk executes [`Operation::CompareAndWrite`] itself, atomically for all users of
    /// the disk. Remote disks do if their target does. All other disks are put behind
    /// [`exclusive::Exclusive`].
    fn compares_and_writes(&self) -> bool {
        false
    }

    /// Whether the disk's channels accept [`Payload::Registered`]. Disks do whose data the kernel
    /// moves. Filters that never read the bytes pass the answer of the disk below on.
    fn takes_registered(&self) -> bool {
        false
    }

    /// The allocation state of the blocks from `lba` on, and for how many blocks it is the same.
    /// The count is at least 1 and stays within the disk. A disk without this knowledge reports all
    /// blocks as [`Allocation::Mapped`].
    ///
    /// Any thread may call this function. A file disk asks the file system, which may have to read
    /// its own tables from the medium. The function is therefore for administration and not for the
    /// data path. Concurrent writes may already be part of the answer.
    fn allocation(&self, lba: u64) -> Run {
        Run::to_the_end(Allocation::Mapped, lba, self.geometry().blocks)
    }

    /// Sentences for the user, to be shown once. Example: a size was rounded down.
    fn notes(&self) -> &[String] {
        &[]
    }

    /// Small texts that are stored with the disk and move with it. None: the disk has none. They
    /// are the same for the disk in every size, and keep it open.
    fn attributes(&self) -> Option<Arc<dyn Attributes>> {
        None
    }

    /// Sole use of the disk among several processes. None: its storage does not decide that.
    fn ownership(&self) -> Option<Arc<dyn Ownership>> {
        None
    }

    /// Calls a function whenever the size of the disk may have changed from outside, as long as the
    /// returned value exists. The function may run on any thread. It must not wait, and must not
    /// use the disk. None: the disk does not tell.
    fn watch(&self, changed: Box<dyn Fn() + Send + Sync>) -> Option<Watching> {
        let _ = changed;
        None
    }

    /// The same disk with another size. With `bytes`, the disk is first resized to that many bytes;
    /// with None, the current size of the underlying file or device is read. This `Device` keeps
    /// its geometry. Both may be in use at the same time: they share identity, lock and state. If
    /// its storage refuses this process ([`Ownership::is_lost`]), the result is open anew.
    ///
    /// When a disk shrinks, a write through a channel of the old `Device` can grow the file again.
    /// The caller makes sure that nothing writes behind the new end.
    ///
    /// Errors: `Unsupported` when the size cannot change while the disk is in use. Otherwise the
    /// reason why this size is impossible.
    fn resize(&self, bytes: Option<u64>) -> Result<Arc<dyn Device>, OpenError> {
        let _ = bytes;
        let sentence = format!(
            "{} cannot change its size while it is served; only files and block devices can",
            self.identity().name
        );
        Err(OpenError::new(OpenErrorKind::Unsupported, sentence))
    }
}

/// Small texts that are stored with a disk. The calls wait for the medium.
pub trait Attributes: Send + Sync {
    /// The text under a key. None: there is none.
    ///
    /// # Errors
    /// A sentence: the medium does not give it.
    fn read(&self, key: &str) -> Result<Option<String>, String>;

    /// Stores a text under a key, as a whole or not at all. It is on the medium when this returns.
    ///
    /// # Errors
    /// A sentence: the medium does not take it.
    fn write(&self, key: &str, text: &str) -> Result<(), String>;
}

/// Sole use of a disk among several processes. The calls wait for the storage.
pub trait Ownership: Send + Sync {
    /// Takes the disk for this process. It is taken from a process that the storage refuses, and
    /// from no other one.
    ///
    /// # Errors
    /// Another process has the disk, the storage refuses, or this process is one that it refuses.
    fn acquire(&self) -> Result<(), OpenError>;

    /// Gives the disk back.
    ///
    /// # Errors
    /// As for [`acquire`](Self::acquire).
    fn release(&self) -> Result<(), OpenError>;

    /// Whether the storage refuses this process: it has failed a request for that reason, or was
    /// said to do so.
    fn is_lost(&self) -> bool;

    /// Says that the storage refuses this process, or will.
    fn lose(&self);
}

/// Keeps a function called that hears of changes of a disk: see [`Device::watch`].
pub struct Watching(#[expect(dead_code, reason = "it is only kept")] Box<dyn Any + Send + Sync>);

impl Watching {
    /// Ends what it holds when it is dropped.
    pub fn new(watch: impl Send + Sync + 'static) -> Self {
        Self(Box::new(watch))
    }
}

/// One shard's access to a disk.
pub trait Channel {
    /// Submits one request to the disk.
    ///
    /// The caller has checked range and payload against the [`Geometry`]. Debug builds assert this.
    /// Release builds answer [`Status::OutOfRange`] for a wrong range and [`Status::Internal`] for
    /// a wrong payload.
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a>;
}

/// One I/O request.
#[derive(Debug)]
pub struct Request<'a> {
    /// The command.
    pub operation: Operation,
    /// First block, counted from the start of the disk. [`Operation::Flush`] ignores it.
    pub lba: u64,
    /// Number of blocks. A request for 0 blocks succeeds without any effect.
    pub blocks: u32,
    /// Location of the data.
    pub payload: Payload<'a>,
    /// Task and slot that receive the completion of a pending request.
    pub token: Token,
}

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read blocks.
    Read,
    /// Write blocks.
    Write {
        /// Answer only when the blocks are on the medium (FUA).
        durable: bool,
    },
    /// Answer when every previously answered write is on the medium.
    Flush,
    /// Make the blocks read as zeroes. The request carries no data.
    WriteZeroes {
        /// Permission to release the space of the blocks.
        deallocate: bool,
        /// Answer only when the zeroes are on the medium.
        durable: bool,
    },
    /// Release the space of the blocks: their content is no longer needed.
    Deallocate,
    /// Compare the blocks with the payload's first half. If they are equal, write the payload's
    /// second half. The two steps are atomic towards all other writes. [`exclusive::Exclusive`]
    /// implements it for disks that do not.
    CompareAndWrite {
        /// Answer only when the written blocks are on the medium.
        durable: bool,
    },
}

impl Operation {
    /// The operation's name for messages and logs.
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

    /// Whether the operation changes the content of the disk.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::Flush)
    }

    /// Whether a successful answer promises that data is on the medium.
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

    /// Whether the operation may release the space of its blocks.
    const fn deallocates(self) -> bool {
        matches!(
            self,
            Self::Deallocate
                | Self::WriteZeroes {
                    deallocate: true,
                    ..
                }
        )
    }

    /// Payload size as a multiple of the blocks' bytes: 0, 1, or 2 for compare and write.
    const fn payload_copies(self) -> u64 {
        match self {
            Self::Read | Self::Write { .. } => 1,
            Self::CompareAndWrite { .. } => 2,
            Self::Flush | Self::WriteZeroes { .. } | Self::Deallocate => 0,
        }
    }
}

/// Location of a request's data.
#[derive(Debug)]
pub enum Payload<'a> {
    /// No data: the operation moves none.
    None,
    /// A write's source. The disk does not read it after `submit` has returned.
    Borrowed(&'a [u8]),
    /// A write's source or a read's destination, starting at its first byte. The buffer comes back
    /// with the completion.
    Owned(Buf),
    /// A read without a destination: the disk lends its own pages, or takes a buffer from the
    /// shard.
    Lend,
    /// Memory that the kernel lends to the shard's ring and that this process cannot read: a
    /// write's source or a read's destination. Only disks with [`Device::takes_registered`] accept
    /// it.
    ///
    /// The caller keeps the memory registered until the request has ended. On
    /// [`Status::Unsupported`] the caller repeats the request with a buffer: the kernel could not
    /// move all of the data, for example because the pieces lie unaligned in memory.
    Registered(Registered),
}

impl Payload<'_> {
    /// The loan that goes back to the caller with the completion: the owned buffer, if there is
    /// one.
    #[must_use]
    pub fn into_loan(self) -> Loan {
        match self {
            Payload::Owned(buf) => Loan::Buf(buf),
            Payload::None | Payload::Borrowed(_) | Payload::Lend | Payload::Registered(_) => {
                Loan::None
            }
        }
    }

    /// The bytes of a write, if this process can read them.
    #[must_use]
    pub fn source(&self) -> Option<&[u8]> {
        match self {
            Payload::Borrowed(bytes) => Some(bytes),
            Payload::Owned(buf) => Some(buf.bytes()),
            Payload::None | Payload::Lend | Payload::Registered(_) => None,
        }
    }
}

/// A copy of a write's source that outlives the call of [`Channel::submit`]. None: no buffer is
/// free.
pub fn copy_to_buf(shard: &mut Shard, source: &[u8]) -> Option<Buf> {
    let mut buf = shard.take_buf(source.len())?;
    buf.bytes_mut()[..source.len()].copy_from_slice(source);
    Some(buf)
}

/// The immediate answer to a request.
#[derive(Debug)]
pub enum Submit<'a> {
    /// The request has ended. A read's data is in the loan: at the start of a `Buf`, or exactly a
    /// `Lent`.
    Done(Status, Loan),
    /// The completion goes to the token's task later. Its result is [`Status::to_result`], and its
    /// loan has the form of `Done`'s.
    Pending,
    /// The channel is full and hands the request back. Submit it again after the next completion of
    /// this channel. A channel answers `Busy` only while requests are in progress, so a completion
    /// always follows.
    Busy(Request<'a>),
}

impl<'a> Request<'a> {
    /// The same request with another token, for layers that process the completion themselves.
    #[must_use]
    pub fn with_token(mut self, token: Token) -> Self {
        self.token = token;
        self
    }

    /// Answers the request at once and returns its buffer.
    #[must_use]
    pub fn done(self, status: Status) -> Submit<'a> {
        Submit::Done(status, self.payload.into_loan())
    }

    /// Size of the request's blocks in bytes.
    #[must_use]
    pub fn bytes(&self, geometry: &Geometry) -> u64 {
        u64::from(self.blocks) * u64::from(geometry.block_bytes)
    }

    /// The error status of a request that cannot be executed, or None.
    ///
    /// A write to a read-only disk is an ordinary error. A wrong range or payload is a fault of the
    /// caller and therefore asserted.
    #[must_use]
    #[inline(always)]
    pub fn refusal(&self, geometry: &Geometry) -> Option<Status> {
        self.refusal_by(geometry, false)
    }

    /// [`Self::refusal`] for a disk that accepts registered memory ([`Device::takes_registered`]).
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

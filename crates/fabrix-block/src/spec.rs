//! The text form of a disk, shared by command line, configuration and API.
//!
//! This file has the values. `text` has their canonical text, `parse` parses a text, `size` parses
//! and formats sizes, and `secrets` removes secrets. No disk is opened here, but for a bare name
//! the parser checks whether such a file exists. Remote addresses stay opaque: only the protocol's
//! code understands them.
//!
//! Grammar: `ram:1G`, `null:1T`, `/path`, the name of an existing file, `file:PATH`,
//! `rbd:POOL[/NAMESPACE]/IMAGE[@SNAP]`, `raid0:chunk=256k,(A,B)`, `multipath:(URI,URI),policy=P`,
//! `SCHEME://HOST[:PORT][/NAME[/ID]]`,
//! `SCHEME://HOST,HOST/[NAME[/ID]]` for several paths,
//! each followed by `,option` or `,option=value`. For iSCSI `USER%SECRET@` or `USER%@FILE@` may
//! precede the host. In paths and values a backslash escapes `,` `(` `)` and itself. In the names
//! and the secret of an address `%XX` does so.

mod parse;
mod secrets;
mod size;
mod text;

pub use size::{Size, parse_size};

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

use self::secrets::Extent;
use crate::status::{OpenError, OpenErrorKind};

/// The description of a disk to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Kind of disk with its parameters.
    pub disk: Disk,
    /// Options common to all kinds.
    pub common: Common,
}

/// Kind of a disk with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Memory of this process.
    Ram {
        /// Size in bytes.
        bytes: u64,
        /// Whether to request huge pages from the kernel.
        huge_pages: bool,
    },
    /// Null disk: reads zeroes and discards writes.
    Null {
        /// Size in bytes.
        bytes: u64,
    },
    /// A regular file or a block device.
    File {
        /// Path of the file or device.
        path: String,
        /// Size in bytes of the sparse file to create if none exists.
        create_bytes: Option<u64>,
        /// Direct I/O (the default). False: the page cache.
        direct: bool,
    },
    /// Stripes over several disks.
    Raid0 {
        /// Chunk size in bytes: the part of a stripe on one member. A power of two.
        chunk_bytes: u32,
        /// Members in order. At least two.
        members: Vec<Spec>,
    },
    /// An image of Ceph.
    Rbd(Rbd),
    /// A disk on another machine.
    Remote(Remote),
    /// A disk on another machine that several paths lead to.
    Multipath {
        /// Addresses of the same disk. At least one.
        paths: Vec<Remote>,
        /// How requests are divided among the paths. Opaque to this crate. None: the default.
        policy: Option<String>,
        /// When requests of a lost path are repeated. Opaque to this crate. None: the default.
        failover: Option<String>,
    },
}

/// An image of Ceph. Only the code of such disks understands its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rbd {
    /// The pool.
    pub pool: String,
    /// Namespace of the pool. None: the one without a name.
    pub namespace: Option<String>,
    /// The image.
    pub image: String,
    /// Snapshot of the image. None: the image itself.
    pub snapshot: Option<String>,
    /// Ceph's user, without `client.`. None: the default.
    pub user: Option<String>,
    /// File of Ceph's configuration. None: the default.
    pub conf: Option<String>,
    /// File with the user's key. None: the default.
    pub keyring: Option<String>,
}

/// Options of every disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Common {
    /// The user's name for the disk, from which its identity is derived.
    pub name: Option<String>,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Requested block size in bytes: 512 or 4096, or 1 for a file in the page cache.
    pub block_bytes: Option<u32>,
    /// Physical block size in bytes as reported to hosts: 512 or 4096, at least a block.
    pub physical_block_bytes: Option<u32>,
    /// Group of the disk where it is exported. This crate does not use it.
    pub ana_group: Option<u32>,
    /// Faults to inject.
    pub inject: Vec<Inject>,
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inject {
    /// Effect on the request.
    pub effect: Effect,
    /// Affected requests.
    pub on: On,
}

/// Effect of an injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Failure of a fraction of the requests, chosen by seeded random numbers.
    ErrorRate {
        /// Failures per million requests.
        ppm: u32,
    },
    /// Failure of the request with this number, once. The first request has number 1.
    ErrorNth(u64),
    /// Delay of the answer.
    Delay(Duration),
}

/// Requests affected by a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// All requests.
    Any,
    /// Reads.
    Read,
    /// Writes, including compare and write.
    Write,
    /// Flushes.
    Flush,
    /// Writes of zeroes and deallocations.
    Zeroes,
}

/// The address of a disk on another machine, opaque to this crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Protocol: `nvme+tcp`, `nvme+rdma`, `iscsi`, `iser`, ...
    pub scheme: String,
    /// Account for protocols with accounts in their addresses.
    pub account: Option<Account>,
    /// Host name, IPv4 address, or IPv6 address without brackets.
    pub host: String,
    /// TCP port. None: the protocol's default.
    pub port: Option<u16>,
    /// NQN of the subsystem, or name of the iSCSI target.
    pub nqn: Option<String>,
    /// Namespace id, or LUN in iSCSI.
    pub nsid: Option<u32>,
    /// Options of the protocol, in the given order. An option without `=` has an empty value.
    pub options: Vec<(String, String)>,
}

/// A user and the secret that authenticates the user. The secret is never printed, not even in the
/// canonical text.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// User name.
    pub user: String,
    /// Secret, if given.
    pub secret: Option<Secret>,
}

/// A secret or its location. It has no text form, so that it cannot be printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The secret itself.
    Text(String),
    /// Path of the file that contains it.
    File(String),
}

impl Secret {
    /// Parses a secret of an address: `@FILE` names a file, and `%XX` stands for a character. A
    /// trailing newline is not part of a secret.
    ///
    /// # Errors
    /// A sentence without the secret: `%` is not followed by two hexadecimal digits.
    pub fn of_value(value: &str) -> Result<Self, String> {
        let value = value.trim_end_matches(LINE_END);
        let decoded = |text| {
            parse::percent_decode(text).map_err(|_| "in a secret, a % is written %25".to_owned())
        };
        Ok(match value.strip_prefix('@') {
            Some(path) => Self::File(decoded(path)?),
            None => Self::Text(decoded(value)?),
        })
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Account({})", self.user)
    }
}

/// A text without secrets, for messages and reports. The text may be of any kind.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let extent = if parse::is_well_formed(text) {
        Extent::Grammar
    } else {
        Extent::Widest
    };
    secrets::cut(text, extent).replace(secrets::MARK, secrets::SHOWN)
}

/// Error in a text: a sentence that starts with the wrong part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(pub(crate) String);

impl Spec {
    /// A disk without options.
    #[must_use]
    pub fn plain(disk: Disk) -> Self {
        Self {
            disk,
            common: Common::default(),
        }
    }

    /// Parses the text of a disk.
    ///
    /// Errors: a sentence that names the wrong part and the correct form.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        parse::spec(text)
    }
}

impl FromStr for Spec {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::parse(text)
    }
}

impl Display for SpecError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for SpecError {}

impl From<SpecError> for OpenError {
    fn from(error: SpecError) -> Self {
        Self::new(OpenErrorKind::Usage, error.0)
    }
}

/// Line endings of all systems.
pub const LINE_END: [char; 2] = ['\r', '\n'];

/// Default chunk size of an array in bytes.
pub const DEFAULT_CHUNK_BYTES: u32 = 256 << 10;

/// Smallest and largest chunk of an array in bytes.
pub const CHUNK_BYTES: std::ops::RangeInclusive<u32> = 4096..=16 << 20;

/// Largest number of members of an array.
pub const MEMBERS_MAX: usize = 64;

#[cfg(test)]
mod tests;

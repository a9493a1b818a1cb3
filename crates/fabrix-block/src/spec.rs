//! The text form of a disk: the same words in the command line, the configuration and the API. Here
//! are the values and their canonical text; `parse` reads text, `size` reads and writes sizes,
//! `secrets` cuts secrets out. Nothing is opened here; of a bare name it is asked whether there is
//! such a file. A remote disk stays opaque: what its address means is known to those who speak its
//! protocol.
//!
//! Grammar: `ram:1G`, `null:1T`, `/path`, the name of a file that is there, or `file:PATH`,
//! `raid0:chunk=256k,(A,B)`, `SCHEME://HOST[:PORT][/NAME[/ID]]`, each followed by `,option` or
//! `,option=value`; for iSCSI `USER%SECRET@` or `USER%@FILE@` may stand before the host. In paths
//! and values a backslash makes `,` `(` `)` and itself ordinary characters; in the names and the
//! secret of an address `%XX` does it.

mod parse;
mod secrets;
mod size;

pub use size::{Size, parse_size};

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

use self::secrets::{Extent, is_secret};
use crate::status::{OpenError, OpenErrorKind};

/// A disk that somebody wants opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What it is.
    pub disk: Disk,
    /// What can be said of every disk.
    pub common: Common,
}

/// What a disk is, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disk {
    /// Memory of this process.
    Ram {
        /// Its size.
        bytes: u64,
        /// Whether to ask the kernel for large pages.
        huge_pages: bool,
    },
    /// Nothing: reads zeroes and forgets writes.
    Null {
        /// Its size.
        bytes: u64,
    },
    /// A regular file or a block device.
    File {
        /// Where it is.
        path: String,
        /// The size of the sparse file to create if there is none.
        create_bytes: Option<u64>,
        /// Direct I/O (the default) or, when switched off, the page cache.
        direct: bool,
    },
    /// Stripes over several disks.
    Raid0 {
        /// How many bytes go to one member before the next: a power of two.
        chunk_bytes: u32,
        /// The disks, in order: two or more.
        members: Vec<Spec>,
    },
    /// A disk of another machine.
    Remote(Remote),
}

/// The options that every disk has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Common {
    /// What the user calls it; the identity is derived from it.
    pub name: Option<String>,
    /// Whether writes are refused.
    pub read_only: bool,
    /// The block size asked for: 512 or 4096.
    pub block_bytes: Option<u32>,
    /// What hosts are told the medium writes at once: 512 or 4096, and no less than a block.
    pub physical_block_bytes: Option<u32>,
    /// Faults to be made on purpose.
    pub inject: Vec<Inject>,
}

/// A fault made on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inject {
    /// What happens.
    pub effect: Effect,
    /// To which requests.
    pub on: On,
}

/// What happens to a request that a fault is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Of a million requests so many fail, chosen by a seeded dice.
    ErrorRate {
        /// Parts per million.
        ppm: u32,
    },
    /// The request with this number fails, once; the first is 1.
    ErrorNth(u64),
    /// The answer comes later.
    Delay(Duration),
}

/// Which requests a fault is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// All.
    Any,
    /// Reads.
    Read,
    /// Writes, comparing ones included.
    Write,
    /// Flushes.
    Flush,
    /// Writes of zeroes, and deallocations.
    Zeroes,
}

/// The address of a disk on another machine; opaque here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The protocol: `nvme+tcp`, `iscsi`, ...
    pub scheme: String,
    /// Who proves who it is, where the protocol has that in its addresses.
    pub account: Option<Account>,
    /// A name, an IPv4 address, or an IPv6 address without its brackets.
    pub host: String,
    /// The TCP port, if it is not the protocol's own.
    pub port: Option<u16>,
    /// The subsystem's NQN, or the target's name in iSCSI.
    pub nqn: Option<String>,
    /// The namespace, or the LUN in iSCSI.
    pub nsid: Option<u32>,
    /// Whatever else the protocol understands, in the order given; a bare option has an empty
    /// value.
    pub options: Vec<(String, String)>,
}

/// A user, and the secret that proves it; the secret is never printed, not even in the canonical
/// text.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// The user's name.
    pub user: String,
    /// The secret, if it was given.
    pub secret: Option<Secret>,
}

/// A secret, or where it is. It has no text form of its own, so that nothing prints it by accident.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The secret itself.
    Text(String),
    /// The path of a file that holds it.
    File(String),
}

impl Secret {
    /// The secret of an option's value: `@FILE` names a file. The end of a line does not belong to
    /// a secret.
    #[must_use]
    pub fn of_value(value: &str) -> Self {
        let value = value.trim_end_matches(LINE_END);
        match value.strip_prefix('@') {
            Some(path) => Self::File(path.to_owned()),
            None => Self::Text(value.to_owned()),
        }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Account({})", self.user)
    }
}

/// A text without the secrets that may be in it, for messages and reports. The text need not be a
/// disk's.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let extent = if parse::is_well_formed(text) {
        Extent::Grammar
    } else {
        Extent::Widest
    };
    secrets::cut(text, extent).replace(secrets::MARK, secrets::SHOWN)
}

/// What is wrong with a text, as a sentence that starts with the wrong part.
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

    /// Reads a disk's text.
    ///
    /// Errors: a sentence that names the part that cannot be understood, and what to write instead.
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

/// The canonical text: parsing it gives the same value back, but for secrets.
impl Display for Spec {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.disk {
            Disk::Ram { bytes, huge_pages } => {
                write!(f, "ram:{}", Size(*bytes))?;
                f.write_str(if *huge_pages { "" } else { ",hugepages=off" })?;
            }
            Disk::Null { bytes } => write!(f, "null:{}", Size(*bytes))?,
            Disk::File {
                path,
                create_bytes,
                direct,
            } => {
                f.write_str(if is_plain_path(path) { "" } else { "file:" })?;
                write_escaped(f, path)?;
                if let Some(bytes) = create_bytes {
                    write!(f, ",size={}", Size(*bytes))?;
                }
                f.write_str(if *direct { "" } else { ",direct=off" })?;
            }
            Disk::Raid0 {
                chunk_bytes,
                members,
            } => {
                write!(f, "raid0:chunk={},(", Size(u64::from(*chunk_bytes)))?;
                for (index, member) in members.iter().enumerate() {
                    write!(f, "{}{member}", if index == 0 { "" } else { "," })?;
                }
                f.write_str(")")?;
            }
            Disk::Remote(remote) => remote.fmt(f)?,
        }
        self.common.fmt(f)
    }
}

impl Display for Common {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            f.write_str(",name=")?;
            write_escaped(f, name)?;
        }
        f.write_str(if self.read_only { ",ro" } else { "" })?;
        if let Some(bytes) = self.block_bytes {
            write!(f, ",block={bytes}")?;
        }
        if let Some(bytes) = self.physical_block_bytes {
            write!(f, ",physical={bytes}")?;
        }
        for inject in &self.inject {
            write!(f, ",inject={inject}")?;
        }
        Ok(())
    }
}

impl Display for Inject {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.effect {
            Effect::ErrorRate { ppm } => {
                let percent = format!("{}.{:04}", ppm / 10_000, ppm % 10_000);
                write!(
                    f,
                    "error:{}%",
                    percent.trim_end_matches('0').trim_end_matches('.')
                )?;
            }
            Effect::ErrorNth(nth) => write!(f, "error:{nth}")?,
            Effect::Delay(delay) => write!(f, "delay:{}", duration_text(delay))?,
        }
        match self.on {
            On::Any => Ok(()),
            On::Read => f.write_str(":read"),
            On::Write => f.write_str(":write"),
            On::Flush => f.write_str(":flush"),
            On::Zeroes => f.write_str(":zeroes"),
        }
    }
}

impl Display for Remote {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        if let Some(account) = &self.account {
            f.write_str(&account.user)?;
            f.write_str("@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if let Some(nqn) = &self.nqn {
            f.write_str("/")?;
            write_percent(f, nqn)?;
        }
        if let Some(nsid) = self.nsid {
            write!(f, "/{nsid}")?;
        }
        for (key, value) in self.options.iter().filter(|(key, _)| !is_secret(key)) {
            write!(f, ",{key}{}", if value.is_empty() { "" } else { "=" })?;
            write_escaped(f, value)?;
        }
        Ok(())
    }
}

fn duration_text(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let (unit, name) = DURATION_UNITS
        .into_iter()
        .find(|(unit, _)| nanos.is_multiple_of(u128::from(*unit)))
        .unwrap_or((1, "ns"));
    format!("{}{name}", nanos / u128::from(unit))
}

/// Whether a path is recognised as one without `file:`.
fn is_plain_path(path: &str) -> bool {
    path.starts_with('/') || path.starts_with("./") || path.starts_with("../")
}

fn write_escaped(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    for c in text.chars() {
        if matches!(c, ',' | '(' | ')' | '\\') {
            f.write_str("\\")?;
        }
        write!(f, "{c}")?;
    }
    Ok(())
}

fn write_percent(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:+".contains(&byte) {
            write!(f, "{}", char::from(byte))?;
        } else {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

/// Nanoseconds in each unit of time, from the largest.
const DURATION_UNITS: [(u64, &str); 4] = [
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "us"),
    (1, "ns"),
];

/// What ends a line, on any system.
pub const LINE_END: [char; 2] = ['\r', '\n'];

/// What an array's chunk is if nobody says.
pub const DEFAULT_CHUNK_BYTES: u32 = 256 << 10;

/// The smallest and the largest chunk of an array.
pub const CHUNK_BYTES: std::ops::RangeInclusive<u32> = 4096..=16 << 20;

/// The most members an array may have.
pub const MEMBERS_MAX: usize = 64;

#[cfg(test)]
mod tests;

//! The canonical text of the description of a disk, as a user would type it. It has no secrets.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::secrets::is_secret;
use super::{Common, Disk, Effect, Inject, On, Rbd, Remote, Size, Spec};

/// The canonical text. Parsing it gives the same value, except for secrets.
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
                let prefix = if is_plain_path(path) { "" } else { "file:" };
                write!(f, "{prefix}{}", Escaped(path))?;
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
            Disk::Rbd(rbd) => rbd.fmt(f)?,
            Disk::Remote(remote) => remote.fmt(f)?,
            Disk::Multipath {
                paths,
                policy,
                failover,
            } => {
                f.write_str("multipath:(")?;
                for (index, path) in paths.iter().enumerate() {
                    write!(f, "{}{path}", if index == 0 { "" } else { "," })?;
                }
                f.write_str(")")?;
                for (key, value) in [("policy", policy), ("failover", failover)] {
                    if let Some(value) = value {
                        write!(f, ",{key}={}", Escaped(value))?;
                    }
                }
            }
        }
        self.common.fmt(f)
    }
}

impl Display for Rbd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "rbd:{}", Escaped(&self.pool))?;
        if let Some(namespace) = &self.namespace {
            write!(f, "/{}", Escaped(namespace))?;
        }
        write!(f, "/{}", Escaped(&self.image))?;
        if let Some(snapshot) = &self.snapshot {
            write!(f, "@{}", Escaped(snapshot))?;
        }
        for (key, value) in [
            ("id", &self.user),
            ("conf", &self.conf),
            ("keyring", &self.keyring),
        ] {
            if let Some(value) = value {
                write!(f, ",{key}={}", Escaped(value))?;
            }
        }
        Ok(())
    }
}

impl Display for Common {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, ",name={}", Escaped(name))?;
        }
        f.write_str(if self.read_only { ",ro" } else { "" })?;
        if let Some(bytes) = self.block_bytes {
            write!(f, ",block={bytes}")?;
        }
        if let Some(bytes) = self.physical_block_bytes {
            write!(f, ",physical={bytes}")?;
        }
        if let Some(group) = self.ana_group {
            write!(f, ",ana={group}")?;
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
            write!(f, "{}@", account.user)?;
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
            let equals = if value.is_empty() { "" } else { "=" };
            write!(f, ",{key}{equals}{}", Escaped(value))?;
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

/// Whether a path is recognised without the prefix `file:`.
pub(super) fn is_plain_path(path: &str) -> bool {
    path.starts_with('/') || path.starts_with("./") || path.starts_with("../")
}

/// A text with a backslash before every character that the grammar uses.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            f.write_str(if matches!(c, ',' | '(' | ')' | '\\') {
                "\\"
            } else {
                ""
            })?;
            write!(f, "{c}")?;
        }
        Ok(())
    }
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

/// Nanoseconds of the units of time, largest first.
pub(super) const DURATION_UNITS: [(u64, &str); 4] = [
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "us"),
    (1, "ns"),
];

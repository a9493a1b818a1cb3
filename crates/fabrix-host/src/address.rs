//! Address of a remote disk over NVMe/TCP, and the text of addresses of both protocols.

use std::fmt;

/// Address of a remote namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// NQN of the subsystem. None: discovery finds it, if there is only one.
    pub subsystem: Option<String>,
    /// Namespace identifier. None: the first namespace.
    pub nsid: Option<u32>,
}

/// TCP port of NVMe/TCP.
pub const DEFAULT_PORT: u16 = 4420;

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = (self.subsystem.as_deref(), self.nsid);
        write_uri(f, "nvme+tcp", (&self.host, self.port), path)
    }
}

/// Writes the URI of a remote disk: scheme, host, port, and a path of at most two parts.
pub(crate) fn write_uri(
    f: &mut fmt::Formatter<'_>,
    scheme: &str,
    (host, port): (&str, u16),
    path: (Option<&str>, Option<u32>),
) -> fmt::Result {
    let (open, close) = if host.contains(':') {
        ("[", "]")
    } else {
        ("", "")
    };
    write!(f, "{scheme}://{open}{host}{close}:{port}")?;
    if let Some(name) = path.0 {
        write!(f, "/{name}")?;
        if let Some(number) = path.1 {
            write!(f, "/{number}")?;
        }
    }
    Ok(())
}

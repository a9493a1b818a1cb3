//! Address of a remote disk over NVMe/TCP or NVMe/RDMA, and the text of addresses of all protocols.

use std::fmt;

/// Address of a remote namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// What carries the connections.
    pub transport: Transport,
    /// Host name or IP address.
    pub host: String,
    /// Port, of TCP or of RDMA's connection manager.
    pub port: u16,
    /// NQN of the subsystem. None: discovery finds it, if there is only one.
    pub subsystem: Option<String>,
    /// Namespace identifier. None: the first namespace.
    pub nsid: Option<u32>,
}

/// Transport of NVMe over Fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// RDMA.
    Rdma,
}

impl Transport {
    /// Scheme of its URIs.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Tcp => "nvme+tcp",
            Self::Rdma => "nvme+rdma",
        }
    }

    /// The transport of a URI's scheme. None: the scheme is of another protocol.
    #[must_use]
    pub fn of_scheme(scheme: &str) -> Option<Self> {
        let mut all = [Self::Tcp, Self::Rdma].into_iter();
        all.find(|it| it.scheme() == scheme)
    }
}

/// Port of NVMe/TCP and of NVMe/RDMA.
pub const DEFAULT_PORT: u16 = 4420;

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = (self.subsystem.as_deref(), self.nsid);
        write_uri(f, self.transport.scheme(), (&self.host, self.port), path)
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

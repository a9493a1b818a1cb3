//! Address of a remote disk over NVMe/TCP.

use std::fmt;

use crate::resolve::write_uri;

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

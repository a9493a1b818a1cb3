//! The address of a remote disk over NVMe/TCP.

use std::fmt;

/// Where a remote disk is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or address of the machine.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The subsystem; found by discovery when there is just one.
    pub subsystem: Option<String>,
    /// The namespace; the first there is when not given.
    pub nsid: Option<u32>,
}

/// The port of NVMe/TCP.
pub const DEFAULT_PORT: u16 = 4420;

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brackets = self.host.contains(':');
        let (open, close) = if brackets { ("[", "]") } else { ("", "") };
        write!(f, "nvme+tcp://{open}{}{close}:{}", self.host, self.port)?;
        if let Some(subsystem) = &self.subsystem {
            write!(f, "/{subsystem}")?;
            if let Some(nsid) = self.nsid {
                write!(f, "/{nsid}")?;
            }
        }
        Ok(())
    }
}

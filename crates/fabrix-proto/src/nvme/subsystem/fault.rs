//! Faults of an inventory, with their sentences.

use core::fmt;

use crate::nvme::nqn::Nqn;

/// Fault of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceFault {
    /// The id is 0, or above [`NAMESPACES_MAX`](super::NAMESPACES_MAX).
    Nsid,
    /// Two namespaces have this id.
    Duplicate,
    /// The block size is not a power of two from 512 to 65536 bytes.
    BlockBytes,
    /// The namespace has no blocks, or its size in bytes exceeds 64 bits.
    Size,
    /// An identifier is all zeroes.
    Identifier,
    /// A number of blocks does not fit its field.
    Counts,
    /// The ANA group is 0, or above [`ANA_GROUPS_MAX`](crate::nvme::ana::ANA_GROUPS_MAX).
    AnaGroup,
}

/// Fault of a subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubsystemFault {
    /// The name does not start with `nqn.`, or is the discovery subsystem's.
    Name,
    /// Two subsystems have this name.
    Duplicate,
    /// Serial, model or firmware is empty, too long or not ASCII.
    Text,
    /// The range of controller ids is empty, or exceeds 1 to FFEFh.
    ControllerIds,
    /// The subsystem has no I/O queue, or its queues have fewer than 32 entries.
    Queues,
}

/// Fault of an inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InventoryError {
    /// Subsystem, namespace id, and fault of a namespace.
    Namespace(Nqn, u32, NamespaceFault),
    /// Fault of a subsystem.
    Subsystem(Nqn, SubsystemFault),
}

impl fmt::Display for InventoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(nqn, nsid, fault) => {
                write!(f, "subsystem {nqn}, namespace {nsid}: ")?;
                f.write_str(match fault {
                    NamespaceFault::Nsid => "the id must be between 1 and 1024",
                    NamespaceFault::Duplicate => "the id is used twice",
                    NamespaceFault::BlockBytes => {
                        "the block size is not a power of two from 512 to 65536"
                    }
                    NamespaceFault::Size => "it has no block, or more bytes than 64 bits count",
                    NamespaceFault::Identifier => "NGUID, UUID and EUI64 must not be all zeroes",
                    NamespaceFault::AnaGroup => "the ANA group must be between 1 and 16",
                    NamespaceFault::Counts => {
                        "a preferred, optimal or atomic size is outside 1 to 65536 blocks"
                    }
                })
            }
            Self::Subsystem(nqn, fault) => {
                write!(f, "subsystem {nqn}: ")?;
                f.write_str(match fault {
                    SubsystemFault::Name => {
                        "the name must start with \"nqn.\" and not be the discovery subsystem's"
                    }
                    SubsystemFault::Duplicate => "the name is used twice",
                    SubsystemFault::Text => {
                        "serial (1 to 20), model (1 to 40) and firmware (up to 8 characters) must be ASCII"
                    }
                    SubsystemFault::ControllerIds => {
                        "the controller ids must be a range within 1 to 65519"
                    }
                    SubsystemFault::Queues => {
                        "at least one I/O queue, and queues of at least 32 entries, are needed"
                    }
                })
            }
        }
    }
}

impl core::error::Error for InventoryError {}

//! What can be wrong with an inventory, and the sentences that say so.

use core::fmt;

use crate::nvme::nqn::Nqn;

/// What is wrong with a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceFault {
    /// Id 0, or higher than [`NAMESPACES_MAX`](super::NAMESPACES_MAX).
    Nsid,
    /// The id is there twice.
    Duplicate,
    /// Not a power of two between 512 and 65536.
    BlockBytes,
    /// No block, or more bytes than 64 bits count.
    Size,
    /// An identifier is all zeroes.
    Identifier,
    /// A count of blocks does not fit its field.
    Counts,
}

/// What is wrong with a subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubsystemFault {
    /// The name does not start with `nqn.`, or is the discovery subsystem's.
    Name,
    /// The name is there twice.
    Duplicate,
    /// Serial, model or firmware is empty, too long or not ASCII.
    Text,
    /// The range of controller ids is empty or leaves 1 to FFEFh.
    ControllerIds,
    /// No I/O queue, or queues of fewer than 32 entries.
    Queues,
}

/// Why data do not make an inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InventoryError {
    /// A namespace is wrong.
    Namespace(Nqn, u32, NamespaceFault),
    /// A subsystem is wrong.
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

//! Exported subsystems as plain data: namespaces, allowed hosts, and listeners.
//!
//! An [`Inventory`] is immutable and replaced whole (`subsystem/inventory.rs`). A peer reaches a
//! namespace or a discovery record only through an [`Authorized`] view, which exists only for a
//! host that the subsystem allows (`subsystem/view.rs`). `subsystem/fault.rs` lists the faults of
//! an inventory. Queues, connections and disks are unknown in these files.

mod fault;
mod inventory;
mod view;

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

pub use self::fault::{InventoryError, NamespaceFault, SubsystemFault};
pub use self::inventory::{Inventory, Refused};
pub use self::view::{Authorized, DiscoveryRecord};

use super::ana::{ANA_GROUP_DEFAULT, ANA_GROUPS_MAX};
use super::nqn::Nqn;
use crate::portal::Portal;

/// Support of deallocation, and the content of deallocated blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deallocate {
    /// The namespace does not deallocate. A deallocation request is accepted and ignored.
    No,
    /// The namespace deallocates. The content of deallocated blocks is undefined.
    Undefined,
    /// The namespace deallocates. Deallocated blocks read as zeroes.
    Zeroes,
}

/// One namespace. All counts of blocks are plain counts, never zero-based.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Namespace id, 1 to [`NAMESPACES_MAX`].
    pub nsid: u32,
    /// Size in blocks, not zero.
    pub blocks: u64,
    /// Size of a block in bytes: a power of two, 512 to 65536.
    pub block_bytes: u32,
    /// NGUID: stable, equal on all paths, never zero.
    pub nguid: [u8; 16],
    /// UUID: stable, equal on all paths, never zero.
    pub uuid: [u8; 16],
    /// EUI64, if the namespace has one; never zero.
    pub eui64: Option<[u8; 8]>,
    /// NPWG and NPDG: size in blocks of a physical block. Smaller writes cost a read. 1 if unknown.
    pub preferred_write_blocks: u32,
    /// NPWA and NPDA: alignment of physical blocks, in blocks. 1 if unknown.
    pub preferred_alignment_blocks: u32,
    /// NOWS: optimal write size in blocks. Zero if unknown.
    pub optimal_write_blocks: u32,
    /// NOIOB: commands should not cross multiples of this number of blocks. Zero: no preference.
    pub boundary_blocks: u32,
    /// NAWUN: number of blocks that are written atomically towards other commands, at least 1.
    pub atomic_write_blocks: u32,
    /// NAWUPF: number of blocks that are written atomically on power failure, at least 1.
    pub atomic_power_fail_blocks: u32,
    /// NACWU: number of blocks of an atomic fused Compare and Write, at least 1.
    pub atomic_compare_blocks: u32,
    /// True if writes are refused.
    pub read_only: bool,
    /// True if a power failure may lose an acknowledged write that was not flushed or forced (FUA).
    pub volatile_cache: bool,
    /// Support of deallocation.
    pub deallocate: Deallocate,
    /// True if reservations can persist through power loss.
    pub stores_reservations: bool,
    /// ANAGRPID: the ANA group, 1 to [`ANA_GROUPS_MAX`].
    pub ana_group: u32,
}

impl Namespace {
    /// A namespace of `blocks` blocks with defaults for all other fields: no cache, no
    /// deallocation, one block atomic.
    #[must_use]
    pub const fn new(nsid: u32, blocks: u64, block_bytes: u32, uuid: [u8; 16]) -> Self {
        Self {
            nsid,
            blocks,
            block_bytes,
            nguid: uuid,
            uuid,
            eui64: None,
            preferred_write_blocks: 1,
            preferred_alignment_blocks: 1,
            optimal_write_blocks: 0,
            boundary_blocks: 0,
            atomic_write_blocks: 1,
            atomic_power_fail_blocks: 1,
            atomic_compare_blocks: 1,
            read_only: false,
            volatile_cache: false,
            deallocate: Deallocate::No,
            stores_reservations: false,
            ana_group: ANA_GROUP_DEFAULT,
        }
    }

    /// log2 of the block size in bytes.
    #[must_use]
    pub const fn block_shift(&self) -> u32 {
        self.block_bytes.trailing_zeros()
    }

    /// Whether `blocks` blocks from `lba` lie within the namespace.
    #[must_use]
    pub const fn contains(&self, lba: u64, blocks: u64) -> bool {
        match lba.checked_add(blocks) {
            Some(end) => end <= self.blocks,
            None => false,
        }
    }

    fn check(&self) -> Result<(), NamespaceFault> {
        use NamespaceFault as F;
        if !(1..=NAMESPACES_MAX).contains(&self.nsid) {
            return Err(F::Nsid);
        }
        if !self.block_bytes.is_power_of_two() || !(512..=65536).contains(&self.block_bytes) {
            return Err(F::BlockBytes);
        }
        if self.blocks == 0
            || self
                .blocks
                .checked_mul(u64::from(self.block_bytes))
                .is_none()
        {
            return Err(F::Size);
        }
        if self.nguid == [0; 16] || self.uuid == [0; 16] || self.eui64 == Some([0; 8]) {
            return Err(F::Identifier);
        }
        if !(1..=ANA_GROUPS_MAX).contains(&self.ana_group) {
            return Err(F::AnaGroup);
        }
        let counts = [
            self.preferred_write_blocks,
            self.preferred_alignment_blocks,
            self.atomic_write_blocks,
            self.atomic_power_fail_blocks,
            self.atomic_compare_blocks,
        ];
        if counts.iter().any(|count| !(1..=65536).contains(count)) {
            return Err(F::Counts);
        }
        if self.optimal_write_blocks > 65536 || self.boundary_blocks > 65535 {
            return Err(F::Counts);
        }
        Ok(())
    }
}

/// Hosts that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Every host.
    Any,
    /// Only these hosts.
    Listed(Vec<Nqn>),
}

impl Hosts {
    fn allow(&self, host: &Nqn) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(hosts) => hosts.contains(host),
        }
    }
}

/// One subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// Name of the subsystem, beginning with `nqn.`.
    pub nqn: Nqn,
    /// Serial number, ASCII, at most 20 characters.
    pub serial: String,
    /// Model, ASCII, at most 40 characters.
    pub model: String,
    /// Firmware revision, ASCII, at most 8 characters.
    pub firmware: String,
    /// Namespaces. An inventory keeps them in ascending order.
    pub namespaces: Vec<Namespace>,
    /// Hosts that may connect.
    pub hosts: Hosts,
    /// Range of controller ids for this subsystem, within 1 to FFEFh.
    pub controller_ids: RangeInclusive<u16>,
    /// Maximum number of I/O queues of one controller.
    pub max_io_queues: u16,
    /// Maximum number of entries of one queue, at least 32.
    pub max_queue_entries: u16,
    /// True if disks of any kind may be added while hosts are connected. Fields that hosts read
    /// only once then hold for every kind: a volatile cache, and support of deallocation.
    pub grows: bool,
}

/// Highest controller id that is not reserved.
pub const CNTLID_MAX: u16 = 0xFFEF;

/// NN and MNAN: highest namespace id, and maximum number of namespaces of one subsystem. This is a
/// constant, because hosts read it once and ignore namespaces above it that are added later.
pub const NAMESPACES_MAX: u32 = 1024;

impl Subsystem {
    /// The active namespace with this id.
    fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        let index = self
            .namespaces
            .binary_search_by_key(&nsid, |namespace| namespace.nsid)
            .ok()?;
        self.namespaces.get(index)
    }

    fn check(&self) -> Result<(), SubsystemFault> {
        use SubsystemFault as F;
        if !self.nqn.as_str().starts_with("nqn.") || self.nqn.is_discovery() {
            return Err(F::Name);
        }
        let ascii = |text: &str, most| {
            text.len() <= most && text.bytes().all(|byte| (0x20..0x7F).contains(&byte))
        };
        if !ascii(&self.serial, 20) || !ascii(&self.model, 40) || !ascii(&self.firmware, 8) {
            return Err(F::Text);
        }
        if self.serial.is_empty() || self.model.is_empty() {
            return Err(F::Text);
        }
        let ids = &self.controller_ids;
        if ids.is_empty() || *ids.start() == 0 || *ids.end() > CNTLID_MAX {
            return Err(F::ControllerIds);
        }
        if self.max_queue_entries < 32 || self.max_io_queues == 0 {
            return Err(F::Queues);
        }
        Ok(())
    }
}

/// Transport of a discovery record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RDMA.
    Rdma,
    /// TCP.
    Tcp,
}

/// Whether a connection needs TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecureChannel {
    /// No TLS.
    None,
    /// TLS 1.3 only.
    Required,
}

/// One address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// PORTID.
    pub port_id: u16,
    /// Transport of the address.
    pub transport: Transport,
    /// Address and port.
    pub portal: Portal,
    /// TLS requirement.
    pub secure_channel: SecureChannel,
    /// True for a referral: the discovery service of another target.
    pub referral: bool,
}

//! What is exported, as plain data: subsystems, their namespaces, who may see them, and where they
//! listen.
//!
//! An [`Inventory`] is immutable and replaced whole (`subsystem/inventory.rs`). Nothing in it can
//! be resolved by a peer's word alone: a namespace or a discovery record is reached only through an
//! [`Authorized`] view, which exists only for a host that the subsystem allows
//! (`subsystem/view.rs`). What can be wrong is in `subsystem/fault.rs`. None of these files knows a
//! queue, a connection or a disk.

mod fault;
mod inventory;
mod view;

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

pub use self::fault::{InventoryError, NamespaceFault, SubsystemFault};
pub use self::inventory::{Inventory, Refused};
pub use self::view::{Authorized, DiscoveryRecord};

use super::nqn::Nqn;
use crate::portal::Portal;

/// What reads of deallocated blocks return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deallocate {
    /// The namespace cannot deallocate; the hint is taken and ignored.
    No,
    /// It can, and nothing is promised about what is read afterwards.
    Undefined,
    /// It can, and zeroes are read afterwards.
    Zeroes,
}

/// One namespace. All counts of blocks are plain counts, never zero-based.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Namespace id, 1 to [`NAMESPACES_MAX`].
    pub nsid: u32,
    /// Size in blocks, not zero.
    pub blocks: u64,
    /// Bytes of a block: a power of two, 512 to 65536.
    pub block_bytes: u32,
    /// NGUID: stable, equal on all paths, never zero.
    pub nguid: [u8; 16],
    /// UUID: stable, equal on all paths, never zero.
    pub uuid: [u8; 16],
    /// EUI64, where there is one; never zero.
    pub eui64: Option<[u8; 8]>,
    /// NPWG and NPDG: writes smaller than this cost a read; the physical block in blocks, 1 if
    /// nothing is known.
    pub preferred_write_blocks: u32,
    /// NPWA and NPDA: the alignment that belongs to it, 1 if nothing is known.
    pub preferred_alignment_blocks: u32,
    /// NOWS: the best write size, zero if nothing is known.
    pub optimal_write_blocks: u32,
    /// NOIOB: commands should not cross multiples of this, zero if it does not matter.
    pub boundary_blocks: u32,
    /// NAWUN: what is written atomically towards other commands, at least 1.
    pub atomic_write_blocks: u32,
    /// NAWUPF: what is written atomically when the power fails, at least 1.
    pub atomic_power_fail_blocks: u32,
    /// NACWU: what a fused Compare and Write handles atomically, at least 1.
    pub atomic_compare_blocks: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// An acknowledged write may be lost unless it was flushed or forced (FUA).
    pub volatile_cache: bool,
    /// Whether blocks can be deallocated.
    pub deallocate: Deallocate,
    /// Reservations can outlive the power.
    pub stores_reservations: bool,
}

impl Namespace {
    /// A namespace of `blocks` blocks with nothing else known about it: no cache, no deallocation,
    /// one block atomic.
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
        }
    }

    /// log2 of the block's bytes.
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

/// Which hosts may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Every host.
    Any,
    /// These only.
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
    /// Its name; starts with `nqn.`.
    pub nqn: Nqn,
    /// Serial number, ASCII, at most 20 characters.
    pub serial: String,
    /// Model, ASCII, at most 40 characters.
    pub model: String,
    /// Firmware revision, ASCII, at most 8 characters.
    pub firmware: String,
    /// The namespaces; an inventory keeps them in ascending order.
    pub namespaces: Vec<Namespace>,
    /// Who may connect.
    pub hosts: Hosts,
    /// The controller ids to be given out here, within 1 to FFEFh.
    pub controller_ids: RangeInclusive<u16>,
    /// Most I/O queues of one controller.
    pub max_io_queues: u16,
    /// Most entries of one queue, at least 32.
    pub max_queue_entries: u16,
    /// Disks of any kind may be added while hosts are connected. What hosts read once, at the
    /// start, then speaks for every kind: there is a volatile cache, and blocks can be deallocated.
    pub grows: bool,
}

/// The highest controller id that is not reserved.
pub const CNTLID_MAX: u16 = 0xFFEF;

/// NN and MNAN: the highest namespace id, and most namespaces of one subsystem. A constant, because
/// hosts read it once and ignore namespaces above it that are added later.
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

/// The transports a discovery record can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RDMA.
    Rdma,
    /// TCP.
    Tcp,
}

/// Whether the channel must be secured by TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecureChannel {
    /// No TLS here.
    None,
    /// TLS 1.3 only.
    Required,
}

/// One place to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// PORTID.
    pub port_id: u16,
    /// How to talk there.
    pub transport: Transport,
    /// Where.
    pub portal: Portal,
    /// TLS or not.
    pub secure_channel: SecureChannel,
    /// A referral: another target's discovery service, not a place of ours.
    pub referral: bool,
}

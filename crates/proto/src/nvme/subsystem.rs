//! What is exported, as plain data: subsystems, their namespaces, who may see them, and where they listen.
//!
//! An [`Inventory`] is immutable and replaced whole. Nothing in it can be resolved by a peer's word alone: a
//! namespace or a discovery record is reached only through an [`Authorized`] view, which exists only for a host
//! that the subsystem allows. This file knows no queue, no connection and no disk.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use super::nqn::Nqn;

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
    /// NPWG and NPDG: writes smaller than this cost a read; the physical block in blocks, 1 if nothing is known.
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
    /// A namespace of `blocks` blocks with nothing else known about it: no cache, no deallocation, one block atomic.
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
    /// Disks of any kind may be added while hosts are connected. What hosts read once, at the start, then speaks for
    /// every kind: there is a volatile cache, and blocks can be deallocated.
    pub grows: bool,
}

/// The highest controller id that is not reserved.
pub const CNTLID_MAX: u16 = 0xFFEF;

/// NN and MNAN: the highest namespace id, and most namespaces of one subsystem. A constant, because hosts read it once
/// and ignore namespaces above it that are added later.
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

/// The kind of a network address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// A network address as the discovery log spells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its kind.
    pub family: AddressFamily,
    /// Its text, ASCII, at most 255 characters.
    pub text: String,
}

impl Address {
    /// Whether this listens everywhere (`0.0.0.0`, `::`), so that no host can connect to it as it is spelled.
    #[must_use]
    pub fn is_wildcard(&self) -> bool {
        matches!(self.text.as_str(), "0.0.0.0" | "::")
    }
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
    /// Where; a wildcard is replaced by the address at which the asking host reached us.
    pub address: Address,
    /// TRSVCID: the port number as text, at most 31 characters.
    pub service: String,
    /// TLS or not.
    pub secure_channel: SecureChannel,
    /// A referral: another target's discovery service, not a place of ours.
    pub referral: bool,
}

/// What is wrong with a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceFault {
    /// Id 0, or higher than [`NAMESPACES_MAX`].
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
    /// A listener's address or service is too long or not ASCII; its port id.
    Listener(u16),
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
            Self::Listener(port_id) => write!(
                f,
                "port {port_id}: address (up to 255) and service (up to 31 characters) must be ASCII"
            ),
        }
    }
}

impl core::error::Error for InventoryError {}

/// Everything that is exported at one moment; immutable, and replaced whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    subsystems: Vec<Subsystem>,
    listeners: Vec<Listener>,
    generation: u64,
}

/// Why a host is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such subsystem.
    UnknownSubsystem,
    /// The subsystem does not allow this host.
    HostNotAllowed,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownSubsystem => "there is no subsystem of that name",
            Self::HostNotAllowed => "the subsystem's list of hosts does not name this host",
        })
    }
}

impl core::error::Error for Refused {}

impl Inventory {
    /// Checks and keeps what is exported. `generation` must grow with every change that a host may see: it is the
    /// discovery log's generation counter (GENCTR).
    ///
    /// # Errors
    /// The first thing that is wrong, by name.
    pub fn new(
        mut subsystems: Vec<Subsystem>,
        listeners: Vec<Listener>,
        generation: u64,
    ) -> Result<Self, InventoryError> {
        for subsystem in &mut subsystems {
            subsystem.namespaces.sort_by_key(|namespace| namespace.nsid);
            check_subsystem(subsystem)?;
        }
        for (index, subsystem) in subsystems.iter().enumerate() {
            if subsystems[..index]
                .iter()
                .any(|other| other.nqn == subsystem.nqn)
            {
                let nqn = subsystem.nqn.clone();
                return Err(InventoryError::Subsystem(nqn, SubsystemFault::Duplicate));
            }
        }
        for listener in &listeners {
            let fits =
                |text: &str, most| text.len() <= most && text.bytes().all(|b| b.is_ascii_graphic());
            if !fits(&listener.address.text, 255) || !fits(&listener.service, 31) {
                return Err(InventoryError::Listener(listener.port_id));
            }
        }
        Ok(Self {
            subsystems,
            listeners,
            generation,
        })
    }

    /// The discovery log's generation counter.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Lets `host` into `subsystem` (or into the discovery subsystem, which is open to all and shows each host only
    /// what it may connect to).
    ///
    /// # Errors
    /// [`Refused`] says why not.
    pub fn authorize(self: &Arc<Self>, subsystem: &Nqn, host: &Nqn) -> Result<Authorized, Refused> {
        let scope = if subsystem.is_discovery() {
            None
        } else {
            let index = self
                .subsystems
                .iter()
                .position(|other| other.nqn == *subsystem);
            let index = index.ok_or(Refused::UnknownSubsystem)?;
            if !self.subsystems[index].hosts.allow(host) {
                return Err(Refused::HostNotAllowed);
            }
            Some(index)
        };
        Ok(Authorized {
            inventory: Arc::clone(self),
            host: host.clone(),
            scope,
            reached_at: None,
        })
    }
}

fn check_subsystem(subsystem: &Subsystem) -> Result<(), InventoryError> {
    let name = || subsystem.nqn.clone();
    subsystem
        .check()
        .map_err(|fault| InventoryError::Subsystem(name(), fault))?;
    for (index, namespace) in subsystem.namespaces.iter().enumerate() {
        let fault = |fault| InventoryError::Namespace(name(), namespace.nsid, fault);
        namespace.check().map_err(fault)?;
        if index > 0 && subsystem.namespaces[index - 1].nsid == namespace.nsid {
            return Err(fault(NamespaceFault::Duplicate));
        }
    }
    Ok(())
}

/// What one host may see: the only way to a namespace or a discovery record.
///
/// Cheap to clone, and holds its inventory: an association keeps one, and [`refresh`](Self::refresh)es it when the
/// inventory is replaced.
#[derive(Clone, Debug)]
pub struct Authorized {
    inventory: Arc<Inventory>,
    host: Nqn,
    scope: Option<usize>,
    reached_at: Option<Address>,
}

impl Authorized {
    /// The same view, knowing the local address at which the host reached us: it takes the place of wildcard
    /// addresses in the discovery log.
    #[must_use]
    pub fn reached_at(mut self, address: Address) -> Self {
        self.reached_at = Some(address);
        self
    }

    /// The same view of a newer inventory.
    ///
    /// # Errors
    /// [`Refused`] when the subsystem is gone or no longer allows the host: end the association.
    pub fn refresh(&self, inventory: &Arc<Inventory>) -> Result<Self, Refused> {
        let name = self
            .subsystem()
            .map_or_else(Nqn::discovery, |subsystem| subsystem.nqn.clone());
        let mut view = inventory.authorize(&name, &self.host)?;
        view.reached_at.clone_from(&self.reached_at);
        Ok(view)
    }

    /// Whose view this is.
    #[must_use]
    pub const fn host(&self) -> &Nqn {
        &self.host
    }

    /// The subsystem, or `None` in the discovery subsystem.
    #[must_use]
    pub fn subsystem(&self) -> Option<&Subsystem> {
        self.inventory.subsystems.get(self.scope?)
    }

    /// Whether this is a view of the discovery subsystem.
    #[must_use]
    pub const fn is_discovery(&self) -> bool {
        self.scope.is_none()
    }

    /// The active namespace with this id.
    #[must_use]
    pub fn namespace(&self, nsid: u32) -> Option<&Namespace> {
        self.subsystem()?.namespace(nsid)
    }

    /// The active namespaces in ascending order of their ids.
    #[must_use]
    pub fn namespaces(&self) -> &[Namespace] {
        self.subsystem()
            .map_or(&[], |subsystem| &subsystem.namespaces)
    }

    /// Whether a flush means something to any namespace (VWC).
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        self.grows()
            || self
                .namespaces()
                .iter()
                .any(|namespace| namespace.volatile_cache)
    }

    /// Whether Dataset Management deallocates blocks of any namespace.
    #[must_use]
    pub fn deallocates(&self) -> bool {
        let deallocates = |namespace: &Namespace| namespace.deallocate != Deallocate::No;
        self.grows() || self.namespaces().iter().any(deallocates)
    }

    fn grows(&self) -> bool {
        self.subsystem().is_some_and(|subsystem| subsystem.grows)
    }

    /// The discovery log's generation counter.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.inventory.generation
    }

    /// What the discovery log shows this host: every allowed subsystem at every place it can be reached, then the
    /// referrals. Empty outside the discovery subsystem.
    pub fn discovery_records(&self) -> impl Iterator<Item = DiscoveryRecord<'_>> {
        let inventory = &*self.inventory;
        let visible = if self.is_discovery() {
            &inventory.subsystems[..]
        } else {
            &[]
        };
        let referrals = if self.is_discovery() {
            &inventory.listeners[..]
        } else {
            &[]
        };
        let ours = visible
            .iter()
            .filter(|subsystem| subsystem.hosts.allow(&self.host))
            .flat_map(move |subsystem| {
                let places = inventory
                    .listeners
                    .iter()
                    .filter(|listener| !listener.referral);
                places.map(move |listener| self.record(Some(subsystem), listener))
            });
        let others = referrals.iter().filter(|listener| listener.referral);
        ours.chain(others.map(move |listener| self.record(None, listener)))
    }

    fn record<'a>(
        &'a self,
        subsystem: Option<&'a Subsystem>,
        listener: &'a Listener,
    ) -> DiscoveryRecord<'a> {
        let reached = self
            .reached_at
            .as_ref()
            .filter(|_| listener.address.is_wildcard());
        DiscoveryRecord {
            subsystem,
            listener,
            address: reached.unwrap_or(&listener.address),
        }
    }
}

/// One line of the discovery log before it is laid out.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryRecord<'a> {
    /// What can be reached; `None` is a discovery service elsewhere.
    pub subsystem: Option<&'a Subsystem>,
    /// Where.
    pub listener: &'a Listener,
    /// The address to show: the listener's, or where the host reached us when that is a wildcard.
    pub address: &'a Address,
}

//! The log pages: their layouts, and how a piece of one is produced without making the whole.
//!
//! Reading is random access: a host names an offset and a length, and the answer is written into what the caller
//! provides through a [`Window`]. Nothing here assumes that a page is read at once, or from its start, or in pieces
//! of 4096 bytes. What is counted and when an event is cleared is decided in `controller`.
//! Source: NVM Express Base Specification 2.x, "Get Log Page command"; "Discovery Log Page" in the same.

use core::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::nqn::{Nqn, NqnError};
use super::spec::{AdminOpcode, FABRICS_OPCODE, Opcode, Status};
use super::subsystem::{AddressFamily, Authorized, DiscoveryRecord, SecureChannel, Transport};
use crate::scsi::reservation::Notice;

/// LID: a log page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogId(pub u8);

impl LogId {
    /// Supported Log Pages.
    pub const SUPPORTED: Self = Self(0x00);
    /// Error Information.
    pub const ERROR: Self = Self(0x01);
    /// SMART / Health Information.
    pub const HEALTH: Self = Self(0x02);
    /// Firmware Slot Information.
    pub const FIRMWARE_SLOT: Self = Self(0x03);
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: Self = Self(0x04);
    /// Commands Supported and Effects.
    pub const COMMAND_EFFECTS: Self = Self(0x05);
    /// Asymmetric Namespace Access.
    pub const ANA: Self = Self(0x0C);
    /// Discovery.
    pub const DISCOVERY: Self = Self(0x70);
    /// Reservation Notification.
    pub const RESERVATION: Self = Self(0x80);
    /// Our own: where the time of commands goes, see [`crate::nvme::timing`].
    pub const TIMING: Self = Self(0xC0);
}

/// A window onto a log page: the caller's bytes, and where in the page they lie.
///
/// What is put outside the window is dropped, what nobody puts stays zero.
#[derive(Debug)]
pub struct Window<'p> {
    bytes: &'p mut [u8],
    offset: u64,
}

impl<'p> Window<'p> {
    /// A window of zeroes at `offset` of a page of `page_bytes`.
    ///
    /// # Errors
    /// Invalid Field when the window starts after the page. One that ends after it reads zeroes there.
    pub fn new(bytes: &'p mut [u8], offset: u64, page_bytes: u64) -> Result<Self, Status> {
        if offset > page_bytes {
            return Err(Status::INVALID_FIELD);
        }
        bytes.fill(0);
        Ok(Self { bytes, offset })
    }

    /// Puts `bytes` at offset `at` of the page, as far as the window shows them.
    pub fn put(&mut self, at: u64, bytes: &[u8]) {
        let (Some(skip), Some(start)) = (
            usize::try_from(self.offset.saturating_sub(at)).ok(),
            usize::try_from(at.saturating_sub(self.offset)).ok(),
        ) else {
            return;
        };
        let (Some(from), Some(to)) = (bytes.get(skip..), self.bytes.get_mut(start..)) else {
            return;
        };
        let count = from.len().min(to.len());
        to[..count].copy_from_slice(&from[..count]);
    }

    /// The records of `record_bytes` each, the first one at `at`, that the window shows any part of.
    #[must_use]
    pub fn records(&self, at: u64, record_bytes: u64) -> core::ops::Range<u64> {
        let end = self.offset.saturating_add(self.bytes.len() as u64);
        let first = self.offset.saturating_sub(at) / record_bytes;
        let last = end.saturating_sub(at).div_ceil(record_bytes);
        first..last
    }
}

/// Supported Log Pages (00h), 1024 bytes: a dword for each page, bit 0 says that it is supported.
pub fn supported_pages(window: &mut Window<'_>, pages: &[LogId]) {
    for page in pages {
        window.put(u64::from(page.0) * 4, U32::new(1).as_bytes());
    }
}

/// Bytes of Supported Log Pages.
pub const SUPPORTED_PAGES_BYTES: u64 = 1024;

/// One entry of Error Information (01h), 64 bytes.
///
/// Source: NVM Express Base Specification 2.x, "Error Information Log Entry Data Structure".
#[repr(C)]
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct ErrorEntry {
    /// Counts every error from one on; zero is an entry that was never used.
    pub error_count: U64,
    /// On which queue.
    pub queue_id: U16,
    /// Which command; FFFFh for none.
    pub command_id: U16,
    /// How it was answered, as in its completion.
    pub status: U16,
    /// The byte (7:0) and bit (10:8) of the command at fault, FFFFh for none.
    pub parameter_location: U16,
    /// First block at fault.
    pub lba: U64,
    /// Which namespace.
    pub nsid: U32,
    /// Vendor log page with more.
    pub vendor_page: u8,
    /// TRTYPE.
    pub transport: u8,
    reserved_30: [u8; 2],
    /// Command specific.
    pub command_specific: U64,
    /// Transport specific.
    pub transport_specific: U16,
    reserved_42: [u8; 22],
}
const _: () = assert!(
    size_of::<ErrorEntry>() == 64
        && offset_of!(ErrorEntry, queue_id) == 8
        && offset_of!(ErrorEntry, status) == 12
        && offset_of!(ErrorEntry, lba) == 16
        && offset_of!(ErrorEntry, nsid) == 24
        && offset_of!(ErrorEntry, transport) == 29
        && offset_of!(ErrorEntry, command_specific) == 32
);

/// Entries that are kept.
pub const ERROR_ENTRIES: usize = 64;

/// An error worth remembering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRecord {
    /// On which queue.
    pub queue_id: u16,
    /// Which command.
    pub command_id: u16,
    /// How it was answered.
    pub status: Status,
    /// First block at fault, or zero.
    pub lba: u64,
    /// Which namespace, or zero.
    pub nsid: u32,
}

/// The last errors, newest first when they are read.
#[derive(Clone, Debug)]
pub struct ErrorRing {
    entries: [ErrorEntry; ERROR_ENTRIES],
    count: u64,
}

impl Default for ErrorRing {
    fn default() -> Self {
        Self {
            entries: FromZeros::new_zeroed(),
            count: 0,
        }
    }
}

impl ErrorRing {
    /// How many errors there have been.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Remembers an error; the oldest one gives way.
    pub fn push(&mut self, record: &ErrorRecord) {
        let index = Self::index(self.count);
        self.count = self.count.saturating_add(1);
        let mut entry = ErrorEntry::new_zeroed();
        entry.error_count = U64::new(self.count);
        entry.queue_id = U16::new(record.queue_id);
        entry.command_id = U16::new(record.command_id);
        entry.status = U16::new(record.status.to_field());
        entry.parameter_location = U16::new(0xFFFF);
        entry.lba = U64::new(record.lba);
        entry.nsid = U32::new(record.nsid);
        entry.transport = TRTYPE_TCP;
        self.entries[index] = entry;
    }

    /// Bytes of the page.
    pub const PAGE_BYTES: u64 = (ERROR_ENTRIES * size_of::<ErrorEntry>()) as u64;

    /// Error Information (01h).
    pub fn page(&self, window: &mut Window<'_>) {
        let kept = self.count.min(ERROR_ENTRIES as u64);
        for age in 0..kept {
            let entry = &self.entries[Self::index(self.count - 1 - age)];
            window.put(age * size_of::<ErrorEntry>() as u64, entry.as_bytes());
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder of 64")]
    const fn index(count: u64) -> usize {
        (count % ERROR_ENTRIES as u64) as usize
    }
}

/// What the health log counts, given by the caller in plain units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthCounters {
    /// Bytes hosts have read.
    pub read_bytes: u64,
    /// Bytes hosts have written.
    pub written_bytes: u64,
    /// Read commands (with compares) that have ended.
    pub read_commands: u64,
    /// Write commands that have ended.
    pub write_commands: u64,
    /// Minutes with commands outstanding.
    pub busy_minutes: u64,
    /// Starts of the target.
    pub power_cycles: u64,
    /// Hours the target has run.
    pub power_on_hours: u64,
    /// Starts that followed no clean end.
    pub unsafe_shutdowns: u64,
    /// Errors of the medium.
    pub media_errors: u64,
}

/// SMART / Health Information (02h), 512 bytes.
///
/// Source: NVM Express Base Specification 2.x, "SMART / Health Information Log Page".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct HealthPage {
    /// Critical warning.
    pub critical_warning: u8,
    /// Composite temperature in kelvins; zero where there is no sensor.
    pub temperature_k: U16,
    /// Available spare in percent.
    pub available_spare: u8,
    /// Its threshold in percent.
    pub spare_threshold: u8,
    /// Percentage used.
    pub percentage_used: u8,
    reserved_6: [u8; 26],
    /// Thousands of 512-byte units read, rounded up.
    pub data_units_read: [U64; 2],
    /// Thousands of 512-byte units written, rounded up.
    pub data_units_written: [U64; 2],
    /// Read commands.
    pub host_reads: [U64; 2],
    /// Write commands.
    pub host_writes: [U64; 2],
    /// Minutes busy.
    pub busy_minutes: [U64; 2],
    /// Power cycles.
    pub power_cycles: [U64; 2],
    /// Power-on hours.
    pub power_on_hours: [U64; 2],
    /// Unsafe shutdowns.
    pub unsafe_shutdowns: [U64; 2],
    /// Media errors.
    pub media_errors: [U64; 2],
    /// Entries ever made in the error log.
    pub error_entries: [U64; 2],
    reserved_192: [u8; 320],
}
const _: () = assert!(
    size_of::<HealthPage>() == 512
        && offset_of!(HealthPage, temperature_k) == 1
        && offset_of!(HealthPage, available_spare) == 3
        && offset_of!(HealthPage, data_units_read) == 32
        && offset_of!(HealthPage, host_reads) == 64
        && offset_of!(HealthPage, power_on_hours) == 128
        && offset_of!(HealthPage, error_entries) == 176
);

/// SMART / Health Information (02h).
pub fn health(window: &mut Window<'_>, counters: &HealthCounters, error_entries: u64) {
    let wide = |count: u64| [U64::new(count), U64::ZERO];
    let units = |bytes: u64| wide(bytes.div_ceil(512 * 1000));
    let mut page = HealthPage::new_zeroed();
    page.available_spare = 100;
    page.data_units_read = units(counters.read_bytes);
    page.data_units_written = units(counters.written_bytes);
    page.host_reads = wide(counters.read_commands);
    page.host_writes = wide(counters.write_commands);
    page.busy_minutes = wide(counters.busy_minutes);
    page.power_cycles = wide(counters.power_cycles);
    page.power_on_hours = wide(counters.power_on_hours);
    page.unsafe_shutdowns = wide(counters.unsafe_shutdowns);
    page.media_errors = wide(counters.media_errors);
    page.error_entries = wide(error_entries);
    window.put(0, page.as_bytes());
}

/// Bytes of SMART / Health Information and of Firmware Slot Information.
pub const SMALL_PAGE_BYTES: u64 = 512;

/// Firmware Slot Information (03h), 512 bytes: one slot, active, read-only.
pub fn firmware_slot(window: &mut Window<'_>, firmware: &str) {
    let mut revision = [0; 8];
    super::identify::fill_ascii(&mut revision, firmware);
    window.put(0, &[1]);
    window.put(8, &revision);
}

/// Bytes of Changed Namespace List and of Commands Supported and Effects.
pub const LARGE_PAGE_BYTES: u64 = 4096;

/// Most ids in the Changed Namespace List.
pub const CHANGED_MAX: usize = 1024;

/// Changed Namespace List (04h), 4096 bytes: the ids, ascending; `None` says that there were too many.
pub fn changed_namespaces(window: &mut Window<'_>, changed: Option<&[u32]>) {
    let Some(changed) = changed else {
        return window.put(0, U32::new(u32::MAX).as_bytes());
    };
    for (at, nsid) in (0..).step_by(4).zip(changed) {
        window.put(at, U32::new(*nsid).as_bytes());
    }
}

/// Reservation Notification (80h), 64 bytes: what another host did to reservations.
///
/// Source: NVM Express Base Specification 2.x, "Reservation Notification Log Page".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct NotificationPage {
    /// LPC: counts notifications from one on; a gap says that some were lost. Zero in an empty page.
    pub count: U64,
    /// RNLPT: 0 empty, 1 registration preempted, 2 reservation released, 3 reservation preempted.
    pub kind: u8,
    /// NALP: notifications that follow this one, 255 for that many or more.
    pub more: u8,
    reserved_10: [u8; 2],
    /// NSID.
    pub nsid: U32,
    reserved_16: [u8; 48],
}
const _: () = assert!(
    size_of::<NotificationPage>() == 64
        && offset_of!(NotificationPage, kind) == 8
        && offset_of!(NotificationPage, more) == 9
        && offset_of!(NotificationPage, nsid) == 12
);

impl NotificationPage {
    /// Bytes of the page.
    pub const BYTES: u64 = size_of::<Self>() as u64;

    /// There is nothing to be told.
    #[must_use]
    pub fn empty() -> Self {
        Self::new_zeroed()
    }

    /// One notification.
    #[must_use]
    pub fn new(count: u64, notice: Notice, nsid: u32) -> Self {
        Self {
            count: U64::new(count),
            kind: match notice {
                Notice::RegistrationPreempted => 1,
                Notice::ReservationReleased => 2,
                Notice::ReservationPreempted => 3,
            },
            nsid: U32::new(nsid),
            ..Self::empty()
        }
    }

    /// The same with so many behind it.
    #[must_use]
    pub fn followed_by(mut self, more: usize) -> Self {
        self.more = u8::try_from(more).unwrap_or(u8::MAX);
        self
    }
}

/// Which I/O commands a controller knows, for the effects log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownCommands {
    /// Compare.
    pub compare: bool,
    /// Verify.
    pub verify: bool,
}

/// Effects bit 0: the command is supported.
const CSUPP: u32 = 1 << 0;
/// Effects bit 1: it may change the content of blocks.
const LBCC: u32 = 1 << 1;
/// Where the I/O commands begin in the page.
const EFFECTS_IO: u64 = 1024;

/// Commands Supported and Effects (05h), 4096 bytes.
pub fn command_effects(window: &mut Window<'_>, known: KnownCommands) {
    let mut set = |base: u64, opcode: u8, effects: u32| {
        window.put(base + u64::from(opcode) * 4, U32::new(effects).as_bytes());
    };
    for opcode in [
        AdminOpcode::GET_LOG_PAGE,
        AdminOpcode::IDENTIFY,
        AdminOpcode::ABORT,
        AdminOpcode::SET_FEATURES,
        AdminOpcode::GET_FEATURES,
        AdminOpcode::ASYNC_EVENT_REQUEST,
        AdminOpcode::KEEP_ALIVE,
        AdminOpcode(FABRICS_OPCODE),
    ] {
        set(0, opcode.0, CSUPP);
    }
    let io = [
        (Opcode::FLUSH, CSUPP, true),
        (Opcode::WRITE, CSUPP | LBCC, true),
        (Opcode::READ, CSUPP, true),
        (Opcode::COMPARE, CSUPP, known.compare),
        (Opcode::WRITE_ZEROES, CSUPP | LBCC, true),
        (Opcode::DATASET_MANAGEMENT, CSUPP | LBCC, true),
        (Opcode::VERIFY, CSUPP, known.verify),
        (Opcode::RESERVATION_REGISTER, CSUPP, true),
        (Opcode::RESERVATION_REPORT, CSUPP, true),
        (Opcode::RESERVATION_ACQUIRE, CSUPP, true),
        (Opcode::RESERVATION_RELEASE, CSUPP, true),
        (Opcode(FABRICS_OPCODE), CSUPP, true),
    ];
    for (opcode, effects, _) in io.into_iter().filter(|(_, _, known)| *known) {
        set(EFFECTS_IO, opcode.0, effects);
    }
}

/// The head of the discovery log; records follow at offset 1024.
///
/// Source: NVM Express Base Specification 2.x, "Discovery Log Page".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct DiscoveryHeader {
    /// GENCTR: changes whenever the page does.
    pub generation: U64,
    /// NUMREC.
    pub records: U64,
    /// RECFMT: zero.
    pub record_format: U16,
    reserved_18: [u8; 1006],
}
const _: () = assert!(
    size_of::<DiscoveryHeader>() == 1024
        && offset_of!(DiscoveryHeader, records) == 8
        && offset_of!(DiscoveryHeader, record_format) == 16
);

/// One record of the discovery log, 1024 bytes.
///
/// Source: NVM Express Base Specification 2.x, "Discovery Log Page Entry".
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct DiscoveryEntry {
    /// TRTYPE: [`TRTYPE_RDMA`], [`TRTYPE_TCP`].
    pub transport: u8,
    /// ADRFAM: [`ADRFAM_IPV4`], [`ADRFAM_IPV6`].
    pub address_family: u8,
    /// SUBTYPE: [`SUBTYPE_REFERRAL`], [`SUBTYPE_NVM`], [`SUBTYPE_CURRENT`].
    pub subtype: u8,
    /// TREQ: bits 1:0 [`TREQ_SECURE_REQUIRED`] or not, bit 2 the host may turn off SQ flow control.
    pub requirements: u8,
    /// PORTID.
    pub port_id: U16,
    /// CNTLID: FFFFh, dynamic.
    pub controller_id: U16,
    /// ASQSZ: entries of the admin queue, at most.
    pub admin_queue_entries: U16,
    /// EFLAGS.
    pub flags: U16,
    reserved_12: [u8; 20],
    /// TRSVCID: ASCII, padded with zeroes.
    pub service: [u8; 32],
    reserved_64: [u8; 192],
    /// SUBNQN.
    pub subsystem_nqn: [u8; 256],
    /// TRADDR: ASCII, padded with zeroes.
    pub address: [u8; 256],
    /// TSAS: byte 0 is SECTYPE for TCP; queue pair type, provider and connection service for RDMA.
    pub transport_specific: [u8; 256],
}
const _: () = assert!(
    size_of::<DiscoveryEntry>() == 1024
        && offset_of!(DiscoveryEntry, subtype) == 2
        && offset_of!(DiscoveryEntry, requirements) == 3
        && offset_of!(DiscoveryEntry, port_id) == 4
        && offset_of!(DiscoveryEntry, controller_id) == 6
        && offset_of!(DiscoveryEntry, admin_queue_entries) == 8
        && offset_of!(DiscoveryEntry, flags) == 10
        && offset_of!(DiscoveryEntry, service) == 32
        && offset_of!(DiscoveryEntry, subsystem_nqn) == 256
        && offset_of!(DiscoveryEntry, address) == 512
        && offset_of!(DiscoveryEntry, transport_specific) == 768
);

/// TRTYPE of RDMA.
pub const TRTYPE_RDMA: u8 = 1;
/// TRTYPE of TCP.
pub const TRTYPE_TCP: u8 = 3;
/// ADRFAM of IPv4.
pub const ADRFAM_IPV4: u8 = 1;
/// ADRFAM of IPv6.
pub const ADRFAM_IPV6: u8 = 2;
/// SUBTYPE: a discovery service elsewhere.
pub const SUBTYPE_REFERRAL: u8 = 1;
/// SUBTYPE: a subsystem with namespaces.
pub const SUBTYPE_NVM: u8 = 2;
/// SUBTYPE: the discovery subsystem that is being asked.
pub const SUBTYPE_CURRENT: u8 = 3;
/// TREQ: a secure channel is required.
pub const TREQ_SECURE_REQUIRED: u8 = 1;
/// TREQ bit 2: the controller can do without SQ flow control.
pub const TREQ_DISABLE_SQ_FLOW_CONTROL: u8 = 1 << 2;
/// SECTYPE of TCP: TLS 1.3.
pub const SECTYPE_TLS13: u8 = 2;

/// Entries of the admin queue that we tell hosts (ASQSZ).
const ADMIN_QUEUE_ENTRIES: u16 = 32;
/// Bytes of the head and of each record.
const DISCOVERY_RECORD_BYTES: u64 = 1024;
/// RDMA: a reliable connected queue pair, no particular provider, the RDMA connection manager.
const TSAS_RDMA: [u8; 3] = [1, 1, 1];

impl DiscoveryEntry {
    /// Lays out one record.
    #[must_use]
    pub fn new(record: &DiscoveryRecord<'_>) -> Self {
        let listener = record.listener;
        let mut entry = Self::new_zeroed();
        entry.address_family = match record.address.family {
            AddressFamily::Ipv4 => ADRFAM_IPV4,
            AddressFamily::Ipv6 => ADRFAM_IPV6,
        };
        entry.transport = match listener.transport {
            Transport::Rdma => TRTYPE_RDMA,
            Transport::Tcp => TRTYPE_TCP,
        };
        if listener.transport == Transport::Rdma {
            entry.transport_specific[..3].copy_from_slice(&TSAS_RDMA);
        }
        // "Not specified" for the channel, as the kernel's target says: nvme-cli has words for that pair only.
        entry.requirements = TREQ_DISABLE_SQ_FLOW_CONTROL;
        if listener.secure_channel == SecureChannel::Required {
            entry.requirements = TREQ_DISABLE_SQ_FLOW_CONTROL | TREQ_SECURE_REQUIRED;
            entry.transport_specific[0] = SECTYPE_TLS13;
        }
        entry.port_id = U16::new(listener.port_id);
        entry.controller_id = U16::new(super::fabrics::CNTLID_DYNAMIC);
        entry.admin_queue_entries = U16::new(ADMIN_QUEUE_ENTRIES);
        entry.subtype = if record.subsystem.is_some() {
            SUBTYPE_NVM
        } else {
            SUBTYPE_REFERRAL
        };
        let nqn = record
            .subsystem
            .map_or_else(Nqn::discovery, |subsystem| subsystem.nqn.clone());
        entry.subsystem_nqn = nqn.to_field();
        fill(&mut entry.service, &listener.service);
        fill(&mut entry.address, &record.address.text);
        entry
    }

    /// The subsystem's name.
    ///
    /// # Errors
    /// The field does not hold a name.
    pub fn nqn(&self) -> Result<Nqn, NqnError> {
        Nqn::from_field(&self.subsystem_nqn)
    }

    /// The address's text, without the padding; empty when it is not printable ASCII.
    #[must_use]
    pub fn address_text(&self) -> &str {
        super::identify::ascii(&self.address)
    }

    /// The service's text, without the padding; empty when it is not printable ASCII.
    #[must_use]
    pub fn service_text(&self) -> &str {
        super::identify::ascii(&self.service)
    }
}

fn fill(field: &mut [u8], text: &str) {
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
}

/// Bytes of the discovery log a view shows.
#[must_use]
pub fn discovery_bytes(view: &Authorized) -> u64 {
    DISCOVERY_RECORD_BYTES * (1 + view.discovery_records().count() as u64)
}

/// The discovery log (70h) as a view shows it; only the records within the window are laid out.
pub fn discovery(window: &mut Window<'_>, view: &Authorized) {
    let mut header = DiscoveryHeader::new_zeroed();
    header.generation = U64::new(view.generation());
    header.records = U64::new(view.discovery_records().count() as u64);
    window.put(0, header.as_bytes());
    let shown = window.records(DISCOVERY_RECORD_BYTES, DISCOVERY_RECORD_BYTES);
    for (index, record) in (0..).zip(view.discovery_records()) {
        if shown.contains(&index) {
            let at = DISCOVERY_RECORD_BYTES * (index + 1);
            window.put(at, DiscoveryEntry::new(&record).as_bytes());
        }
    }
}

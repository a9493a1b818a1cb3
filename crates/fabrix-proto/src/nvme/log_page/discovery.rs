//! Discovery log page (70h): subsystems that a host may connect to, with their addresses.

use alloc::string::ToString;
use core::net::SocketAddr;

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::Window;
use crate::nvme::fabrics::CNTLID_DYNAMIC;
use crate::nvme::identify::ascii;
use crate::nvme::nqn::{Nqn, NqnError};
use crate::nvme::subsystem::{Authorized, DiscoveryRecord, SecureChannel, Transport};

wire! {
    /// Header of the discovery log, 1024 bytes. The records follow.
    ///
    /// Source: NVM Express Base Specification 2.x, "Discovery Log Page".
    pub struct DiscoveryHeader: 1024 bytes {
        /// GENCTR: generation of the log. Every change of the log increments it.
        pub generation: U64,
        /// NUMREC.
        pub records @ 8: U64,
        /// RECFMT: zero.
        pub record_format @ 16: U16,
        reserved_18: [u8; 1006],
    }

    /// One record of the discovery log, 1024 bytes.
    ///
    /// Source: NVM Express Base Specification 2.x, "Discovery Log Page Entry".
    pub struct DiscoveryEntry: 1024 bytes {
        /// TRTYPE: [`TRTYPE_RDMA`], [`TRTYPE_TCP`].
        pub transport: u8,
        /// ADRFAM: [`ADRFAM_IPV4`], [`ADRFAM_IPV6`].
        pub address_family: u8,
        /// SUBTYPE: [`SUBTYPE_REFERRAL`], [`SUBTYPE_NVM`], [`SUBTYPE_CURRENT`].
        pub subtype @ 2: u8,
        /// TREQ: bits 1:0 tell whether a secure channel is required. Bit 2: the host may disable SQ
        /// flow control.
        pub requirements @ 3: u8,
        /// PORTID.
        pub port_id @ 4: U16,
        /// CNTLID. FFFFh: Connect creates a controller.
        pub controller_id @ 6: U16,
        /// ASQSZ: maximum number of entries of the admin queue.
        pub admin_queue_entries @ 8: U16,
        /// EFLAGS.
        pub flags @ 10: U16,
        reserved_12: [u8; 20],
        /// TRSVCID: ASCII, padded with zeroes.
        pub service @ 32: [u8; 32],
        reserved_64: [u8; 192],
        /// SUBNQN.
        pub subsystem_nqn @ 256: [u8; 256],
        /// TRADDR: ASCII, padded with zeroes.
        pub address @ 512: [u8; 256],
        /// TSAS: byte 0 is SECTYPE for TCP; queue pair type, provider and connection service for
        /// RDMA.
        pub transport_specific @ 768: [u8; 256],
    }
}

/// TRTYPE of RDMA.
pub const TRTYPE_RDMA: u8 = 1;
/// TRTYPE of TCP.
pub const TRTYPE_TCP: u8 = 3;
/// ADRFAM of IPv4.
pub const ADRFAM_IPV4: u8 = 1;
/// ADRFAM of IPv6.
pub const ADRFAM_IPV6: u8 = 2;
/// SUBTYPE of a referral to another discovery service.
pub const SUBTYPE_REFERRAL: u8 = 1;
/// SUBTYPE of a subsystem with namespaces.
pub const SUBTYPE_NVM: u8 = 2;
/// SUBTYPE of the discovery subsystem that sends the log.
pub const SUBTYPE_CURRENT: u8 = 3;
/// TREQ: a secure channel is required.
pub const TREQ_SECURE_REQUIRED: u8 = 1;
/// TREQ bit 2: the controller supports queues without SQ flow control.
pub const TREQ_DISABLE_SQ_FLOW_CONTROL: u8 = 1 << 2;
/// SECTYPE of TCP: TLS 1.3.
pub const SECTYPE_TLS13: u8 = 2;

/// ASQSZ that we report: entries of the admin queue.
const ADMIN_QUEUE_ENTRIES: u16 = 32;
/// Length in bytes of the header and of each record.
const DISCOVERY_RECORD_BYTES: u64 = 1024;
/// RDMA: a reliable connected queue pair, no particular provider, the RDMA connection manager.
const TSAS_RDMA: [u8; 3] = [1, 1, 1];

impl DiscoveryEntry {
    /// Converts a record to its bytes.
    #[must_use]
    pub fn new(record: &DiscoveryRecord<'_>) -> Self {
        let listener = record.listener;
        let mut entry = Self::new_zeroed();
        entry.address_family = match record.address {
            SocketAddr::V4(_) => ADRFAM_IPV4,
            SocketAddr::V6(_) => ADRFAM_IPV6,
        };
        entry.transport = match listener.transport {
            Transport::Rdma => TRTYPE_RDMA,
            Transport::Tcp => TRTYPE_TCP,
        };
        if listener.transport == Transport::Rdma {
            entry.transport_specific[..3].copy_from_slice(&TSAS_RDMA);
        }
        // The secure channel is "not specified", as in the records of the Linux kernel's target.
        // nvme-cli has a name only for this combination with bit 2.
        entry.requirements = TREQ_DISABLE_SQ_FLOW_CONTROL;
        if listener.secure_channel == SecureChannel::Required {
            entry.requirements = TREQ_DISABLE_SQ_FLOW_CONTROL | TREQ_SECURE_REQUIRED;
            entry.transport_specific[0] = SECTYPE_TLS13;
        }
        entry.port_id = U16::new(listener.port_id);
        entry.controller_id = U16::new(CNTLID_DYNAMIC);
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
        fill(&mut entry.service, &record.address.port().to_string());
        fill(&mut entry.address, &record.address.ip().to_string());
        entry
    }

    /// Name of the subsystem.
    ///
    /// # Errors
    /// The field has no valid name.
    pub fn nqn(&self) -> Result<Nqn, NqnError> {
        Nqn::from_field(&self.subsystem_nqn)
    }

    /// Address as text, without padding. Empty if the field is not printable ASCII.
    #[must_use]
    pub fn address_text(&self) -> &str {
        ascii(&self.address)
    }

    /// Service (TCP port) as text, without padding. Empty if the field is not printable ASCII.
    #[must_use]
    pub fn service_text(&self) -> &str {
        ascii(&self.service)
    }
}

fn fill(field: &mut [u8], text: &str) {
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
}

/// Length in bytes of the discovery log for `view`.
#[must_use]
pub fn discovery_bytes(view: &Authorized) -> u64 {
    DISCOVERY_RECORD_BYTES * (1 + view.discovery_records().count() as u64)
}

/// Writes the discovery log for `view`. Only records inside the window are converted.
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

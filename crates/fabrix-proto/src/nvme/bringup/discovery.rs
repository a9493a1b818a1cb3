//! Reads a discovery log: its length, all records, and then its generation again.
//!
//! The log may change between two commands, so its generation is read before and after the records.
//! If the generation differs, reading starts anew. The numbers of records and of attempts are
//! bounded, because a faulty log may never end.
//!
//! Source: NVM Express Base Specification 2.x, "Discovery Log Page (Log Page Identifier 70h)".

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use zerocopy::FromBytes;

use super::error::BringupError;
use crate::nvme::admin::GetLogPage;
use crate::nvme::identify::ascii;
use crate::nvme::log_page::{
    ADRFAM_IPV4, ADRFAM_IPV6, DiscoveryEntry, DiscoveryHeader, LogId, SUBTYPE_CURRENT, SUBTYPE_NVM,
    SUBTYPE_REFERRAL, TRTYPE_RDMA, TRTYPE_TCP,
};
use crate::nvme::nqn::Nqn;
use crate::nvme::spec::SubmissionEntry;

/// Address of a subsystem or of another discovery service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredRecord {
    /// TRTYPE: transport of the address.
    pub transport: DiscoveredTransport,
    /// ADRFAM: address family.
    pub family: DiscoveredFamily,
    /// SUBTYPE: kind of subsystem at the address.
    pub subtype: DiscoveredSubtype,
    /// TRADDR: the address as text.
    pub address: String,
    /// TRSVCID: the port as text.
    pub service: String,
    /// SUBNQN.
    pub subsystem: Nqn,
    /// PORTID.
    pub port_id: u16,
    /// CNTLID. 0xFFFF: Connect creates a controller.
    pub controller_id: u16,
    /// ASQSZ: maximum number of entries of the admin queue.
    pub admin_queue_entries: u16,
    /// TREQ bits 1:0: a secure channel is not specified (0), required (1) or not required (2).
    pub secure_channel: u8,
    /// SECTYPE of TCP: no security (0), TLS 1.2 (1), TLS 1.3 (2). Other transports use the byte
    /// differently.
    pub security: u8,
}

/// TRTYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveredTransport {
    /// NVMe/TCP.
    Tcp,
    /// NVMe/RDMA.
    Rdma,
    /// Another transport, by its number.
    Other(u8),
}

/// ADRFAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveredFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Another address family, by its number.
    Other(u8),
}

/// SUBTYPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveredSubtype {
    /// Another discovery service.
    Referral,
    /// A subsystem with namespaces.
    Nvm,
    /// The discovery service that sent the record.
    Current,
    /// Another kind of subsystem, by its number.
    Other(u8),
}

/// A complete discovery log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryLog {
    /// GENCTR: generation of the log. Every change of the log increments it.
    pub generation: u64,
    /// The records, in the controller's order.
    pub records: Vec<DiscoveredRecord>,
    /// Records that cannot be parsed. They are not in `records`.
    pub unreadable: Vec<UnreadableRecord>,
}

/// A record of a discovery log without a usable address or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRecord {
    /// Position in the log, counted from 0.
    pub number: u32,
    /// Sentence that tells what is wrong with the record.
    pub why: String,
}

/// State of reading a discovery log.
#[derive(Debug, Default)]
pub(super) struct Reading {
    log: DiscoveryLog,
    step: DiscoveryStep,
    /// NUMREC.
    records: u32,
    /// Records read so far.
    read: u32,
    attempts: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DiscoveryStep {
    #[default]
    Header,
    Records,
    Again,
    Done,
}

impl Reading {
    /// Next command and the length of its answer in bytes. `None` after the last one.
    pub(super) fn command(&self) -> Option<(SubmissionEntry, u32)> {
        let (offset, bytes) = match self.step {
            DiscoveryStep::Header | DiscoveryStep::Again => (0, RECORD_BYTES),
            DiscoveryStep::Records => (
                u64::from(RECORD_BYTES) * (1 + u64::from(self.read)),
                RECORD_BYTES * (self.records - self.read).min(RECORDS_AT_ONCE),
            ),
            DiscoveryStep::Done => return None,
        };
        let log = GetLogPage {
            page: LogId::DISCOVERY,
            nsid: 0,
            offset,
            bytes: u64::from(bytes),
            specific: 0,
            retain_event: false,
            command_set: 0,
        };
        Some((SubmissionEntry::get_log_page(log), bytes))
    }

    /// Processes the answer. `data` has the requested length.
    pub(super) fn answered(&mut self, data: &[u8]) -> Result<(), BringupError> {
        match self.step {
            DiscoveryStep::Header => self.begin(data),
            DiscoveryStep::Again => self.compare(data),
            DiscoveryStep::Records => {
                self.take_records(data);
                Ok(())
            }
            DiscoveryStep::Done => Ok(()),
        }
    }

    /// The complete log. Valid after `command` has returned `None`.
    pub(super) fn log(&self) -> &DiscoveryLog {
        &self.log
    }

    fn begin(&mut self, data: &[u8]) -> Result<(), BringupError> {
        let header = header(data)?;
        let records = header.records.get();
        if header.record_format.get() != 0 {
            return Err(BringupError::unsupported(format!(
                "the discovery log has record format {}; supported is 0",
                header.record_format.get()
            )));
        }
        self.records = u32::try_from(records)
            .ok()
            .filter(|records| *records <= MAX_RECORDS)
            .ok_or_else(|| {
                BringupError::broken(format!(
                    "the discovery log has {records} records; no more than {MAX_RECORDS} are read"
                ))
            })?;
        self.log = DiscoveryLog {
            generation: header.generation.get(),
            ..DiscoveryLog::default()
        };
        self.read = 0;
        self.step = if self.records == 0 {
            DiscoveryStep::Done
        } else {
            DiscoveryStep::Records
        };
        Ok(())
    }

    fn take_records(&mut self, data: &[u8]) {
        for bytes in data.chunks_exact(RECORD_BYTES as usize) {
            let number = self.read;
            self.read += 1;
            let read = DiscoveryEntry::ref_from_bytes(bytes)
                .map_err(|_| "it is not 1024 bytes long".to_string())
                .and_then(record);
            match read {
                Ok(record) => self.log.records.push(record),
                Err(why) => self.log.unreadable.push(UnreadableRecord { number, why }),
            }
        }
        if self.read >= self.records {
            self.step = DiscoveryStep::Again;
        }
    }

    /// Compares the generation after the last record with the one before. If they differ, reading
    /// starts anew.
    fn compare(&mut self, data: &[u8]) -> Result<(), BringupError> {
        if header(data)?.generation.get() == self.log.generation {
            self.step = DiscoveryStep::Done;
            return Ok(());
        }
        self.attempts += 1;
        if self.attempts >= MAX_ATTEMPTS {
            return Err(BringupError::broken(
                "the discovery log changes faster than it can be read: try again",
            ));
        }
        self.begin(data)
    }
}

fn header(data: &[u8]) -> Result<&DiscoveryHeader, BringupError> {
    DiscoveryHeader::ref_from_bytes(data)
        .map_err(|_| BringupError::broken("the discovery log's header is not 1024 bytes"))
}

/// Parses a record.
///
/// # Errors
/// Sentence that tells what is missing or malformed.
fn record(entry: &DiscoveryEntry) -> Result<DiscoveredRecord, String> {
    let subsystem = entry.nqn();
    let subsystem = subsystem.map_err(|error| format!("its name (SUBNQN) is no NQN: {error}"))?;
    let address = ascii(&entry.address);
    if address.is_empty() {
        return Err(format!(
            "its address (TRADDR) is empty or not text; it names {subsystem}"
        ));
    }
    Ok(DiscoveredRecord {
        transport: match entry.transport {
            TRTYPE_TCP => DiscoveredTransport::Tcp,
            TRTYPE_RDMA => DiscoveredTransport::Rdma,
            other => DiscoveredTransport::Other(other),
        },
        family: match entry.address_family {
            ADRFAM_IPV4 => DiscoveredFamily::Ipv4,
            ADRFAM_IPV6 => DiscoveredFamily::Ipv6,
            other => DiscoveredFamily::Other(other),
        },
        subtype: match entry.subtype {
            SUBTYPE_REFERRAL => DiscoveredSubtype::Referral,
            SUBTYPE_NVM => DiscoveredSubtype::Nvm,
            SUBTYPE_CURRENT => DiscoveredSubtype::Current,
            other => DiscoveredSubtype::Other(other),
        },
        address: address.to_string(),
        service: ascii(&entry.service).to_string(),
        subsystem,
        port_id: entry.port_id.get(),
        controller_id: entry.controller_id.get(),
        admin_queue_entries: entry.admin_queue_entries.get(),
        secure_channel: entry.requirements & 0b11,
        security: entry.transport_specific[0],
    })
}

/// Length in bytes of the header and of each record.
const RECORD_BYTES: u32 = 1024;
/// Records per command: 4096 bytes of data, which every controller supports.
const RECORDS_AT_ONCE: u32 = 4;
/// Maximum number of records. A controller that reports more is faulty.
const MAX_RECORDS: u32 = 4096;
/// Maximum number of times that reading starts anew.
const MAX_ATTEMPTS: u32 = 8;

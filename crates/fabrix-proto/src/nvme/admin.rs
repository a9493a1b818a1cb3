//! Admin commands: from a submission entry to a typed command and back.
//!
//! The parser checks only the form of commands: reserved bits and alignment. `controller` decides
//! whether a request is supported, and answers it.
//! Source: NVM Express Base Specification 2.x, "Admin Command Set".

use zerocopy::little_endian::U32;

use super::features::{FeatureId, Select};
use super::identify::{Cns, IDENTIFY_BYTES};
use super::instance::ControllerInstance;
use super::log_page::LogId;
use super::spec::{AdminOpcode, Direction, PSDT_SGL, Status, SubmissionEntry};

/// NSID that means all namespaces.
pub const NSID_ALL: u32 = u32::MAX;

/// Identify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identify {
    /// Requested structure.
    pub cns: Cns,
    /// Namespace, or for lists the id after which the list begins.
    pub nsid: u32,
    /// CNTID, for structures that need one.
    pub controller_id: u16,
    /// CSI: I/O command set, for structures that need one.
    pub command_set: u8,
}

/// Get Log Page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// Requested page.
    pub page: LogId,
    /// Namespace. 0 and FFFFFFFFh stand for the controller.
    pub nsid: u32,
    /// First byte to return, as an offset in the page. A multiple of 4.
    pub offset: u64,
    /// Number of bytes, a multiple of 4 and not zero. The zero-based NUMD is converted here.
    pub bytes: u64,
    /// LSP.
    pub specific: u8,
    /// RAE: the event that announced the page is kept.
    pub retain_event: bool,
    /// CSI, for pages that need one.
    pub command_set: u8,
}

/// An admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminCommand {
    /// Identify.
    Identify(Identify),
    /// Get Log Page.
    GetLogPage(GetLogPage),
    /// Get Features.
    GetFeatures {
        /// Feature.
        feature: FeatureId,
        /// SEL: current, default or saved value, or supported capabilities.
        select: Select,
        /// Namespace.
        nsid: u32,
        /// Command dword 11.
        argument: u32,
    },
    /// Set Features.
    SetFeatures {
        /// Feature.
        feature: FeatureId,
        /// SV: the value persists through a reset.
        save: bool,
        /// Namespace.
        nsid: u32,
        /// Command dword 11: for most features, the value.
        value: u32,
    },
    /// Abort.
    Abort {
        /// Queue of the command to abort.
        queue_id: u16,
        /// Command to abort.
        command_id: u16,
    },
    /// Asynchronous Event Request.
    AsyncEventRequest,
    /// Keep Alive.
    KeepAlive,
    /// Cross-Controller Reset of this instance.
    CrossControllerReset(ControllerInstance),
}

impl AdminCommand {
    /// Parses an admin command, but no fabrics command.
    ///
    /// # Errors
    /// The status of the answer: Invalid Command Opcode, or Invalid Field for reserved bits.
    pub fn parse(entry: &SubmissionEntry) -> Result<Self, Status> {
        let command = match entry.admin_opcode() {
            AdminOpcode::IDENTIFY => Self::Identify(Identify::parse(entry)),
            AdminOpcode::GET_LOG_PAGE => Self::GetLogPage(GetLogPage::parse(entry)?),
            AdminOpcode::GET_FEATURES => get_features(entry)?,
            AdminOpcode::SET_FEATURES => set_features(entry)?,
            AdminOpcode::ABORT => {
                let (queue_id, command_id) = halves(entry.cdw10);
                Self::Abort {
                    queue_id,
                    command_id,
                }
            }
            AdminOpcode::ASYNC_EVENT_REQUEST => Self::AsyncEventRequest,
            AdminOpcode::KEEP_ALIVE => Self::KeepAlive,
            AdminOpcode::CROSS_CONTROLLER_RESET => {
                Self::CrossControllerReset(ControllerInstance::parse(entry)?)
            }
            _ => return Err(Status::INVALID_OPCODE),
        };
        let described = entry.direction() == Direction::None || entry.flags & 0xC0 == PSDT_SGL;
        if entry.flags & !0xC0 != 0 || !described {
            return Err(Status::INVALID_FIELD);
        }
        Ok(command)
    }

    /// Length in bytes of the data that the command moves, in either direction.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        match self {
            Self::Identify(_) => IDENTIFY_BYTES as u64,
            Self::GetLogPage(log) => log.bytes,
            Self::GetFeatures {
                feature,
                select: Select::Current,
                ..
            } => feature.get_bytes(),
            Self::SetFeatures { feature, .. } => feature.set_bytes(),
            _ => 0,
        }
    }
}

impl Identify {
    /// Identify of a structure that needs only its number and a namespace id.
    #[must_use]
    pub const fn new(cns: Cns, nsid: u32) -> Self {
        Self {
            cns,
            nsid,
            controller_id: 0,
            command_set: 0,
        }
    }

    fn parse(entry: &SubmissionEntry) -> Self {
        let [cns, ..] = entry.cdw10.get().to_le_bytes();
        let [.., command_set] = entry.cdw11.get().to_le_bytes();
        let (_, controller_id) = halves(entry.cdw10);
        Self {
            cns: Cns(cns),
            nsid: entry.nsid.get(),
            controller_id,
            command_set,
        }
    }
}

impl GetLogPage {
    fn parse(entry: &SubmissionEntry) -> Result<Self, Status> {
        let [page, specific, ..] = entry.cdw10.get().to_le_bytes();
        let (_, dwords_low) = halves(entry.cdw10);
        let (dwords_high, _) = halves(entry.cdw11);
        let dwords = u64::from(dwords_high) << 16 | u64::from(dwords_low);
        let offset = u64::from(entry.cdw13.get()) << 32 | u64::from(entry.cdw12.get());
        let cdw14 = entry.cdw14.get();
        // Index offsets and UUIDs are not supported, and bits 22:7 are reserved.
        if offset % 4 != 0 || cdw14 & 0x00FF_FFFF != 0 {
            return Err(Status::INVALID_FIELD);
        }
        Ok(Self {
            page: LogId(page),
            nsid: entry.nsid.get(),
            offset,
            bytes: (dwords + 1) * 4,
            specific: specific & 0x7F,
            retain_event: specific & 0x80 != 0,
            command_set: cdw14.to_le_bytes()[3],
        })
    }
}

fn get_features(entry: &SubmissionEntry) -> Result<AdminCommand, Status> {
    let cdw10 = entry.cdw10.get();
    let [feature, select, ..] = cdw10.to_le_bytes();
    if cdw10 >> 11 != 0 {
        return Err(Status::INVALID_FIELD);
    }
    Ok(AdminCommand::GetFeatures {
        feature: FeatureId(feature),
        select: Select::parse(select)?,
        nsid: entry.nsid.get(),
        argument: entry.cdw11.get(),
    })
}

fn set_features(entry: &SubmissionEntry) -> Result<AdminCommand, Status> {
    let cdw10 = entry.cdw10.get();
    let [feature, ..] = cdw10.to_le_bytes();
    if cdw10 & 0x7FFF_FF00 != 0 {
        return Err(Status::INVALID_FIELD);
    }
    Ok(AdminCommand::SetFeatures {
        feature: FeatureId(feature),
        save: cdw10 >> 31 != 0,
        nsid: entry.nsid.get(),
        value: entry.cdw11.get(),
    })
}

fn halves(dword: U32) -> (u16, u16) {
    let [a, b, c, d] = dword.get().to_le_bytes();
    (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
}

/// Admin commands that a host sends. The transport sets SGL and command id.
impl SubmissionEntry {
    /// Identify. The answer has 4096 bytes.
    #[must_use]
    pub fn identify(identify: Identify) -> Self {
        let mut entry = Self::new(AdminOpcode::IDENTIFY.0);
        entry.nsid = U32::new(identify.nsid);
        entry.cdw10 = U32::new(u32::from(identify.controller_id) << 16 | u32::from(identify.cns.0));
        entry.cdw11 = U32::new(u32::from(identify.command_set) << 24);
        entry
    }

    /// Get Log Page of `bytes` bytes. A length above 16 GiB or not a multiple of 4 is reduced to
    /// the nearest possible NUMD.
    #[must_use]
    pub fn get_log_page(log: GetLogPage) -> Self {
        let dwords = u32::try_from((log.bytes / 4).saturating_sub(1)).unwrap_or(u32::MAX);
        let [low, high] = [dwords & 0xFFFF, dwords >> 16];
        let specific = log.specific & 0x7F | u8::from(log.retain_event) << 7;
        let mut entry = Self::new(AdminOpcode::GET_LOG_PAGE.0);
        entry.nsid = U32::new(log.nsid);
        entry.cdw10 = U32::new(u32::from(log.page.0) | u32::from(specific) << 8 | low << 16);
        entry.cdw11 = U32::new(high);
        let [offset_low, offset_high] = zerocopy::transmute!(log.offset.to_le_bytes());
        (entry.cdw12, entry.cdw13) = (offset_low, offset_high);
        entry.cdw14 = U32::new(u32::from(log.command_set) << 24);
        entry
    }

    /// Get Features: the current value.
    #[must_use]
    pub fn get_features(feature: FeatureId, argument: u32) -> Self {
        let mut entry = Self::new(AdminOpcode::GET_FEATURES.0);
        entry.cdw10 = U32::new(u32::from(feature.0));
        entry.cdw11 = U32::new(argument);
        entry
    }

    /// Set Features, until the next reset.
    #[must_use]
    pub fn set_features(feature: FeatureId, value: u32) -> Self {
        let mut entry = Self::new(AdminOpcode::SET_FEATURES.0);
        entry.cdw10 = U32::new(u32::from(feature.0));
        entry.cdw11 = U32::new(value);
        entry
    }

    /// Set Features, Number of Queues. Requests `queues` (1 to 65535) I/O queues in each direction.
    #[must_use]
    pub fn set_number_of_queues(queues: u16) -> Self {
        let zero_based = u32::from(queues.saturating_sub(1).min(0xFFFE));
        Self::set_features(FeatureId::NUMBER_OF_QUEUES, zero_based << 16 | zero_based)
    }

    /// Asynchronous Event Request. The controller answers when an event happens.
    #[must_use]
    pub fn async_event_request() -> Self {
        Self::new(AdminOpcode::ASYNC_EVENT_REQUEST.0)
    }

    /// Keep Alive.
    #[must_use]
    pub fn keep_alive() -> Self {
        Self::new(AdminOpcode::KEEP_ALIVE.0)
    }

    /// Abort of a command of a queue. Bit 0 of the answer's dword 0 is set if the command was not
    /// aborted.
    #[must_use]
    pub fn abort(queue_id: u16, command_id: u16) -> Self {
        let mut entry = Self::new(AdminOpcode::ABORT.0);
        entry.cdw10 = U32::new(u32::from(command_id) << 16 | u32::from(queue_id));
        entry
    }
}

/// Number of I/O queues that the answer to Set Features, Number of Queues grants: the smaller of
/// the two directions.
#[must_use]
pub fn granted_queues(dword0: u32) -> u32 {
    (dword0 & 0xFFFF).min(dword0 >> 16) + 1
}

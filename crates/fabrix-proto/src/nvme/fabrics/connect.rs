//! Connect command: layout, parsed form, and refusals that point at the invalid byte.
//!
//! Source: NVM Express Base Specification 2.x, "Connect Command and Response".

use core::fmt;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros};

use crate::nvme::nqn::{NQN_FIELD_BYTES, Nqn, Printable};
use crate::nvme::spec::{
    CompletionEntry, FABRICS_OPCODE, FabricsType, SglDescriptor, Status, SubmissionEntry,
};
use crate::nvme::subsystem::{CNTLID_MAX, Refused};

/// Length in bytes of the data of Connect.
pub const CONNECT_DATA_BYTES: u32 = 1024;

/// CNTLID that asks for a new controller: the dynamic model.
pub const CNTLID_DYNAMIC: u16 = 0xFFFF;

/// CNTLID that asks for any controller of the static model; Windows sends it.
pub const CNTLID_STATIC: u16 = 0xFFFE;

/// CATTR bit 2: no flow control of the submission queue.
pub const CATTR_DISABLE_SQ_FLOW_CONTROL: u8 = 1 << 2;

wire! {
    /// Connect, 64 bytes.
    ///
    /// Source: NVM Express Base Specification 2.x, "Connect Command – Submission Queue Entry".
    pub struct ConnectCommand: 64 bytes {
        /// [`FABRICS_OPCODE`].
        pub opcode: u8,
        /// PSDT.
        pub flags: u8,
        /// CID.
        pub command_id: U16,
        /// FCTYPE, 01h.
        pub fabrics_type: u8,
        reserved_5: [u8; 19],
        /// Location of [`ConnectData`].
        pub sgl @ 24: SglDescriptor,
        /// RECFMT: zero is the only format.
        pub record_format @ 40: U16,
        /// QID: zero is the admin queue.
        pub queue_id @ 42: U16,
        /// SQSIZE: entries of the queue, zero-based.
        pub queue_size @ 44: U16,
        /// CATTR.
        pub attributes @ 46: u8,
        reserved_47: u8,
        /// KATO in milliseconds, admin queue only.
        pub keep_alive_ms @ 48: U32,
        reserved_52: [u8; 12],
    }

    /// The data of Connect, 1024 bytes.
    ///
    /// Source: NVM Express Base Specification 2.x, "Connect Command Data".
    pub struct ConnectData: (CONNECT_DATA_BYTES as usize) bytes {
        /// HOSTID.
        pub host_id: [u8; 16],
        /// CNTLID.
        pub controller_id @ 16: U16,
        reserved_18: [u8; 238],
        /// SUBNQN.
        pub subsystem_nqn @ 256: [u8; NQN_FIELD_BYTES],
        /// HOSTNQN.
        pub host_nqn @ 512: [u8; NQN_FIELD_BYTES],
        reserved_768: [u8; 256],
    }
}

/// Refusal of a Connect: the status, and dword 0 of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ConnectRefusal {
    /// Status, usually one that is specific to Connect.
    pub status: Status,
    /// Dword 0. For Connect Invalid Parameters: IPO in bits 15:0, IATTR in bit 16.
    pub result: u32,
    /// Reason for the log.
    pub reason: &'static str,
}

/// IATTR: the invalid parameter is in the data, not in the command.
const IATTR_DATA: u32 = 1 << 16;

impl ConnectRefusal {
    /// Refusal with `status`, without the position of a parameter.
    #[must_use]
    pub const fn status(status: Status, reason: &'static str) -> Self {
        Self {
            status,
            result: 0,
            reason,
        }
    }

    /// Connect Invalid Parameters for the byte at `offset` of the command.
    #[must_use]
    pub const fn command(offset: u16, reason: &'static str) -> Self {
        Self {
            status: Status::CONNECT_INVALID_PARAMETERS,
            result: offset as u32,
            reason,
        }
    }

    /// Connect Invalid Parameters for the byte at `offset` of the data.
    #[must_use]
    pub const fn data(offset: u16, reason: &'static str) -> Self {
        Self {
            status: Status::CONNECT_INVALID_PARAMETERS,
            result: IATTR_DATA | offset as u32,
            reason,
        }
    }

    /// The queue id is invalid: zero, too high, or already connected.
    #[must_use]
    pub const fn queue_id(reason: &'static str) -> Self {
        Self::command(IPO_QUEUE_ID, reason)
    }

    /// The host may not use this controller id.
    #[must_use]
    pub const fn controller_id(reason: &'static str) -> Self {
        Self::data(IPO_CONTROLLER_ID, reason)
    }

    /// Completion with the refusal.
    #[must_use]
    pub fn completion(&self) -> CompletionEntry {
        CompletionEntry::new(self.status, u64::from(self.result))
    }
}

impl fmt::Display for ConnectRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.status)
    }
}

impl fmt::Debug for ConnectRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} (dword 0 {:#x})", self.result)
    }
}

impl From<Refused> for ConnectRefusal {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::UnknownSubsystem => Self::data(IPO_SUBSYSTEM_NQN, "the subsystem is unknown"),
            Refused::HostNotAllowed => Self::status(
                Status::CONNECT_INVALID_HOST,
                "the host is not in the subsystem's list",
            ),
        }
    }
}

const IPO_HOST_ID: u16 = 0;
const IPO_QUEUE_ID: u16 = 42;
const IPO_QUEUE_SIZE: u16 = 44;
const IPO_CONTROLLER_ID: u16 = 16;
const IPO_SUBSYSTEM_NQN: u16 = 256;
const IPO_HOST_NQN: u16 = 512;

/// Parsed Connect command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Queue id. Zero: the admin queue.
    pub queue_id: u16,
    /// Number of entries of the queue, at least 2.
    pub queue_entries: u32,
    /// KATO: keep-alive timeout in milliseconds, as requested by the host. Zero: no keep-alive.
    /// Valid only on the admin queue.
    pub keep_alive_ms: u32,
    /// The host asks for no flow control of the submission queue.
    pub disable_sq_flow_control: bool,
    /// HOSTID, never zero.
    pub host_id: [u8; 16],
    /// CNTLID. On an I/O queue: id of the controller. On the admin queue: [`CNTLID_DYNAMIC`] or
    /// [`CNTLID_STATIC`].
    pub controller_id: u16,
    /// SUBNQN.
    pub subsystem: Nqn,
    /// HOSTNQN, a qualified name.
    pub host: Nqn,
}

impl Connect {
    /// Parses Connect and its data. `max_queue_entries` is the maximum number of queue entries
    /// (MQES + 1).
    ///
    /// The admin queue accepts both models of controller allocation. The target always chooses the
    /// controller id.
    ///
    /// # Errors
    /// - 180h: the format is not supported.
    /// - 182h: a parameter is invalid. The result has its position.
    pub fn parse(
        entry: &SubmissionEntry,
        data: &[u8],
        max_queue_entries: u16,
    ) -> Result<Self, ConnectRefusal> {
        let command: ConnectCommand = zerocopy::transmute!(*entry);
        if command.record_format.get() != 0 {
            let status = Status::CONNECT_INCOMPATIBLE_FORMAT;
            return Err(ConnectRefusal::status(
                status,
                "the record format is not zero",
            ));
        }
        let queue_size = command.queue_size.get();
        if queue_size == 0 || queue_size >= max_queue_entries {
            return Err(ConnectRefusal::command(
                IPO_QUEUE_SIZE,
                "the queue is too small or too large",
            ));
        }
        let Ok(data) = ConnectData::ref_from_bytes(data) else {
            let status = Status::DATA_SGL_LENGTH_INVALID;
            return Err(ConnectRefusal::status(
                status,
                "the data are not 1024 bytes",
            ));
        };
        let connect = Self {
            queue_id: command.queue_id.get(),
            queue_entries: u32::from(queue_size) + 1,
            keep_alive_ms: command.keep_alive_ms.get(),
            disable_sq_flow_control: command.attributes & CATTR_DISABLE_SQ_FLOW_CONTROL != 0,
            host_id: data.host_id,
            controller_id: data.controller_id.get(),
            subsystem: name(&data.subsystem_nqn, IPO_SUBSYSTEM_NQN)?,
            host: name(&data.host_nqn, IPO_HOST_NQN)?,
        };
        connect.check_host()?;
        connect.check_controller_id()?;
        Ok(connect)
    }

    /// Refuses a host without an identifier or a qualified name. Reservations and host lists could
    /// not distinguish such hosts.
    fn check_host(&self) -> Result<(), ConnectRefusal> {
        if self.host_id == [0; 16] {
            return Err(ConnectRefusal::data(IPO_HOST_ID, "the host id is zero"));
        }
        if !self.host.is_qualified() {
            return Err(ConnectRefusal::data(
                IPO_HOST_NQN,
                "the host's name is no NQN, which begins with nqn.yyyy-mm.",
            ));
        }
        Ok(())
    }

    fn check_controller_id(&self) -> Result<(), ConnectRefusal> {
        let valid = match self.queue_id {
            0 => matches!(self.controller_id, CNTLID_DYNAMIC | CNTLID_STATIC),
            _ => self.controller_id <= CNTLID_MAX,
        };
        if valid {
            return Ok(());
        }
        Err(ConnectRefusal::controller_id(
            "the controller id is not one that can be asked for",
        ))
    }

    /// Whether this is the Connect of an admin queue, which creates a controller.
    #[must_use]
    pub const fn is_admin(&self) -> bool {
        self.queue_id == 0
    }

    /// Completion of a successful Connect. It has the controller id and requests no authentication.
    #[must_use]
    pub fn accepted(controller_id: u16) -> CompletionEntry {
        CompletionEntry::new(Status::SUCCESS, u64::from(controller_id))
    }

    /// Command and data for the wire. The transport sets the SGL and the command id.
    #[must_use]
    pub fn to_wire(&self) -> (SubmissionEntry, ConnectData) {
        let mut command = ConnectCommand::new_zeroed();
        command.opcode = FABRICS_OPCODE;
        command.flags = crate::nvme::spec::PSDT_SGL;
        command.fabrics_type = FabricsType::CONNECT.0;
        command.sgl = SglDescriptor::transport(0);
        command.queue_id = U16::new(self.queue_id);
        command.queue_size =
            U16::new(u16::try_from(self.queue_entries.saturating_sub(1)).unwrap_or(u16::MAX));
        command.keep_alive_ms = U32::new(self.keep_alive_ms);
        if self.disable_sq_flow_control {
            command.attributes = CATTR_DISABLE_SQ_FLOW_CONTROL;
        }
        let mut data = ConnectData::new_zeroed();
        data.host_id = self.host_id;
        data.controller_id = U16::new(self.controller_id);
        data.subsystem_nqn = self.subsystem.to_field();
        data.host_nqn = self.host.to_field();
        (zerocopy::transmute!(command), data)
    }
}

fn name(field: &[u8; NQN_FIELD_BYTES], offset: u16) -> Result<Nqn, ConnectRefusal> {
    Nqn::from_field(field).map_err(|error| ConnectRefusal::data(offset, error.sentence()))
}

/// Subsystem and host names of a Connect, for the log. Safe to print, whatever the bytes are.
#[must_use]
pub fn printable_names(data: &ConnectData) -> (Printable<'_>, Printable<'_>) {
    (Printable(&data.subsystem_nqn), Printable(&data.host_nqn))
}

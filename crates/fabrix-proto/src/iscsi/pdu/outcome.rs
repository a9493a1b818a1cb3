//! Values in the responses of a target: flags, reasons, results, events and statuses.
//!
//! Source: RFC 7143, section 11 "iSCSI PDU Formats".

/// S of a Data-In: the PDU has the status, and no SCSI Response follows.
pub const DATA_IN_STATUS: u8 = 0x01;
/// O of a Data-In or SCSI Response: the command needs to move more data than the initiator
/// expected.
pub const RESIDUAL_OVERFLOW: u8 = 0x04;
/// U of a Data-In or SCSI Response: the command moved less than the initiator expected.
pub const RESIDUAL_UNDERFLOW: u8 = 0x02;

/// Reason of a Reject.
///
/// Source: RFC 7143, section 11.17.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RejectReason {
    /// The data digest differs from the data.
    DataDigest = 0x02,
    /// SNACK, where there is no recovery.
    Snack = 0x03,
    /// The PDU is not allowed now.
    Protocol = 0x04,
    /// The PDU is not supported.
    CommandNotSupported = 0x05,
    /// Too many concurrent immediate commands.
    TooManyImmediate = 0x06,
    /// The Initiator Task Tag belongs to a task in progress.
    TaskInProgress = 0x07,
    /// A field has an invalid value.
    InvalidField = 0x09,
}

/// Result of a task management function.
///
/// Source: RFC 7143, section 11.6.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TaskManagementOutcome {
    /// Function complete.
    Complete = 0,
    /// Task does not exist.
    NoSuchTask = 1,
    /// LUN does not exist.
    NoSuchLun = 2,
    /// Task still allegiant.
    StillAllegiant = 3,
    /// Task allegiance reassignment not supported.
    ReassignNotSupported = 4,
    /// Task management function not supported.
    NotSupported = 5,
    /// Function authorization failed.
    NotAuthorized = 6,
    /// Function rejected.
    Rejected = 255,
}

/// Result of a logout.
///
/// Source: RFC 7143, section 11.15.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogoutOutcome {
    /// Connection or session closed successfully.
    Closed = 0,
    /// CID not found.
    NoSuchConnection = 1,
    /// Connection recovery is not supported.
    RecoveryNotSupported = 2,
}

/// Event of an Asynchronous Message.
///
/// Source: RFC 7143, section 11.9.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// The target requests a logout within a time limit.
    LogoutRequested {
        /// Time in seconds until the target drops the connection.
        within_s: u16,
    },
    /// The target drops this connection.
    ConnectionDropped {
        /// Time in seconds before the initiator may reconnect.
        time2wait_s: u16,
        /// Time in seconds for which the target keeps the tasks.
        time2retain_s: u16,
    },
    /// The target drops all connections of the session.
    SessionDropped {
        /// Time in seconds before the initiator may reconnect.
        time2wait_s: u16,
        /// Time in seconds for which the target keeps the tasks.
        time2retain_s: u16,
    },
}

/// Status of a login response: class in the upper byte, detail in the lower one.
///
/// Source: RFC 7143, section 11.13.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoginStatus(pub u16);

impl LoginStatus {
    /// The login continues, or has succeeded.
    pub const SUCCESS: Self = Self(0x0000);
    /// The target is temporarily at the address in the text.
    pub const MOVED_TEMPORARILY: Self = Self(0x0101);
    /// The target is permanently at the address in the text.
    pub const MOVED_PERMANENTLY: Self = Self(0x0102);
    /// Initiator error of another kind than those below.
    pub const INITIATOR_ERROR: Self = Self(0x0200);
    /// Authentication failure.
    pub const AUTHENTICATION_FAILURE: Self = Self(0x0201);
    /// The initiator is not allowed to use this target.
    pub const FORBIDDEN: Self = Self(0x0202);
    /// The target is unknown.
    pub const NOT_FOUND: Self = Self(0x0203);
    /// The target was removed permanently.
    pub const REMOVED: Self = Self(0x0204);
    /// Initiator and target have no common version of the protocol.
    pub const UNSUPPORTED_VERSION: Self = Self(0x0205);
    /// Too many connections of this session.
    pub const TOO_MANY_CONNECTIONS: Self = Self(0x0206);
    /// A required key is missing.
    pub const MISSING_PARAMETER: Self = Self(0x0207);
    /// The session type is unknown.
    pub const SESSION_TYPE: Self = Self(0x0209);
    /// The TSIH of the request belongs to no session.
    pub const NO_SUCH_SESSION: Self = Self(0x020A);
    /// A PDU other than a Login Request.
    pub const INVALID_DURING_LOGIN: Self = Self(0x020B);
    /// Target error of another kind than those below.
    pub const TARGET_ERROR: Self = Self(0x0300);
    /// The target is temporarily out of service.
    pub const UNAVAILABLE: Self = Self(0x0301);
    /// The target has no room for another session.
    pub const OUT_OF_RESOURCES: Self = Self(0x0302);
}

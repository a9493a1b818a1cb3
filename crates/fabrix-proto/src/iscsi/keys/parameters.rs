//! Parameters of a session, and the target's wishes in their negotiation.
//!
//! The comments give the standard's names. `keys.rs` turns wishes into parameters.

#[cfg(doc)]
use super::R2TS_MAX;
use super::SEGMENT_BYTES_DEFAULT;
use crate::iscsi::pdu::{DATA_SEGMENT_MAX, Digests};

/// Negotiated parameters. Before the negotiation: the standard's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// HeaderDigest and DataDigest.
    pub digests: Digests,
    /// RDMAExtensions: RDMA moves the data of commands. MaxBurstLength does not limit it then.
    pub rdma_extensions: bool,
    /// InitialR2T: an R2T precedes all data of a write except immediate data.
    pub initial_r2t: bool,
    /// ImmediateData: data may come with a SCSI Command.
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength of the initiator, or InitiatorRecvDataSegmentLength: maximum data
    /// of one PDU to it, in bytes.
    pub initiator_segment_bytes: u32,
    /// MaxRecvDataSegmentLength of the target, or TargetRecvDataSegmentLength: maximum data of one
    /// PDU to it, in bytes.
    pub target_segment_bytes: u32,
    /// MaxBurstLength: maximum data of one sequence of Data-In, or of one R2T, in bytes.
    pub max_burst_bytes: u32,
    /// FirstBurstLength: maximum data of a write before its first R2T, in bytes.
    pub first_burst_bytes: u32,
    /// DefaultTime2Wait, in seconds.
    pub time2wait_s: u16,
    /// DefaultTime2Retain, in seconds.
    pub time2retain_s: u16,
    /// MaxOutstandingR2T: maximum number of outstanding R2Ts of one command.
    pub max_outstanding_r2t: u16,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            digests: Digests::default(),
            rdma_extensions: false,
            initial_r2t: true,
            immediate_data: true,
            initiator_segment_bytes: SEGMENT_BYTES_DEFAULT,
            target_segment_bytes: SEGMENT_BYTES_DEFAULT,
            max_burst_bytes: 262_144,
            first_burst_bytes: 65_536,
            time2wait_s: 2,
            time2retain_s: 20,
            max_outstanding_r2t: 1,
        }
    }
}

/// Values that the target proposes. The result of the negotiation never exceeds them.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// Whether the connection is one over RDMA. The login fails without RDMAExtensions then.
    pub rdma_extensions: bool,
    /// Whether an initiator that wants header digests gets them.
    pub header_digest: Permission,
    /// Whether an initiator that wants data digests gets them.
    pub data_digest: Permission,
    /// Whether every write waits for an R2T.
    pub initial_r2t: bool,
    /// Whether data may come with a command.
    pub immediate_data: bool,
    /// Maximum data of one PDU of the initiator, in bytes.
    pub segment_bytes: u32,
    /// Maximum data of one PDU to the initiator, in bytes. Only on a connection over RDMA.
    pub initiator_segment_bytes: u32,
    /// Maximum data of one sequence, in bytes.
    pub max_burst_bytes: u32,
    /// Maximum data of a write before its first R2T, in bytes.
    pub first_burst_bytes: u32,
    /// Maximum number of outstanding R2Ts of one command, at most [`R2TS_MAX`].
    pub max_outstanding_r2t: u16,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            rdma_extensions: false,
            header_digest: Permission::Allowed,
            data_digest: Permission::Allowed,
            initial_r2t: false,
            immediate_data: true,
            segment_bytes: 262_144,
            initiator_segment_bytes: DATA_SEGMENT_MAX,
            max_burst_bytes: 1 << 20,
            first_burst_bytes: 262_144,
            max_outstanding_r2t: 4,
        }
    }
}

/// Use of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Never used.
    Refused,
    /// Used if the initiator prefers it.
    Allowed,
    /// Required. A list of the initiator without the digest is answered with Reject.
    Required,
}

//! What a session has agreed on, and what a target wishes of it.
//!
//! Values with the standard's names in their comments; how the one becomes the other stands in
//! `keys.rs`.

#[cfg(doc)]
use super::R2TS_MAX;
use super::SEGMENT_BYTES_DEFAULT;
use crate::iscsi::pdu::Digests;

/// What two sides have agreed on; before that, the standard's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// HeaderDigest and DataDigest.
    pub digests: Digests,
    /// InitialR2T: no data of a write comes before an R2T, save immediate data.
    pub initial_r2t: bool,
    /// ImmediateData: data may come with a SCSI Command.
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength of the initiator: the most data of one PDU of ours, in bytes.
    pub initiator_segment_bytes: u32,
    /// MaxRecvDataSegmentLength of the target: the most data of one PDU of the initiator, in bytes.
    pub target_segment_bytes: u32,
    /// MaxBurstLength: the most data of one sequence of Data-In, or one R2T, in bytes.
    pub max_burst_bytes: u32,
    /// FirstBurstLength: the most data of a write before its first R2T, in bytes.
    pub first_burst_bytes: u32,
    /// DefaultTime2Wait, in seconds.
    pub time2wait_s: u16,
    /// DefaultTime2Retain, in seconds.
    pub time2retain_s: u16,
    /// MaxOutstandingR2T: R2Ts of one command at once.
    pub max_outstanding_r2t: u16,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            digests: Digests::default(),
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

/// What the target wishes; what comes out is never more than this.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// Whether an initiator that wants header digests gets them.
    pub header_digest: Permission,
    /// Whether an initiator that wants data digests gets them.
    pub data_digest: Permission,
    /// Whether every write waits for an R2T.
    pub initial_r2t: bool,
    /// Whether data may come with a command.
    pub immediate_data: bool,
    /// The most data of one PDU of the initiator, in bytes.
    pub segment_bytes: u32,
    /// The most data of one sequence, in bytes.
    pub max_burst_bytes: u32,
    /// The most data of a write before its first R2T, in bytes.
    pub first_burst_bytes: u32,
    /// R2Ts of one command at once, at most [`R2TS_MAX`].
    pub max_outstanding_r2t: u16,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            header_digest: Permission::Allowed,
            data_digest: Permission::Allowed,
            initial_r2t: false,
            immediate_data: true,
            segment_bytes: 262_144,
            max_burst_bytes: 1 << 20,
            first_burst_bytes: 262_144,
            max_outstanding_r2t: 4,
        }
    }
}

/// Whether a digest is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Never.
    Refused,
    /// Where the initiator prefers it.
    Allowed,
    /// Wherever the initiator offers it; who does not is refused the key.
    Required,
}

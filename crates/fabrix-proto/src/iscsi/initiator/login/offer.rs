//! The initiator's offer in the operational stage, and the check of the target's answers.
//!
//! No side effects. Every answer is checked against the offer: a target can choose less, and never
//! more. A key that the target leaves open or rejects keeps the standard's default.
//!
//! Source: RFC 7143, section 13; section 6.2 "Text Mode Negotiation"; RFC 7145, section 6.

use super::LoginFailure;
use crate::iscsi::keys::{BYTES_MIN, Key, LENGTHS, Parameters, SEGMENT_BYTES_DEFAULT, in_range};
use crate::iscsi::text::{TextWriter, boolean, yes_no};

/// Parameters of the offer that differ between sessions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) header_digest: bool,
    pub(super) data_digest: bool,
    pub(super) discovery: bool,
    pub(super) rdma: bool,
}

impl Offer {
    /// Writes the pairs of the offer.
    pub(super) fn write(&self, out: &mut TextWriter) {
        if !self.rdma {
            out.pair(Key::HeaderDigest.name(), digests(self.header_digest));
            out.pair(Key::DataDigest.name(), digests(self.data_digest));
        }
        match (self.discovery, self.rdma) {
            (true, _) => {
                let bytes = WHOLE_SEGMENT_BYTES;
                return out.pair(Key::MaxRecvDataSegmentLength.name(), bytes);
            }
            (false, true) => Self::write_rdma(out),
            (false, false) => out.pair(Key::MaxRecvDataSegmentLength.name(), SEGMENT_BYTES),
        }
        out.pair(Key::InitialR2T.name(), yes_no(self.rdma));
        out.pair(Key::ImmediateData.name(), "Yes");
        out.pair(Key::MaxBurstLength.name(), MAX_BURST_BYTES);
        out.pair(Key::FirstBurstLength.name(), FIRST_BURST_BYTES);
        out.pair(Key::MaxOutstandingR2T.name(), R2TS);
        out.pair(Key::MaxConnections.name(), 1);
        out.pair(Key::DefaultTime2Wait.name(), 0);
        out.pair(Key::DefaultTime2Retain.name(), 0);
        out.pair(Key::DataPDUInOrder.name(), "Yes");
        out.pair(Key::DataSequenceInOrder.name(), "Yes");
        out.pair(Key::ErrorRecoveryLevel.name(), 0);
    }

    /// The keys of a session over RDMA. They stand for MaxRecvDataSegmentLength.
    fn write_rdma(out: &mut TextWriter) {
        out.pair(Key::RdmaExtensions.name(), "Yes");
        let bytes = WHOLE_SEGMENT_BYTES;
        out.pair(Key::InitiatorRecvDataSegmentLength.name(), bytes);
        out.pair(Key::TargetRecvDataSegmentLength.name(), bytes);
    }

    /// Processes the answer to one key, or a declaration.
    pub(super) fn settle(
        &self,
        key: Key,
        value: &str,
        agreed: &mut Parameters,
    ) -> Result<(), LoginFailure> {
        if matches!(value, "Reject" | "Irrelevant" | "NotUnderstood") {
            return Ok(());
        }
        let lengths = (BYTES_MIN, WHOLE_SEGMENT_BYTES);
        let taken = match key {
            Key::HeaderDigest | Key::DataDigest if self.rdma => value == "None",
            // The two other lengths stand for this one.
            Key::MaxRecvDataSegmentLength if self.rdma => in_range(value, LENGTHS).is_some(),
            Key::InitialR2T if self.rdma => boolean(value) == Some(true),
            Key::RdmaExtensions if self.rdma => put(boolean(value), &mut agreed.rdma_extensions),
            Key::InitiatorRecvDataSegmentLength if self.rdma => put(
                in_range(value, lengths),
                &mut agreed.initiator_segment_bytes,
            ),
            Key::TargetRecvDataSegmentLength if self.rdma => {
                put(in_range(value, lengths), &mut agreed.target_segment_bytes)
            }
            Key::HeaderDigest => digest(value, &mut agreed.digests.header),
            Key::DataDigest => digest(value, &mut agreed.digests.data),
            Key::MaxRecvDataSegmentLength => {
                put(in_range(value, LENGTHS), &mut agreed.target_segment_bytes)
            }
            Key::InitialR2T => put(boolean(value), &mut agreed.initial_r2t),
            Key::ImmediateData => put(boolean(value), &mut agreed.immediate_data),
            Key::MaxBurstLength => {
                let lengths = (BYTES_MIN, MAX_BURST_BYTES);
                put(in_range(value, lengths), &mut agreed.max_burst_bytes)
            }
            Key::FirstBurstLength => {
                let lengths = (BYTES_MIN, FIRST_BURST_BYTES);
                put(in_range(value, lengths), &mut agreed.first_burst_bytes)
            }
            Key::MaxOutstandingR2T => in_range(value, (1, R2TS)).is_some(),
            Key::DataPDUInOrder | Key::DataSequenceInOrder => boolean(value) == Some(true),
            Key::MaxConnections => in_range(value, (1, 1)).is_some(),
            Key::ErrorRecoveryLevel => in_range(value, (0, 0)).is_some(),
            // Time2Wait and Time2Retain, which the initiator does not use, and keys that were not
            // offered: the initiator acts by their defaults.
            _ => true,
        };
        match taken {
            true => Ok(()),
            false => Err(LoginFailure::Broken(
                "a key has a value that was not offered",
            )),
        }
    }

    /// Checks that the target has agreed to the required digests, and to move data by RDMA.
    pub(super) fn check(&self, agreed: &Parameters) -> Result<(), LoginFailure> {
        if self.rdma && !self.discovery && !agreed.rdma_extensions {
            return Err(LoginFailure::NoRdma);
        }
        if self.rdma {
            return Ok(());
        }
        if self.header_digest && !agreed.digests.header {
            return Err(LoginFailure::NoDigest(Key::HeaderDigest));
        }
        if self.data_digest && !agreed.digests.data {
            return Err(LoginFailure::NoDigest(Key::DataDigest));
        }
        Ok(())
    }
}

const fn digests(wanted: bool) -> &'static str {
    if wanted { "CRC32C" } else { "None,CRC32C" }
}

/// Stores a value. Returns false if the value is invalid.
fn put<T>(value: Option<T>, agreed: &mut T) -> bool {
    let is_one = value.is_some();
    if let Some(value) = value {
        *agreed = value;
    }
    is_one
}

/// Stores the choice of a digest. [`Offer::check`] reports a digest that is missing.
fn digest(value: &str, agreed: &mut bool) -> bool {
    *agreed = value == "CRC32C";
    *agreed || value == "None"
}

/// MaxRecvDataSegmentLength of the initiator in bytes: the longest read of any disk in one piece.
pub(in super::super) const SEGMENT_BYTES: u32 = 1 << 20;
/// The longest segment that the machine receives whole, in bytes: MaxRecvDataSegmentLength of a
/// discovery session, and InitiatorRecvDataSegmentLength. The same length is offered as
/// TargetRecvDataSegmentLength: longer writes are read by the target.
const WHOLE_SEGMENT_BYTES: u32 = SEGMENT_BYTES_DEFAULT;
const MAX_BURST_BYTES: u32 = 1 << 20;
const FIRST_BURST_BYTES: u32 = 256 << 10;
/// Maximum number of outstanding R2Ts of one command.
const R2TS: u32 = 8;

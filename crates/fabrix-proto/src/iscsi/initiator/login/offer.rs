//! The initiator's offer in the operational stage, and the check of the target's answers.
//!
//! No side effects. Every answer is checked against the offer: a target can choose less, and never
//! more. A key that the target leaves open or rejects keeps the standard's default.
//!
//! Source: RFC 7143, section 13; section 6.2 "Text Mode Negotiation".

use super::LoginFailure;
use crate::iscsi::keys::{BYTES_MIN, Key, LENGTHS, Parameters, in_range};
use crate::iscsi::text::{TextWriter, boolean};

/// Parameters of the offer that differ between sessions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) header_digest: bool,
    pub(super) data_digest: bool,
    pub(super) discovery: bool,
}

impl Offer {
    /// Writes the pairs of the offer.
    pub(super) fn write(&self, out: &mut TextWriter) {
        out.pair(Key::HeaderDigest.name(), digests(self.header_digest));
        out.pair(Key::DataDigest.name(), digests(self.data_digest));
        let segment_bytes = match self.discovery {
            true => DISCOVERY_SEGMENT_BYTES,
            false => SEGMENT_BYTES,
        };
        out.pair(Key::MaxRecvDataSegmentLength.name(), segment_bytes);
        if self.discovery {
            return;
        }
        out.pair(Key::InitialR2T.name(), "No");
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
        let taken = match key {
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

    /// Checks that the target has agreed to the required digests.
    pub(super) fn check(&self, agreed: &Parameters) -> Result<(), LoginFailure> {
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
/// MaxRecvDataSegmentLength of a discovery session in bytes: the longest segment that the machine
/// receives whole.
const DISCOVERY_SEGMENT_BYTES: u32 = 8192;
const MAX_BURST_BYTES: u32 = 1 << 20;
const FIRST_BURST_BYTES: u32 = 256 << 10;
/// Maximum number of outstanding R2Ts of one command.
const R2TS: u32 = 8;

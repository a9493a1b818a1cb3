//! The supported keys: names and purposes.
//!
//! Source: RFC 7143, section 13 "Login/Text Operational Text Keys"; RFC 7145, section 6.

/// A supported key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the standard's keys")]
pub enum Key {
    HeaderDigest,
    DataDigest,
    MaxConnections,
    InitialR2T,
    ImmediateData,
    MaxRecvDataSegmentLength,
    MaxBurstLength,
    FirstBurstLength,
    DefaultTime2Wait,
    DefaultTime2Retain,
    MaxOutstandingR2T,
    DataPDUInOrder,
    DataSequenceInOrder,
    ErrorRecoveryLevel,
    IFMarker,
    OFMarker,
    IFMarkInt,
    OFMarkInt,
    TaskReporting,
    IscsiProtocolLevel,
    RdmaExtensions,
    InitiatorRecvDataSegmentLength,
    TargetRecvDataSegmentLength,
    InitiatorName,
    InitiatorAlias,
    TargetName,
    TargetAlias,
    TargetAddress,
    TargetPortalGroupTag,
    SessionType,
    SendTargets,
    AuthMethod,
    ChapA,
    ChapI,
    ChapC,
    ChapN,
    ChapR,
}

/// Purpose of a key, which decides when the key may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Negotiated in the operational stage.
    Operational,
    /// Declared at any time, including after the login.
    Declared,
    /// Sent once, in the first request.
    Leading,
    /// Authentication.
    Security,
    /// Requested after the login.
    FullFeature,
    /// Sent only by targets.
    Targets,
}

const KEYS: [(&str, Key, Purpose); 37] = {
    use Purpose::{Declared, FullFeature, Leading, Operational, Security, Targets};
    [
        ("HeaderDigest", Key::HeaderDigest, Operational),
        ("DataDigest", Key::DataDigest, Operational),
        ("MaxConnections", Key::MaxConnections, Operational),
        ("InitialR2T", Key::InitialR2T, Operational),
        ("ImmediateData", Key::ImmediateData, Operational),
        (
            "MaxRecvDataSegmentLength",
            Key::MaxRecvDataSegmentLength,
            Declared,
        ),
        ("MaxBurstLength", Key::MaxBurstLength, Operational),
        ("FirstBurstLength", Key::FirstBurstLength, Operational),
        ("DefaultTime2Wait", Key::DefaultTime2Wait, Operational),
        ("DefaultTime2Retain", Key::DefaultTime2Retain, Operational),
        ("MaxOutstandingR2T", Key::MaxOutstandingR2T, Operational),
        ("DataPDUInOrder", Key::DataPDUInOrder, Operational),
        ("DataSequenceInOrder", Key::DataSequenceInOrder, Operational),
        ("ErrorRecoveryLevel", Key::ErrorRecoveryLevel, Operational),
        ("IFMarker", Key::IFMarker, Operational),
        ("OFMarker", Key::OFMarker, Operational),
        ("IFMarkInt", Key::IFMarkInt, Operational),
        ("OFMarkInt", Key::OFMarkInt, Operational),
        ("TaskReporting", Key::TaskReporting, Operational),
        ("iSCSIProtocolLevel", Key::IscsiProtocolLevel, Operational),
        ("RDMAExtensions", Key::RdmaExtensions, Operational),
        (
            "InitiatorRecvDataSegmentLength",
            Key::InitiatorRecvDataSegmentLength,
            Operational,
        ),
        (
            "TargetRecvDataSegmentLength",
            Key::TargetRecvDataSegmentLength,
            Operational,
        ),
        ("InitiatorName", Key::InitiatorName, Leading),
        ("InitiatorAlias", Key::InitiatorAlias, Declared),
        ("TargetName", Key::TargetName, Leading),
        ("TargetAlias", Key::TargetAlias, Targets),
        ("TargetAddress", Key::TargetAddress, Targets),
        ("TargetPortalGroupTag", Key::TargetPortalGroupTag, Targets),
        ("SessionType", Key::SessionType, Leading),
        ("SendTargets", Key::SendTargets, FullFeature),
        ("AuthMethod", Key::AuthMethod, Security),
        ("CHAP_A", Key::ChapA, Security),
        ("CHAP_I", Key::ChapI, Security),
        ("CHAP_C", Key::ChapC, Security),
        ("CHAP_N", Key::ChapN, Security),
        ("CHAP_R", Key::ChapR, Security),
    ]
};

impl Key {
    /// The key of this name, if it is supported.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let row = KEYS.iter().find(|(known, _, _)| *known == name)?;
        Some(row.1)
    }

    /// Name of the key on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        KEYS[self as usize].0
    }

    /// Purpose of the key.
    #[must_use]
    pub const fn purpose(self) -> Purpose {
        KEYS[self as usize].2
    }

    /// Bit of the key in a set of keys.
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self as u8
    }

    /// Whether the key has a meaning in a discovery session.
    ///
    /// Source: RFC 7143, section 13, and RFC 7145, section 6: the keys without "Irrelevant when:
    /// SessionType=Discovery".
    pub(super) const fn concerns_discovery(self) -> bool {
        matches!(
            self,
            Self::HeaderDigest
                | Self::DataDigest
                | Self::MaxRecvDataSegmentLength
                | Self::DefaultTime2Wait
                | Self::DefaultTime2Retain
                | Self::ErrorRecoveryLevel
                | Self::IFMarker
                | Self::OFMarker
                | Self::RdmaExtensions
                | Self::InitiatorRecvDataSegmentLength
                | Self::TargetRecvDataSegmentLength
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_stands_in_its_own_row() {
        for (index, (name, key, purpose)) in KEYS.into_iter().enumerate() {
            assert_eq!(
                (key as usize, key.name(), key.purpose()),
                (index, name, purpose)
            );
            assert_eq!(Key::parse(name), Some(key));
        }
        assert_eq!(Key::parse("headerdigest"), None);
    }
}

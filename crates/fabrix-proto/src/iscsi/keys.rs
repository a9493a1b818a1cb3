//! The keys of a session: their valid values, and the negotiation of each.
//!
//! No side effects: a key and a value go in, a reply comes out, and [`Parameters`] hold the result.
//! The login decides when a key may come. This file decides only whether a key has a meaning in a
//! discovery session. `keys/table.rs` has the keys, `keys/parameters.rs` the values.
//!
//! Source: RFC 7143, section 13 "Login/Text Operational Text Keys", section 6.2 "Text Mode
//! Negotiation"; RFC 7145, section 6.

mod parameters;
mod table;

use core::fmt;

pub use self::parameters::{Parameters, Permission, Wishes};
pub use self::table::{Key, Purpose};
use super::pdu::DATA_SEGMENT_MAX;
use super::text::{boolean, list, number, yes_no};

/// Reply to one pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No reply: the pair was a declaration.
    None,
    /// A number.
    Number(u32),
    /// `Yes` or `No`.
    Boolean(bool),
    /// One entry of the offered list.
    Choice(&'static str),
    /// The key has no meaning in this session.
    Irrelevant,
    /// The value is not acceptable. The earlier value stays.
    Reject,
    /// The key is unknown.
    NotUnderstood,
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Number(value) => write!(f, "{value}"),
            Self::Boolean(value) => f.write_str(yes_no(*value)),
            Self::Choice(value) => f.write_str(value),
            Self::Irrelevant => f.write_str("Irrelevant"),
            Self::Reject => f.write_str("Reject"),
            Self::NotUnderstood => f.write_str("NotUnderstood"),
        }
    }
}

/// State of the negotiation of one login.
#[derive(Clone, Debug)]
pub struct Negotiation {
    wishes: Wishes,
    agreed: Parameters,
}

impl Negotiation {
    /// An empty negotiation. Wishes outside the standard's limits are moved to the nearest limit.
    #[must_use]
    pub fn new(wishes: Wishes) -> Self {
        let max_burst_bytes = wishes.max_burst_bytes.clamp(BYTES_MIN, DATA_SEGMENT_MAX);
        let wishes = Wishes {
            segment_bytes: wishes.segment_bytes.clamp(BYTES_MIN, DATA_SEGMENT_MAX),
            max_burst_bytes,
            first_burst_bytes: wishes.first_burst_bytes.clamp(BYTES_MIN, max_burst_bytes),
            max_outstanding_r2t: wishes.max_outstanding_r2t.clamp(1, R2TS_MAX),
            ..wishes
        };
        Self {
            wishes,
            agreed: Parameters::default(),
        }
    }

    /// Negotiation of a running session, for later declarations. `wishes` are those of its login.
    #[must_use]
    pub const fn resumed(wishes: Wishes, agreed: Parameters) -> Self {
        Self { wishes, agreed }
    }

    /// Parameters agreed so far. FirstBurstLength is limited to MaxBurstLength, which has no other
    /// meaning with RDMA.
    #[must_use]
    pub fn agreed(&self) -> Parameters {
        let agreed = self.agreed;
        let most = self.wishes.initiator_segment_bytes;
        Parameters {
            initiator_segment_bytes: agreed.initiator_segment_bytes.min(most),
            first_burst_bytes: agreed.first_burst_bytes.min(agreed.max_burst_bytes),
            max_burst_bytes: match agreed.rdma_extensions {
                true => u32::MAX,
                false => agreed.max_burst_bytes,
            },
            ..agreed
        }
    }

    /// Declares the target's MaxRecvDataSegmentLength, which holds from now on. None: the key has
    /// no meaning, because the connection is one over RDMA.
    pub fn declare_segment_bytes(&mut self) -> Option<u32> {
        if self.wishes.rdma_extensions {
            return None;
        }
        self.agreed.target_segment_bytes = self.wishes.segment_bytes;
        Some(self.wishes.segment_bytes)
    }

    /// Whether the session lacks RDMAExtensions, without which it has no way to move data.
    #[must_use]
    pub const fn lacks_rdma_extensions(&self) -> bool {
        self.wishes.rdma_extensions && !self.agreed.rdma_extensions
    }

    /// Negotiates one operational or declared key. `discovery` is the session's type.
    pub fn agree(&mut self, key: Key, value: &str, discovery: bool) -> Reply {
        if discovery && !key.concerns_discovery() && key.purpose() == Purpose::Operational {
            return Reply::Irrelevant;
        }
        let wishes = self.wishes;
        let agreed = &mut self.agreed;
        match key {
            Key::HeaderDigest => digest(value, wishes.header_digest, &mut agreed.digests.header),
            Key::DataDigest => digest(value, wishes.data_digest, &mut agreed.digests.data),
            Key::InitialR2T => either(value, wishes.initial_r2t, &mut agreed.initial_r2t),
            Key::ImmediateData => both(value, wishes.immediate_data, &mut agreed.immediate_data),
            Key::RdmaExtensions => both(value, wishes.rdma_extensions, &mut agreed.rdma_extensions),
            Key::InitiatorRecvDataSegmentLength | Key::TargetRecvDataSegmentLength
                if !wishes.rdma_extensions =>
            {
                Reply::Irrelevant
            }
            Key::InitiatorRecvDataSegmentLength => {
                let most = wishes.initiator_segment_bytes;
                least(value, LENGTHS, most, &mut agreed.initiator_segment_bytes)
            }
            Key::TargetRecvDataSegmentLength => {
                let most = wishes.segment_bytes;
                least(value, LENGTHS, most, &mut agreed.target_segment_bytes)
            }
            Key::MaxRecvDataSegmentLength if wishes.rdma_extensions => declared(value, &mut 0),
            Key::MaxRecvDataSegmentLength => declared(value, &mut agreed.initiator_segment_bytes),
            Key::MaxBurstLength => least(
                value,
                LENGTHS,
                wishes.max_burst_bytes,
                &mut agreed.max_burst_bytes,
            ),
            Key::FirstBurstLength => {
                let most = wishes.first_burst_bytes.min(agreed.max_burst_bytes);
                least(value, LENGTHS, most, &mut agreed.first_burst_bytes)
            }
            Key::DefaultTime2Wait => seconds(value, u16::max, &mut agreed.time2wait_s),
            Key::DefaultTime2Retain => seconds(value, |_, _| 0, &mut agreed.time2retain_s),
            Key::MaxOutstandingR2T => outstanding(
                value,
                wishes.max_outstanding_r2t,
                &mut agreed.max_outstanding_r2t,
            ),
            _ => constant(key, value),
        }
    }
}

/// Keys with only one supported value.
fn constant(key: Key, value: &str) -> Reply {
    match key {
        Key::MaxConnections => least(value, (1, 65_535), 1, &mut 0),
        Key::ErrorRecoveryLevel => least(value, (0, 2), 0, &mut 0),
        Key::IscsiProtocolLevel => least(value, (0, 31), 1, &mut 0),
        Key::DataPDUInOrder | Key::DataSequenceInOrder => either(value, true, &mut false),
        Key::IFMarker | Key::OFMarker => both(value, false, &mut false),
        Key::TaskReporting => match list(value).any(|entry| entry == "RFC3720") {
            true => Reply::Choice("RFC3720"),
            false => Reply::Reject,
        },
        Key::InitiatorAlias => Reply::None,
        _ => Reply::Reject,
    }
}

/// The first allowed entry of the initiator's list.
fn digest(value: &str, permission: Permission, agreed: &mut bool) -> Reply {
    let allowed = |entry: &&str| match *entry {
        "CRC32C" => permission != Permission::Refused,
        "None" => permission != Permission::Required,
        _ => false,
    };
    match list(value).find(allowed) {
        Some("CRC32C") => {
            *agreed = true;
            Reply::Choice("CRC32C")
        }
        Some(_) => {
            *agreed = false;
            Reply::Choice("None")
        }
        None => Reply::Reject,
    }
}

/// Yes if one side says Yes (OR).
fn either(value: &str, wish: bool, agreed: &mut bool) -> Reply {
    let Some(offered) = boolean(value) else {
        return Reply::Reject;
    };
    *agreed = offered || wish;
    Reply::Boolean(*agreed)
}

/// Yes if both sides say Yes (AND).
fn both(value: &str, wish: bool, agreed: &mut bool) -> Reply {
    let Some(offered) = boolean(value) else {
        return Reply::Reject;
    };
    *agreed = offered && wish;
    Reply::Boolean(*agreed)
}

pub(super) fn in_range(value: &str, (lowest, highest): (u32, u32)) -> Option<u32> {
    number(value).filter(|value| (lowest..=highest).contains(value))
}

/// The smaller of both values.
fn least(value: &str, range: (u32, u32), wish: u32, agreed: &mut u32) -> Reply {
    let Some(offered) = in_range(value, range) else {
        return Reply::Reject;
    };
    *agreed = offered.min(wish);
    Reply::Number(*agreed)
}

fn declared(value: &str, agreed: &mut u32) -> Reply {
    let Some(bytes) = in_range(value, LENGTHS) else {
        return Reply::Reject;
    };
    *agreed = bytes;
    Reply::None
}

fn seconds(value: &str, choose: impl Fn(u16, u16) -> u16, agreed: &mut u16) -> Reply {
    let offered = in_range(value, (0, 3600)).and_then(|value| u16::try_from(value).ok());
    let Some(offered) = offered else {
        return Reply::Reject;
    };
    *agreed = choose(offered, TIME2WAIT_S);
    Reply::Number(u32::from(*agreed))
}

fn outstanding(value: &str, wish: u16, agreed: &mut u16) -> Reply {
    let offered = in_range(value, (1, 65_535)).and_then(|value| u16::try_from(value).ok());
    let Some(offered) = offered else {
        return Reply::Reject;
    };
    *agreed = offered.min(wish);
    Reply::Number(u32::from(*agreed))
}

/// Maximum number of outstanding R2Ts of one command at the target.
pub const R2TS_MAX: u16 = 8;
/// MaxRecvDataSegmentLength before its declaration, and of both sides during the login, in bytes.
pub const SEGMENT_BYTES_DEFAULT: u32 = 8192;
/// Smallest length that can be negotiated, in bytes.
pub(super) const BYTES_MIN: u32 = 512;
pub(super) const LENGTHS: (u32, u32) = (BYTES_MIN, DATA_SEGMENT_MAX);
/// DefaultTime2Wait of the target: seconds before the initiator may reconnect.
const TIME2WAIT_S: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: Key, value: &str, expected: Reply) {
        let mut negotiation = Negotiation::new(Wishes::default());
        assert_eq!(
            negotiation.agree(key, value, false),
            expected,
            "{key:?}={value}"
        );
    }

    #[test]
    fn two_wishes_become_one_value_by_the_rule_of_their_key() {
        check(Key::InitialR2T, "No", Reply::Boolean(false));
        check(Key::InitialR2T, "Yes", Reply::Boolean(true));
        check(Key::ImmediateData, "Yes", Reply::Boolean(true));
        check(Key::MaxBurstLength, "16776192", Reply::Number(1 << 20));
        check(Key::MaxBurstLength, "0x1000", Reply::Number(4096));
        check(Key::MaxOutstandingR2T, "1", Reply::Number(1));
        check(Key::DefaultTime2Wait, "0", Reply::Number(2));
        check(Key::DefaultTime2Retain, "20", Reply::Number(0));
        check(Key::ErrorRecoveryLevel, "2", Reply::Number(0));
        check(Key::MaxConnections, "8", Reply::Number(1));
        check(Key::DataPDUInOrder, "No", Reply::Boolean(true));
        check(Key::OFMarker, "Yes", Reply::Boolean(false));
        check(
            Key::TaskReporting,
            "FastAbort,RFC3720",
            Reply::Choice("RFC3720"),
        );
        check(Key::IscsiProtocolLevel, "2", Reply::Number(1));
        check(Key::MaxRecvDataSegmentLength, "512", Reply::None);
    }

    #[test]
    fn what_is_no_value_of_the_key_is_rejected() {
        check(Key::InitialR2T, "yes", Reply::Reject);
        check(Key::InitialR2T, "", Reply::Reject);
        check(Key::MaxBurstLength, "511", Reply::Reject);
        check(Key::MaxBurstLength, "16777216", Reply::Reject);
        check(Key::MaxBurstLength, "many", Reply::Reject);
        check(Key::DefaultTime2Wait, "3601", Reply::Reject);
        check(Key::HeaderDigest, "SHA1", Reply::Reject);
        check(Key::TargetPortalGroupTag, "1", Reply::Reject);
        check(Key::OFMarkInt, "2048", Reply::Reject);
    }

    #[test]
    fn the_initiators_first_choice_among_the_allowed_digests_wins() {
        check(Key::HeaderDigest, "CRC32C,None", Reply::Choice("CRC32C"));
        check(Key::HeaderDigest, "None,CRC32C", Reply::Choice("None"));
        let wish = |permission, value| {
            let mut negotiation = Negotiation::new(Wishes {
                data_digest: permission,
                ..Wishes::default()
            });
            negotiation.agree(Key::DataDigest, value, false)
        };
        let required = wish(Permission::Required, "None,CRC32C");
        assert_eq!(required, Reply::Choice("CRC32C"));
        assert_eq!(wish(Permission::Required, "None"), Reply::Reject);
        assert_eq!(wish(Permission::Refused, "CRC32C"), Reply::Reject);
    }

    #[test]
    fn the_first_burst_is_never_above_the_burst() {
        let mut negotiation = Negotiation::new(Wishes::default());
        negotiation.agree(Key::MaxBurstLength, "4096", false);
        let reply = negotiation.agree(Key::FirstBurstLength, "65536", false);
        assert_eq!(reply, Reply::Number(4096));
        let mut reversed = Negotiation::new(Wishes::default());
        reversed.agree(Key::FirstBurstLength, "65536", false);
        reversed.agree(Key::MaxBurstLength, "4096", false);
        assert_eq!(reversed.agreed().first_burst_bytes, 4096);
    }

    #[test]
    fn to_a_discovery_session_all_that_moves_data_is_irrelevant() {
        let mut negotiation = Negotiation::new(Wishes::default());
        let mut agree = |key, value| negotiation.agree(key, value, true);
        assert_eq!(agree(Key::MaxBurstLength, "4096"), Reply::Irrelevant);
        assert_eq!(agree(Key::MaxConnections, "1"), Reply::Irrelevant);
        assert_eq!(agree(Key::HeaderDigest, "None"), Reply::Choice("None"));
        assert_eq!(agree(Key::MaxRecvDataSegmentLength, "4096"), Reply::None);
    }

    #[test]
    fn a_discovery_session_agrees_on_recovery() {
        let mut negotiation = Negotiation::new(Wishes::default());
        let mut agree = |key, value| negotiation.agree(key, value, true);
        // open-iscsi fails on any answer but 0.
        assert_eq!(agree(Key::ErrorRecoveryLevel, "0"), Reply::Number(0));
        assert_eq!(agree(Key::DefaultTime2Wait, "2"), Reply::Number(2));
        assert_eq!(agree(Key::DefaultTime2Retain, "0"), Reply::Number(0));
    }
}

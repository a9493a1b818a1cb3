//! Asymmetric Logical Unit Access (ALUA): the states of a logical unit at target port groups, and
//! the data of REPORT TARGET PORT GROUPS.
//!
//! A logical unit has a state at each target port group. An initiator that reaches the unit through
//! several groups learns which path to use. The target changes the states itself (implicit ALUA),
//! so SET TARGET PORT GROUPS does not exist.
//! Source: SPC-4, "Target port group access states", "REPORT TARGET PORT GROUPS command".

use super::additional::AdditionalSense;
use super::data_in::DataIn;
use super::pages::Target;
use super::sense::{Sense, SenseKey};

/// IMPLICIT TRANSITION TIME: longest time in seconds for which a unit is in state
/// [`AccessState::Transitioning`].
pub const TRANSITION_SECONDS: u8 = crate::nvme::ana::ANA_TRANSITION_SECONDS;

/// ASYMMETRIC ACCESS STATE of a logical unit at a target port group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessState {
    /// Active/optimized: commands are executed. Initiators prefer this path.
    Optimized,
    /// Active/non-optimized: commands are executed. Initiators use this path if none is optimized.
    NonOptimized,
    /// Standby: commands for the medium are refused.
    Standby,
    /// Unavailable: commands are refused. Another path may serve them.
    Unavailable,
    /// Logical block dependent: commands are executed, some of them slowly.
    BlockDependent,
    /// Offline: the port does not answer. Another port reports this state.
    Offline,
    /// The state changes, for at most [`TRANSITION_SECONDS`]. Commands are refused.
    Transitioning,
}

impl AccessState {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Optimized,
        Self::NonOptimized,
        Self::Standby,
        Self::Unavailable,
        Self::BlockDependent,
        Self::Offline,
        Self::Transitioning,
    ];

    /// The state's code in a target port group descriptor.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Optimized => 0x0,
            Self::NonOptimized => 0x1,
            Self::Standby => 0x2,
            Self::Unavailable => 0x3,
            Self::BlockDependent => 0x4,
            Self::Offline => 0xE,
            Self::Transitioning => 0xF,
        }
    }

    /// The state with this code. The high four bits of the byte belong to other fields.
    #[must_use]
    pub fn from_code(byte: u8) -> Option<Self> {
        let mut states = Self::ALL.into_iter();
        states.find(|state| state.code() == byte & 0x0F)
    }

    /// The additional sense code of refused commands. `None`: the commands are executed.
    #[must_use]
    pub const fn refusal(self) -> Option<AdditionalSense> {
        match self {
            Self::Optimized | Self::NonOptimized | Self::BlockDependent => None,
            Self::Standby => Some(AdditionalSense::STANDBY),
            Self::Unavailable | Self::Offline => Some(AdditionalSense::UNAVAILABLE),
            Self::Transitioning => Some(AdditionalSense::ASYMMETRIC_ACCESS_TRANSITION),
        }
    }

    /// The sense data of refused commands. `None`: the commands are executed.
    #[must_use]
    pub fn sense(self) -> Option<Sense> {
        let code = self.refusal()?;
        Some(Sense::new(SenseKey::NOT_READY, code))
    }

    /// The state that the sense data of a refused command reports.
    #[must_use]
    pub fn from_sense(sense: Sense) -> Option<Self> {
        let refusing = [Self::Standby, Self::Unavailable, Self::Transitioning];
        refusing
            .into_iter()
            .find(|state| state.sense() == Some(Sense::new(sense.key, sense.code)))
    }
}

/// Writes the target port groups. `states` are the states of the logical unit at the ports of the
/// target, in their order. The ports of a group are in one state.
pub fn write_port_groups(
    target: &Target,
    states: &[AccessState],
    extended: bool,
    out: &mut DataIn<'_>,
) {
    out.u32(0);
    if extended {
        out.put(&[EXTENDED_HEADER, TRANSITION_SECONDS, 0, 0]);
    }
    let ports = || target.ports.iter().zip(states);
    let mut groups: alloc::vec::Vec<_> = ports().map(|(port, state)| (port.group, state)).collect();
    groups.sort_unstable_by_key(|(group, _)| *group);
    groups.dedup_by_key(|(group, _)| *group);
    for (group, state) in groups {
        let members = || ports().filter(|(port, _)| port.group == group);
        out.put(&[state.code(), SUPPORTED_STATES]);
        out.u16(group);
        out.put(&[0, 0, 0]);
        out.u8(u8::try_from(members().count()).unwrap_or(u8::MAX));
        for (port, _) in members() {
            out.u16(0);
            out.u16(port.id);
        }
    }
    out.close_u32(0);
}

/// The state of target port group `group` in the data of REPORT TARGET PORT GROUPS, which may be
/// truncated. `None`: the data has no such group, or a state that the standard does not define.
#[must_use]
pub fn state_of_group(data: &[u8], group: u16) -> Option<AccessState> {
    let (_, mut rest) = data.split_first_chunk::<4>()?;
    if rest.first()? & RETURN_FORMAT == EXTENDED_HEADER {
        rest = rest.get(4..)?;
    }
    while let Some((&[state, _, high, low, _, _, _, ports], after)) = rest.split_first_chunk() {
        if u16::from_be_bytes([high, low]) == group {
            return AccessState::from_code(state);
        }
        rest = after.get(usize::from(ports) * PORT_BYTES..)?;
    }
    None
}

/// RETURN DATA FORMAT of the extended header, in byte 4. A group descriptor has PREF there, and a
/// zero in these bits.
const RETURN_FORMAT: u8 = 0x70;
const EXTENDED_HEADER: u8 = 0x10;
/// T_SUP, U_SUP, AN_SUP and AO_SUP.
const SUPPORTED_STATES: u8 = 0x80 | 0x08 | 0x02 | 0x01;
/// Bytes of a target port descriptor.
const PORT_BYTES: usize = 4;

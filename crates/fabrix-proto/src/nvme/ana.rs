//! Asymmetric Namespace Access: the states of ANA groups, and the states of every listener.
//!
//! Each namespace is in one ANA group. A group has a state at each listener, so a host that reaches
//! a subsystem through several listeners learns which path to use.
//! Source: NVM Express Base Specification 2.x, "Asymmetric Namespace Access Reporting".

use core::fmt;
use core::net::SocketAddr;

use super::spec::Status;
use super::subsystem::Transport;

/// ANAGRPMAX and NANAGRPID: highest group id, and number of groups. Hosts read it once and reserve
/// memory for this many descriptors.
pub const ANA_GROUPS_MAX: u32 = 16;

/// The group of a disk for which none is chosen.
pub const ANA_GROUP_DEFAULT: u32 = 1;

/// ANATT: longest time in seconds for which a group is in state [`AnaState::Change`]. Linux resets
/// a controller that stays in this state for twice as long.
pub const ANA_TRANSITION_SECONDS: u8 = 10;

/// State of an ANA group, as one controller reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnaState {
    /// Commands are executed. Hosts prefer this path.
    Optimized,
    /// Commands are executed. Hosts use this path if none is optimized.
    NonOptimized,
    /// Commands are refused. Another path may serve them.
    Inaccessible,
    /// Commands are refused, and this path never serves the group again.
    PersistentLoss,
    /// The group changes its state, for at most [`ANA_TRANSITION_SECONDS`]. Commands are refused.
    Change,
}

impl AnaState {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Optimized,
        Self::NonOptimized,
        Self::Inaccessible,
        Self::PersistentLoss,
        Self::Change,
    ];

    /// The state's code in an ANA Group Descriptor.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Optimized => 0x1,
            Self::NonOptimized => 0x2,
            Self::Inaccessible => 0x3,
            Self::PersistentLoss => 0x4,
            Self::Change => 0xF,
        }
    }

    /// The state with this code. The high four bits of the byte are reserved.
    #[must_use]
    pub fn from_code(byte: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|state| state.code() == byte & 0xF)
    }

    /// The status of commands that need the media or the reservations of a namespace in this state.
    /// `None`: the commands are executed. Do Not Retry is never set, so hosts try another path.
    #[must_use]
    pub const fn refusal(self) -> Option<Status> {
        match self {
            Self::Optimized | Self::NonOptimized => None,
            Self::Inaccessible => Some(Status::ANA_INACCESSIBLE),
            Self::PersistentLoss => Some(Status::ANA_PERSISTENT_LOSS),
            Self::Change => Some(Status::ANA_TRANSITION),
        }
    }

    /// The state's word, as Linux shows it in `ana_state`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
            Self::PersistentLoss => "persistent-loss",
            Self::Change => "change",
        }
    }

    /// The state with this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

impl fmt::Display for AnaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A listener, as the states of ANA groups name it: the transport, and the address that it binds.
pub type AnaListener = (Transport, SocketAddr);

/// State of an ANA group at one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnaStateAt {
    /// The group, 1 to [`ANA_GROUPS_MAX`].
    pub group: u32,
    /// The listener.
    pub listener: AnaListener,
    /// The state.
    pub state: AnaState,
}

//! Unit attentions: what an initiator has to be told before its next command is looked at.
//!
//! One set per nexus and logical unit. A condition is pending or not, however often it arose, so
//! the set is bounded by the number of conditions, and a peer that never asks costs nothing.
//! Source: SAM-5, "Unit attention conditions".

use super::additional::AdditionalSense;
use super::reservation::Notice;
use super::sense::{Sense, SenseKey};

/// A condition, in the order in which they are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Attention {
    /// The target started.
    PowerOn = 0,
    /// The logical unit was reset.
    DeviceReset = 1,
    /// The nexus was lost and is back.
    NexusLoss = 2,
    /// Another initiator cleared the commands.
    CommandsCleared = 3,
    /// Another initiator changed mode parameters.
    ModeParametersChanged = 4,
    /// The reservation was taken away.
    ReservationsPreempted = 5,
    /// The reservation was released.
    ReservationsReleased = 6,
    /// The registration was taken away.
    RegistrationsPreempted = 7,
    /// A target port group has another state.
    AsymmetricAccessChanged = 8,
    /// The disk has another size.
    CapacityChanged = 9,
    /// INQUIRY says something else.
    InquiryChanged = 10,
    /// There are other logical units.
    LunsChanged = 11,
}

impl Attention {
    const ALL: [Self; 12] = [
        Self::PowerOn,
        Self::DeviceReset,
        Self::NexusLoss,
        Self::CommandsCleared,
        Self::ModeParametersChanged,
        Self::ReservationsPreempted,
        Self::ReservationsReleased,
        Self::RegistrationsPreempted,
        Self::AsymmetricAccessChanged,
        Self::CapacityChanged,
        Self::InquiryChanged,
        Self::LunsChanged,
    ];

    /// The sense data that report it.
    #[must_use]
    pub const fn sense(self) -> Sense {
        let code = match self {
            Self::PowerOn => AdditionalSense::POWER_ON_OR_RESET,
            Self::DeviceReset => AdditionalSense::DEVICE_RESET,
            Self::NexusLoss => AdditionalSense::NEXUS_LOSS,
            Self::CommandsCleared => AdditionalSense::COMMANDS_CLEARED,
            Self::ModeParametersChanged => AdditionalSense::MODE_PARAMETERS_CHANGED,
            Self::ReservationsPreempted => AdditionalSense::RESERVATIONS_PREEMPTED,
            Self::ReservationsReleased => AdditionalSense::RESERVATIONS_RELEASED,
            Self::RegistrationsPreempted => AdditionalSense::REGISTRATIONS_PREEMPTED,
            Self::AsymmetricAccessChanged => AdditionalSense::ASYMMETRIC_ACCESS_CHANGED,
            Self::CapacityChanged => AdditionalSense::CAPACITY_DATA_CHANGED,
            Self::InquiryChanged => AdditionalSense::INQUIRY_DATA_CHANGED,
            Self::LunsChanged => AdditionalSense::REPORTED_LUNS_CHANGED,
        };
        Sense::new(SenseKey::UNIT_ATTENTION, code)
    }

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

impl From<Notice> for Attention {
    fn from(notice: Notice) -> Self {
        match notice {
            Notice::ReservationPreempted => Self::ReservationsPreempted,
            Notice::ReservationReleased => Self::ReservationsReleased,
            Notice::RegistrationPreempted => Self::RegistrationsPreempted,
        }
    }
}

/// The conditions pending for one nexus at one logical unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attentions(u16);

impl Attentions {
    /// None pending.
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds a condition. One of the resets makes earlier conditions of this nexus meaningless.
    ///
    /// Source: SAM-5, "Unit attention conditions", the table of precedence.
    pub const fn add(&mut self, attention: Attention) {
        if matches!(attention, Attention::PowerOn | Attention::DeviceReset) {
            self.0 = 0;
        }
        self.0 |= attention.bit();
    }

    /// Takes the first.
    pub fn take(&mut self) -> Option<Attention> {
        let first = Attention::ALL
            .into_iter()
            .find(|attention| self.0 & attention.bit() != 0)?;
        self.remove(first);
        Some(first)
    }

    /// Takes this one back, where the initiator learned of it in another way.
    pub const fn remove(&mut self, attention: Attention) {
        self.0 &= !attention.bit();
    }

    /// Whether something is pending.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.0 != 0
    }
}

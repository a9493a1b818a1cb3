//! Unit attentions: conditions that a logical unit reports before it executes the initiator's next
//! command.
//!
//! Each nexus has one set per logical unit. A condition is in the set at most once, however often
//! it occurs. The set is therefore bounded, even for a peer that never sends a command.
//! Source: SAM-5, "Unit attention conditions".

use super::additional::AdditionalSense;
use super::reservation::Notice;
use super::sense::{Sense, SenseKey};

/// A unit attention condition. The order of declaration is the order of reporting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Attention {
    /// The target started.
    PowerOn = 0,
    /// The logical unit was reset.
    DeviceReset = 1,
    /// The nexus was lost and has returned.
    NexusLoss = 2,
    /// Another initiator cleared the commands.
    CommandsCleared = 3,
    /// Another initiator changed mode parameters.
    ModeParametersChanged = 4,
    /// The reservation of the initiator was preempted.
    ReservationsPreempted = 5,
    /// The reservation was released.
    ReservationsReleased = 6,
    /// The registration of the initiator was preempted.
    RegistrationsPreempted = 7,
    /// The state of a target port group has changed.
    AsymmetricAccessChanged = 8,
    /// The size of the disk has changed.
    CapacityChanged = 9,
    /// The INQUIRY data has changed.
    InquiryChanged = 10,
    /// The list of logical units has changed.
    LunsChanged = 11,
}

impl Attention {
    /// All conditions in the order of reporting, with their additional sense codes.
    const ALL: [(Self, AdditionalSense); 12] = [
        (Self::PowerOn, AdditionalSense::POWER_ON_OR_RESET),
        (Self::DeviceReset, AdditionalSense::DEVICE_RESET),
        (Self::NexusLoss, AdditionalSense::NEXUS_LOSS),
        (Self::CommandsCleared, AdditionalSense::COMMANDS_CLEARED),
        (
            Self::ModeParametersChanged,
            AdditionalSense::MODE_PARAMETERS_CHANGED,
        ),
        (
            Self::ReservationsPreempted,
            AdditionalSense::RESERVATIONS_PREEMPTED,
        ),
        (
            Self::ReservationsReleased,
            AdditionalSense::RESERVATIONS_RELEASED,
        ),
        (
            Self::RegistrationsPreempted,
            AdditionalSense::REGISTRATIONS_PREEMPTED,
        ),
        (
            Self::AsymmetricAccessChanged,
            AdditionalSense::ASYMMETRIC_ACCESS_CHANGED,
        ),
        (
            Self::CapacityChanged,
            AdditionalSense::CAPACITY_DATA_CHANGED,
        ),
        (Self::InquiryChanged, AdditionalSense::INQUIRY_DATA_CHANGED),
        (Self::LunsChanged, AdditionalSense::REPORTED_LUNS_CHANGED),
    ];

    /// Sense data that reports the condition.
    #[must_use]
    pub const fn sense(self) -> Sense {
        Sense::new(SenseKey::UNIT_ATTENTION, Self::ALL[self as usize].1)
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

/// Pending conditions of one nexus at one logical unit, as a bit mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attentions(u16);

impl Attentions {
    /// An empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds a condition. [`Attention::PowerOn`] and [`Attention::DeviceReset`] remove all earlier
    /// conditions, because they include them.
    ///
    /// Source: SAM-5, "Unit attention conditions", the table of precedence.
    pub const fn add(&mut self, attention: Attention) {
        if matches!(attention, Attention::PowerOn | Attention::DeviceReset) {
            self.0 = 0;
        }
        self.0 |= attention.bit();
    }

    /// Removes and returns the first condition in the order of reporting.
    pub fn take(&mut self) -> Option<Attention> {
        let (first, _) = Attention::ALL
            .into_iter()
            .find(|(attention, _)| self.0 & attention.bit() != 0)?;
        self.remove(first);
        Some(first)
    }

    /// Removes a condition that the initiator has learned of in another way.
    pub const fn remove(&mut self, attention: Attention) {
        self.0 &= !attention.bit();
    }

    /// Whether a condition is pending.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.0 != 0
    }
}

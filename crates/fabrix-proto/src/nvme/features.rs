//! Features of a controller: identifiers, defaults, and the features without a function.
//!
//! Features with a function (keep-alive timer, asynchronous events, number of queues) keep their
//! value in `controller`. The values of the others are here. No feature is saved across a reset,
//! and Get Features says so.
//! Source: NVM Express Base Specification 2.x, "Feature Identifiers (FIDs)"; NVM Command Set
//! Specification 1.x.

use super::spec::Status;
use crate::Nanos;

/// FID: feature identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureId(pub u8);

impl FeatureId {
    /// Arbitration.
    pub const ARBITRATION: Self = Self(0x01);
    /// Power Management.
    pub const POWER_MANAGEMENT: Self = Self(0x02);
    /// Temperature Threshold.
    pub const TEMPERATURE_THRESHOLD: Self = Self(0x04);
    /// Error Recovery.
    pub const ERROR_RECOVERY: Self = Self(0x05);
    /// Volatile Write Cache.
    pub const VOLATILE_WRITE_CACHE: Self = Self(0x06);
    /// Number of Queues.
    pub const NUMBER_OF_QUEUES: Self = Self(0x07);
    /// Write Atomicity Normal.
    pub const WRITE_ATOMICITY: Self = Self(0x0A);
    /// Asynchronous Event Configuration.
    pub const ASYNC_EVENT_CONFIGURATION: Self = Self(0x0B);
    /// Timestamp.
    pub const TIMESTAMP: Self = Self(0x0E);
    /// Keep Alive Timer.
    pub const KEEP_ALIVE_TIMER: Self = Self(0x0F);
    /// Host Identifier.
    pub const HOST_IDENTIFIER: Self = Self(0x81);
    /// Reservation Notification Mask.
    pub const RESERVATION_MASK: Self = Self(0x82);
    /// Reservation Persistence.
    pub const RESERVATION_PERSISTENCE: Self = Self(0x83);
    /// Vendor specific: duration in seconds for which commands are timed, see
    /// [`crate::nvme::timing`].
    pub const TIMING: Self = Self(0xC0);

    /// Length in bytes of the data that Get Features returns with the current value.
    #[must_use]
    pub const fn get_bytes(self) -> u64 {
        match self {
            Self::TIMESTAMP => 8,
            Self::HOST_IDENTIFIER => 16,
            _ => 0,
        }
    }

    /// Length in bytes of the data of Set Features.
    #[must_use]
    pub const fn set_bytes(self) -> u64 {
        match self {
            Self::TIMESTAMP => 8,
            _ => 0,
        }
    }
}

/// SEL of Get Features: the value to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// Value in force.
    Current,
    /// Value after a reset.
    Default,
    /// Saved value. No feature is saved, so this is the default value.
    Saved,
    /// Capabilities of the feature, for example [`CAPABILITY_CHANGEABLE`].
    Supported,
}

impl Select {
    /// Parses the three bits of SEL.
    ///
    /// # Errors
    /// Invalid Field for the reserved values.
    pub const fn parse(bits: u8) -> Result<Self, Status> {
        Ok(match bits {
            0 => Self::Current,
            1 => Self::Default,
            2 => Self::Saved,
            3 => Self::Supported,
            _ => return Err(Status::INVALID_FIELD),
        })
    }
}

/// Supported capabilities, bit 0: the feature can be saved.
pub const CAPABILITY_SAVEABLE: u32 = 1 << 0;
/// Supported capabilities, bit 1: the feature belongs to a namespace.
pub const CAPABILITY_NAMESPACE: u32 = 1 << 1;
/// Supported capabilities, bit 2: the feature can be changed.
pub const CAPABILITY_CHANGEABLE: u32 = 1 << 2;

/// Values of the features without a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    arbitration: u32,
    over_temperature: u32,
    under_temperature: u32,
    write_atomicity: u32,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            arbitration: ARBITRATION_NO_LIMIT,
            over_temperature: OVER_TEMPERATURE_DEFAULT,
            under_temperature: 0,
            write_atomicity: 0,
        }
    }
}

impl Kept {
    /// Value of a feature. `argument` is dword 11 of the command, which selects a temperature
    /// threshold.
    ///
    /// # Errors
    /// Invalid Field for features that do not exist.
    pub fn get(&self, feature: FeatureId, argument: u32) -> Result<u32, Status> {
        Ok(match feature {
            FeatureId::ARBITRATION => self.arbitration,
            // The controller has one power state, and error recovery has no settings: both values
            // are zero.
            FeatureId::POWER_MANAGEMENT | FeatureId::ERROR_RECOVERY => 0,
            FeatureId::TEMPERATURE_THRESHOLD => match threshold(argument)? {
                Threshold::Over => self.over_temperature,
                Threshold::Under => self.under_temperature,
            },
            FeatureId::WRITE_ATOMICITY => self.write_atomicity,
            _ => return Err(Status::INVALID_FIELD),
        })
    }

    /// Sets the value of a feature.
    ///
    /// # Errors
    /// Invalid Field for features, power states and bits that do not exist, Feature Not Changeable
    /// for error recovery.
    pub fn set(&mut self, feature: FeatureId, value: u32) -> Result<(), Status> {
        match feature {
            FeatureId::ARBITRATION if value & 0xF8 == 0 => self.arbitration = value,
            FeatureId::POWER_MANAGEMENT if value & 0x1F == 0 && value >> 8 == 0 => {}
            FeatureId::TEMPERATURE_THRESHOLD if value >> 22 == 0 => match threshold(value)? {
                Threshold::Over => self.over_temperature = value & 0xFFFF,
                Threshold::Under => self.under_temperature = value & 0xFFFF,
            },
            FeatureId::WRITE_ATOMICITY if value & !1 == 0 => self.write_atomicity = value,
            FeatureId::ERROR_RECOVERY if value == 0 => {}
            FeatureId::ERROR_RECOVERY => return Err(Status::FEATURE_NOT_CHANGEABLE),
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(())
    }
}

enum Threshold {
    Over,
    Under,
}

/// Parses THSEL (bits 21:20) and TMPSEL (bits 19:16). Only the composite temperature sensor exists.
fn threshold(dword: u32) -> Result<Threshold, Status> {
    match (dword >> 20 & 0b11, dword >> 16 & 0xF) {
        (0, 0) => Ok(Threshold::Over),
        (1, 0) => Ok(Threshold::Under),
        _ => Err(Status::INVALID_FIELD),
    }
}

wire! {
    /// The Timestamp feature's data, 8 bytes.
    ///
    /// Source: NVM Express Base Specification 2.x, "Timestamp – Data Structure".
    pub struct TimestampData: 8 bytes {
        /// Milliseconds since 1970-01-01 UTC, or since the reset if no host has set the clock.
        pub milliseconds: [u8; 6],
        /// Bit 0: the clock may have stopped. Bits 3:1: zero after a reset, one after a host has
        /// set the clock.
        pub attributes @ 6: u8,
        reserved: u8,
    }
}

impl TimestampData {
    /// Data for Set Features.
    #[must_use]
    pub const fn new(milliseconds: u64) -> Self {
        let [a, b, c, d, e, f, ..] = milliseconds.to_le_bytes();
        Self {
            milliseconds: [a, b, c, d, e, f],
            attributes: 0,
            reserved: 0,
        }
    }

    /// Time in milliseconds.
    #[must_use]
    pub const fn value(&self) -> u64 {
        let [a, b, c, d, e, f] = self.milliseconds;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

/// Clock that continues from the time that a host has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    set_at: Nanos,
    set_to_ms: u64,
    by_host: bool,
}

impl Timestamp {
    /// A clock that starts at zero.
    #[must_use]
    pub const fn reset(now: Nanos) -> Self {
        Self {
            set_at: now,
            set_to_ms: 0,
            by_host: false,
        }
    }

    /// A clock that starts at the time in `data`.
    #[must_use]
    pub const fn set(now: Nanos, data: &TimestampData) -> Self {
        Self {
            set_at: now,
            set_to_ms: data.value(),
            by_host: true,
        }
    }

    /// Time at `now`, as data for Get Features.
    #[must_use]
    pub const fn read(&self, now: Nanos) -> TimestampData {
        let elapsed_ms = now.since(self.set_at) / 1_000_000;
        let mut data = TimestampData::new(self.set_to_ms.saturating_add(elapsed_ms));
        data.attributes = (self.by_host as u8) << 1;
        data
    }
}

/// Arbitration burst 111b: no limit.
const ARBITRATION_NO_LIMIT: u32 = 0b111;
/// FFFFh: the temperature never reaches this threshold.
const OVER_TEMPERATURE_DEFAULT: u32 = 0xFFFF;

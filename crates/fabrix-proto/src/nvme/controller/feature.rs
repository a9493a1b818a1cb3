//! Get Features and Set Features of a controller.

use zerocopy::{FromBytes, IntoBytes};

use super::{Controller, Kind, Outcome, Surroundings, means_controller};
use crate::nvme::admin::NSID_ALL;
use crate::nvme::features::{
    CAPABILITY_CHANGEABLE, CAPABILITY_NAMESPACE, FeatureId, Kept, Select, Timestamp, TimestampData,
};
use crate::nvme::spec::Status;
use crate::nvme::subsystem::Namespace;
use crate::nvme::timing::SECONDS_MOST;
use crate::scsi::reservation::Notice;

/// EXHID of the Host Identifier feature: 16-byte identifier, the only form over fabrics.
const EXTENDED_HOST_ID: u32 = 1 << 0;

impl Controller {
    fn has_feature(&self, feature: FeatureId, around: &Surroundings<'_>) -> bool {
        match (feature, self.kind) {
            (FeatureId::ASYNC_EVENT_CONFIGURATION | FeatureId::KEEP_ALIVE_TIMER, _) => true,
            (_, Kind::Discovery) => false,
            (FeatureId::VOLATILE_WRITE_CACHE, Kind::Io) => around.view.has_volatile_cache(),
            (
                FeatureId::ARBITRATION
                | FeatureId::POWER_MANAGEMENT
                | FeatureId::TEMPERATURE_THRESHOLD
                | FeatureId::ERROR_RECOVERY
                | FeatureId::NUMBER_OF_QUEUES
                | FeatureId::WRITE_ATOMICITY
                | FeatureId::TIMESTAMP
                | FeatureId::HOST_IDENTIFIER
                | FeatureId::RESERVATION_MASK
                | FeatureId::RESERVATION_PERSISTENCE
                | FeatureId::TIMING,
                Kind::Io,
            ) => true,
            _ => false,
        }
    }

    pub(super) fn get_feature(
        &self,
        (feature, select): (FeatureId, Select),
        nsid: u32,
        argument: u32,
        around: &Surroundings<'_>,
        page: &mut [u8],
    ) -> Result<Outcome, Status> {
        if !self.has_feature(feature, around) {
            return Err(Status::INVALID_FIELD);
        }
        match (select, feature) {
            (Select::Supported, _) => Ok(Outcome::result(capabilities(feature).into())),
            (_, FeatureId::TIMESTAMP) => {
                let current = select == Select::Current;
                let clock = if current {
                    self.timestamp
                } else {
                    Timestamp::reset(around.now)
                };
                fill(page, clock.read(around.now).as_bytes())
            }
            (Select::Current, FeatureId::TIMING) => {
                Ok(Outcome::result(around.timing.seconds.get().into()))
            }
            (_, FeatureId::TIMING) => Ok(Outcome::result(0)),
            (_, FeatureId::HOST_IDENTIFIER) if argument & EXTENDED_HOST_ID == 0 => {
                Err(Status::INVALID_FIELD)
            }
            (_, FeatureId::HOST_IDENTIFIER) => fill(page, &self.host_id),
            (Select::Current, FeatureId::RESERVATION_MASK) => {
                named(nsid, around)?;
                Ok(Outcome::result(self.mask(nsid).into()))
            }
            (Select::Current, FeatureId::RESERVATION_PERSISTENCE) => {
                named(nsid, around)?;
                Ok(Outcome::result((around.persistence == Some(true)).into()))
            }
            (Select::Current, _) => Ok(Outcome::result(self.value(feature, argument)?.into())),
            (_, _) => Ok(Outcome::result(
                self.default_value(feature, argument)?.into(),
            )),
        }
    }

    fn value(&self, feature: FeatureId, argument: u32) -> Result<u32, Status> {
        match feature {
            FeatureId::ASYNC_EVENT_CONFIGURATION => Ok(self.events.configuration()),
            FeatureId::KEEP_ALIVE_TIMER => Ok(self.keep_alive.timeout_ms()),
            FeatureId::NUMBER_OF_QUEUES | FeatureId::VOLATILE_WRITE_CACHE => {
                self.default_value(feature, argument)
            }
            _ => self.kept.get(feature, argument),
        }
    }

    /// Default value of a feature. It is the saved value as well, because no feature is saved.
    fn default_value(&self, feature: FeatureId, argument: u32) -> Result<u32, Status> {
        match feature {
            FeatureId::ASYNC_EVENT_CONFIGURATION
            | FeatureId::KEEP_ALIVE_TIMER
            | FeatureId::RESERVATION_MASK
            | FeatureId::RESERVATION_PERSISTENCE => Ok(0),
            FeatureId::NUMBER_OF_QUEUES => {
                let zero_based = u32::from(self.max_io_queues.saturating_sub(1));
                Ok(zero_based << 16 | zero_based)
            }
            FeatureId::VOLATILE_WRITE_CACHE => Ok(WCE),
            _ => Kept::default().get(feature, argument),
        }
    }

    pub(super) fn set_feature(
        &mut self,
        feature: FeatureId,
        nsid: u32,
        value: u32,
        around: &Surroundings<'_>,
        data: &[u8],
    ) -> Result<Outcome, Status> {
        if !self.has_feature(feature, around) {
            return Err(Status::INVALID_FIELD);
        }
        if !means_controller(nsid) && capabilities(feature) & CAPABILITY_NAMESPACE == 0 {
            return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
        }
        match feature {
            FeatureId::ASYNC_EVENT_CONFIGURATION => self.events.configure(value)?,
            FeatureId::KEEP_ALIVE_TIMER => self.keep_alive.set(value, around.now),
            FeatureId::NUMBER_OF_QUEUES => return self.set_number_of_queues(value, around),
            FeatureId::VOLATILE_WRITE_CACHE if value == WCE => {}
            FeatureId::VOLATILE_WRITE_CACHE if value == 0 => {
                return Err(Status::FEATURE_NOT_CHANGEABLE);
            }
            FeatureId::VOLATILE_WRITE_CACHE => return Err(Status::INVALID_FIELD),
            FeatureId::TIMESTAMP => {
                let (data, _) = TimestampData::ref_from_prefix(data)
                    .map_err(|_| Status::DATA_SGL_LENGTH_INVALID)?;
                self.timestamp = Timestamp::set(around.now, data);
            }
            FeatureId::RESERVATION_MASK => self.set_mask(nsid, value, around)?,
            FeatureId::RESERVATION_PERSISTENCE => return set_persistence(nsid, value, around),
            FeatureId::TIMING if value <= SECONDS_MOST => {
                return Ok(Outcome::Time { seconds: value });
            }
            FeatureId::TIMING => return Err(Status::INVALID_FIELD),
            // Over fabrics, Connect has already set the host identifier.
            FeatureId::HOST_IDENTIFIER => return Err(Status::COMMAND_SEQUENCE_ERROR),
            _ => self.kept.set(feature, value)?,
        }
        Ok(Outcome::result(0))
    }

    fn mask(&self, nsid: u32) -> u32 {
        let found = self.masks.iter().find(|(of, _)| *of == nsid);
        found.map_or(0, |(_, mask)| *mask)
    }

    /// Whether the host has masked this notice.
    pub(super) fn masks_notice(&self, nsid: u32, notice: Notice) -> bool {
        self.mask(nsid) & mask_bit(notice) != 0
    }

    fn set_mask(&mut self, nsid: u32, value: u32, around: &Surroundings<'_>) -> Result<(), Status> {
        if value & !MASK_BITS != 0 {
            return Err(Status::INVALID_FIELD);
        }
        if nsid == NSID_ALL {
            let all = around.view.namespaces().iter();
            self.masks = all.map(|namespace| (namespace.nsid, value)).collect();
        } else {
            named(nsid, around)?;
            self.masks.retain(|(of, _)| *of != nsid);
            self.masks.push((nsid, value));
        }
        self.masks.retain(|(_, mask)| *mask != 0);
        Ok(())
    }

    /// Answers with the maximum number of I/O queues. The host connects as many of them as it
    /// wants.
    fn set_number_of_queues(
        &self,
        value: u32,
        around: &Surroundings<'_>,
    ) -> Result<Outcome, Status> {
        if value & 0xFFFF == 0xFFFF || value >> 16 == 0xFFFF {
            return Err(Status::INVALID_FIELD);
        }
        if around.has_io_queues {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        let granted = self.default_value(FeatureId::NUMBER_OF_QUEUES, 0)?;
        Ok(Outcome::result(granted.into()))
    }
}

/// Sets Reservation Persistence. Source: NVM Express Base Specification 2.x, "Reservation
/// Persistence".
fn set_persistence(nsid: u32, value: u32, around: &Surroundings<'_>) -> Result<Outcome, Status> {
    let persist = match value {
        0 => false,
        1 => true,
        _ => return Err(Status::INVALID_FIELD),
    };
    if nsid != NSID_ALL {
        let namespace = named(nsid, around)?;
        if persist && !namespace.stores_reservations {
            return Err(Status::INVALID_FIELD);
        }
    }
    Ok(Outcome::Persist { nsid, persist })
}

/// Namespace of a namespace-specific feature.
fn named<'v>(nsid: u32, around: &Surroundings<'v>) -> Result<&'v Namespace, Status> {
    if nsid == NSID_ALL {
        return Err(Status::INVALID_FIELD);
    }
    let namespace = around.view.namespace(nsid);
    namespace.ok_or(Status::INVALID_NAMESPACE)
}

/// Bit of `notice` in the Reservation Notification Mask: REGPRE, RESREL or RESPRE.
const fn mask_bit(notice: Notice) -> u32 {
    match notice {
        Notice::RegistrationPreempted => 1 << 1,
        Notice::ReservationReleased => 1 << 2,
        Notice::ReservationPreempted => 1 << 3,
    }
}

fn fill(page: &mut [u8], data: &[u8]) -> Result<Outcome, Status> {
    let page = page.get_mut(..data.len()).ok_or(Status::INTERNAL_ERROR)?;
    page.copy_from_slice(data);
    u32::try_from(data.len())
        .map(Outcome::data)
        .map_err(|_| Status::INTERNAL_ERROR)
}

/// Answer to SEL = supported capabilities.
const fn capabilities(feature: FeatureId) -> u32 {
    match feature {
        FeatureId::VOLATILE_WRITE_CACHE | FeatureId::HOST_IDENTIFIER => 0,
        FeatureId::ERROR_RECOVERY => CAPABILITY_NAMESPACE,
        FeatureId::RESERVATION_MASK | FeatureId::RESERVATION_PERSISTENCE => {
            CAPABILITY_NAMESPACE | CAPABILITY_CHANGEABLE
        }
        _ => CAPABILITY_CHANGEABLE,
    }
}

/// All bits of the Reservation Notification Mask.
const MASK_BITS: u32 = 0b1110;
/// WCE of the Volatile Write Cache feature: the cache is always on.
const WCE: u32 = 1;

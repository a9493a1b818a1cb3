//! Get Features and Set Features: which features a controller has, and what setting one does.

use zerocopy::{FromBytes, IntoBytes};

use super::{Controller, Kind, Outcome, Surroundings, means_controller};
use crate::nvme::features::{
    CAPABILITY_CHANGEABLE, CAPABILITY_NAMESPACE, FeatureId, Kept, Select, Timestamp, TimestampData,
};
use crate::nvme::spec::Status;

/// EXHID of the Host Identifier feature: 16 bytes, the only form over fabrics.
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
                | FeatureId::HOST_IDENTIFIER,
                Kind::Io,
            ) => true,
            _ => false,
        }
    }

    pub(super) fn get_feature(
        &self,
        feature: FeatureId,
        select: Select,
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
            (_, FeatureId::HOST_IDENTIFIER) if argument & EXTENDED_HOST_ID == 0 => {
                Err(Status::INVALID_FIELD)
            }
            (_, FeatureId::HOST_IDENTIFIER) => fill(page, &self.host_id),
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

    /// Nothing is saved, so this is the saved value as well.
    fn default_value(&self, feature: FeatureId, argument: u32) -> Result<u32, Status> {
        match feature {
            FeatureId::ASYNC_EVENT_CONFIGURATION | FeatureId::KEEP_ALIVE_TIMER => Ok(0),
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
            // Over fabrics Connect has said it.
            FeatureId::HOST_IDENTIFIER => return Err(Status::COMMAND_SEQUENCE_ERROR),
            _ => self.kept.set(feature, value)?,
        }
        Ok(Outcome::result(0))
    }

    /// Answers with all there are; the host connects as many as it wants of them.
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

fn fill(page: &mut [u8], data: &[u8]) -> Result<Outcome, Status> {
    let page = page.get_mut(..data.len()).ok_or(Status::INTERNAL_ERROR)?;
    page.copy_from_slice(data);
    u32::try_from(data.len())
        .map(Outcome::data)
        .map_err(|_| Status::INTERNAL_ERROR)
}

/// The answer to SEL = supported capabilities.
const fn capabilities(feature: FeatureId) -> u32 {
    match feature {
        FeatureId::VOLATILE_WRITE_CACHE | FeatureId::HOST_IDENTIFIER => 0,
        FeatureId::ERROR_RECOVERY => CAPABILITY_NAMESPACE,
        _ => CAPABILITY_CHANGEABLE,
    }
}

/// WCE of the Volatile Write Cache feature: the cache is on, and stays so.
const WCE: u32 = 1;

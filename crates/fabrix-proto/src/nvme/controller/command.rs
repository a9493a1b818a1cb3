//! Dispatch of admin commands to the files that implement them. Simple commands are implemented
//! here.

use super::properties::Change;
use super::{Controller, Kept, Kind, Outcome, Quiesce, Surroundings, Timestamp};
use crate::nvme::admin::AdminCommand;
use crate::nvme::fabrics::FabricsCommand;
use crate::nvme::spec::{Direction, Status, SubmissionEntry};
use crate::{Nanos, Slot};

impl Controller {
    pub(super) fn fabrics(
        &mut self,
        entry: &SubmissionEntry,
        now: Nanos,
    ) -> Result<Outcome, Status> {
        match FabricsCommand::parse(entry)? {
            FabricsCommand::Connect => Err(Status::COMMAND_SEQUENCE_ERROR),
            FabricsCommand::Disconnect => Err(Status::INVALID_QUEUE_TYPE),
            FabricsCommand::PropertyGet { property, bytes } => {
                self.properties.get(property, bytes).map(Outcome::result)
            }
            FabricsCommand::PropertySet {
                property,
                bytes,
                value,
            } => Ok(match self.properties.set(property, bytes, value)? {
                Change::None => Outcome::result(0),
                Change::Reset => {
                    self.reset(now);
                    Outcome::Quiesce(Quiesce::Reset)
                }
                Change::Shutdown => Outcome::Quiesce(Quiesce::Shutdown),
            }),
        }
    }

    /// Resets the state that CC.EN = 0 resets. The association and its keep-alive timer stay.
    fn reset(&mut self, now: Nanos) {
        self.events.reset();
        self.kept = Kept::default();
        self.masks.clear();
        self.timestamp = Timestamp::reset(now);
    }

    pub(super) fn admin(
        &mut self,
        slot: Slot,
        entry: &SubmissionEntry,
        around: &Surroundings<'_>,
        data_in: &[u8],
        page: &mut [u8],
    ) -> Result<Outcome, Status> {
        if !self.properties.takes_commands() {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        let command = AdminCommand::parse(entry)?;
        if !self.knows(&command) {
            return Err(Status::INVALID_OPCODE);
        }
        let page = self.part_of(page, entry)?;
        match command {
            AdminCommand::Identify(identify) => self.identify(&identify, around, page),
            AdminCommand::GetLogPage(log) => self.get_log_page(&log, around, page),
            AdminCommand::GetFeatures {
                feature,
                select,
                nsid,
                argument,
            } => self.get_feature((feature, select), nsid, argument, around, page),
            AdminCommand::SetFeatures { save: true, .. } => Err(Status::FEATURE_NOT_SAVEABLE),
            AdminCommand::SetFeatures {
                feature,
                nsid,
                value,
                ..
            } => self.set_feature(feature, nsid, value, around, data_in),
            AdminCommand::Abort {
                queue_id,
                command_id,
            } => Ok(self.abort(queue_id, command_id)),
            AdminCommand::AsyncEventRequest => {
                self.events.hold(slot, entry.command_id.get())?;
                Ok(Outcome::Held)
            }
            // The arrival of the command has already renewed the timer.
            AdminCommand::KeepAlive => Ok(Outcome::result(0)),
            AdminCommand::CrossControllerReset(it) if it.controller_id == self.controller_id => {
                Err(Status::INVALID_FIELD)
            }
            AdminCommand::CrossControllerReset(it) => Ok(Outcome::ResetOther(it)),
        }
    }

    /// Whether the controller has the command. A discovery controller has few commands. It accepts
    /// Asynchronous Event Requests only with a keep-alive timer.
    fn knows(&self, command: &AdminCommand) -> bool {
        match (self.kind, command) {
            (Kind::Io, _) => true,
            (Kind::Discovery, AdminCommand::AsyncEventRequest) => self.keep_alive.is_asked_for(),
            (
                Kind::Discovery,
                AdminCommand::Abort { .. } | AdminCommand::CrossControllerReset(_),
            ) => false,
            (Kind::Discovery, _) => true,
        }
    }

    /// Part of `page` that the command fills.
    fn part_of<'p>(
        &self,
        page: &'p mut [u8],
        entry: &SubmissionEntry,
    ) -> Result<&'p mut [u8], Status> {
        let bytes = match entry.direction() {
            Direction::ControllerToHost => self.transfer_bytes(entry)?,
            _ => 0,
        };
        usize::try_from(bytes)
            .ok()
            .and_then(|bytes| page.get_mut(..bytes))
            .ok_or(Status::INTERNAL_ERROR)
    }

    /// Aborts a held Asynchronous Event Request. Any other command runs to its end, and the answer
    /// reports "not aborted".
    fn abort(&mut self, queue_id: u16, command_id: u16) -> Outcome {
        let held = if queue_id == 0 {
            self.events.take(command_id)
        } else {
            None
        };
        held.map_or(Outcome::result(NOT_ABORTED), |held| Outcome::Aborted {
            held,
        })
    }
}

/// Dword 0 of the answer to Abort: the command was not aborted.
const NOT_ABORTED: u64 = 1;

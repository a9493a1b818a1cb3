//! Checks of requests: the server accepts known commands, allowed flags, and ranges within the
//! disk.

use super::request::RequestHeader;
use super::{Command, REQUEST_BYTES_MAX, Server};
use crate::nbd::spec::{Error, command, command_flag};

impl Server {
    /// Converts a request to a command, or returns the error to reply with.
    pub(super) fn check(&self, asked: &RequestHeader) -> Result<Command, Error> {
        let (flags, export) = (asked.flags, &self.export);
        let allowed = |extra: u16| match flags & !(command_flag::FUA | extra) {
            0 => Ok(()),
            _ => Err(Error::Invalid),
        };
        // Data follows writes only: the server does not support block status with a payload.
        if asked.has_payload != (asked.kind == command::WRITE) {
            return Err(Error::Invalid);
        }
        let durable = flags & command_flag::FUA != 0;
        let command = match asked.kind {
            command::READ => {
                allowed(command_flag::DF)?;
                Command::Read
            }
            command::WRITE => {
                allowed(0)?;
                Command::Write { durable }
            }
            command::FLUSH => {
                allowed(0)?;
                return match (asked.origin.offset, asked.length) {
                    (0, 0) => Ok(Command::Flush),
                    _ => Err(Error::Invalid),
                };
            }
            command::TRIM if export.trims => {
                allowed(0)?;
                Command::Trim { durable }
            }
            command::WRITE_ZEROES => {
                allowed(command_flag::NO_HOLE | command_flag::FAST_ZERO)?;
                let may_trim = flags & command_flag::NO_HOLE == 0;
                Command::WriteZeroes { may_trim, durable }
            }
            command::CACHE => {
                allowed(0)?;
                Command::Cache
            }
            command::BLOCK_STATUS if self.chosen.allocation && asked.length > 0 => {
                allowed(command_flag::REQ_ONE)?;
                let one = flags & command_flag::REQ_ONE != 0;
                Command::BlockStatus { one }
            }
            _ => return Err(Error::Invalid),
        };
        if export.read_only && command.writes() {
            return Err(Error::NotPermitted);
        }
        self.check_range(asked, command)?;
        self.check_speed(flags, command)?;
        Ok(command)
    }

    /// Refuses `NBD_CMD_FLAG_FAST_ZERO` where zeroes are not fast. Zeroes are fast where the disk
    /// may deallocate the range.
    fn check_speed(&self, flags: u16, command: Command) -> Result<(), Error> {
        let is_fast = match command {
            Command::WriteZeroes { may_trim, .. } => may_trim && self.export.zeroes_fast,
            _ => true,
        };
        match flags & command_flag::FAST_ZERO {
            0 => Ok(()),
            _ if is_fast => Ok(()),
            _ => Err(Error::NotSupported),
        }
    }

    fn check_range(&self, asked: &RequestHeader, command: Command) -> Result<(), Error> {
        let (offset, length) = (asked.origin.offset, asked.length);
        let block = u64::from(self.export.block_bytes);
        if !offset.is_multiple_of(block) || !length.is_multiple_of(block) {
            return Err(Error::Invalid);
        }
        match offset.checked_add(length) {
            Some(end) if end <= self.export.bytes => {}
            _ if matches!(command, Command::Write { .. } | Command::WriteZeroes { .. }) => {
                return Err(Error::NoSpace);
            }
            _ => return Err(Error::Invalid),
        }
        match command.moves_data() && length > REQUEST_BYTES_MAX.into() {
            false => Ok(()),
            true if self.chosen.structured => Err(Error::Overflow),
            true => Err(Error::Invalid),
        }
    }
}

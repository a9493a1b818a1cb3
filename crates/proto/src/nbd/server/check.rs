//! Which requests can be carried out: what there is, what is allowed, what lies within the disk.

use super::{Command, REQUEST_BYTES_MAX, Server};
use crate::nbd::spec::{Error, Request, command, command_flag};

impl Server {
    /// What a request asks for, or why not.
    pub(super) fn check(&self, request: &Request) -> Result<Command, Error> {
        let (flags, export) = (request.flags.get(), &self.export);
        let allowed = |extra: u16| match flags & !(command_flag::FUA | extra) {
            0 => Ok(()),
            _ => Err(Error::Invalid),
        };
        let durable = flags & command_flag::FUA != 0;
        let (command, longest) = match request.kind.get() {
            command::READ => {
                allowed(command_flag::DF)?;
                (Command::Read, REQUEST_BYTES_MAX)
            }
            command::WRITE => {
                allowed(0)?;
                (Command::Write { durable }, REQUEST_BYTES_MAX)
            }
            command::FLUSH => {
                allowed(0)?;
                return match (request.offset.get(), request.length.get()) {
                    (0, 0) => Ok(Command::Flush),
                    _ => Err(Error::Invalid),
                };
            }
            command::TRIM if export.trims => {
                allowed(0)?;
                (Command::Trim { durable }, u32::MAX)
            }
            command::WRITE_ZEROES => {
                allowed(command_flag::NO_HOLE | command_flag::FAST_ZERO)?;
                let may_trim = flags & command_flag::NO_HOLE == 0;
                (Command::WriteZeroes { may_trim, durable }, u32::MAX)
            }
            command::CACHE => {
                allowed(0)?;
                (Command::Cache, u32::MAX)
            }
            command::BLOCK_STATUS if self.chosen.allocation && request.length.get() > 0 => {
                allowed(command_flag::REQ_ONE)?;
                let one = flags & command_flag::REQ_ONE != 0;
                (Command::BlockStatus { one }, u32::MAX)
            }
            _ => return Err(Error::Invalid),
        };
        if export.read_only && command.writes() {
            return Err(Error::NotPermitted);
        }
        self.check_range(request, command, longest)?;
        self.check_speed(flags, command)?;
        Ok(command)
    }

    /// Zeroes are wanted fast or not at all: they are fast where the disk may give their space back.
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

    fn check_range(&self, request: &Request, command: Command, longest: u32) -> Result<(), Error> {
        let (offset, length) = (request.offset.get(), request.length.get());
        let block = u64::from(self.export.block_bytes);
        if length > longest
            || !offset.is_multiple_of(block)
            || !u64::from(length).is_multiple_of(block)
        {
            return Err(Error::Invalid);
        }
        match offset.checked_add(length.into()) {
            Some(end) if end <= self.export.bytes => Ok(()),
            _ if matches!(command, Command::Write { .. } | Command::WriteZeroes { .. }) => {
                Err(Error::NoSpace)
            }
            _ => Err(Error::Invalid),
        }
    }
}

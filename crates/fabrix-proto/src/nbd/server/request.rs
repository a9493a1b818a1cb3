//! How requests arrive: compact ones of 28 bytes, or extended ones of 32 where the client has
//! agreed to those.
//!
//! Source: "The NBD protocol", section "Request message".

use zerocopy::FromBytes;

use super::reply::Origin;
use super::{Event, REQUEST_BYTES_MAX, Server, State};
use crate::nbd::spec::{
    EXTENDED_REQUEST_MAGIC, Error, ExtendedRequest, REQUEST_MAGIC, Request, command, command_flag,
};
use crate::{Breach, Sink, Violation};

/// A request of either kind.
#[derive(Clone, Copy)]
pub(super) struct RequestHeader {
    /// [`command_flag`], without the one that says that data follows.
    pub(super) flags: u16,
    /// [`command`].
    pub(super) kind: u16,
    pub(super) origin: Origin,
    pub(super) length: u64,
    /// So many bytes of data follow.
    pub(super) has_payload: bool,
}

impl Server {
    pub(super) fn request<S: Sink>(
        &mut self,
        bytes: &[u8],
        out: &mut S,
    ) -> Result<Option<Event>, Violation> {
        let asked = match self.chosen.extended {
            true => parse_extended(bytes),
            false => parse(bytes),
        }?;
        if asked.kind == command::DISCONNECT {
            self.state = State::Over;
            return Ok(Some(Event::Goodbye));
        }
        let payload = if asked.has_payload { asked.length } else { 0 };
        let payload = u32::try_from(payload).unwrap_or(u32::MAX);
        if payload > REQUEST_BYTES_MAX {
            let sentence = "more than 32 MiB of data follow a request";
            let violation = Violation::new(Breach::Limit, 24, sentence);
            return Err(violation.found(asked.length).with_header(bytes));
        }
        match self.check(&asked) {
            Ok(command) => return Ok(Some(self.begin(&asked, command))),
            Err(error) if payload > 0 => self.skip_data(payload, asked.origin, error, out),
            Err(error) => self.refuse(asked.origin, has_chunks(asked.kind), error, out),
        }
        Ok(None)
    }

    /// The client has sent all of a request's data before it reads an answer, so the answer waits
    /// for the end of it.
    pub(super) fn skip_data<S: Sink>(
        &mut self,
        left: u32,
        origin: Origin,
        error: Error,
        out: &mut S,
    ) {
        self.state = match left {
            0 => {
                self.refuse(origin, false, error, out);
                State::Request
            }
            left => State::SkipData {
                left,
                origin,
                error,
            },
        };
    }
}

fn parse(bytes: &[u8]) -> Result<RequestHeader, Violation> {
    let request = Request::ref_from_bytes(bytes)
        .map_err(|_| Violation::new(Breach::HeaderField, 0, "a request is 28 bytes"))?;
    check_magic(request.magic.get(), REQUEST_MAGIC, bytes)?;
    let kind = request.kind.get();
    Ok(RequestHeader {
        flags: request.flags.get(),
        kind,
        origin: Origin {
            cookie: request.cookie,
            offset: request.offset.get(),
        },
        length: request.length.get().into(),
        has_payload: kind == command::WRITE,
    })
}

fn parse_extended(bytes: &[u8]) -> Result<RequestHeader, Violation> {
    let request = ExtendedRequest::ref_from_bytes(bytes)
        .map_err(|_| Violation::new(Breach::HeaderField, 0, "an extended request is 32 bytes"))?;
    check_magic(request.magic.get(), EXTENDED_REQUEST_MAGIC, bytes)?;
    let flags = request.flags.get();
    Ok(RequestHeader {
        flags: flags & !command_flag::PAYLOAD_LEN,
        kind: request.kind.get(),
        origin: Origin {
            cookie: request.cookie,
            offset: request.offset.get(),
        },
        length: request.length.get(),
        has_payload: flags & command_flag::PAYLOAD_LEN != 0,
    })
}

fn check_magic(found: u32, expected: u32, bytes: &[u8]) -> Result<(), Violation> {
    if found == expected {
        return Ok(());
    }
    let violation = Violation::new(Breach::HeaderField, 0, "a request begins with its magic");
    Err(violation.found(found.into()).with_header(bytes))
}

/// Whether a request of this kind is answered in chunks once that was agreed upon. Without extended
/// headers all others are answered simply.
fn has_chunks(kind: u16) -> bool {
    matches!(kind, command::READ | command::BLOCK_STATUS)
}

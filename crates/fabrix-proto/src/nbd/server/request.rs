//! Reading of requests: compact requests of 28 bytes, or extended requests of 32 bytes if the
//! client has agreed to extended headers.
//!
//! Source: "The NBD protocol", section "Request message".

use zerocopy::FromBytes;

use super::reply::Origin;
use super::{Event, REQUEST_BYTES_MAX, Server, State};
use crate::nbd::spec::{
    EXTENDED_REQUEST_MAGIC, Error, ExtendedRequest, REQUEST_MAGIC, Request, command, command_flag,
};
use crate::{Breach, Sink, Violation};

/// A compact or an extended request.
#[derive(Clone, Copy)]
pub(super) struct RequestHeader {
    /// [`command_flag`], without the flag for a payload.
    pub(super) flags: u16,
    /// [`command`].
    pub(super) kind: u16,
    pub(super) origin: Origin,
    pub(super) length: u64,
    /// True if `length` bytes of data follow the request.
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

    /// Skips the data of a refused request, then sends the error. The client sends all data before
    /// it reads a reply.
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

/// True if the server answers a request of this kind in chunks once structured replies are agreed.
/// Without extended headers, every other kind has simple replies.
fn has_chunks(kind: u16) -> bool {
    matches!(kind, command::READ | command::BLOCK_STATUS)
}

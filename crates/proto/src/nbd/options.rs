//! What a client negotiates: one option after the other, each answered, until it begins or leaves.

use super::server::Export;
use super::spec::{GREETING, NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC, info, option, reply};
use crate::Sink;
use crate::codec::Reader;

/// What an option leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another option.
    Option,
    /// Requests.
    Transmission,
    /// Nothing: the client has left, or has asked for what there is not, in the way that has no answer.
    Over,
}

/// What the client has chosen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chosen {
    pub(super) client_flags: u16,
    pub(super) structured: bool,
}

/// What we say first.
pub(super) fn greet<S: Sink>(out: &mut S) {
    out.bytes(&GREETING.to_be_bytes());
    out.bytes(&OPTION_MAGIC.to_be_bytes());
    out.bytes(&super::server::HANDSHAKE_FLAGS.to_be_bytes());
}

/// Answers one option whose data is whole.
pub(super) fn answer<S: Sink>(
    export: &Export,
    chosen: &mut Chosen,
    number: u32,
    data: &[u8],
    out: &mut S,
) -> Next {
    match number {
        option::EXPORT_NAME => return choose(export, *chosen, data, out),
        option::ABORT => {
            say(number, reply::ACK, &[], out);
            return Next::Over;
        }
        option::LIST if data.is_empty() => list(export, out),
        option::STRUCTURED_REPLY if data.is_empty() => {
            chosen.structured = true;
            say(number, reply::ACK, &[], out);
        }
        option::LIST | option::STRUCTURED_REPLY => {
            refuse(number, reply::ERR_INVALID, "this option has no data", out);
        }
        option::INFO | option::GO => return inform(export, number, data, out),
        _ => refuse(number, reply::ERR_UNSUPPORTED, "unknown here", out),
    }
    Next::Option
}

/// An option whose data is longer than any that we know.
pub(super) fn too_long<S: Sink>(number: u32, out: &mut S) {
    refuse(number, reply::ERR_TOO_BIG, "longer than any option", out);
}

/// The oldest way to begin: a wrong name can only be answered by closing.
fn choose<S: Sink>(export: &Export, chosen: Chosen, name: &[u8], out: &mut S) -> Next {
    if !export.is_called(name) {
        return Next::Over;
    }
    out.bytes(&export.bytes.to_be_bytes());
    out.bytes(&export.flags(chosen.structured).to_be_bytes());
    if chosen.client_flags & NO_ZEROES == 0 {
        out.bytes(&[0; 124]);
    }
    Next::Transmission
}

fn list<S: Sink>(export: &Export, out: &mut S) {
    let name = export.name.as_bytes();
    head(option::LIST, reply::SERVER, 4 + name.len(), out);
    out.bytes(&length(name).to_be_bytes());
    out.bytes(name);
    say(option::LIST, reply::ACK, &[], out);
}

fn inform<S: Sink>(export: &Export, number: u32, data: &[u8], out: &mut S) -> Next {
    let Some((name, wishes)) = parse_wishes(data) else {
        refuse(number, reply::ERR_INVALID, "the lengths do not add up", out);
        return Next::Option;
    };
    if !export.is_called(name) {
        refuse(number, reply::ERR_UNKNOWN, "no such export", out);
        return Next::Option;
    }
    let wanted = |kind: u16| {
        wishes
            .chunks_exact(2)
            .any(|wish| wish == kind.to_be_bytes())
    };
    head(number, reply::INFO, 12, out);
    out.bytes(&info::EXPORT.to_be_bytes());
    out.bytes(&export.bytes.to_be_bytes());
    // Whether replies come in chunks may be settled after this: a single piece can be promised either way.
    out.bytes(&export.flags(true).to_be_bytes());
    head(number, reply::INFO, 14, out);
    out.bytes(&info::BLOCK_SIZE.to_be_bytes());
    for bytes in [
        export.block_bytes,
        export.preferred_bytes,
        export.most_bytes,
    ] {
        out.bytes(&bytes.to_be_bytes());
    }
    for (kind, text) in [
        (info::NAME, &export.name),
        (info::DESCRIPTION, &export.description),
    ] {
        if wanted(kind) {
            head(number, reply::INFO, 2 + text.len(), out);
            out.bytes(&kind.to_be_bytes());
            out.bytes(text.as_bytes());
        }
    }
    say(number, reply::ACK, &[], out);
    match number {
        option::GO => Next::Transmission,
        _ => Next::Option,
    }
}

/// A name and the list of facts that are wished for.
fn parse_wishes(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = Reader::new(data);
    let name_bytes = u32::from_be_bytes(reader.array().ok()?);
    let name = reader.take(usize::try_from(name_bytes).ok()?).ok()?;
    let wishes = u16::from_be_bytes(reader.array().ok()?);
    let wishes = reader.take(usize::from(wishes) * 2).ok()?;
    (reader.remaining() == 0).then_some((name, wishes))
}

fn refuse<S: Sink>(number: u32, error: u32, why: &str, out: &mut S) {
    say(number, error, why.as_bytes(), out);
}

fn say<S: Sink>(number: u32, kind: u32, data: &[u8], out: &mut S) {
    head(number, kind, data.len(), out);
    out.bytes(data);
}

fn head<S: Sink>(number: u32, kind: u32, bytes: usize, out: &mut S) {
    out.bytes(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.bytes(&number.to_be_bytes());
    out.bytes(&kind.to_be_bytes());
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    out.bytes(&bytes.to_be_bytes());
}

fn length(text: &[u8]) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

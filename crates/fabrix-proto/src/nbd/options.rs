//! What a client negotiates: one option after the other, each answered, until it begins or leaves.

use alloc::string::String;

use super::spec::{
    ALLOCATION, FIXED_NEWSTYLE, GREETING, NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC, flag, info,
    option, reply,
};
use crate::Sink;
use crate::codec::Reader;

/// What a client is told of the disk.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its name; the empty name means it too.
    pub name: String,
    /// What it is, for people.
    pub description: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// What offsets and lengths are multiples of.
    pub block_bytes: u32,
    /// What they are best multiples of.
    pub preferred_bytes: u32,
    /// The longest read or write of the disk, in bytes. Longer requests are carried out in pieces.
    pub most_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// The disk gives space back.
    pub trims: bool,
    /// The disk makes zeroes of long ranges faster than they could be written, where it may give
    /// their space back.
    pub zeroes_fast: bool,
    /// A flush on one connection covers what was written on all of them.
    pub multi_conn: bool,
}

impl Export {
    pub(super) fn is_called(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }

    /// The transmission flags; `structured`: replies come in chunks.
    #[must_use]
    pub fn flags(&self, structured: bool) -> u16 {
        let set = |condition: bool, flag: u16| if condition { flag } else { 0 };
        let writes = flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_WRITE_ZEROES;
        let writes = writes | flag::SEND_FAST_ZERO;
        flag::HAS_FLAGS
            | flag::SEND_CACHE
            | set(self.read_only, flag::READ_ONLY | flag::SEND_FLUSH)
            | set(!self.read_only, writes)
            | set(!self.read_only && self.trims, flag::SEND_TRIM)
            | set(structured, flag::SEND_DF)
            | set(self.multi_conn, flag::CAN_MULTI_CONN)
    }
}

/// What an option leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another option.
    Option,
    /// Requests.
    Transmission,
    /// Nothing: the client has left, or has asked for what there is not, in the way that has no
    /// answer.
    Over,
}

/// What the client has chosen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chosen {
    pub(super) client_flags: u16,
    /// Replies come in chunks.
    pub(super) structured: bool,
    /// Requests and replies have extended headers. `structured` is set too.
    pub(super) extended: bool,
    /// Block status is told in [`ALLOCATION`].
    pub(super) allocation: bool,
}

/// The number that stands for [`ALLOCATION`] on a connection.
pub(super) const ALLOCATION_ID: u32 = 1;

/// What we say first.
pub(super) fn greet<S: Sink>(out: &mut S) {
    out.bytes(&GREETING.to_be_bytes());
    out.bytes(&OPTION_MAGIC.to_be_bytes());
    out.bytes(&HANDSHAKE_FLAGS.to_be_bytes());
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
        option::STRUCTURED_REPLY if data.is_empty() && chosen.extended => {
            let why = "extended headers were agreed upon";
            refuse(number, reply::ERR_EXT_HEADER_REQD, why, out);
        }
        option::STRUCTURED_REPLY | option::EXTENDED_HEADERS if data.is_empty() => {
            chosen.structured = true;
            chosen.extended |= number == option::EXTENDED_HEADERS;
            say(number, reply::ACK, &[], out);
        }
        option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => {
            refuse(number, reply::ERR_INVALID, "this option has no data", out);
        }
        option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
            contexts(export, chosen, number, data, out);
        }
        option::INFO | option::GO => return inform(export, *chosen, number, data, out),
        _ => refuse(number, reply::ERR_UNSUPPORTED, "unknown here", out),
    }
    Next::Option
}

/// An option whose data is longer than any that we know.
pub(super) fn too_long<S: Sink>(number: u32, out: &mut S) {
    refuse(number, reply::ERR_TOO_BIG, "longer than any option", out);
}

/// The oldest way to begin: a wrong name can only be answered by closing. So can a client that has
/// asked for extended headers, which may not begin in this way.
fn choose<S: Sink>(export: &Export, chosen: Chosen, name: &[u8], out: &mut S) -> Next {
    if !export.is_called(name) || chosen.extended {
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

/// Lists the metadata contexts that there are, or takes the client's choice of them.
fn contexts<S: Sink>(export: &Export, chosen: &mut Chosen, number: u32, data: &[u8], out: &mut S) {
    let sets = number == option::SET_META_CONTEXT;
    if sets {
        chosen.allocation = false; // every choice takes the place of the last, a wrong one too
    }
    if !chosen.structured {
        return refuse(
            number,
            reply::ERR_INVALID,
            "structured replies or extended headers come first",
            out,
        );
    }
    let Some((name, found)) = parse_queries(data, sets) else {
        return refuse(number, reply::ERR_INVALID, "the lengths do not add up", out);
    };
    if !export.is_called(name) {
        return refuse(number, reply::ERR_UNKNOWN, "no such export", out);
    }
    if found {
        let id = if sets { ALLOCATION_ID } else { 0 };
        head(number, reply::META_CONTEXT, 4 + ALLOCATION.len(), out);
        out.bytes(&id.to_be_bytes());
        out.bytes(ALLOCATION.as_bytes());
    }
    chosen.allocation |= sets && found;
    say(number, reply::ACK, &[], out);
}

/// A name, and whether the queries find [`ALLOCATION`]. A list takes the name of a namespace too.
/// Without queries, a list has everything.
fn parse_queries(data: &[u8], sets: bool) -> Option<(&[u8], bool)> {
    let mut reader = Reader::new(data);
    let name = parse_string(&mut reader)?;
    let queries = u32::from_be_bytes(reader.array().ok()?);
    let mut found = queries == 0 && !sets;
    for _ in 0..queries {
        let query = parse_string(&mut reader)?;
        found |= query == ALLOCATION.as_bytes() || query == b"base:" && !sets;
    }
    (reader.remaining() == 0).then_some((name, found))
}

fn parse_string<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let bytes = u32::from_be_bytes(reader.array().ok()?);
    reader.take(usize::try_from(bytes).ok()?).ok()
}

fn inform<S: Sink>(export: &Export, chosen: Chosen, number: u32, data: &[u8], out: &mut S) -> Next {
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
    out.bytes(&export.flags(chosen.structured).to_be_bytes());
    head(number, reply::INFO, 14, out);
    out.bytes(&info::BLOCK_SIZE.to_be_bytes());
    for bytes in [
        export.block_bytes,
        export.preferred_bytes,
        REQUEST_BYTES_MAX,
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
    let name = parse_string(&mut reader)?;
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

pub(super) const HANDSHAKE_FLAGS: u16 = FIXED_NEWSTYLE | NO_ZEROES;
/// The longest read or write: what a client may send that has not asked for the block sizes ("Size
/// constraints"). Who sends more data behind a request or an option is cut off.
pub(super) const REQUEST_BYTES_MAX: u32 = 32 << 20;

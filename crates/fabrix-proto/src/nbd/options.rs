//! Negotiation: the client sends options one by one, and the server answers each, until the client
//! starts transmission or leaves.

use alloc::string::String;

use super::spec::{
    ALLOCATION, FIXED_NEWSTYLE, GREETING, NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC, flag, info,
    option, reply,
};
use crate::Sink;
use crate::codec::Reader;

/// Properties of the disk, as reported to the client.
#[derive(Clone, Debug)]
pub struct Export {
    /// Name. The empty name selects the export too.
    pub name: String,
    /// Description for people.
    pub description: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Block size in bytes. Offsets and lengths are multiples of it.
    pub block_bytes: u32,
    /// Preferred request size in bytes.
    pub preferred_bytes: u32,
    /// The disk's longest read or write in bytes. The server divides longer requests into pieces.
    pub most_bytes: u32,
    /// True if the server refuses writes.
    pub read_only: bool,
    /// True if the disk deallocates space.
    pub trims: bool,
    /// True if the disk zeroes long ranges faster than writes would, where it may deallocate them.
    pub zeroes_fast: bool,
    /// True if a flush on one connection covers the writes of all connections.
    pub multi_conn: bool,
}

impl Export {
    pub(super) fn is_called(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }

    /// Transmission flags. `structured`: the client has agreed to structured replies.
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

/// Next step after an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The client sends another option.
    Option,
    /// The transmission phase begins.
    Transmission,
    /// The connection ends: the client has left, or has requested an unknown export by the option
    /// that allows no error reply.
    Over,
}

/// The client's choices so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chosen {
    pub(super) client_flags: u16,
    /// True if replies are structured.
    pub(super) structured: bool,
    /// True if requests and replies have extended headers. `structured` is true too.
    pub(super) extended: bool,
    /// True if the client has selected [`ALLOCATION`] for block status.
    pub(super) allocation: bool,
}

/// Number of the metadata context [`ALLOCATION`] on a connection.
pub(super) const ALLOCATION_ID: u32 = 1;

/// Sends the greeting.
pub(super) fn greet<S: Sink>(out: &mut S) {
    out.bytes(&GREETING.to_be_bytes());
    out.bytes(&OPTION_MAGIC.to_be_bytes());
    out.bytes(&HANDSHAKE_FLAGS.to_be_bytes());
}

/// Answers one option whose data has arrived completely.
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

/// Refuses an option whose data is longer than that of any known option.
pub(super) fn too_long<S: Sink>(number: u32, out: &mut S) {
    refuse(number, reply::ERR_TOO_BIG, "longer than any option", out);
}

/// `NBD_OPT_EXPORT_NAME`, the oldest way to start transmission. This option has no error reply, so
/// the server closes the connection when the name is wrong. The server also closes it when the
/// client has agreed to extended headers, with which this option is not allowed.
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

/// Lists the metadata contexts, or stores the client's selection.
fn contexts<S: Sink>(export: &Export, chosen: &mut Chosen, number: u32, data: &[u8], out: &mut S) {
    let sets = number == option::SET_META_CONTEXT;
    if sets {
        chosen.allocation = false; // each selection replaces the one before, even if it is wrong
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

/// Export name, and whether the queries match [`ALLOCATION`]. A list query may also name a
/// namespace. A list without queries matches every context.
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

/// Export name, and the list of requested properties.
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
/// Longest read or write: the limit for clients that have not requested the block sizes ("Size
/// constraints"). A request or an option with more data ends the connection.
pub(super) const REQUEST_BYTES_MAX: u32 = 32 << 20;

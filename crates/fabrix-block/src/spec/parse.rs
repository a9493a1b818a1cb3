//! Parses the text of a disk. Texts outside the grammar of [`super`] are rejected. Every error is a
//! sentence that begins with the disk it is about, so in nested arrays it names the wrong member.
//!
//! This file parses the kinds of disks. `parse/names.rs` recognises file names, `parse/remote.rs`
//! parses addresses, `parse/paths.rs` several of them, `parse/options.rs` options, and
//! `parse/inject.rs` faults.

mod inject;
mod names;
mod options;
mod paths;
mod rbd;
mod remote;

use std::str::FromStr;

use self::names::{is_file_name, unknown, with_escapes};
use self::options::{Options, unescape};
use self::paths::{multipath, of_hosts};
use self::rbd::rbd;
pub(super) use self::remote::percent_decode;
use self::remote::remote;
use super::secrets::{Extent, MARK, SHOWN, cut};
use super::text::is_plain_path;
use super::{CHUNK_BYTES, DEFAULT_CHUNK_BYTES, Disk, MEMBERS_MAX, Spec, SpecError, parse_size};

/// Parses a text. If that fails and the text may contain a secret, the error is about the text
/// without the secret.
pub(super) fn spec(text: &str) -> Result<Spec, SpecError> {
    let error = match spec_at_depth(text, 0) {
        Ok(spec) => return Ok(spec),
        Err(error) => error,
    };
    let safe = cut(text, Extent::Widest);
    if safe == text {
        return Err(error);
    }
    let sentence = match spec_at_depth(&safe, 0) {
        Ok(_) => {
            format!("{safe}: it is not clear where the secret ends: {ENCODED}")
        }
        Err(error) => error.0,
    };
    Err(SpecError(sentence.replace(MARK, SHOWN)))
}

/// Whether the text is valid.
pub(super) fn is_well_formed(text: &str) -> bool {
    spec_at_depth(text, 0).is_ok()
}

/// An error sentence without its beginning, which `spec_at_depth` adds, or the complete error of a
/// member.
enum ParseFault {
    Here(String),
    InMember(SpecError),
}

impl From<String> for ParseFault {
    fn from(sentence: String) -> Self {
        Self::Here(sentence)
    }
}

fn spec_at_depth(text: &str, depth: usize) -> Result<Spec, SpecError> {
    parts_of(text)
        .map_err(ParseFault::Here)
        .and_then(|parts| spec_of(text, &parts, depth))
        .map_err(|fault| match fault {
            ParseFault::Here(sentence) => {
                SpecError(format!("{text}: {sentence}{}", with_escapes(text)))
            }
            ParseFault::InMember(error) => error,
        })
}

fn spec_of(text: &str, parts: &[&str], depth: usize) -> Result<Spec, ParseFault> {
    let head = parts.first().copied().unwrap_or_default();
    if is_plain_path(head) || is_file_name(head) {
        return Ok(file(head, Options::read(&parts[1..])?)?);
    }
    let (kind, body) = head.split_once(':').ok_or_else(|| unknown(head, KINDS))?;
    match kind {
        "ram" => Ok(ram(body, Options::read(&parts[1..])?)?),
        "null" => Ok(null(body, Options::read(&parts[1..])?)?),
        "file" => Ok(file(body, Options::read(&parts[1..])?)?),
        "rbd" => Ok(rbd(body, Options::read(&parts[1..])?)?),
        "raid0" => raid0(text, depth),
        "multipath" => multipath(text, depth),
        scheme => match body.strip_prefix("//") {
            Some(address) => match of_hosts(scheme, address, &parts[1..])? {
                Some(paths) => Ok(paths),
                None => Ok(remote(scheme, address, &parts[1..])?),
            },
            None => Err(ParseFault::Here(unknown(head, KINDS))),
        },
    }
}

fn ram(body: &str, mut options: Options<'_>) -> Result<Spec, String> {
    let bytes = disk_size(body)?;
    let huge_pages = options.switch("hugepages")?.unwrap_or(true);
    Ok(Spec {
        disk: Disk::Ram { bytes, huge_pages },
        common: options.common(true)?,
    })
}

fn null(body: &str, options: Options<'_>) -> Result<Spec, String> {
    Ok(Spec {
        disk: Disk::Null {
            bytes: disk_size(body)?,
        },
        common: options.common(true)?,
    })
}

fn file(body: &str, mut options: Options<'_>) -> Result<Spec, String> {
    let path = unescape(body)?;
    if path.is_empty() || path.contains('\0') {
        return Err("the path is missing; write file:PATH".to_owned());
    }
    let create_bytes = options
        .take("size")
        .map(|size| disk_size(&size?))
        .transpose()?;
    let direct = options.switch("direct")?.unwrap_or(true);
    let single_bytes = !direct && options.take_exactly("block", "1");
    let mut common = options.common(true)?;
    if single_bytes {
        common.block_bytes = Some(1);
    }
    Ok(Spec {
        disk: Disk::File {
            path,
            create_bytes,
            direct,
        },
        common,
    })
}

/// Parses an array. The text after `raid0:` consists of options and the list of members.
fn raid0(text: &str, depth: usize) -> Result<Spec, ParseFault> {
    if depth >= DEPTH_MAX {
        return Err(ParseFault::Here(format!(
            "arrays within arrays have {DEPTH_MAX} levels at most"
        )));
    }
    let none = "an array has one list of members: raid0:(A,B)";
    let (members, mut options) = list_and_options(text, depth, none)?;
    if members.len() < 2 || members.len() > MEMBERS_MAX {
        return Err(ParseFault::Here(format!(
            "an array has 2 to {MEMBERS_MAX} members, not {}",
            members.len()
        )));
    }
    if members
        .iter()
        .any(|member| member.common.ana_group.is_some())
    {
        return Err(ParseFault::Here(
            "`ana` belongs to the array: write it behind the list of members".to_owned(),
        ));
    }
    let chunk_bytes = options
        .take("chunk")
        .map_or(Ok(DEFAULT_CHUNK_BYTES), |text| chunk(&text?))?;
    Ok(Spec {
        disk: Disk::Raid0 {
            chunk_bytes,
            members,
        },
        common: options.common(false)?,
    })
}

/// The members of the only list in a text of the form `KIND:OPTION,(A,B),OPTION`, and its options.
/// `none`: the sentence for a text without a list.
fn list_and_options<'a>(
    text: &'a str,
    depth: usize,
    none: &str,
) -> Result<(Vec<Spec>, Options<'a>), ParseFault> {
    let body = text.split_once(':').map_or(text, |(_, body)| body);
    let (lists, rest): (Vec<&str>, Vec<&str>) = parts_of(body)?
        .into_iter()
        .partition(|part| part.starts_with('('));
    let [list] = lists[..] else {
        return Err(ParseFault::Here(none.to_owned()));
    };
    let inner = list
        .strip_prefix('(')
        .and_then(|list| list.strip_suffix(')'))
        .ok_or_else(|| {
            ParseFault::Here("nothing but a comma may follow the list of members".to_owned())
        })?;
    if inner.is_empty() {
        return Err(ParseFault::Here("the list is empty".to_owned()));
    }
    Ok((members(inner, depth)?, Options::read(&rest)?))
}

/// Splits a list into members. A comma separates members as well as their options, so a part that
/// looks like a disk starts a new member.
fn members(list: &str, depth: usize) -> Result<Vec<Spec>, ParseFault> {
    let mut texts: Vec<String> = Vec::new();
    for part in parts_of(list)? {
        match texts.last_mut() {
            Some(member) if !begins_disk(part) => {
                member.push(',');
                member.push_str(part);
            }
            _ => texts.push(part.to_owned()),
        }
    }
    if texts.len() > MEMBERS_MAX {
        return Err(ParseFault::Here(format!(
            "a list has {MEMBERS_MAX} members at most, not {}",
            texts.len()
        )));
    }
    let member = |text: &String| spec_at_depth(text, depth + 1).map_err(ParseFault::InMember);
    texts.iter().map(member).collect()
}

/// Whether a part of a member list starts a new member. Options and lists never look like this.
fn begins_disk(part: &str) -> bool {
    let kind = part.split_once(':').map_or("", |(kind, _)| kind);
    is_plain_path(part) || is_scheme(kind) || is_file_name(part) && !SWITCHES.contains(&part)
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"+.-".contains(&c))
}

/// A number of digits only: without a sign, as `parse` accepts it.
fn number<T: FromStr>(text: &str) -> Option<T> {
    let digits = text.bytes().all(|c| c.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

fn chunk(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && CHUNK_BYTES.contains(bytes))
        .ok_or_else(|| format!("chunk `{text}` is not a power of two from 4k to 16M"))
}

fn disk_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err(format!(
            "`{text}`: a disk has at least one block; write 512M or 1G"
        )),
        bytes => Ok(bytes),
    }
}

/// Splits a text at the commas outside of parentheses that are not escaped. The parts stay escaped.
fn parts_of(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut depth, mut escaped) = (Vec::new(), 0, 0usize, false);
    for (index, c) in text.char_indices() {
        if escaped {
            escaped = false;
            continue;
        }
        match c {
            '\\' => escaped = true,
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or("a `)` closes nothing")?,
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err("a `(` is not closed".to_owned());
    }
    parts.push(&text[start..]);
    Ok(parts)
}

/// Valid forms, for error messages.
const KINDS: &str = "ram:1G, null:1T, /path, file:PATH, rbd:POOL/IMAGE, raid0:(A,B), multipath:(URI,URI), \
     nvme+tcp://HOST[:4420][/NQN[/NSID]], nvme+tcp://HOST,HOST/[NQN[/NSID]], nvme+rdma:// like it, \
     iscsi://[USER%SECRET@]HOST[:3260][/IQN[/LUN]], or iser:// like it";

/// Options without a value. In a list of members they belong to the preceding member and are not
/// file names.
const SWITCHES: [&str; 5] = ["ro", "direct", "hugepages", "hdr-digest", "data-digest"];

/// Advice for secrets that contain special characters.
const ENCODED: &str = "in an address write %25 for %, %2C for a comma, %2F for /, %3F for ? and %40 for @, in \
     target_password \\, for a comma; or keep the secret in a file: iscsi://USER%@FILE@HOST, target_password=@FILE";

/// Largest depth of nested arrays: enough for every use and small enough for the stack.
const DEPTH_MAX: usize = 4;

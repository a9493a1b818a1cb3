//! Finds the secrets in a text that may be a disk's, and cuts them out: a sentence about what is
//! left cannot repeat one.
//!
//! A secret stands in `SCHEME://USER%SECRET@HOST` and behind an option like `target_password=`.
//! Texts that are not well-formed are cut widely: everything that may belong to a secret is left
//! out, even where more is left out than was secret. `%@FILE@` and `password=@FILE` name a file and
//! hold no secret.

use std::net::Ipv6Addr;
use std::ops::Range;
use std::path::Path;

use super::parse::percent_decode;

/// How far a secret reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// As far as the grammar says: the text is well-formed.
    Grammar,
    /// As far as it can: the text is not.
    Widest,
}

/// Stands for a secret in a text that is parsed further. No argument of a program holds it.
pub(super) const MARK: char = '\0';

/// What users are shown in the place of a secret.
pub(super) const SHOWN: &str = "...";

/// Whether the value of an option is a secret: `target_password`, and how one may slip while typing
/// it.
pub(super) fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["pass", "pasw", "pw", "secret"]
        .iter()
        .any(|word| key.contains(word))
}

/// The text with [`MARK`] in the place of each secret.
pub(super) fn cut(text: &str, extent: Extent) -> String {
    let mut rest = text.to_owned();
    for secret in secrets(text, extent).into_iter().rev() {
        rest.replace_range(secret, &MARK.to_string());
    }
    rest
}

/// Where the secrets are, in their order, none inside another.
fn secrets(text: &str, extent: Extent) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut starts = vec![0];
    starts.extend(addresses(text).filter(|start| *start > 0));
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(text.len());
        let part = &text[*start..end];
        let account = account(part, extent);
        let from = match extent {
            Extent::Grammar => account.as_ref().map_or(0, |account| account.end),
            Extent::Widest => 0,
        };
        found.extend(account.map(|it| shift(&it, *start)));
        let passwords = passwords(part, from, extent);
        found.extend(passwords.iter().map(|it| shift(it, *start)));
    }
    found.retain(|range| !range.is_empty());
    found.sort_by_key(|range| range.start);
    found.dedup_by(|next, kept| {
        let overlaps = next.start <= kept.end;
        if overlaps {
            kept.end = kept.end.max(next.end);
        }
        overlaps
    });
    found
}

fn shift(range: &Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// Where the addresses of our protocols begin in a text, as in the list of an array:
/// `raid0:(iscsi://A,iscsi://B)`.
fn addresses(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices("://").filter_map(|(colon, _)| {
        let is_scheme_byte = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
        let before = text[..colon].trim_end_matches(is_scheme_byte);
        let scheme = text[before.len()..colon].to_ascii_lowercase();
        let is_ours = scheme == "iscsi" || scheme.starts_with("nvme");
        let begins = before.is_empty() || before.ends_with([',', '(', '=', ' ', '\'', '"']);
        (begins && is_ours).then_some(before.len())
    })
}

/// The secret of the account in a part of a text that has one address at most. Empty where a file
/// is named.
fn account(part: &str, extent: Extent) -> Option<Range<usize>> {
    // Behind a percent sign it is a piece of a secret that ends no scheme.
    let is_scheme = |colon: &usize| !part[..*colon].contains('%');
    let scheme_bytes = part.find("://").filter(is_scheme).map(|colon| colon + 3);
    if scheme_bytes.is_none() && extent == Extent::Grammar {
        return None;
    }
    let begin = scheme_bytes.map_or(0, |bytes| bytes + ipv6_literal_bytes(&part[bytes..]));
    let head_end = value_end(part, begin, ",");
    let authority_bytes = part[begin..head_end].find(['/', '?']);
    let authority_end = authority_bytes.map_or(head_end, |bytes| begin + bytes);
    let Some(percent) = part[begin..].find('%').map(|at| begin + at) else {
        return (scheme_bytes.is_some() && extent == Extent::Widest)
            .then(|| without_percent(part, begin))
            .flatten();
    };
    if extent == Extent::Grammar && percent > authority_end {
        return None;
    }
    let secret = percent + 1;
    if let Some(name) = named_file(part, secret) {
        match extent {
            _ if is_existing_file(&part[name.clone()]) => return Some(name.end..name.end),
            Extent::Grammar => return Some(name),
            Extent::Widest => {}
        }
    }
    match extent {
        Extent::Grammar => {
            let authority = part.get(secret..authority_end)?;
            Some(secret..secret + authority.rfind('@')?)
        }
        Extent::Widest => match part[secret..].rfind('@') {
            Some(at) => Some(secret..secret + at),
            // A percent sign behind the machine is that of a name, at least where there are no
            // accounts.
            None if !part.starts_with("nvme") || percent < authority_end => {
                scheme_bytes.map(|_| secret..end_of(part, secret))
            }
            None => None,
        },
    }
}

/// `user:secret@host`, as other addresses have it, or `user@secret@host`: what stands behind the
/// first separator.
fn without_percent(part: &str, begin: usize) -> Option<Range<usize>> {
    let at = begin + part[begin..].rfind('@')?;
    let separator = begin + part[begin..at].find([':', '@'])?;
    Some(separator + 1..at)
}

/// The name in `@FILE@`, in the place of a secret.
fn named_file(part: &str, secret: usize) -> Option<Range<usize>> {
    let name = part[secret..].strip_prefix('@')?;
    let begin = secret + 1;
    Some(begin..begin + name.find('@')?)
}

/// Whether a name is that of a file. One that is not may be a secret that begins with `@`.
fn is_existing_file(name: &str) -> bool {
    percent_decode(name).is_ok_and(|name| Path::new(&name).is_file())
}

/// The values of options that are secrets, in a part of a text behind `from`.
fn passwords(part: &str, from: usize, extent: Extent) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let is_key_byte = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let separators = part[from..].match_indices([',', '?', '&']);
    for (at, separator) in separators.map(|(at, text)| (from + at + 1, text)) {
        let behind = part[at..].trim_start_matches(is_key_byte);
        let key = &part[at..part.len() - behind.len()];
        let inside = found.last().is_some_and(|last| at <= last.end);
        if inside || behind.is_empty() {
            continue;
        }
        if key.eq_ignore_ascii_case("target_user") {
            let end = value_end(part, part.len() - behind.len(), separator);
            // A user with a secret behind it, as the account of an address has it.
            found.extend(
                behind
                    .find('%')
                    .map(|percent| part.len() - behind.len() + percent + 1..end),
            );
        }
        if !is_secret(key) {
            continue;
        }
        let value = part.len() - behind.len() + behind.chars().next().map_or(0, char::len_utf8);
        let end = match extent {
            Extent::Grammar if behind.starts_with('=') => value_end(part, value, separator),
            Extent::Grammar => continue,
            Extent::Widest => end_of(part, value),
        };
        let is_file = part[value..end]
            .strip_prefix('@')
            .is_some_and(is_existing_file);
        if !is_file {
            found.push(value..end);
        }
    }
    found
}

/// Where an address, or the value of an option behind `separator`, ends as the grammar has it.
fn value_end(part: &str, value: usize, separator: &str) -> usize {
    let (mut depth, mut escaped) = (0usize, false);
    for (at, c) in part[value..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '(' => depth += 1,
            ')' if depth > 0 => depth -= 1,
            ',' | ')' if depth == 0 => return value + at,
            '&' if separator != "," => return value + at,
            _ => {}
        }
    }
    part.len()
}

/// The end of a part, without what closes and separates the members of an array.
fn end_of(part: &str, from: usize) -> usize {
    from + part[from..].trim_end_matches([')', ',']).len()
}

/// The bytes of an IPv6 address in its brackets at the start of a text: a percent sign in it begins
/// a zone.
fn ipv6_literal_bytes(text: &str) -> usize {
    let literal = text.strip_prefix('[').and_then(|text| text.split_once(']'));
    let Some((inside, _)) = literal else { return 0 };
    let address = inside
        .split_once('%')
        .map_or(inside, |(address, _)| address);
    let is_address = address.parse::<Ipv6Addr>().is_ok() && !inside.contains('@');
    if is_address { inside.len() + 2 } else { 0 }
}

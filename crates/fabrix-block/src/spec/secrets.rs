//! Finds and removes the secrets in a text that may be a disk's text, so that messages cannot show
//! them.
//!
//! A secret is in `SCHEME://USER%SECRET@HOST` or in the value of an option like `target_password=`.
//! In malformed texts everything that may belong to a secret is removed, even if that is too much.
//! `%@FILE@` and `password=@FILE` name a file and contain no secret.

use std::net::Ipv6Addr;
use std::ops::Range;
use std::path::Path;

use super::parse::percent_decode;

/// Assumed length of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// As defined by the grammar. For well-formed texts.
    Grammar,
    /// As long as possible. For malformed texts.
    Widest,
}

/// Replaces a secret in a text that is parsed further. Program arguments cannot contain this
/// character.
pub(super) const MARK: char = '\0';

/// Replaces a secret in texts for users.
pub(super) const SHOWN: &str = "...";

/// Whether an option's value is a secret: `target_password` or a likely misspelling.
pub(super) fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["pass", "pasw", "pw", "secret"]
        .iter()
        .any(|word| key.contains(word))
}

/// The text with [`MARK`] in place of each secret.
pub(super) fn cut(text: &str, extent: Extent) -> String {
    let mut rest = text.to_owned();
    for secret in secrets(text, extent).into_iter().rev() {
        rest.replace_range(secret, &MARK.to_string());
    }
    rest
}

/// The ranges of the secrets, in order and without overlaps.
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

/// Start positions of the addresses in a text. An array has several: `raid0:(iscsi://A,iscsi://B)`.
fn addresses(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices("://").filter_map(|(colon, _)| {
        let is_scheme_byte = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
        let before = text[..colon].trim_end_matches(is_scheme_byte);
        let scheme = text[before.len()..colon].to_ascii_lowercase();
        let is_ours = matches!(scheme.as_str(), "iscsi" | "iser") || scheme.starts_with("nvme");
        let begins = before.is_empty() || before.ends_with([',', '(', '=', ' ', '\'', '"']);
        (begins && is_ours).then_some(before.len())
    })
}

/// The secret of the account in a part with at most one address. Empty if a file is named.
fn account(part: &str, extent: Extent) -> Option<Range<usize>> {
    // After a percent sign, `://` belongs to a secret and does not end a scheme.
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
            // A percent sign after the host belongs to the name, at least for protocols without
            // accounts.
            None if !part.starts_with("nvme") || percent < authority_end => {
                scheme_bytes.map(|_| secret..end_of(part, secret))
            }
            None => None,
        },
    }
}

/// The secret in `user:secret@host` or `user@secret@host`: the text after the first separator.
/// Other tools use these forms.
fn without_percent(part: &str, begin: usize) -> Option<Range<usize>> {
    let at = begin + part[begin..].rfind('@')?;
    let separator = begin + part[begin..at].find([':', '@'])?;
    Some(separator + 1..at)
}

/// The file name in `@FILE@` in place of a secret.
fn named_file(part: &str, secret: usize) -> Option<Range<usize>> {
    let name = part[secret..].strip_prefix('@')?;
    let begin = secret + 1;
    Some(begin..begin + name.find('@')?)
}

/// Whether a file exists. Otherwise the text may be a secret that begins with `@`.
fn is_existing_file(name: &str) -> bool {
    percent_decode(name).is_ok_and(|name| Path::new(&name).is_file())
}

/// The values of secret options in a part, from position `from` on.
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
            // The user may contain a secret after `%`, as the account of an address does.
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

/// End of an address, or of an option's value after `separator`, as defined by the grammar.
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

/// End of a part without the closing parentheses and commas of an array.
fn end_of(part: &str, from: usize) -> usize {
    from + part[from..].trim_end_matches([')', ',']).len()
}

/// Length of a bracketed IPv6 address at the start of a text. A percent sign in it starts a zone.
fn ipv6_literal_bytes(text: &str) -> usize {
    let literal = text.strip_prefix('[').and_then(|text| text.split_once(']'));
    let Some((inside, _)) = literal else { return 0 };
    let address = inside
        .split_once('%')
        .map_or(inside, |(address, _)| address);
    let is_address = address.parse::<Ipv6Addr>().is_ok() && !inside.contains('@');
    if is_address { inside.len() + 2 } else { 0 }
}

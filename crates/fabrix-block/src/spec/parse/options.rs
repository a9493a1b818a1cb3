//! Parses the options of a disk's text, with and without values.

use super::inject::injected;
use crate::spec::Common;

/// The options of a text: `key` or `key=value`. Parsers remove the known ones, and none may be
/// left.
pub(super) struct Options<'a> {
    /// Keys with their escaped values. None: no value.
    given: Vec<(&'a str, Option<&'a str>)>,
}

impl<'a> Options<'a> {
    pub(super) fn read(parts: &[&'a str]) -> Result<Self, String> {
        let mut options = Self { given: Vec::new() };
        for part in parts {
            options.push(part)?;
        }
        Ok(options)
    }

    pub(super) fn read_query(&mut self, query: &'a str) -> Result<(), String> {
        query
            .split('&')
            .filter(|part| !part.is_empty())
            .try_for_each(|part| self.push(part))
    }

    fn push(&mut self, part: &'a str) -> Result<(), String> {
        let (key, value) = part
            .split_once('=')
            .map_or((part, None), |(key, value)| (key, Some(value)));
        if key.is_empty()
            || !key
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
        {
            return Err(format!("`{part}` is not an option; write key=value"));
        }
        if key != "inject" && self.given.iter().any(|(other, _)| *other == key) {
            return Err(format!("`{key}` is given twice"));
        }
        self.given.push((key, value));
        Ok(())
    }

    fn take_raw(&mut self, key: &str) -> Option<Option<&'a str>> {
        let index = self.given.iter().position(|(other, _)| *other == key)?;
        Some(self.given.remove(index).1)
    }

    /// Removes an option if it has this value. Returns whether it had.
    pub(super) fn take_exactly(&mut self, key: &str, value: &str) -> bool {
        let before = self.given.len();
        self.given.retain(|given| *given != (key, Some(value)));
        self.given.len() < before
    }

    /// Removes an option that must have a value.
    pub(super) fn take(&mut self, key: &str) -> Option<Result<String, String>> {
        let value = self.take_raw(key)?.filter(|value| !value.is_empty());
        Some(
            value
                .ok_or_else(|| format!("`{key}` needs a value: {key}=..."))
                .and_then(unescape),
        )
    }

    /// Removes a switch: `key`, `key=on` or `key=off`.
    pub(super) fn switch(&mut self, key: &str) -> Result<Option<bool>, String> {
        match self.take_raw(key) {
            None => Ok(None),
            Some(None | Some("on")) => Ok(Some(true)),
            Some(Some("off")) => Ok(Some(false)),
            Some(Some(value)) => Err(format!("`{key}={value}`: write {key}=on or {key}=off")),
        }
    }

    /// Removes the common options and checks that no other is left.
    pub(super) fn common(mut self, with_block: bool) -> Result<Common, String> {
        let common = self.take_common(with_block)?;
        match self.given.first() {
            Some((key, _)) => Err(format!(
                "`{key}` is not an option of this disk; see `fabrix serve --help` for those that are"
            )),
            None => Ok(common),
        }
    }

    pub(super) fn take_common(&mut self, with_block: bool) -> Result<Common, String> {
        let name = self.take("name").transpose()?;
        if name
            .as_ref()
            .is_some_and(|name| name.len() > NAME_BYTES_MAX || name.contains(char::is_control))
        {
            return Err(format!("a name has 1 to {NAME_BYTES_MAX} printable bytes"));
        }
        let read_only = self.switch("ro")?.unwrap_or(false);
        let block_bytes = self
            .take("block")
            .map(|text| block("block", &text?, with_block))
            .transpose()?;
        let physical_block_bytes = self
            .take("physical")
            .map(|text| block("physical", &text?, with_block))
            .transpose()?;
        if let (Some(block), Some(physical)) = (block_bytes, physical_block_bytes)
            && physical < block
        {
            return Err(format!(
                "`physical={physical}` is less than the block of {block} bytes"
            ));
        }
        let ana_group = self.take("ana").map(|text| group(&text?)).transpose()?;
        let mut inject = Vec::new();
        while let Some(text) = self.take("inject") {
            inject.push(injected(&text?)?);
        }
        Ok(Common {
            name,
            read_only,
            block_bytes,
            physical_block_bytes,
            ana_group,
            inject,
        })
    }

    pub(super) fn rest(self) -> Result<Vec<(String, String)>, String> {
        let option = |(key, value): (&str, Option<&str>)| {
            Ok((key.to_owned(), unescape(value.unwrap_or_default())?))
        };
        self.given.into_iter().map(option).collect()
    }
}

/// The value of the option `key`, which is `block` or `physical`.
fn block(key: &str, text: &str, allowed: bool) -> Result<u32, String> {
    match text {
        _ if !allowed => Err(format!(
            "`{key}` belongs to the disks below, this one takes theirs"
        )),
        "512" => Ok(512),
        "4096" | "4k" | "4K" => Ok(4096),
        _ => Err(format!("`{key}={text}`: a block has 512 or 4096 bytes")),
    }
}

/// The value of `ana`. Only those who export the disk know which groups there are.
fn group(text: &str) -> Result<u32, String> {
    let group = text.parse().ok().filter(|group| *group > 0);
    group.ok_or_else(|| format!("`ana={text}`: a group is a number from 1 on"))
}

pub(super) fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.push(
                chars
                    .next()
                    .ok_or_else(|| format!("`{text}` ends with a backslash"))?,
            ),
            c => plain.push(c),
        }
    }
    Ok(plain)
}

/// Longest name of a disk in bytes.
const NAME_BYTES_MAX: usize = 64;

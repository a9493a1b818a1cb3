//! Reads the text of a disk. Only what the grammar of [`super`] allows is let through; every error is one
//! sentence that begins with the disk it is about, so that in an array of arrays the wrong member is named.

use std::net::Ipv6Addr;
use std::time::Duration;

use super::{
    Account, CHUNK_BYTES, Common, DEFAULT_CHUNK_BYTES, DURATION_UNITS, Disk, Effect, Inject,
    MEMBERS_MAX, On, Remote, Spec, SpecError, is_plain_path, parse_size, without_secrets,
};

pub(super) fn spec(text: &str) -> Result<Spec, SpecError> {
    spec_at_depth(text, 0)
}

/// A sentence without its beginning, which `spec_at_depth` puts in front; or a member's, which is whole.
enum Fault {
    Here(String),
    InMember(SpecError),
}

impl From<String> for Fault {
    fn from(sentence: String) -> Self {
        Self::Here(sentence)
    }
}

fn spec_at_depth(text: &str, depth: usize) -> Result<Spec, SpecError> {
    parts_of(text)
        .map_err(Fault::Here)
        .and_then(|parts| spec_of(text, &parts, depth))
        .map_err(|fault| match fault {
            Fault::Here(sentence) => SpecError(format!("{}: {sentence}", without_secrets(text))),
            Fault::InMember(error) => error,
        })
}

fn spec_of(text: &str, parts: &[&str], depth: usize) -> Result<Spec, Fault> {
    let head = parts.first().copied().unwrap_or_default();
    if is_plain_path(head) {
        return Ok(file(head, Options::read(&parts[1..])?)?);
    }
    let (kind, body) = head.split_once(':').ok_or_else(|| unknown(head))?;
    match kind {
        "ram" => Ok(ram(body, Options::read(&parts[1..])?)?),
        "null" => Ok(null(body, Options::read(&parts[1..])?)?),
        "file" => Ok(file(body, Options::read(&parts[1..])?)?),
        "raid0" => raid0(text, depth),
        scheme => match body.strip_prefix("//") {
            Some(address) => Ok(remote(scheme, address, &parts[1..])?),
            None => Err(Fault::Here(unknown(head))),
        },
    }
}

fn unknown(head: &str) -> String {
    let hint = if head.is_empty() || head.contains(':') {
        String::new()
    } else {
        format!(" (a file of this name is ./{head})")
    };
    format!("`{head}` is not a disk{hint}; write {KINDS}")
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
    Ok(Spec {
        disk: Disk::File {
            path,
            create_bytes,
            direct,
        },
        common: options.common(true)?,
    })
}

/// An array has no body: what stands after `raid0:` is one more option, or the list of its members.
fn raid0(text: &str, depth: usize) -> Result<Spec, Fault> {
    if depth >= DEPTH_MAX {
        return Err(Fault::Here(
            "arrays of arrays of arrays go no deeper than this".to_owned(),
        ));
    }
    let body = text.strip_prefix("raid0:").unwrap_or(text);
    let (lists, rest): (Vec<&str>, Vec<&str>) = parts_of(body)?
        .into_iter()
        .partition(|part| part.starts_with('('));
    let [list] = lists[..] else {
        return Err(Fault::Here(
            "an array has one list of members: raid0:(A,B)".to_owned(),
        ));
    };
    let inner = list
        .strip_prefix('(')
        .and_then(|list| list.strip_suffix(')'))
        .ok_or_else(|| {
            Fault::Here("nothing but a comma may follow the list of members".to_owned())
        })?;
    let members = members(inner, depth)?;
    let mut options = Options::read(&rest)?;
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

/// Members are separated by the same comma as their options: a part that begins like a disk begins one.
fn members(list: &str, depth: usize) -> Result<Vec<Spec>, Fault> {
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
    if texts.len() < 2 || texts.len() > MEMBERS_MAX {
        return Err(Fault::Here(format!(
            "an array has 2 to {MEMBERS_MAX} members, not {}",
            texts.len()
        )));
    }
    let member = |text: &String| spec_at_depth(text, depth + 1).map_err(Fault::InMember);
    texts.iter().map(member).collect()
}

/// Whether a part of a member list is a new member: options and lists never look like this.
fn begins_disk(part: &str) -> bool {
    let kind = part.split_once(':').map_or("", |(kind, _)| kind);
    is_plain_path(part) || is_scheme(kind)
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"+.-".contains(&c))
}

fn chunk(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && CHUNK_BYTES.contains(bytes))
        .ok_or_else(|| format!("chunk `{text}` is not a power of two from 4k to 16M"))
}

fn remote(scheme: &str, address: &str, rest: &[&str]) -> Result<Spec, String> {
    if !is_scheme(scheme) {
        return Err(format!("`{scheme}` is not a protocol; write {KINDS}"));
    }
    let (address, query) = address.split_once('?').unwrap_or((address, ""));
    let mut options = Options::read(rest)?;
    options.read_query(query)?;
    let (authority, path) = address.split_once('/').unwrap_or((address, ""));
    let (account, authority) = account(scheme, authority)?;
    let (host, port) = host_and_port(authority)?;
    let (nqn, nsid) = path.split_once('/').unwrap_or((path, ""));
    let nqn = if nqn.is_empty() {
        None
    } else {
        Some(percent_decode(nqn)?)
    };
    if nqn.is_none() && !nsid.is_empty() {
        return Err(format!(
            "`/{path}` has a number and no name; write /NAME/NUMBER"
        ));
    }
    let nsid = if nsid.is_empty() {
        None
    } else {
        Some(namespace(scheme, nsid)?)
    };
    let common = options.take_common(false)?;
    let options = options.rest()?;
    let remote = Remote {
        scheme: scheme.to_ascii_lowercase(),
        account,
        host,
        port,
        nqn,
        nsid,
        options,
    };
    Ok(Spec {
        disk: Disk::Remote(remote),
        common,
    })
}

/// `USER%SECRET@`, as libiscsi writes it, where a protocol has it; what is left is the machine.
fn account<'a>(scheme: &str, authority: &'a str) -> Result<(Option<Account>, &'a str), String> {
    let Some((account, machine)) = authority.rsplit_once('@') else {
        return Ok((None, authority));
    };
    if !scheme.eq_ignore_ascii_case("iscsi") {
        return Err(format!(
            "`{machine}`: an address of {scheme} has no user; `@` is not the name or address of a machine"
        ));
    }
    let (user, secret) = match account.split_once('%') {
        Some((user, secret)) => (
            user,
            Some(percent_decode(secret).map_err(|_| "in a secret, a % is written %25".to_owned())?),
        ),
        None => (account, None),
    };
    let is_user_byte = |c: u8| is_host_byte(c) || b":+~".contains(&c);
    if user.is_empty() || !user.bytes().all(is_user_byte) {
        return Err(format!("`{user}` is not the name of a user"));
    }
    let user = user.to_owned();
    Ok((Some(Account { user, secret }), machine))
}

fn host_and_port(authority: &str) -> Result<(String, Option<u16>), String> {
    if let Some(bracketed) = authority.strip_prefix('[') {
        let (host, rest) = bracketed
            .split_once(']')
            .ok_or_else(|| format!("`{authority}` lacks the closing `]`"))?;
        let address = host
            .split_once('%')
            .map_or(host, |(address, _zone)| address);
        let is_zone_byte = |c: u8| is_host_byte(c) || b":%".contains(&c);
        if address.parse::<Ipv6Addr>().is_err() || !host.bytes().all(is_zone_byte) {
            return Err(format!("`{host}` is not an IPv6 address"));
        }
        let port = (!rest.is_empty()).then(|| rest.strip_prefix(':').unwrap_or(rest));
        return Ok((host.to_owned(), port.map(port_number).transpose()?));
    }
    let (host, port) = match authority.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            return Err(format!("an IPv6 address stands in brackets: [{authority}]"));
        }
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    if host.is_empty() || !host.bytes().all(is_host_byte) {
        return Err(format!("`{host}` is not the name or address of a machine"));
    }
    Ok((host.to_owned(), port.map(port_number).transpose()?))
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}

fn port_number(text: &str) -> Result<u16, String> {
    let number = if text.bytes().all(|c| c.is_ascii_digit()) {
        text.parse().unwrap_or(0)
    } else {
        0
    };
    if number == 0 {
        Err(format!("`{text}` is not a port; write 1 to 65535"))
    } else {
        Ok(number)
    }
}

/// Namespaces count from 1 (0 and the last number mean none and all); LUNs count from 0.
fn namespace(scheme: &str, text: &str) -> Result<u32, String> {
    let number = if text.bytes().all(|c| c.is_ascii_digit()) {
        text.parse::<u32>().ok()
    } else {
        None
    };
    let nvme = scheme.to_ascii_lowercase().starts_with("nvme");
    number
        .filter(|number| !nvme || (1..u32::MAX).contains(number))
        .ok_or_else(|| format!("`{text}` is not the number of a namespace or LUN"))
}

fn disk_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err(format!(
            "`{text}`: a disk has at least one block; write 512M or 1G"
        )),
        bytes => Ok(bytes),
    }
}

/// What follows the first part: `key` or `key=value`, taken out one by one until none is left.
struct Options<'a> {
    /// The value is still escaped. None: a bare key.
    given: Vec<(&'a str, Option<&'a str>)>,
}

impl<'a> Options<'a> {
    fn read(parts: &[&'a str]) -> Result<Self, String> {
        let mut options = Self { given: Vec::new() };
        for part in parts {
            options.push(part)?;
        }
        Ok(options)
    }

    fn read_query(&mut self, query: &'a str) -> Result<(), String> {
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

    /// The value of an option that must have one.
    fn take(&mut self, key: &str) -> Option<Result<String, String>> {
        let value = self.take_raw(key)?.filter(|value| !value.is_empty());
        Some(
            value
                .ok_or_else(|| format!("`{key}` needs a value: {key}=..."))
                .and_then(unescape),
        )
    }

    /// `key`, `key=on`, `key=off`.
    fn switch(&mut self, key: &str) -> Result<Option<bool>, String> {
        match self.take_raw(key) {
            None => Ok(None),
            Some(None | Some("on")) => Ok(Some(true)),
            Some(Some("off")) => Ok(Some(false)),
            Some(Some(value)) => Err(format!("`{key}={value}`: write {key}=on or {key}=off")),
        }
    }

    /// The options of every disk, and then nothing may be left.
    fn common(mut self, with_block: bool) -> Result<Common, String> {
        let common = self.take_common(with_block)?;
        match self.given.first() {
            Some((key, _)) => Err(format!(
                "`{key}` is not an option of this disk; see `fabrix serve --help` for those that are"
            )),
            None => Ok(common),
        }
    }

    fn take_common(&mut self, with_block: bool) -> Result<Common, String> {
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
        let mut inject = Vec::new();
        while let Some(text) = self.take("inject") {
            inject.push(injected(&text?)?);
        }
        Ok(Common {
            name,
            read_only,
            block_bytes,
            physical_block_bytes,
            inject,
        })
    }

    fn rest(self) -> Result<Vec<(String, String)>, String> {
        let option = |(key, value): (&str, Option<&str>)| {
            Ok((key.to_owned(), unescape(value.unwrap_or_default())?))
        };
        self.given.into_iter().map(option).collect()
    }
}

/// The value of `key`, which is `block` or `physical`.
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

fn injected(text: &str) -> Result<Inject, String> {
    let wrong = || {
        format!(
            "`inject={text}`: write error:0.1% or error:5 (the fifth) or delay:5ms, then :read, \
             :write, :flush or :zeroes if not all are meant"
        )
    };
    let mut words = text.split(':');
    let effect = match (words.next(), words.next()) {
        (Some("error"), Some(error)) => match error.strip_suffix('%') {
            Some(rate) => Effect::ErrorRate {
                ppm: percent(rate).ok_or_else(wrong)?,
            },
            None => Effect::ErrorNth(number(error).filter(|nth| *nth > 0).ok_or_else(wrong)?),
        },
        (Some("delay"), Some(delay)) => Effect::Delay(duration(delay).ok_or_else(wrong)?),
        _ => return Err(wrong()),
    };
    let on = match words.next() {
        None => On::Any,
        Some("read") => On::Read,
        Some("write") => On::Write,
        Some("flush") => On::Flush,
        Some("zeroes") => On::Zeroes,
        Some(_) => return Err(wrong()),
    };
    if words.next().is_some() {
        Err(wrong())
    } else {
        Ok(Inject { effect, on })
    }
}

/// Up to 100 with up to four decimals, as parts per million.
fn percent(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if decimals.is_empty() || decimals.len() > 4 {
        return None;
    }
    let whole = number(whole).filter(|whole| *whole <= 100)?;
    let ppm = whole * 10_000 + number(&format!("{decimals:0<4}"))?;
    u32::try_from(ppm).ok().filter(|ppm| *ppm <= 1_000_000)
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, name) = text.split_at(digits);
    let (nanos, _) = DURATION_UNITS.into_iter().find(|(_, unit)| *unit == name)?;
    let nanos = number(count)?.checked_mul(nanos)?;
    (nanos <= DELAY_NANOS_MAX).then(|| Duration::from_nanos(nanos))
}

fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|c| c.is_ascii_digit()) {
        text.parse().ok()
    } else {
        None
    }
}

/// Cuts a text at the commas that are neither in parentheses nor behind a backslash. The parts stay escaped.
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

fn unescape(text: &str) -> Result<String, String> {
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

fn percent_decode(text: &str) -> Result<String, String> {
    let wrong =
        || format!("`{text}`: after a % two hexadecimal digits of a UTF-8 byte are expected");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        if *byte == b'%' {
            let digits = tail
                .get(..2)
                .and_then(|digits| std::str::from_utf8(digits).ok())
                .ok_or_else(wrong)?;
            let digits =
                Some(digits).filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()));
            bytes.push(u8::from_str_radix(digits.ok_or_else(wrong)?, 16).map_err(|_| wrong())?);
            rest = &tail[2..];
        } else {
            bytes.push(*byte);
            rest = tail;
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// What can be written, for those who wrote something else.
const KINDS: &str = "ram:1G, null:1T, /path, file:PATH, raid0:(A,B), nvme+tcp://HOST[:4420][/NQN[/NSID]] or \
     iscsi://[USER%SECRET@]HOST[:3260][/IQN[/LUN]]";

/// Arrays in arrays: enough for any sense, and little enough for any stack.
const DEPTH_MAX: usize = 4;

/// The longest name of a disk.
const NAME_BYTES_MAX: usize = 64;

/// The longest delay that can be injected: one minute.
const DELAY_NANOS_MAX: u64 = 60_000_000_000;

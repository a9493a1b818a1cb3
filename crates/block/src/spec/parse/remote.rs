//! The address of a remote disk: a protocol, an account, a machine, a name and a number there.

use std::net::Ipv6Addr;

use super::options::Options;
use super::{KINDS, is_scheme};
use crate::spec::{Account, Disk, Remote, Spec};

pub(super) fn remote(scheme: &str, address: &str, rest: &[&str]) -> Result<Spec, String> {
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

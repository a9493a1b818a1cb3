//! Parses the address of a remote disk: protocol, account, host, name and id.

use std::net::Ipv6Addr;

use super::options::Options;
use super::{ENCODED, KINDS, is_scheme, number};
use crate::spec::secrets::{SHOWN, is_secret};
use crate::spec::{Account, Disk, LINE_END, Remote, Secret, Spec};

pub(super) fn remote(scheme: &str, address: &str, rest: &[&str]) -> Result<Spec, String> {
    if !is_scheme(scheme) {
        return Err(format!("`{scheme}` is not a protocol; write {KINDS}"));
    }
    let (account, address) = account(scheme, address)?;
    let (address, query) = address.split_once('?').unwrap_or((address, ""));
    let mut options = Options::read(rest)?;
    options.read_query(query)?;
    let (authority, path) = address.split_once('/').unwrap_or((address, ""));
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
    check_target_password(&remote)?;
    refuse_rest_of_secret(&remote, path)?;
    Ok(Spec {
        disk: Disk::Remote(remote),
        common,
    })
}

/// Splits off the account: `USER%SECRET@` as in libiscsi, or `USER%@FILE@`, if the protocol has
/// accounts. The rest starts with the host.
fn account<'a>(scheme: &str, address: &'a str) -> Result<(Option<Account>, &'a str), String> {
    let Some((account, rest)) = split_account(address) else {
        return Ok((None, address));
    };
    let has_accounts = ["iscsi", "iser"]
        .iter()
        .any(|it| scheme.eq_ignore_ascii_case(it));
    if !has_accounts {
        return Err(format!(
            "`{rest}`: an address of {scheme} has no user; `@` is not the name or address of a machine"
        ));
    }
    let (user, secret) = match account.split_once('%') {
        Some((user, secret)) => (user, secret_of(secret)?),
        None if account.contains(':') => {
            return Err("a user and a secret are joined by %: iscsi://USER%SECRET@HOST".to_owned());
        }
        None => (account, None),
    };
    let is_user_byte = |c: u8| is_host_byte(c) || b":+~".contains(&c);
    if user.is_empty() || !user.bytes().all(is_user_byte) {
        // The text may be a secret after a wrong separator, so the error does not show it.
        return Err(
            "what stands before the machine is not the name of a user: iscsi://USER%SECRET@HOST"
                .to_owned(),
        );
    }
    let user = user.to_owned();
    Ok((Some(Account { user, secret }), rest))
}

/// Splits an address at the `@` that ends the account.
pub(super) fn split_account(address: &str) -> Option<(&str, &str)> {
    let authority_bytes = address.find(['/', '?']).unwrap_or(address.len());
    if let Some(at) = address[..authority_bytes].find("%@") {
        let name = at + "%@".len();
        if let Some(bytes) = address[name..].find('@') {
            return Some((&address[..name + bytes], &address[name + bytes + 1..]));
        }
    }
    let at = address[..authority_bytes].rfind('@')?;
    Some((&address[..at], &address[at + 1..]))
}

/// None: the text is `...`, which output shows instead of a secret.
fn secret_of(text: &str) -> Result<Option<Secret>, String> {
    let text = text.trim_end_matches(LINE_END);
    if text == SHOWN {
        return Ok(None);
    }
    if text.is_empty() {
        return Err("there is no secret behind the %: iscsi://USER%SECRET@HOST".to_owned());
    }
    Secret::of_value(text).map(Some)
}

fn check_target_password(remote: &Remote) -> Result<(), String> {
    let options = remote.options.iter();
    for (_, value) in options.filter(|(key, _)| key == "target_password") {
        if value.is_empty() {
            return Err("there is no secret behind target_password".to_owned());
        }
        Secret::of_value(value)?;
    }
    Ok(())
}

/// Rejects unknown parts of an address with a secret. They may belong to the secret, so the error
/// does not show them.
fn refuse_rest_of_secret(remote: &Remote, path: &str) -> Result<(), String> {
    let has_account = remote
        .account
        .as_ref()
        .is_some_and(|account| account.secret.is_some());
    if !has_account && remote.options.iter().all(|(key, _)| !is_secret(key)) {
        return Ok(());
    }
    let known = |(key, value): &(String, String)| match key.as_str() {
        "target_user" | "target_password" => true,
        "hdr-digest" | "data-digest" => value.is_empty(),
        _ => false,
    };
    if remote.options.iter().all(known) && !(has_account && path.contains('@')) {
        return Ok(());
    }
    Err(format!(
        "beside a secret there are the options hdr-digest, data-digest, target_user and target_password only: {ENCODED}"
    ))
}

pub(super) fn host_and_port(authority: &str) -> Result<(String, Option<u16>), String> {
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
        let hint = if host.contains('%') {
            "; a secret stands before it: iscsi://USER%SECRET@HOST"
        } else {
            ""
        };
        return Err(format!(
            "`{host}` is not the name or address of a machine{hint}"
        ));
    }
    Ok((host.to_owned(), port.map(port_number).transpose()?))
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}

fn port_number(text: &str) -> Result<u16, String> {
    number(text)
        .filter(|port| *port > 0)
        .ok_or_else(|| format!("`{text}` is not a port; write 1 to 65535"))
}

/// Parses a namespace id or LUN. Namespaces count from 1 (0 and the last number have special
/// meanings), and LUNs from 0.
fn namespace(scheme: &str, text: &str) -> Result<u32, String> {
    let nvme = scheme.to_ascii_lowercase().starts_with("nvme");
    number(text)
        .filter(|number| !nvme || (1..u32::MAX).contains(number))
        .ok_or_else(|| format!("`{text}` is not the number of a namespace or LUN"))
}

pub(in crate::spec) fn percent_decode(text: &str) -> Result<String, String> {
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

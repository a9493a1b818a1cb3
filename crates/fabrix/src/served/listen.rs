//! The text of a listening address: `nvme+tcp://ADDR[:PORT]`, `nvme+rdma://ADDR[:PORT]`,
//! `iscsi://ADDR[:PORT]` or `iser://ADDR[:PORT]`, optionally with `,announce=ADDR[:PORT]`.
//!
//! This module looks up host names and interfaces. The target opens the sockets.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use fabrix_block::spec::without_secrets;
use fabrix_proto::portal::{is_link_local, zone};
use fabrix_target::{DISCOVERY_PORT, Listen, Portal, Protocol};

use crate::failure::Failure;

/// Parses a listening address. Port 0 lets the system choose.
pub(crate) fn listen_address(text: &str) -> Result<Listen, Failure> {
    parse(text).map_err(|why| {
        let shown = without_secrets(text);
        // `why` quotes parts of the text. If the text contains a secret, a fixed sentence replaces
        // it.
        let why = match shown == text {
            true => why.as_str(),
            false => {
                "an address to listen on has no user and no secret, and an IPv6 address with a zone is in brackets"
            }
        };
        Failure::usage(format!(
            "{shown}: {why}; write nvme+tcp://ADDR[:PORT], like nvme+tcp://0.0.0.0 (nvme+rdma, iscsi, iser alike)"
        ))
    })
}

/// Parses the NVMe address of another target. It is announced to hosts as it is.
pub(crate) fn elsewhere(text: &str, ours: &[Listen]) -> Result<Listen, Failure> {
    let mut listen = listen_address(text)?;
    let address = listen.portal.address;
    let refused = |why: &str| Err(Failure::usage(format!("{}: {why}", without_secrets(text))));
    if !listen.protocol.is_nvme() {
        return refused("only NVMe has a discovery log: write nvme+tcp:// or nvme+rdma://");
    }
    if address.ip().is_unspecified() || address.port() == 0 {
        return refused("name the address at which hosts reach it");
    }
    if ours
        .iter()
        .any(|it| it.protocol == listen.protocol && it.portal.address == address)
    {
        return refused("this is an address of this target: see --listen");
    }
    listen.portal.announced = Some(address);
    Ok(listen)
}

/// Refuses a list of addresses without any that serves disks. Connections to NVMe's discovery port
/// reach the discovery subsystem only.
pub(crate) fn check_addresses(listens: &[Listen]) -> Result<(), Failure> {
    if listens.iter().any(serves_disks) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "port {DISCOVERY_PORT} answers discovery only: listen on another address too, like --listen nvme+tcp://ADDR \
         for port {}; hosts find that address through port {DISCOVERY_PORT}",
        fabrix_host::DEFAULT_PORT
    )))
}

/// Whether hosts reach disks at an address, and not discovery only.
pub(super) fn serves_disks(listen: &Listen) -> bool {
    !listen.protocol.is_nvme() || listen.portal.address.port() != DISCOVERY_PORT
}

/// Scheme of a protocol's URIs.
pub(crate) const fn scheme(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::NvmeTcp => "nvme+tcp",
        Protocol::NvmeRdma => "nvme+rdma",
        Protocol::Iscsi => "iscsi",
        Protocol::Iser => "iser",
    }
}

/// The URI of a listener for other machines.
pub(crate) fn listen_uri(listen: &Listen) -> String {
    let address = listen.portal.announced.unwrap_or(listen.portal.address);
    format!("{}://{address}", scheme(listen.protocol))
}

/// The text of a listening address as [`listen_address`] parses it, without its protocol.
pub(super) fn listen_text(portal: &Portal) -> String {
    let announced = portal.announced.map(|to| format!(",announce={to}"));
    format!("{}{}", portal.address, announced.unwrap_or_default())
}

fn parse(text: &str) -> Result<Listen, String> {
    let (protocol, rest, port) = match text.split_once("://") {
        Some(("nvme+tcp", rest)) => (Protocol::NvmeTcp, rest, fabrix_host::DEFAULT_PORT),
        Some(("nvme+rdma", rest)) => (Protocol::NvmeRdma, rest, fabrix_host::DEFAULT_PORT),
        Some(("iscsi", rest)) => (Protocol::Iscsi, rest, fabrix_host::iscsi::DEFAULT_PORT),
        Some(("iser", rest)) => (Protocol::Iser, rest, fabrix_host::iscsi::DEFAULT_PORT),
        _ => return Err("not an nvme+tcp, nvme+rdma, iscsi or iser address".to_owned()),
    };
    let (address, option) = rest.split_once(',').unwrap_or((rest, ""));
    let address = socket_address(address, port)?;
    let announced = match option.split_once('=') {
        Some(("announce", to)) => Some(announced(to)?),
        None if option.is_empty() => None,
        _ => {
            return Err(format!(
                "`{option}` is not an option; there is announce=ADDR[:PORT]"
            ));
        }
    };
    if announced.is_some() && protocol.is_nvme() && address.port() == DISCOVERY_PORT {
        return Err(format!(
            "port {DISCOVERY_PORT} answers discovery and is not listed itself: leave out announce="
        ));
    }
    let portal = Portal { address, announced };
    Ok(Listen { protocol, portal })
}

/// Parses an address without its scheme, `ADDR[:PORT]`. `port` is the default. The error says what
/// is wrong with it.
pub(crate) fn socket_address(text: &str, port: u16) -> Result<SocketAddr, String> {
    let text = text.strip_suffix('/').unwrap_or(text);
    if let Ok(ip) = text.parse::<IpAddr>() {
        return checked(SocketAddr::new(ip, port));
    }
    let number = |text: &str| {
        text.parse()
            .map_err(|_| format!("`{text}` is not a port; it is 0 to 65535"))
    };
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, port) = match bracketed {
        Some((host, "")) => (host, port),
        Some((host, rest)) => {
            let digits = rest
                .strip_prefix(':')
                .ok_or_else(|| format!("`{rest}` is not a port"))?;
            (host, number(digits)?)
        }
        None => match text.split_once(':') {
            Some((host, digits)) => (host, number(digits)?),
            None => (text, port),
        },
    };
    if let Ok(ip) = host.parse::<IpAddr>() {
        return checked(SocketAddr::new(ip, port));
    }
    let found = (host, port)
        .to_socket_addrs()
        .map_err(|error| match host.split_once('%') {
            Some((_, zone)) => {
                format!("there is no interface `{zone}` here, or `{host}` is not an address")
            }
            None => error.to_string(),
        });
    checked(found?.next().ok_or("the name has no address")?)
}

/// Refuses a link-local address without a zone.
fn checked(address: SocketAddr) -> Result<SocketAddr, String> {
    let ip = address.ip();
    match is_link_local(ip) && zone(address) == 0 {
        true => Err(format!(
            "{ip} is a link-local address: add the interface, like [{ip}%eth0]"
        )),
        false => Ok(address),
    }
}

/// Parses the address that discovery reports to hosts. Port 0 stands for the listening port.
fn announced(text: &str) -> Result<SocketAddr, String> {
    let ip = text.trim_matches(['[', ']']).parse::<IpAddr>();
    let address = ip.map_or_else(|_| text.parse(), |ip| Ok(SocketAddr::new(ip, 0)));
    let address = address.map_err(|_| format!("announce=`{text}` is not ADDR or ADDR:PORT"))?;
    if address.ip().is_unspecified() {
        return Err(format!(
            "announce={text}: no host can connect to that address"
        ));
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, address: &str, announced: Option<&str>) {
        let listen = parse(text).expect(text);
        let parsed = |text: &str| text.parse::<SocketAddr>().expect(text);
        assert_eq!(listen.portal.address, parsed(address), "{text}");
        assert_eq!(listen.portal.announced, announced.map(parsed), "{text}");
    }

    #[track_caller]
    fn refuse(text: &str, words: &str) {
        let why = parse(text).expect_err(text);
        assert!(why.contains(words), "{text}: {why}");
    }

    #[test]
    fn an_address_has_the_port_of_its_protocol_or_its_own() {
        check("nvme+tcp://127.0.0.1", "127.0.0.1:4420", None);
        check("nvme+tcp://127.0.0.1:0/", "127.0.0.1:0", None);
        check("nvme+rdma://10.8.0.1", "10.8.0.1:4420", None);
        check("iscsi://[::1]", "[::1]:3260", None);
        check("iscsi://::1", "[::1]:3260", None);
        check("iser://10.8.0.1", "10.8.0.1:3260", None);
        check("nvme+tcp://[::]:4421", "[::]:4421", None);
        refuse(
            "tcp://127.0.0.1",
            "not an nvme+tcp, nvme+rdma, iscsi or iser address",
        );
        refuse("nvme+tcp://127.0.0.1:x", "`x` is not a port");
        refuse("nvme+tcp://[::1]4420", "`4420` is not a port");
    }

    #[test]
    fn a_link_local_address_has_a_zone() {
        check("nvme+tcp://[fe80::1%1]:4420", "[fe80::1%1]:4420", None);
        check("iscsi://[fe80::1%lo]", "[fe80::1%1]:3260", None);
        refuse("nvme+tcp://[fe80::1]:4420", "like [fe80::1%eth0]");
        refuse(
            "nvme+tcp://[fe80::1%nowhere]:4420",
            "no interface `nowhere`",
        );
    }

    #[test]
    fn an_announced_address_may_have_a_port_of_its_own() {
        let listen = "nvme+tcp://0.0.0.0:4420,announce=";
        let at = "0.0.0.0:4420";
        check(
            &format!("{listen}198.51.100.7:14420"),
            at,
            Some("198.51.100.7:14420"),
        );
        check(&format!("{listen}198.51.100.7"), at, Some("198.51.100.7:0"));
        check(
            &format!("{listen}[2001:db8::7]:1"),
            at,
            Some("[2001:db8::7]:1"),
        );
        check(&format!("{listen}2001:db8::7"), at, Some("[2001:db8::7]:0"));
        refuse(&format!("{listen}0.0.0.0"), "no host can connect");
        refuse(&format!("{listen}a.name"), "is not ADDR or ADDR:PORT");
        refuse("iscsi://0.0.0.0,told=1", "there is announce=ADDR[:PORT]");
        refuse(
            "nvme+tcp://0.0.0.0:8009,announce=198.51.100.7",
            "not listed",
        );
    }

    #[test]
    fn listen_text_writes_what_parse_reads() {
        for text in ["0.0.0.0:4420", "[fe80::1%1]:1,announce=198.51.100.7:14420"] {
            let listen = parse(&format!("nvme+tcp://{text}")).expect(text);
            assert_eq!(listen_text(&listen.portal), text);
        }
    }
}

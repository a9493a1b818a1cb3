//! Resolution of addresses: host names to portals, and a discovery log to its only subsystem.
//!
//! A name may have several addresses. `localhost` has two. They are tried in the system's order
//! until one answers.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use fabrix_proto::nvme::bringup::{
    DiscoveredRecord, DiscoveredSubtype, DiscoveredTransport, DiscoveryLog,
};
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::portal::{is_link_local, zone};

use crate::{Address, ConnectError, ConnectErrorKind, Transport};

/// A subsystem and its portals, at least one.
pub(crate) struct Subsystem {
    pub(crate) name: Nqn,
    pub(crate) portals: Vec<SocketAddr>,
}

impl Subsystem {
    /// The subsystem of that name.
    ///
    /// # Errors
    /// The name is not an NQN.
    pub(crate) fn named(name: &str, portals: Vec<SocketAddr>) -> Result<Self, ConnectError> {
        let name = Nqn::new(name).map_err(|error| {
            let sentence = format!("`{name}` is not an NQN: {error}");
            ConnectError::new(ConnectErrorKind::Usage, sentence)
        })?;
        Ok(Self { name, portals })
    }
}

/// The addresses of a host, at least one.
pub(crate) fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    let unknown = |why: &dyn fmt::Display| {
        let sentence = format!("cannot find the host `{host}`: {why}");
        ConnectError::new(ConnectErrorKind::Unreachable, sentence)
    };
    let found = (host, port).to_socket_addrs();
    let found: Vec<SocketAddr> = found.map_err(|error| unknown(&error))?.collect();
    let has_no_link = |it: &&SocketAddr| is_link_local(it.ip()) && zone(**it) == 0;
    if let Some(address) = found.iter().find(has_no_link) {
        let ip = address.ip();
        let sentence = format!("{ip} is a link-local address: say the interface, like [{ip}%eth0]");
        return Err(ConnectError::new(ConnectErrorKind::Usage, sentence));
    }
    if found.is_empty() {
        return Err(unknown(&"it has no address"));
    }
    Ok(found)
}

/// Probes one portal after the other until a target answers. Yields that portal.
///
/// # Errors
/// The error of the portal that answered, or of the first one. It names `address`.
pub(crate) fn first_that_answers<T>(
    address: &impl fmt::Display,
    portals: &[SocketAddr],
    mut probe: impl FnMut(SocketAddr) -> Result<T, ConnectError>,
) -> Result<(SocketAddr, T), ConnectError> {
    let mut unreachable = None;
    for &portal in portals {
        match probe(portal) {
            Ok(found) => return Ok((portal, found)),
            Err(error) if error.is_of_the_network() => {
                unreachable.get_or_insert(error);
            }
            Err(error) => return Err(error.at(address)),
        }
    }
    let none = || ConnectError::new(ConnectErrorKind::Unreachable, "there is no address to try");
    Err(unreachable.unwrap_or_else(none).at(address))
}

/// The subsystem of an address, at the portals that a discovery log has for it over the transport
/// of the address. Without a name it is the only one there.
pub(crate) fn only_subsystem(
    address: &Address,
    log: &DiscoveryLog,
) -> Result<Subsystem, ConnectError> {
    let ours = |record: &&DiscoveredRecord| {
        let wanted = address.subsystem.as_deref();
        record.subtype == DiscoveredSubtype::Nvm
            && transport_of(record) == Some(address.transport)
            && wanted.is_none_or(|name| name == record.subsystem.as_str())
    };
    let records: Vec<&DiscoveredRecord> = log.records.iter().filter(ours).collect();
    let mut names: Vec<&Nqn> = records.iter().map(|record| &record.subsystem).collect();
    names.sort_by_key(|name| name.as_str());
    names.dedup();
    if let (Some(name), true) = (&address.subsystem, names.is_empty()) {
        return Subsystem::named(name, resolve(&address.host, address.port)?);
    }
    let shown: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    only_name(&address, "subsystems", &shown)?;
    match names.as_slice() {
        [one, ..] => Ok(Subsystem {
            name: (*one).clone(),
            portals: portals(&resolve(&address.host, address.port)?, &records),
        }),
        [] if !log.unreadable.is_empty() => {
            let (count, first) = (log.unreadable.len(), &log.unreadable[0]);
            let sentence = format!(
                "{address} offers no subsystem that can be read: {count} records of its discovery log cannot, \
                 the first is record {}: {}; name the subsystem in the URI",
                first.number, first.why
            );
            Err(ConnectError::new(ConnectErrorKind::Protocol, sentence))
        }
        [] => Err(ConnectError::new(
            ConnectErrorKind::Refused,
            format!(
                "{address} offers no subsystem to this host; ask for this host's NQN to be allowed there"
            ),
        )),
    }
}

/// The ports of a subsystem that a discovery log has over TCP and RDMA, each once. The portals of
/// `service` are those of the discovery service, see [`portals`].
pub(crate) fn ports(
    service: &[SocketAddr],
    name: &Nqn,
    log: &DiscoveryLog,
) -> Vec<(Transport, SocketAddr)> {
    let mut ports = Vec::new();
    let of_it = |record: &&DiscoveredRecord| {
        record.subtype == DiscoveredSubtype::Nvm && record.subsystem == *name
    };
    for record in log.records.iter().filter(of_it) {
        if let (Some(transport), Some((ip, port))) = (transport_of(record), place_of(record))
            && let Some(address) = at_service(service, ip, port)
            && !ports.contains(&(transport, address))
        {
            ports.push((transport, address));
        }
    }
    ports
}

/// The address of a record. The unspecified one is that of the discovery service of its family.
fn at_service(service: &[SocketAddr], ip: IpAddr, port: u16) -> Option<SocketAddr> {
    if !ip.is_unspecified() {
        return Some(on_the_link_of(service, SocketAddr::new(ip, port)));
    }
    let mut portals = service.iter();
    let mut portal = *portals.find(|portal| portal.is_ipv4() == ip.is_ipv4())?;
    portal.set_port(port);
    Some(portal)
}

/// The transport of a record. None: one that this host does not have.
fn transport_of(record: &DiscoveredRecord) -> Option<Transport> {
    match record.transport {
        DiscoveredTransport::Tcp => Some(Transport::Tcp),
        DiscoveredTransport::Rdma => Some(Transport::Rdma),
        DiscoveredTransport::Other(_) => None,
    }
}

/// Address and port of a record. None: they cannot be read.
fn place_of(record: &DiscoveredRecord) -> Option<(IpAddr, u16)> {
    let address = record.address.split('%').next()?;
    Some((address.parse().ok()?, record.service.parse().ok()?))
}

/// Text of an IP address, with its zone if it has one.
#[must_use]
pub fn host_text(address: SocketAddr) -> String {
    match zone(address) {
        0 => address.ip().to_string(),
        zone => format!("{}%{zone}", address.ip()),
    }
}

/// The only name of a list. None: the list is empty.
///
/// # Errors
/// The list has several names: the user must choose. `kind` is what they name.
pub(crate) fn only_name<'a>(
    address: &impl fmt::Display,
    kind: &str,
    names: &[&'a str],
) -> Result<Option<&'a str>, ConnectError> {
    if names.len() <= 1 {
        return Ok(names.first().copied());
    }
    let list = names[..names.len().min(SHOWN)].join(", ");
    let sentence = format!("{address} offers several {kind}, name one in the URI: {list}");
    Err(ConnectError::new(ConnectErrorKind::Usage, sentence))
}

/// The portals of a subsystem: those of the discovery service where the records name them too, else
/// the portals of the records.
///
/// A record with the unspecified address stands for the address of the discovery service. A
/// link-local address is on the link of the discovery service: the zone in a record is a name of
/// the target's own link.
fn portals(service: &[SocketAddr], records: &[&DiscoveredRecord]) -> Vec<SocketAddr> {
    let listed = records.iter().filter_map(|record| place_of(record));
    let listed: Vec<(IpAddr, u16)> = listed.collect();
    let is_listed = |portal: &&SocketAddr| {
        let here = |(ip, port): &(IpAddr, u16)| {
            *port == portal.port() && (ip.is_unspecified() || *ip == portal.ip())
        };
        listed.iter().any(here)
    };
    let here: Vec<SocketAddr> = service.iter().filter(is_listed).copied().collect();
    if !here.is_empty() || listed.is_empty() {
        return if here.is_empty() {
            service.to_vec()
        } else {
            here
        };
    }
    let there = listed.iter().flat_map(|(ip, port)| match ip {
        ip if ip.is_unspecified() => service
            .iter()
            .map(|portal| SocketAddr::new(portal.ip(), *port))
            .collect(),
        ip => vec![on_the_link_of(service, SocketAddr::new(*ip, *port))],
    });
    there.take(PORTALS).collect()
}

/// An address, with the zone of `service` if it is link-local.
pub(crate) fn on_the_link_of(service: &[SocketAddr], mut address: SocketAddr) -> SocketAddr {
    let link = service
        .iter()
        .map(|portal| zone(*portal))
        .find(|zone| *zone != 0);
    if let (SocketAddr::V6(v6), Some(link)) = (&mut address, link)
        && is_link_local((*v6.ip()).into())
    {
        v6.set_scope_id(link);
    }
    address
}

/// Limits for a log of thousands of records: portals to try, and names to show.
const PORTALS: usize = 8;
const SHOWN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiscoveredFamily;

    fn record(address: &str, service: &str) -> DiscoveredRecord {
        DiscoveredRecord {
            transport: DiscoveredTransport::Tcp,
            family: DiscoveredFamily::Ipv4,
            subtype: DiscoveredSubtype::Nvm,
            address: address.to_owned(),
            service: service.to_owned(),
            subsystem: Nqn::new("nqn.2014-08.org.example:one").expect("an NQN"),
            port_id: 1,
            controller_id: 0xFFFF,
            admin_queue_entries: 32,
            secure_channel: 0,
            security: 0,
        }
    }

    fn check(service: &str, records: &[(&str, &str)], expected: &[&str]) {
        let records: Vec<_> = records.iter().map(|(ip, port)| record(ip, port)).collect();
        let records: Vec<_> = records.iter().collect();
        let service = service.parse().expect("an address");
        let expected: Vec<SocketAddr> = expected
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect();
        assert_eq!(portals(&[service], &records), expected);
    }

    #[test]
    fn a_subsystem_is_reached_at_its_discovery_service_if_it_is_there() {
        let both = [("10.0.0.2", "4420"), ("127.0.0.1", "4420")];
        check("127.0.0.1:4420", &both, &["127.0.0.1:4420"]);
        check(
            "127.0.0.1:4420",
            &[("0.0.0.0", "4420")],
            &["127.0.0.1:4420"],
        );
    }

    #[test]
    fn a_discovery_service_on_its_own_port_leads_to_the_port_of_the_subsystem() {
        check("10.0.0.1:8009", &[("10.0.0.1", "4420")], &["10.0.0.1:4420"]);
        check("10.0.0.1:8009", &[("0.0.0.0", "4420")], &["10.0.0.1:4420"]);
        check("10.0.0.1:8009", &[("10.9.9.9", "4421")], &["10.9.9.9:4421"]);
    }

    #[test]
    fn a_link_local_record_is_on_the_link_of_the_discovery_service() {
        let records = [("fe80::2%nvme0", "4420")];
        check("[fe80::1%3]:8009", &records, &["[fe80::2%3]:4420"]);
        check("[fe80::2%3]:4420", &records, &["[fe80::2%3]:4420"]);
    }

    #[test]
    fn an_address_of_an_unknown_link_is_refused() {
        let why = resolve("fe80::1", 4420).expect_err("no link").to_string();
        assert!(why.contains("[fe80::1%eth0]"), "{why}");
        assert!(resolve("fe80::1%1", 4420).is_ok());
    }

    #[test]
    fn ports_are_listed_once_over_the_transports_that_this_host_has() {
        let of = |transport, address: &str| DiscoveredRecord {
            transport,
            ..record(address, "4420")
        };
        let (tcp, rdma) = (DiscoveredTransport::Tcp, DiscoveredTransport::Rdma);
        let another = DiscoveredRecord {
            subsystem: Nqn::new("nqn.2014-08.org.example:two").expect("an NQN"),
            ..record("10.0.0.5", "4420")
        };
        let referral = DiscoveredRecord {
            subtype: DiscoveredSubtype::Referral,
            ..record("10.0.0.6", "8009")
        };
        let records = vec![
            of(tcp, "10.0.0.2"),
            of(rdma, "10.0.0.2"),
            of(tcp, "10.0.0.2"),
            of(DiscoveredTransport::Other(2), "10.0.0.3"),
            of(tcp, "0.0.0.0"),
            of(tcp, "::"),
            of(tcp, "a name"),
            another,
            referral,
        ];
        let log = DiscoveryLog {
            generation: 1,
            records,
            unreadable: Vec::new(),
        };
        let name = Nqn::new("nqn.2014-08.org.example:one").expect("an NQN");
        let at = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        let found = ports(&[at("10.0.0.1:8009")], &name, &log);
        let expected = [
            (Transport::Tcp, at("10.0.0.2:4420")),
            (Transport::Rdma, at("10.0.0.2:4420")),
            (Transport::Tcp, at("10.0.0.1:4420")),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn records_that_cannot_be_read_mean_the_discovery_service() {
        check("10.0.0.1:4420", &[("a name", "a port")], &["10.0.0.1:4420"]);
    }
}

//! From what a user writes to the portals worth trying: names to addresses, and a discovery log to
//! the one subsystem it offers.
//!
//! A name may have several addresses (`localhost` has two); they are tried in the system's order
//! until one answers.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use fabrix_proto::nvme::bringup::{
    DiscoveredRecord, DiscoveredSubtype, DiscoveredTransport, DiscoveryLog,
};
use fabrix_proto::nvme::nqn::Nqn;
use fabrix_proto::portal::{is_link_local, zone};

use crate::{Address, ConnectError, ConnectErrorKind};

/// A subsystem and where it can be reached; there is at least one portal.
pub(crate) struct Subsystem {
    pub(crate) name: Nqn,
    pub(crate) portals: Vec<SocketAddr>,
}

impl Subsystem {
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

/// Asks one portal after the other until one says something, and tells which.
pub(crate) fn first_that_answers<T>(
    portals: &[SocketAddr],
    mut probe: impl FnMut(SocketAddr) -> Result<T, ConnectError>,
) -> Result<(SocketAddr, T), ConnectError> {
    let mut silent = None;
    for &address in portals {
        match probe(address) {
            Ok(found) => return Ok((address, found)),
            Err(error) if error.says_nothing_about_the_target() => {
                silent.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(silent.unwrap_or_else(|| {
        ConnectError::new(ConnectErrorKind::Unreachable, "there is no address to try")
    }))
}

/// The one subsystem that a log offers over TCP.
pub(crate) fn only_subsystem(
    address: &Address,
    log: &DiscoveryLog,
) -> Result<Subsystem, ConnectError> {
    let ours = |record: &&DiscoveredRecord| {
        record.subtype == DiscoveredSubtype::Nvm && record.transport == DiscoveredTransport::Tcp
    };
    let records: Vec<&DiscoveredRecord> = log.records.iter().filter(ours).collect();
    let mut names: Vec<&Nqn> = records.iter().map(|record| &record.subsystem).collect();
    names.sort_by_key(|name| name.as_str());
    names.dedup();
    match names.as_slice() {
        [one] => Ok(Subsystem {
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
        several => {
            let shown = several.iter().take(SHOWN).map(|name| name.as_str());
            let list = shown.collect::<Vec<_>>().join(", ");
            let sentence =
                format!("{address} offers several subsystems, name one in the URI: {list}");
            Err(ConnectError::new(ConnectErrorKind::Usage, sentence))
        }
    }
}

/// Where the subsystem of these records is: where it was asked for if it is there too, else where
/// the records say.
///
/// A record with the unspecified address means the address it was read from. A link-local address
/// is on the link by which the log was read: a zone in a record is the target's name of its link,
/// and means nothing here.
fn portals(asked: &[SocketAddr], records: &[&DiscoveredRecord]) -> Vec<SocketAddr> {
    let said: Vec<(IpAddr, u16)> = records
        .iter()
        .filter_map(|record| {
            let address = record.address.split('%').next()?;
            Some((address.parse().ok()?, record.service.parse().ok()?))
        })
        .collect();
    let is_said = |portal: &&SocketAddr| {
        let here = |(ip, port): &(IpAddr, u16)| {
            *port == portal.port() && (ip.is_unspecified() || *ip == portal.ip())
        };
        said.iter().any(here)
    };
    let here: Vec<SocketAddr> = asked.iter().filter(is_said).copied().collect();
    if !here.is_empty() || said.is_empty() {
        return if here.is_empty() {
            asked.to_vec()
        } else {
            here
        };
    }
    let there = said.iter().flat_map(|(ip, port)| match ip {
        ip if ip.is_unspecified() => asked
            .iter()
            .map(|portal| SocketAddr::new(portal.ip(), *port))
            .collect(),
        ip => vec![on_the_link_of(asked, SocketAddr::new(*ip, *port))],
    });
    there.take(PORTALS).collect()
}

/// An address, with the zone by which the target was reached if it needs one.
pub(crate) fn on_the_link_of(asked: &[SocketAddr], mut address: SocketAddr) -> SocketAddr {
    let link = asked
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

/// A log may have thousands of records: so many portals are tried, and so many names are shown.
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

    fn check(asked: &str, records: &[(&str, &str)], expected: &[&str]) {
        let records: Vec<_> = records.iter().map(|(ip, port)| record(ip, port)).collect();
        let records: Vec<_> = records.iter().collect();
        let asked = asked.parse().expect("an address");
        let expected: Vec<SocketAddr> = expected
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect();
        assert_eq!(portals(&[asked], &records), expected);
    }

    #[test]
    fn a_subsystem_is_reached_where_it_was_asked_for_if_it_is_there() {
        let both = [("10.0.0.2", "4420"), ("127.0.0.1", "4420")];
        check("127.0.0.1:4420", &both, &["127.0.0.1:4420"]);
        check(
            "127.0.0.1:4420",
            &[("0.0.0.0", "4420")],
            &["127.0.0.1:4420"],
        );
    }

    #[test]
    fn a_discovery_service_on_a_port_of_its_own_sends_us_to_the_subsystems_port() {
        check("10.0.0.1:8009", &[("10.0.0.1", "4420")], &["10.0.0.1:4420"]);
        check("10.0.0.1:8009", &[("0.0.0.0", "4420")], &["10.0.0.1:4420"]);
        check("10.0.0.1:8009", &[("10.9.9.9", "4421")], &["10.9.9.9:4421"]);
    }

    #[test]
    fn a_link_local_record_is_on_the_link_that_was_asked() {
        let told = [("fe80::2%nvme0", "4420")];
        check("[fe80::1%3]:8009", &told, &["[fe80::2%3]:4420"]);
        check("[fe80::2%3]:4420", &told, &["[fe80::2%3]:4420"]);
    }

    #[test]
    fn an_address_of_an_unknown_link_is_refused() {
        let why = resolve("fe80::1", 4420).expect_err("no link").to_string();
        assert!(why.contains("[fe80::1%eth0]"), "{why}");
        assert!(resolve("fe80::1%1", 4420).is_ok());
    }

    #[test]
    fn records_that_cannot_be_read_leave_us_where_we_are() {
        check("10.0.0.1:4420", &[("a name", "a port")], &["10.0.0.1:4420"]);
    }
}

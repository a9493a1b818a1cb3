//! Parses disks with several paths: `multipath:(URI,URI)`, and `SCHEME://HOST,HOST/NAME/ID` for
//! paths that differ in their host only.

use std::iter;

use super::options::Options;
use super::remote::{host_and_port, remote, split_account};
use super::{ParseFault, list_and_options};
use crate::spec::{Common, Disk, Spec};

/// Parses a disk with several paths. The text after `multipath:` consists of options and the list
/// of paths. The policy stays opaque: only the code of remote disks understands it.
pub(super) fn multipath(text: &str, depth: usize) -> Result<Spec, ParseFault> {
    let none = "a disk has one list of paths: multipath:(URI,URI)";
    let (members, mut options) = list_and_options(text, depth, none)?;
    let path = |member: Spec| match member {
        Spec {
            disk: Disk::Remote(remote),
            common,
        } if common == Common::default() => Ok(remote),
        member => Err(ParseFault::Here(format!(
            "`{member}` is not a path: paths are remote disks, and options of the disk follow the list"
        ))),
    };
    let paths = members.into_iter().map(path).collect::<Result<_, _>>()?;
    let policy = options.take("policy").transpose()?;
    let failover = options.take("failover").transpose()?;
    Ok(Spec {
        disk: Disk::Multipath {
            paths,
            policy,
            failover,
        },
        common: options.common(false)?,
    })
}

/// Parses an address with several hosts, which begin the parts after it: `A`, `B/NAME/ID`. The last
/// one has the slash. None: the address has one host.
pub(super) fn of_hosts(scheme: &str, address: &str, rest: &[&str]) -> Result<Option<Spec>, String> {
    let last = rest.iter().position(|part| part.contains('/'));
    let Some(last) = last.filter(|_| !address.contains(['/', '?'])) else {
        return Ok(None);
    };
    let (last_host, name) = rest[last].split_once('/').unwrap_or_default();
    let first = split_account(address).map_or(address, |(_, host)| host);
    let account = &address[..address.len() - first.len()];
    let hosts = iter::once(first).chain(rest[..last].iter().copied());
    let hosts: Vec<&str> = hosts.chain(iter::once(last_host)).collect();
    if !hosts.iter().all(|host| host_and_port(host).is_ok()) {
        return Ok(None);
    }
    let of_the_pool = |part: &&str| part.starts_with("policy=") || part.starts_with("failover=");
    let (pool, options): (Vec<&str>, Vec<&str>) =
        rest[last + 1..].iter().copied().partition(of_the_pool);
    let mut pool = Options::read(&pool)?;
    let (mut paths, mut common) = (Vec::new(), Common::default());
    for host in hosts {
        let path = remote(scheme, &format!("{account}{host}/{name}"), &options)?;
        if let Disk::Remote(path) = path.disk {
            paths.push(path);
        }
        common = path.common;
    }
    Ok(Some(Spec {
        disk: Disk::Multipath {
            paths,
            policy: pool.take("policy").transpose()?,
            failover: pool.take("failover").transpose()?,
        },
        common,
    }))
}

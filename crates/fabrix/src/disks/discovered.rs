//! Disks whose URI leads to discovery. Where it lists a subsystem or target at several ports, they
//! are the paths of the disk.

use std::sync::Arc;

use fabrix_block::Spec;
use fabrix_block::spec::{Disk, Remote};
use fabrix_host::iscsi::{self, DiscoveredTarget};
use fabrix_host::multipath::{MOST_PATHS, PathDisk, PathLocation};
use fabrix_host::{Address, DiscoveryLog, host_text};
use fabrix_target::DISCOVERY_PORT;

use super::{Opener, address, initiator, is_iscsi, not_reached, unit};
use crate::cli::terminal::say;
use crate::failure::Failure;

/// What a URI of a remote disk leads to.
pub(super) enum Discovered {
    /// A disk with one path.
    Disk(Arc<dyn PathDisk>),
    /// A disk over the paths that discovery lists.
    Paths(Disk),
}

/// The answer of a discovery service.
enum Answer {
    Log(DiscoveryLog),
    Targets(Vec<DiscoveredTarget>),
}

/// Options of a disk over several paths.
#[derive(Default)]
struct OfPaths {
    policy: Option<String>,
    failover: Option<String>,
}

impl Opener {
    /// Asks discovery for the ports of a disk, if its URI leads there. A disk with one port is
    /// opened.
    pub(super) fn discovered(&self, remote: &Remote) -> Result<Discovered, Failure> {
        if self.has_one_path || !asks_discovery(remote) {
            return self.open_remote(remote).map(Discovered::Disk);
        }
        let (remote, of_paths) = split(remote);
        let answer = match self.ask(&remote) {
            // A port of a subsystem may have the number of a discovery service.
            Err(_) if remote.nqn.is_some() => {
                return self.open_remote(&remote).map(Discovered::Disk);
            }
            answer => answer?,
        };
        let mut paths = listed(&remote, &answer)?;
        let left_out = leave_out(&mut paths);
        let is_joined = of_paths.policy.is_some() || of_paths.failover.is_some();
        if paths.len() < 2 && !is_joined && self.left_over.is_empty() {
            let disk = self.open_listed(&remote, (&answer, &paths));
            return disk.map(Discovered::Disk);
        }
        let paths = match paths.is_empty() {
            true => vec![remote.clone()],
            false => paths,
        };
        if let Some(sentence) = of_several(&remote, &paths, left_out) {
            say(format_args!("{sentence}"));
        }
        Ok(Discovered::Paths(Disk::Multipath {
            paths,
            policy: of_paths.policy,
            failover: of_paths.failover,
        }))
    }

    /// The paths that discovery lists now for an open disk whose URI leads there. The first answer
    /// counts, of the address in the URI and of those of its paths. Empty: nothing answers.
    pub(crate) fn listed_again(&self, uri: &str, present: &[PathLocation]) -> Vec<Remote> {
        let target = present.first().map(|location| &location.target);
        let (Some(remote), Some(target)) = (remote_of(uri), target) else {
            return Vec::new();
        };
        let (remote, _) = split(&remote);
        let remote = Remote {
            nqn: Some(target.clone()),
            ..remote
        };
        let others = present.iter().map(|location| Remote {
            scheme: location.scheme.to_owned(),
            host: host_text(location.address),
            port: Some(location.address.port()),
            ..remote.clone()
        });
        let mut services = std::iter::once(remote.clone()).chain(others);
        let answered = services.find_map(|it| Some((self.ask(&it).ok()?, it)));
        let listed = answered.and_then(|(answer, service)| listed(&service, &answer).ok());
        let mut listed = listed.unwrap_or_default();
        leave_out(&mut listed);
        listed
    }

    /// Asks the discovery service of a URI.
    fn ask(&self, remote: &Remote) -> Result<Answer, Failure> {
        let (options, theirs) = self.remote_options(remote)?;
        if is_iscsi(remote) {
            let initiator = initiator(&self.initiator, remote, theirs)?;
            let targets = iscsi::discover(&unit(remote)?, &initiator, &options);
            return targets.map(Answer::Targets).map_err(not_reached(remote));
        }
        if let Some(why) = &self.nameless {
            return Err(Failure::usage(why));
        }
        let log = fabrix_host::discover(&address(remote)?, &options);
        log.map(Answer::Log).map_err(not_reached(remote))
    }

    /// Opens a disk with one port.
    fn open_listed(
        &self,
        remote: &Remote,
        (answer, paths): (&Answer, &[Remote]),
    ) -> Result<Arc<dyn PathDisk>, Failure> {
        match answer {
            Answer::Log(log) => {
                let (options, _) = self.path_options(remote, 0)?;
                let disk = fabrix_host::connect_listed(&address(remote)?, log, &options);
                Ok(Arc::new(disk.map_err(not_reached(remote))?))
            }
            Answer::Targets(_) => self.open_remote(&Remote {
                nqn: paths.first().and_then(|path| path.nqn.clone()),
                ..remote.clone()
            }),
        }
    }
}

/// Whether a disk is found by discovery.
pub(crate) fn leads_to_discovery(uri: &str) -> bool {
    remote_of(uri).is_some_and(|remote| asks_discovery(&remote))
}

/// The address of a URI. None: it is another disk.
fn remote_of(uri: &str) -> Option<Remote> {
    match Spec::parse(uri).ok()?.disk {
        Disk::Remote(remote) => Some(remote),
        _ => None,
    }
}

/// Whether discovery has to be asked: the URI has no name, or the port of a discovery service.
fn asks_discovery(remote: &Remote) -> bool {
    let is_service = !is_iscsi(remote) && remote.port == Some(DISCOVERY_PORT);
    remote.nqn.is_none() || is_service
}

/// Splits the options of a disk over several paths off a URI.
fn split(remote: &Remote) -> (Remote, OfPaths) {
    let mut of_paths = OfPaths::default();
    let mut remote = remote.clone();
    remote.options.retain(|(key, value)| {
        let kept = match key.as_str() {
            "policy" => &mut of_paths.policy,
            "failover" => &mut of_paths.failover,
            _ => return true,
        };
        *kept = Some(value.clone());
        false
    });
    (remote, of_paths)
}

/// The paths that discovery lists.
fn listed(remote: &Remote, answer: &Answer) -> Result<Vec<Remote>, Failure> {
    let path = |scheme: &str, (host, port): (String, u16), name: Option<String>| Remote {
        scheme: scheme.to_owned(),
        host,
        port: Some(port),
        nqn: name,
        ..remote.clone()
    };
    let of_nvme = |it: Address| path(it.transport.scheme(), (it.host, it.port), it.subsystem);
    let of_iscsi = |it: iscsi::Address| path(&remote.scheme, (it.host, it.port), it.target);
    match answer {
        Answer::Log(log) => {
            let ports = fabrix_host::listed_ports(&address(remote)?, log);
            let ports = ports.map_err(not_reached(remote))?.into_iter();
            Ok(ports.map(of_nvme).collect())
        }
        Answer::Targets(targets) => {
            let portals = iscsi::listed_portals(&unit(remote)?, targets);
            let portals = portals.map_err(not_reached(remote))?.into_iter();
            Ok(portals.map(of_iscsi).collect())
        }
    }
}

/// Leaves out the paths that are more than a disk can have. Yields their number.
fn leave_out(paths: &mut Vec<Remote>) -> usize {
    let left_out = paths.len().saturating_sub(MOST_PATHS);
    paths.truncate(MOST_PATHS);
    left_out
}

/// The sentence about the paths of a disk. None: it has one.
fn of_several(remote: &Remote, paths: &[Remote], left_out: usize) -> Option<String> {
    let place = |path: &Remote| {
        let place = Remote {
            account: None,
            nqn: None,
            nsid: None,
            options: Vec::new(),
            ..path.clone()
        };
        place.to_string()
    };
    let places: Vec<String> = paths.iter().map(place).collect();
    let (count, places) = (paths.len(), places.join(", "));
    match left_out {
        _ if count < 2 => None,
        0 => Some(format!("{remote}: the disk has {count} paths: {places}")),
        more => Some(format!(
            "{remote}: the disk has {count} paths, the most that a disk can have: {places}. \
             {more} more that the target lists are not used"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::paths::path;
    use super::*;

    #[test]
    fn discovery_is_asked_for_a_uri_without_a_name_and_at_the_port_of_a_discovery_service() {
        for (text, asks) in [
            ("nvme+tcp://10.0.0.1", true),
            ("nvme+tcp://10.0.0.1:8009", true),
            ("nvme+rdma://10.0.0.1:8009/nqn.2026-01.io.fabrix:a", true),
            ("nvme+tcp://10.0.0.1:4420/nqn.2026-01.io.fabrix:a/1", false),
            ("nvme+tcp://10.0.0.1/nqn.2026-01.io.fabrix:a", false),
            ("iscsi://10.0.0.1", true),
            ("iscsi://10.0.0.1:8009/iqn.2026-01.io.fabrix:a/0", false),
        ] {
            assert_eq!(asks_discovery(&path(text).expect(text)), asks, "{text}");
        }
    }

    #[test]
    fn the_options_of_several_paths_are_none_of_each_path() {
        let text = "nvme+tcp://10.0.0.1,hdr-digest,policy=fixed:1,failover=fast";
        let (path, of_paths) = split(&path(text).expect(text));
        assert_eq!(path.options, [("hdr-digest".to_owned(), String::new())]);
        assert_eq!(of_paths.policy.as_deref(), Some("fixed:1"));
        assert_eq!(of_paths.failover.as_deref(), Some("fast"));
    }

    #[test]
    fn paths_beyond_the_most_that_a_disk_can_have_are_left_out_and_told() {
        let remote = path("nvme+tcp://10.0.0.1").expect("a URI");
        let port = |port| Remote {
            port: Some(port),
            ..remote.clone()
        };
        let mut paths: Vec<Remote> = (1..19).map(port).collect();
        let left_out = leave_out(&mut paths);
        let said = of_several(&remote, &paths, left_out).expect("several");
        assert!(said.contains("has 16 paths, the most"), "{said}");
        assert!(said.contains("10.0.0.1:16. 2 more"), "{said}");
        assert_eq!(leave_out(&mut paths), 0);
        let said = of_several(&remote, &paths[..2], 0).expect("several");
        assert!(
            said.ends_with("2 paths: nvme+tcp://10.0.0.1:1, nvme+tcp://10.0.0.1:2"),
            "{said}"
        );
        assert_eq!(of_several(&remote, &paths[..1], 0), None);
    }
}

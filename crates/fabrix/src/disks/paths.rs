//! Opens disks over several paths, and single paths that join such a disk later.

use std::sync::Arc;

use fabrix_block::spec::{Common, Disk, Remote, without_secrets};
use fabrix_block::{Device, Spec};
use fabrix_host::multipath::{self, Failover, Multipath, PathDisk, Policy, Way};
use fabrix_host::{ConnectError, ConnectErrorKind, Transport, iscsi};
use serde::{Deserialize, Serialize};

use super::{Opener, address, initiator, is_iscsi, not_reached, transport, unit};
use crate::cli::terminal::say;
use crate::failure::Failure;

/// A path of a disk, as a record keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NumberedPath {
    /// Its number among the paths of the disk.
    pub(crate) index: usize,
    /// Its URI without secrets.
    pub(crate) uri: String,
}

/// Open paths with their numbers.
type Numbered = Vec<(usize, Arc<dyn PathDisk>)>;

/// Where the paths of a disk come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The text of the disk: all of them can be used, now or later.
    Given,
    /// Discovery, which lists paths that this machine cannot use, too.
    Listed,
}

impl Origin {
    /// Whether a path that has failed may join the disk later. Discovery also lists paths that
    /// refuse for now, such as those of a standby controller.
    fn joins_later(self, error: &ConnectError) -> bool {
        use ConnectErrorKind::{Local, Unsupported, Usage};
        let is_for_good = matches!(error.kind(), Usage | Local | Unsupported);
        error.is_of_the_network() || self == Self::Listed && !is_for_good
    }
}

impl Opener {
    /// Opens a disk over several paths.
    pub(super) fn open_paths(
        &self,
        spec: &Spec,
        origin: Origin,
    ) -> Result<Arc<dyn Device>, Failure> {
        let Disk::Multipath {
            paths,
            policy,
            failover,
        } = &spec.disk
        else {
            unreachable!("a disk over several paths")
        };
        let (policy, failover) = (policy.as_deref(), failover.as_deref());
        let wrong = |why: String| Failure::usage(format!("{spec}: {why}"));
        let policy = match self.policy {
            Some(policy) => policy,
            None => policy
                .map_or_else(|| Ok(Policy::default()), str::parse)
                .map_err(wrong)?,
        };
        let failover = match failover {
            None | Some("safe") => Failover::Safe,
            Some("fast") => Failover::Fast,
            Some(other) => return Err(wrong(format!("`failover={other}`: write safe or fast"))),
        };
        let disk = self.join(spec, (paths, origin), (policy, failover))?;
        if let Some(on_roster) = &self.on_roster {
            on_roster(disk.roster());
        }
        Ok(Arc::new(disk))
    }

    /// Opens the paths of a disk, and joins them.
    fn join(
        &self,
        spec: &Spec,
        (paths, origin): (&[Remote], Origin),
        how: (Policy, Failover),
    ) -> Result<Multipath, Failure> {
        let failed = |error: ConnectError| {
            let sentence = format!("{spec}: {error}");
            Failure::new(Failure::from(error).kind(), sentence)
        };
        multipath::check_number(paths.len()).map_err(failed)?;
        let name = spec.to_string();
        if self.left_over.is_empty() {
            let paths: Vec<_> = paths.iter().cloned().enumerate().collect();
            let paths = self.open_reachable(&paths, origin)?;
            let paths = paths.into_iter().map(|(_, disk)| disk).collect();
            return multipath::connect(&name, paths, how).map_err(failed);
        }
        let paths = self.open_reachable(&left_over(paths, &self.left_over)?, origin)?;
        multipath::connect_numbered(&name, paths, how).map_err(failed)
    }

    /// Opens all paths of a disk. One that cannot be reached now joins when it can, if the disk is
    /// known from another one.
    fn open_reachable(
        &self,
        paths: &[(usize, Remote)],
        origin: Origin,
    ) -> Result<Numbered, Failure> {
        let tried = paths.iter();
        let tried = tried.map(|(number, path)| self.try_remote(path, *number));
        let tried = tried.collect::<Result<Vec<_>, Failure>>()?;
        let reached = paths.iter().zip(&tried);
        let known = |iscsi: bool| {
            let mut disks = reached
                .clone()
                .filter(|((_, path), _)| is_iscsi(path) == iscsi);
            disks.find_map(|(_, disk)| disk.as_ref().ok().map(Arc::clone))
        };
        let known = [false, true].map(known);
        let opened = paths.iter().zip(tried);
        let opened = opened.filter_map(|((number, path), disk)| match disk {
            Ok(disk) => Some(Ok((*number, disk))),
            Err(error) => match &known[usize::from(is_iscsi(path))] {
                Some(known) if origin.joins_later(&error) => {
                    say(format_args!(
                        "warning: {error}; this path joins the disk when it can"
                    ));
                    let disk = self.open_later((path, *number), &**known);
                    Some(disk.map(|disk| (*number, disk)))
                }
                Some(_) if origin == Origin::Listed => {
                    say(format_args!("warning: {error}; this path is left out"));
                    None
                }
                _ => Some(Err(not_reached(path)(error))),
            },
        });
        opened.collect()
    }

    /// A path that is not asked, of a disk that is known from another one.
    fn open_later(
        &self,
        (path, index): (&Remote, usize),
        known: &dyn PathDisk,
    ) -> Result<Arc<dyn PathDisk>, Failure> {
        let (options, theirs) = self.path_options(path, index)?;
        let (port, initiator) = match is_iscsi(path) {
            true => (
                iscsi::DEFAULT_PORT,
                Some(initiator(&self.initiator, path, theirs)?),
            ),
            false => (fabrix_host::DEFAULT_PORT, None),
        };
        let unit = match is_iscsi(path) {
            true => unit(path)?.lun.map(u32::from),
            false => path.nsid,
        };
        let way = Way {
            transport: transport(path).unwrap_or(Transport::Tcp),
            host: &path.host,
            port: path.port.unwrap_or(port),
            target: path.nqn.as_deref(),
            unit,
            options: &options,
            initiator: initiator.as_ref(),
        };
        known.elsewhere(&way).map_err(not_reached(path))
    }

    /// Connects one more path of a disk, which gets a number.
    pub(crate) fn open_path(
        &self,
        text: &str,
        number: usize,
    ) -> Result<Arc<dyn PathDisk>, Failure> {
        self.open_remote_path(&path(text)?, number)
    }

    /// As [`open_path`](Self::open_path), with the parsed URI.
    pub(crate) fn open_remote_path(
        &self,
        path: &Remote,
        number: usize,
    ) -> Result<Arc<dyn PathDisk>, Failure> {
        self.try_remote(path, number)?.map_err(not_reached(path))
    }
}

/// Parses a single path.
///
/// # Errors
/// The text is no remote disk, or has options of the whole disk.
pub(crate) fn path(text: &str) -> Result<Remote, Failure> {
    match Spec::parse(text).map_err(Failure::usage)? {
        Spec {
            disk: Disk::Remote(path),
            common,
        } if common == Common::default() => Ok(path),
        _ => Err(Failure::usage(format!(
            "{}: a path is the URI of a remote disk, without options of the disk",
            without_secrets(text)
        ))),
    }
}

/// The paths that a disk had when it was left. `given` are those of its text: they have secrets and
/// options. A path that has joined later has those of another one to the same target.
fn left_over(given: &[Remote], left: &[NumberedPath]) -> Result<Vec<(usize, Remote)>, Failure> {
    let with_secrets = |NumberedPath { index, uri }: &NumberedPath| {
        let kept = path(uri)?;
        if let Some(same) = given.iter().find(|given| leads_to(given, &kept)) {
            return Ok((*index, same.clone()));
        }
        let sibling = given.iter().find(|given| given.nqn == kept.nqn);
        let sibling = sibling.filter(|sibling| is_iscsi(sibling) == is_iscsi(&kept));
        Ok((
            *index,
            Remote {
                account: sibling.and_then(|it| it.account.clone()),
                options: sibling.map_or_else(Vec::new, |it| it.options.clone()),
                ..kept
            },
        ))
    };
    left.iter().map(with_secrets).collect()
}

/// Whether a URI leads to a path. What it leaves open was found when the path was opened.
fn leads_to(given: &Remote, path: &Remote) -> bool {
    let place = |remote: &Remote| match is_iscsi(remote) {
        true => unit(remote).ok().map(|it| (it.port, it.lun.map(u32::from))),
        false => address(remote).ok().map(|it| (it.port, it.nsid)),
    };
    let (Some(given_at), Some(path_at)) = (place(given), place(path)) else {
        return false;
    };
    let is_open_or = |given: bool, same: bool| !given || same;
    given.scheme == path.scheme
        && given.host == path.host
        && given_at.0 == path_at.0
        && is_open_or(given_at.1.is_some(), given_at.1 == path_at.1)
        && is_open_or(given.nqn.is_some(), given.nqn == path.nqn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_taken_over_has_the_paths_that_it_had_with_the_secrets_of_its_text() {
        let given = [
            "iscsi://me%secret@10.0.0.1/iqn.2026-01.io.fabrix:a/0",
            "iscsi://me%secret@10.0.0.2/iqn.2026-01.io.fabrix:a/0",
        ];
        let given = given.map(|text| path(text).expect("a path"));
        let left = [
            (1, "iscsi://10.0.0.2:3260/iqn.2026-01.io.fabrix:a/0"),
            (4, "iscsi://10.0.0.3:3260/iqn.2026-01.io.fabrix:a/0"),
        ];
        let left = left.map(|(index, uri)| NumberedPath {
            index,
            uri: uri.to_owned(),
        });
        let found = left_over(&given, &left).expect("paths");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], (1, given[1].clone()));
        assert_eq!((found[1].0, &*found[1].1.host), (4, "10.0.0.3"));
        assert_eq!(found[1].1.account, given[0].account);
    }

    #[test]
    fn what_a_uri_leaves_open_is_the_path_that_was_found() {
        let found = path("nvme+tcp://10.0.0.1:4420/nqn.2026-01.io.fabrix:a/1").expect("a path");
        for (text, leads) in [
            ("nvme+tcp://10.0.0.1", true),
            ("nvme+tcp://10.0.0.1:4420/nqn.2026-01.io.fabrix:a", true),
            ("nvme+tcp://10.0.0.1:4421/nqn.2026-01.io.fabrix:a", false),
            ("nvme+tcp://10.0.0.1/nqn.2026-01.io.fabrix:b", false),
            ("nvme+tcp://10.0.0.1/nqn.2026-01.io.fabrix:a/2", false),
            ("nvme+rdma://10.0.0.1/nqn.2026-01.io.fabrix:a/1", false),
        ] {
            assert_eq!(leads_to(&path(text).expect(text), &found), leads, "{text}");
        }
    }
}

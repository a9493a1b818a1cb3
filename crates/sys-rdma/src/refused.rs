//! Reasons why RDMA cannot be used on this machine, as sentences for its user.

use std::fmt;
use std::io;
use std::path::Path;

use crate::look::Facts;

/// Why RDMA cannot be used, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What was found, in one sentence for the user.
    pub found: String,
    /// What to change, in one sentence for the user.
    pub fix: String,
}

impl Refused {
    /// `said`: what the dynamic linker says.
    pub(crate) fn no_library(said: &str) -> Self {
        Self {
            found: said.to_owned(),
            fix: "install the packages libibverbs1, librdmacm1 and ibverbs-providers (Debian), or rdma-core \
                  (other distributions)"
                .to_owned(),
        }
    }

    /// The connection manager has no channel.
    pub(crate) fn no_channel(error: &io::Error) -> Self {
        Self::explain(error, &Facts::read(Path::new("/")))
    }

    /// The reason for an error of opening a channel on a machine with these facts.
    pub(crate) fn explain(error: &io::Error, facts: &Facts) -> Self {
        let (found, fix) = match error.raw_os_error() {
            Some(libc::ENODEV) => facts.no_device(),
            Some(libc::ENOENT) if !facts.has_manager => (
                "/dev/infiniband/rdma_cm is not there".to_owned(),
                "as root: modprobe rdma_ucm; in a container, hand /dev/infiniband into it"
                    .to_owned(),
            ),
            // librdmacm says ENOENT for a file that it may not open.
            Some(libc::ENOENT | libc::EACCES | libc::EPERM) => (
                "/dev/infiniband/rdma_cm cannot be opened".to_owned(),
                "as root: chmod 666 /dev/infiniband/rdma_cm, or allow the device in the container"
                    .to_owned(),
            ),
            _ => (
                format!("the RDMA connection manager says: {error}"),
                "see `dmesg`".to_owned(),
            ),
        };
        Self { found, fix }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RDMA cannot be used: {}; {}", self.found, self.fix)
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Port;

    fn check(errno: i32, facts: &Facts, parts: [&str; 2]) {
        let refused = Refused::explain(&io::Error::from_raw_os_error(errno), facts);
        assert!(refused.found.contains(parts[0]), "{refused:?}");
        assert!(refused.fix.contains(parts[1]), "{refused:?}");
    }

    fn with_device() -> Facts {
        Facts {
            has_driver: true,
            has_manager: true,
            ports: vec![Port {
                device: "rxe0".to_owned(),
                uverbs: Some(("uverbs0".to_owned(), true)),
                ..Port::default()
            }],
        }
    }

    #[test]
    fn every_way_in_which_rdma_is_missing_has_its_sentence() {
        let nothing = Facts::default();
        check(libc::ENODEV, &nothing, ["no RDMA driver", "rdma link add"]);
        let no_device = Facts {
            has_driver: true,
            ..Facts::default()
        };
        check(
            libc::ENODEV,
            &no_device,
            ["no RDMA device", "rdma link add"],
        );
        let mut no_verbs = with_device();
        no_verbs.ports[0].uverbs = None;
        check(libc::ENODEV, &no_verbs, ["ib_uverbs", "modprobe ib_uverbs"]);
        check(
            libc::ENODEV,
            &with_device(),
            ["no provider for rxe0", "ibverbs-providers"],
        );
        let mut no_manager = with_device();
        no_manager.has_manager = false;
        check(libc::ENOENT, &no_manager, ["not there", "rdma_ucm"]);
        check(libc::ENOENT, &with_device(), ["cannot be opened", "chmod"]);
        check(
            libc::EMFILE,
            &with_device(),
            ["Too many open files", "dmesg"],
        );
    }

    #[test]
    fn a_missing_library_is_named_with_its_packages() {
        let said = "libibverbs.so.1: cannot open shared object file";
        let refused = Refused::no_library(said).to_string();
        assert!(
            refused.contains(said) && refused.contains("libibverbs1"),
            "{refused}"
        );
    }
}

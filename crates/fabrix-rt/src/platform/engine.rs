//! Engines: the interfaces of the kernel that a shard can use, and the reasons why io_uring cannot
//! be used.
//!
//! Containers forbid io_uring by default (Docker since 2023), and some systems switch it off. The
//! program says the reason and what to change, and goes on with epoll.

use std::fmt;
use std::io;

use crate::sys;

/// The interface of the kernel that a shard uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring if it can be used, else epoll.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// epoll. It works everywhere, but I/O of files stops the shard.
    Epoll,
}

/// Result of [`probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Version of the kernel, major and minor.
    pub kernel: (u32, u32),
}

/// Reason why io_uring cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Kind of reason.
    pub reason: Reason,
    /// What was found, in one sentence for the user.
    pub found: String,
    /// What to change, in one sentence for the user.
    pub fix: String,
}

/// Kinds of reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The kernel is older than 6.1, or was built without io_uring.
    Kernel,
    /// The sysctl kernel.io_uring_disabled.
    Sysctl,
    /// A seccomp filter or security module, as containers have.
    Container,
    /// RLIMIT_MEMLOCK.
    LockedMemory,
    /// RLIMIT_NOFILE.
    OpenFiles,
    /// Another reason. The text contains the errno.
    Other,
}

/// Makes a small ring with all features that a shard needs.
pub fn probe() -> Result<Features, Refused> {
    let here = Circumstances::read();
    match sys::uring::build::<sys::entry::Short>(8) {
        Ok(_) => Ok(Features {
            kernel: here.kernel,
        }),
        Err(error) => Err(here.explain(&error)),
    }
}

/// The reason for an error of making a ring.
pub(crate) fn explain(error: &io::Error) -> Refused {
    Circumstances::read().explain(error)
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "io_uring is not to be had: {}. {}", self.found, self.fix)
    }
}

impl std::error::Error for Refused {}

/// Facts that tell the reason for an error.
#[derive(Clone, Debug, Default)]
struct Circumstances {
    kernel: (u32, u32),
    /// kernel.io_uring_disabled: 0 no, 1 for the unprivileged, 2 for all.
    disabled: u32,
    /// A seccomp filter is in force.
    filtered: bool,
    memlock_bytes: u64,
}

impl Circumstances {
    fn read() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let status = text("/proc/self/status");
        let seccomp = status
            .lines()
            .find_map(|line| line.strip_prefix("Seccomp:"));
        Self {
            kernel: parse_kernel(&text("/proc/sys/kernel/osrelease")),
            disabled: text("/proc/sys/kernel/io_uring_disabled")
                .trim()
                .parse()
                .unwrap_or(0),
            filtered: seccomp.is_some_and(|mode| mode.trim() == "2"),
            memlock_bytes: sys::affinity::memlock_bytes(),
        }
    }

    fn explain(&self, error: &io::Error) -> Refused {
        let reason = self.reason(error.raw_os_error().unwrap_or(0));
        let (major, minor) = self.kernel;
        let (found, fix) = match reason {
            Reason::Kernel => (
                format!("kernel {major}.{minor} is too old or was built without it"),
                "Run a kernel of version 6.1 or later with CONFIG_IO_URING.".to_owned(),
            ),
            Reason::Sysctl => (
                format!("kernel.io_uring_disabled is {}", self.disabled),
                "Run `sysctl kernel.io_uring_disabled=0`.".to_owned(),
            ),
            Reason::Container => (
                "a container's seccomp filter or a security module forbids it".to_owned(),
                "Start the container with a seccomp profile that allows io_uring_setup, \
                 io_uring_enter and io_uring_register (for a trial: --security-opt \
                 seccomp=unconfined)."
                    .to_owned(),
            ),
            Reason::LockedMemory => (
                format!("only {} bytes may be locked in memory", self.memlock_bytes),
                "Raise the limit: `ulimit -l unlimited`, or LimitMEMLOCK=infinity in the systemd \
                 unit."
                    .to_owned(),
            ),
            Reason::OpenFiles => (
                "the process has as many files open as it may".to_owned(),
                "Raise the limit: `ulimit -n 65536`, or LimitNOFILE=65536 in the systemd unit."
                    .to_owned(),
            ),
            Reason::Other => (
                format!("io_uring_setup says: {error}"),
                "Use the engine epoll, and please report this.".to_owned(),
            ),
        };
        Refused { reason, found, fix }
    }

    fn reason(&self, errno: i32) -> Reason {
        match errno {
            libc::EPERM | libc::EACCES if self.disabled > 0 => Reason::Sysctl,
            libc::EPERM | libc::EACCES => Reason::Container,
            // Some seccomp filters answer as if the system call did not exist.
            libc::ENOSYS if self.filtered && self.kernel >= KERNEL_MIN => Reason::Container,
            libc::ENOSYS => Reason::Kernel,
            libc::EINVAL if self.kernel < KERNEL_MIN => Reason::Kernel,
            libc::ENOMEM => Reason::LockedMemory,
            libc::EMFILE | libc::ENFILE => Reason::OpenFiles,
            _ => Reason::Other,
        }
    }
}

/// Reads "6.18.44-fc" as (6, 18). Unreadable numbers are zero.
pub(crate) fn parse_kernel(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// First version with deferred task work (IORING_SETUP_DEFER_TASKRUN).
const KERNEL_MIN: (u32, u32) = (6, 1);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(here: &Circumstances, errno: i32, reason: Reason, word: &str) {
        let refused = here.explain(&io::Error::from_raw_os_error(errno));
        assert_eq!(refused.reason, reason);
        assert!(refused.to_string().contains(word), "{refused}");
    }

    #[test]
    fn every_refusal_names_its_reason_and_its_fix() {
        let here = Circumstances {
            kernel: (6, 12),
            memlock_bytes: 65_536,
            ..Default::default()
        };
        check(&here, libc::EPERM, Reason::Container, "seccomp");
        check(&here, libc::ENOSYS, Reason::Kernel, "CONFIG_IO_URING");
        check(&here, libc::ENOMEM, Reason::LockedMemory, "65536");
        check(&here, libc::EMFILE, Reason::OpenFiles, "ulimit -n");
        check(&here, libc::EINVAL, Reason::Other, "epoll");
        check(
            &Circumstances {
                filtered: true,
                ..here.clone()
            },
            libc::ENOSYS,
            Reason::Container,
            "seccomp",
        );
        check(
            &Circumstances {
                disabled: 2,
                ..here.clone()
            },
            libc::EPERM,
            Reason::Sysctl,
            "io_uring_disabled=0",
        );
        check(
            &Circumstances {
                kernel: (5, 15),
                ..here
            },
            libc::EINVAL,
            Reason::Kernel,
            "5.15",
        );
    }

    #[test]
    fn kernel_versions_of_all_kinds_are_read() {
        assert_eq!(parse_kernel("6.18.44-fc-v669\n"), (6, 18));
        assert_eq!(parse_kernel("6.1-rc3"), (6, 1));
        assert_eq!(parse_kernel(""), (0, 0));
    }
}

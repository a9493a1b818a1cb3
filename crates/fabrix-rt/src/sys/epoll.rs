//! epoll: a set of descriptors, each reported once.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use super::check;

/// The set, and room for the reports of one wait.
pub(crate) struct Epoll {
    descriptor: OwnedFd,
    events: Vec<libc::epoll_event>,
    has_pwait2: bool,
}

/// One report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) key: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The descriptor has failed or was hung up, and there is nothing to read.
    pub(crate) has_failed: bool,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes a number and touches no memory.
        // WHY UNSAFE: std has no epoll.
        let descriptor = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel has just made this descriptor, so nobody else owns it.
        // WHY UNSAFE: ownership of a number cannot be checked.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self {
            descriptor,
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS],
            has_pwait2: true,
        })
    }

    /// Asks for one report of a descriptor. The next report has to be asked for again.
    pub(crate) fn arm(
        &self,
        descriptor: BorrowedFd<'_>,
        key: u64,
        read: bool,
        write: bool,
    ) -> io::Result<()> {
        let mut interest = libc::EPOLLONESHOT;
        if read {
            interest |= libc::EPOLLIN | libc::EPOLLRDHUP;
        }
        if write {
            interest |= libc::EPOLLOUT;
        }
        let mut event = libc::epoll_event {
            events: interest.cast_unsigned(),
            u64: key,
        };
        let mut control = |what| {
            // SAFETY: the kernel reads one event, which outlives the call.
            // WHY UNSAFE: std has no epoll.
            check(unsafe {
                libc::epoll_ctl(
                    self.descriptor.as_raw_fd(),
                    what,
                    descriptor.as_raw_fd(),
                    &raw mut event,
                )
            })
        };
        // A closed descriptor leaves the set by itself, and a new one may have its number. So
        // modify first, then add.
        match control(libc::EPOLL_CTL_MOD) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                control(libc::EPOLL_CTL_ADD)?
            }
            other => other?,
        };
        Ok(())
    }

    /// Waits for reports; without limit for None. A signal ends the wait without reports.
    ///
    /// Kernels before 5.11 wait in whole milliseconds, rounded up.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let waited = self
            .wait_precisely(timeout)
            .unwrap_or_else(|| self.wait_roughly(timeout));
        match waited {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        }
    }

    /// The reports of the last wait.
    pub(crate) fn ready(&self, index: usize) -> Ready {
        let event = self.events[index];
        let bits = event.events.cast_signed();
        let failed = bits & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
        Ready {
            key: event.u64,
            readable: failed || bits & (libc::EPOLLIN | libc::EPOLLRDHUP) != 0,
            writable: failed || bits & libc::EPOLLOUT != 0,
            has_failed: failed && bits & libc::EPOLLIN == 0,
        }
    }

    fn wait_precisely(&mut self, timeout: Option<Duration>) -> Option<io::Result<usize>> {
        if !self.has_pwait2 {
            return None;
        }
        let time = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the kernel writes at most EVENTS events into a vector of that length. It reads
        // one timespec that outlives the call, or none, and no signal mask. WHY UNSAFE: std has no
        // epoll, and old C libraries have no epoll_pwait2.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.descriptor.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS,
                time,
                ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        let counted = usize::try_from(count).map_err(|_| io::Error::last_os_error());
        match counted.as_ref().map_err(io::Error::raw_os_error) {
            Err(Some(libc::ENOSYS | libc::EPERM)) => {
                self.has_pwait2 = false; // an old kernel, or a filter that does not know the call
                None
            }
            _ => Some(counted),
        }
    }

    fn wait_roughly(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let up = |timeout: Duration| timeout.as_nanos().div_ceil(1_000_000);
        let ms = timeout.map_or(-1, |timeout| {
            libc::c_int::try_from(up(timeout)).unwrap_or(libc::c_int::MAX)
        });
        let room = libc::c_int::try_from(EVENTS).expect("a small constant");
        // SAFETY: the kernel writes at most `room` events into a vector of that length.
        // WHY UNSAFE: std has no epoll.
        let count = check(unsafe {
            libc::epoll_wait(
                self.descriptor.as_raw_fd(),
                self.events.as_mut_ptr(),
                room,
                ms,
            )
        })?;
        Ok(usize::try_from(count).expect("not negative"))
    }
}

/// Whether a descriptor can be read, without waiting.
///
/// Errors: EIO for a descriptor that has failed, and what poll(2) says.
pub(crate) fn is_readable(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    let mut asked = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the kernel reads and writes one pollfd, which outlives the call.
    // WHY UNSAFE: std has no poll.
    check(unsafe { libc::poll(&raw mut asked, 1, 0) })?;
    match asked.revents {
        0 => Ok(false),
        events if events & libc::POLLIN != 0 => Ok(true),
        _ => Err(io::Error::from_raw_os_error(libc::EIO)),
    }
}

const EVENTS: usize = 256;

//! The drivers of Linux: io_uring, and epoll for containers that forbid io_uring.

mod epoll;
mod in_place;
mod now;
mod pollers;
mod uring;
mod warm;

pub(super) use epoll::EpollDriver;
pub(super) use uring::UringDriver;

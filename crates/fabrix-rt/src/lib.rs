//! The machine under Fabrix: cores, memory, the kernel.
//!
//! A [`Shard`] is one thread with its driver, its tasks and its memory. A [`Task`] (a connection, a
//! listener, a benchmark job) starts operations ([`Op`]) and receives their completions
//! ([`Completion`]). An operation owns its buffers until the kernel has ended it, so no task can
//! free memory that the kernel may still write. Everything of one shard runs on its thread, without
//! locks and without atomics. [`Remote`] sends messages to another shard.
//!
//! The files of this folder are the core, which names no interface of a kernel. `platform/` is
//! Linux: drivers, sockets, files, threads, and facts about this machine. `sys/` makes
//! the system calls of both. This crate knows no protocol and no disk.

mod apart;
mod bell;
mod bitmap;
mod buf;
mod control;
pub mod counting;
pub mod driver;
mod gather;
mod loan;
mod op;
mod platform;
mod poller;
mod region;
mod registered;
mod shard;
pub mod simulated;
mod slab;
mod spin;
mod sys;
mod time;
mod timer;
mod token;

pub use apart::Apart;
pub use bitmap::Bitmap;
pub use buf::Buf;
pub use control::Control;
pub use gather::Gather;
pub use loan::{Lent, LocalRegion};
pub use op::{Allocate, Completion, Loan, Op};
pub use platform::engine::{Engine, Features, Refused};
pub use platform::exchange::Exchange;
pub use platform::{
    ControlThread, DetachedSocket, File, Listener, ShardThread, Socket, Stretch, Waitable,
    is_in_memory, needed_thread, spawn, stretch,
};
pub use platform::{
    counter, engine, errno, exchange, local_peer, net, nodes, process, random, terminal, topology,
};
pub use poller::Poller;
pub use region::{HugePages, Pinned, Region};
pub use registered::Registered;
pub use shard::{Full, Remote, Shard, ShardConfig, StartError, Task, Wait};
pub use slab::{MemoryListener, Slab};
pub use spin::SpinPolicy;
pub use time::Nanos;
pub use timer::TimerId;
pub use token::{TaskId, Token};

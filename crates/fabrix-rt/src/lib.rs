//! The machine under Fabrix: cores, memory, the kernel.
//!
//! A [`Shard`] is one pinned thread with its ring, its tasks and its memory. A [`Task`] (a
//! connection, a listener, a benchmark job) asks for operations ([`Op`]) and is told their endings
//! ([`Completion`]); what an operation works on is owned by it until the kernel has ended it, so no
//! task can free memory that the kernel may still write. Everything of one shard runs on its
//! thread, without locks and without atomics; [`Remote`] is the only way across.
//!
//! This crate knows no protocol and no disk. What the compiler cannot check, in the whole project,
//! stands in `sys/`.

mod apart;
mod bitmap;
mod buf;
pub mod counter;
pub mod counting;
pub mod driver;
pub mod engine;
pub mod errno;
pub mod exchange;
mod gather;
mod handle;
pub mod local_peer;
mod lookout;
mod mailbox;
pub mod net;
mod op;
pub mod process;
pub mod random;
mod region;
mod registered;
mod shard;
mod sparse;
mod spawn;
mod spin;
mod sys;
mod tasks;
pub mod terminal;
mod time;
mod timer;
mod token;
pub mod topology;

pub use apart::Apart;
pub use bitmap::Bitmap;
pub use buf::Buf;
pub use engine::{Engine, Features, Refused};
pub use exchange::Exchange;
pub use gather::Gather;
pub use handle::{File, Listener, Socket, is_in_memory};
pub use mailbox::{Full, Remote};
pub use op::{Allocate, Completion, Loan, Op};
pub use region::{HugePages, Lent, LocalRegion, Region};
pub use registered::Registered;
pub use shard::{Shard, ShardConfig, StartError, Task, Wait};
pub use sparse::{Stretch, stretch};
pub use spawn::{ShardThread, needed_thread, spawn};
pub use spin::SpinPolicy;
pub use time::Nanos;
pub use timer::TimerId;
pub use token::{TaskId, Token};

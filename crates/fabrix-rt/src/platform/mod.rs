//! The platform: Linux, as the core of this crate needs it and as programs of ours see it.
//!
//! The core (the files beside this folder) names no interface of a kernel. It knows the platform by
//! a few opaque types: handles ([`File`], [`Socket`], [`Listener`],
//! [`Exchange`](exchange::Exchange)), the wake-up [`Event`], and [`Engine`](engine::Engine) with
//! the reasons of a refusal. The platform knows the core: its drivers implement
//! [`Driver`](crate::driver::Driver). Another operating system is another folder with these names.
//! Unsafe code of both stands in `sys/`.

mod clock;
mod control;
pub mod counter;
mod driver;
pub mod engine;
pub mod errno;
mod event;
pub mod exchange;
mod handle;
pub mod local_peer;
mod lookout;
pub mod net;
pub mod nodes;
pub mod process;
pub mod random;
mod sparse;
mod spawn;
mod start;
pub mod terminal;
pub mod topology;

pub use control::ControlThread;
pub(crate) use event::Event;
pub use handle::{DetachedSocket, File, Listener, Socket, Waitable, is_in_memory};
pub use sparse::{Stretch, stretch};
pub use spawn::{ShardThread, needed_thread, spawn};

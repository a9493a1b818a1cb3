//! Shared code of the host's tests: a fake target (`fake`) and a user of a disk (`rig`).
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "a module of several test programs, none uses all of it"
)]

mod fake;
mod link;
mod load;
mod pages;
mod rig;
mod unit;

pub use fake::{Fake, Greeting, Script};
pub use link::{Command, Link, Then};
pub use load::Load;
pub use pages::{DISK_BLOCKS, NQN, controller, namespace, put_descriptors};
pub use rig::{Asked, Notes, PATIENCE, Rig, options, options_in_world, within};
pub use unit::{Reply, Unit, address, initiator};

/// Runs one test body over both ways into the kernel; io_uring only where it is to be had.
#[macro_export]
macro_rules! on_both_engines {
    ($($(#[$meta:meta])* $name:ident),* $(,)?) => {
        mod with_io_uring {
            $($(#[$meta])* #[test] fn $name() {
                match fabrix_rt::engine::probe() {
                    Ok(_) => super::$name(fabrix_rt::Engine::IoUring),
                    Err(why) => eprintln!("skipped: {why}"),
                }
            })*
        }
        mod with_epoll {
            $($(#[$meta])* #[test] fn $name() { super::$name(fabrix_rt::Engine::Epoll); })*
        }
    };
}

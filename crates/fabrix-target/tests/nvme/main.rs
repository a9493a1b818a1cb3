//! The target as hosts see it. Every test starts a target on shards of its own and sends bytes over
//! sockets, once over io_uring and once over epoll.

#[path = "../common/mod.rs"]
mod common;

mod ana;
mod announced;
mod bring_up;
mod changes;
mod endings;
mod faults;
mod fused;
mod io;
mod limits;
mod notices;
mod resets;
mod secrets;
mod subsystems;
mod truncation;
mod turns;
mod unanswered;
mod wrong_commands;
mod wrong_pdus;

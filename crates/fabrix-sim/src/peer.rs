//! Peers: hosts that send single commands and see every answer, which a disk's user does not:
//! changes of reservations, and reads and writes that nobody repeats.
//!
//! A peer has one way to the target at a time. It notices a silent target by its keep-alive.

mod command;
mod iscsi;
mod nvme;
mod tcp;

use fabrix_rt::{Completion, Shard, TaskId};

pub(crate) use self::command::{Action, Answer, Ask, Change, HostId};
pub(crate) use self::iscsi::IscsiPeer;
pub(crate) use self::nvme::NvmePeer;

/// Something that a peer hears.
pub(crate) enum Event {
    /// It has connected.
    Ready,
    /// A command has ended.
    Ended(u16, Answer),
    /// The target lives.
    Alive,
}

/// The connection is lost.
pub(crate) struct Lost;

/// A peer, for the task that owns it.
pub(crate) trait Peer {
    /// Begins to connect, afresh.
    fn connect(&mut self, shard: &mut Shard, task: TaskId);
    /// Takes the completion of an operation.
    fn completed(&mut self, slot: u32, completion: Completion) -> Result<(), Lost>;
    /// The next event.
    fn next(&mut self, shard: &mut Shard) -> Result<Option<Event>, Lost>;
    /// Sends what waits, and receives.
    fn flush(&mut self, shard: &mut Shard) -> Result<(), Lost>;
    /// Sends a command, for a slot below [`SLOTS`]. False: there is no room for it now.
    fn send(&mut self, shard: &mut Shard, slot: u16, ask: &Ask) -> bool;
    /// Asks whether the target lives.
    fn keep_alive(&mut self);
    /// Ends the connections.
    fn close(&mut self);
}

/// Commands at once.
pub(crate) const SLOTS: u16 = 15;
/// Number of the disk's namespace. Its logical unit is 0.
const NSID: u32 = 1;

//! What a transport of messages needs of a queue pair.

use std::io;

use fabrix_rt::{Buf, Shard};
use sys_rdma::{Access, Data, Done, Memory, Part, Remote, Unsent, Why};

/// One end of an RDMA connection: messages, RDMA READ and RDMA WRITE.
///
/// [`sys_rdma::QueuePair`] says what each method promises. A queue pair in memory keeps the same
/// promises in tests and in simulated worlds.
pub trait Pair {
    /// Slots that have memory, from 0 on.
    fn receives(&self) -> u32;

    /// Gives all slots memory.
    ///
    /// # Errors
    /// The shard has no memory that the device knows.
    fn add_receives(&mut self, shard: &mut Shard) -> io::Result<()>;

    /// Hands the receive of a slot to the device, with the next flush.
    fn post_receive(&mut self, slot: u32);

    /// The message in a slot that was not handed to the device again.
    fn message(&self, slot: u32, bytes: usize) -> &[u8];

    /// Prepares a message, which may make a key of the peer invalid.
    ///
    /// # Errors
    /// The reason.
    fn send(&mut self, message: &[u8], invalidate: Option<u32>, token: u64) -> Result<(), Unsent>;

    /// Prepares RDMA WRITEs of all parts. Their end is not told: the end of a message behind them
    /// tells it.
    ///
    /// # Errors
    /// The reason, and the memory back.
    fn write(&mut self, memory: Memory, parts: &[Part]) -> Result<(), Unsent>;

    /// Prepares RDMA READs of all parts.
    ///
    /// # Errors
    /// The reason, and the buffer back.
    fn read(&mut self, buf: Buf, parts: &[Part], token: u64) -> Result<(), Unsent>;

    /// Requests that may be prepared now.
    fn room(&self) -> usize;

    /// Requests that have not ended.
    fn sends_in_progress(&self) -> usize;

    /// Hands everything that is prepared to the device.
    ///
    /// # Errors
    /// The device takes no more: the connection has failed.
    fn flush(&mut self) -> io::Result<()>;

    /// The next news. None: there are no more.
    fn next_done(&mut self) -> Option<Done>;

    /// Ends the connection.
    fn disconnect(&mut self);
}

/// A [`Pair`] whose peer reaches memory of this end through windows.
pub trait HostPair: Pair {
    /// Prepares a message, with data behind it.
    ///
    /// # Errors
    /// The reason, and the memory back.
    fn send_with(&mut self, message: &[u8], data: Data, token: u64) -> Result<(), Unsent>;

    /// Prepares the opening of a window to a range of memory.
    ///
    /// # Errors
    /// The reason, and the memory back.
    fn open_window(&mut self, window: u32, data: Data, access: Access) -> Result<Remote, Unsent>;

    /// Closes a window, at once if a message of the peer has closed it.
    ///
    /// # Errors
    /// The reason. The window stays open.
    fn close_window(&mut self, window: u32, token: u64) -> Result<Option<Memory>, Why>;

    /// Ends the connection and all access to memory of this end. Result: the memory of the windows
    /// that were open, by number.
    fn into_memory(self) -> Vec<(u32, Memory)>;
}

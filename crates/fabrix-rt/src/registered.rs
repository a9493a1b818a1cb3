//! Memory that the kernel lends to a ring: a driver of the kernel's has put the pages of a request
//! into the ring's table of buffers, where operations name them by number. They have no address in
//! this process, so nothing here can look at them, and no mistake here touches memory of this
//! process.

/// Pages of somebody else's request at a place in the table of this shard's ring.
///
/// Only a name: whether there is anything at the place, how long it is, and whether it may be
/// written is known to the kernel, which refuses with `-EFAULT` what does not fit. Always from its
/// start: of a part that begins elsewhere, the kernels of 2025 (from 6.15 on) may count the
/// segments wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its number in the table.
    pub place: u16,
    /// How many bytes of it.
    pub bytes: u32,
}

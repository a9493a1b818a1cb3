//! Registered memory: pages of a request that a driver of the kernel has put into the ring's table
//! of buffers. Operations name them by number. They have no address in this process, so code here
//! cannot look at them, and no mistake here touches memory of this process.

/// Pages of a request at a place in the table of this shard's ring.
///
/// The value is only a name. The kernel knows whether the place holds pages, how many bytes, and
/// whether they may be written. It refuses a mismatch with `-EFAULT`. The range always begins with
/// the first byte: Linux 6.15 and later, up to 2025, may count the segments of other ranges
/// wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Index in the table.
    pub place: u16,
    /// Bytes from the start.
    pub bytes: u32,
}

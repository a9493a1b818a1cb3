//! The received bytes of one connection that are not consumed yet.
//!
//! Knows one receive buffer. It starts small and grows only while the peer fills it, so that an
//! unknown or idle peer costs little memory. Does not know what the bytes mean.

use fabrix_rt::{Buf, Shard};

/// Bytes of a new connection's buffer: twice the largest PDU that must lie in one piece (8 KiB of
/// in-capsule data).
const FIRST_BYTES: usize = 16 << 10;
/// Bytes of a busy connection's buffer: a few times what one receive of TCP gives.
const MOST_BYTES: usize = 256 << 10;
/// Receives in a row that used less than a sixteenth of the buffer before it is exchanged for a
/// smaller one.
const SMALL_IN_A_ROW: u32 = 512;

pub(crate) struct Inbox {
    buf: Option<Buf>,
    start: usize,
    end: usize,
    want_bytes: usize,
    small: u32,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self {
            buf: None,
            start: 0,
            end: 0,
            want_bytes: FIRST_BYTES,
            small: 0,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.buf
            .as_ref()
            .map_or(&[], |buf| &buf.bytes()[self.start..self.end])
    }

    /// Bytes that were consumed since the last receive. They still lie where they were.
    pub(crate) fn consumed(&self, start: usize, bytes: usize) -> &[u8] {
        self.buf
            .as_ref()
            .map_or(&[], |buf| &buf.bytes()[start..start + bytes])
    }

    pub(crate) fn position(&self) -> usize {
        self.start
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        debug_assert!(self.start + bytes <= self.end);
        self.start += bytes;
    }

    /// Gives the buffer to receive into, the position to start at and the most bytes to receive.
    ///
    /// `contiguous` is how many bytes the machine needs in one piece. None: the shard has no memory
    /// for a buffer.
    pub(crate) fn lend(
        &mut self,
        shard: &mut Shard,
        contiguous: usize,
    ) -> Option<(Buf, usize, usize)> {
        let left = self.end - self.start;
        self.want_bytes = self.want_bytes.max(contiguous.next_power_of_two());
        let capacity = self.buf.as_ref().map_or(0, Buf::len);
        let exchange = capacity < contiguous || (left == 0 && capacity != self.want_bytes);
        if exchange && let Some(mut larger) = shard.take_buf(self.want_bytes) {
            larger.bytes_mut()[..left].copy_from_slice(self.bytes());
            self.buf = Some(larger);
            (self.start, self.end) = (0, left);
        }
        let mut buf = self.buf.take()?;
        if self.start > 0
            && (left == 0 || self.start + contiguous > buf.len() || self.end == buf.len())
        {
            buf.bytes_mut().copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, left);
        }
        if self.end == buf.len() {
            self.buf = Some(buf);
            return None;
        }
        let room = buf.len() - self.end;
        Some((buf, self.end, room))
    }

    /// Takes the buffer back after a receive of `bytes`.
    pub(crate) fn take_back(&mut self, buf: Buf, bytes: usize) {
        let room = buf.len() - self.end;
        self.end += bytes;
        if bytes == room {
            self.want_bytes = (buf.len() * 4).min(MOST_BYTES).max(buf.len());
            self.small = 0;
        } else if bytes * 16 < buf.len() {
            self.small += 1;
            if self.small == SMALL_IN_A_ROW {
                self.want_bytes = FIRST_BYTES;
            }
        } else {
            self.small = 0;
        }
        self.buf = Some(buf);
    }
}

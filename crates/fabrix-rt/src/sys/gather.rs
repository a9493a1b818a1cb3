//! The raw vectors of one send: copied headers, kept payload, and how far the kernel has come.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use super::check_bytes;
use crate::{Buf, Lent};

/// What keeps a part's memory alive.
pub(crate) enum Keep {
    /// A shard's buffer.
    Buf(Buf),
    /// Pages of a disk.
    Lent(Lent),
}

/// An iovec list, the memory it points to, and the message header for it.
///
/// Invariant: every iovec lies inside `area` or inside something in `keep`, until `clear`.
///
/// Apart from what other shards write, as [`crate::Apart`] says.
#[repr(align(128))]
pub(crate) struct Wire {
    area: NonNull<u8>,
    area_bytes: usize,
    area_used: usize,
    iovecs: Vec<libc::iovec>,
    keep: Vec<Keep>,
    first_unsent: usize,
    last_is_bytes: bool,
    total_bytes: usize,
    sent_bytes: usize,
    /// What one call is not to see of a part: its index and so many bytes at its end.
    cut: Option<(usize, usize)>,
    at_once_bytes: usize,
    header: libc::msghdr,
}

impl Wire {
    /// Room for `bytes` copied ones and `parts` parts; never more.
    pub(crate) fn new(bytes: usize, parts: usize) -> Self {
        // Not zeroed, which fills pages that an idle connection never needs: what is read was
        // pushed before.
        let area = Box::leak(Box::<[u8]>::new_uninit_slice(bytes));
        // SAFETY: a msghdr is plain numbers and pointers; zero is valid for all of them and means
        // "none".
        // WHY UNSAFE: on some C libraries it has private padding, so it cannot be written as a
        // literal.
        let header: libc::msghdr = unsafe { mem::zeroed() };
        Self {
            area: NonNull::from(area).cast(),
            area_bytes: bytes,
            area_used: 0,
            iovecs: Vec::with_capacity(parts),
            keep: Vec::with_capacity(parts),
            first_unsent: 0,
            last_is_bytes: false,
            total_bytes: 0,
            sent_bytes: 0,
            cut: None,
            at_once_bytes: usize::MAX,
            header,
        }
    }

    /// Copied bytes that still fit.
    pub(crate) fn bytes_left(&self) -> usize {
        self.area_bytes - self.area_used
    }

    /// Parts that still fit.
    pub(crate) fn parts_left(&self) -> usize {
        self.iovecs.capacity() - self.iovecs.len()
    }

    /// Parts so far.
    pub(crate) fn parts(&self) -> usize {
        self.iovecs.len()
    }

    /// Bytes so far.
    pub(crate) fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// Bytes the kernel has not taken.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.total_bytes - self.sent_bytes
    }

    /// Copies bytes in, to the part before when that was copied too.
    #[inline(always)]
    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        assert!(
            bytes.len() <= self.bytes_left(),
            "a Gather's {} bytes of copies are full",
            self.area_bytes
        );
        // SAFETY: the area has room for `bytes`, as just checked, and is ours alone: `bytes` lies
        // elsewhere.
        // WHY UNSAFE: iovecs point into the area while it is filled, so no `&mut` to all of it may
        // exist.
        let start = unsafe {
            let start = self.area.add(self.area_used);
            ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr(), bytes.len());
            start
        };
        self.area_used += bytes.len();
        self.total_bytes += bytes.len();
        match self.iovecs.last_mut() {
            Some(last) if self.last_is_bytes => last.iov_len += bytes.len(),
            _ => self.push(start, bytes.len()),
        }
        self.last_is_bytes = true;
    }

    /// Adds `bytes` from `start` of something that is kept until `clear`. Panics outside of it.
    #[inline(always)]
    pub(crate) fn push_kept(&mut self, keep: Keep, start: usize, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let address = match &keep {
            Keep::Buf(buf) => buf.chunk().source(start, bytes),
            Keep::Lent(lent) => lent_at(lent, start, bytes),
        };
        self.push(address, bytes);
        self.keep.push(keep);
        self.total_bytes += bytes;
        self.last_is_bytes = false;
    }

    /// Adds pages of a disk, which are kept until `clear`. What one disk lends in turn is kept by
    /// its first loan.
    #[inline(always)]
    pub(crate) fn push_lent(&mut self, lent: Lent) {
        let bytes = lent.len();
        if bytes == 0 {
            return;
        }
        self.push(lent_at(&lent, 0, bytes), bytes);
        self.total_bytes += bytes;
        self.last_is_bytes = false;
        match self.keep.last() {
            Some(Keep::Lent(last)) if last.keeps(&lent) => {}
            _ => self.keep.push(Keep::Lent(lent)),
        }
    }

    /// Lets everything go.
    pub(crate) fn clear(&mut self) {
        self.iovecs.clear();
        self.keep.clear();
        self.area_used = 0;
        self.first_unsent = 0;
        self.last_is_bytes = false;
        self.total_bytes = 0;
        self.sent_bytes = 0;
        self.cut = None;
    }

    /// The kernel took `bytes` more.
    pub(crate) fn advance(&mut self, bytes: usize) {
        assert!(
            bytes <= self.unsent_bytes(),
            "the kernel sends no more than it was given"
        );
        self.mend();
        self.sent_bytes += bytes;
        let mut left = bytes;
        while left > 0 {
            let part = &mut self.iovecs[self.first_unsent];
            if left < part.iov_len {
                part.iov_base = part.iov_base.wrapping_byte_add(left);
                part.iov_len -= left;
                return;
            }
            left -= part.iov_len;
            self.first_unsent += 1;
        }
    }

    /// The header of the next so many bytes, which one call is to send, which may be later. It is
    /// valid as long as this Wire neither moves nor changes.
    pub(crate) fn header(&mut self, bytes: usize) -> *const libc::msghdr {
        let end = self.cut(bytes);
        let next = &mut self.iovecs[self.first_unsent..end];
        self.header.msg_iovlen = next.len() as _;
        self.header.msg_iov = next.as_mut_ptr();
        &raw const self.header
    }

    /// One call sends no more than this, at least one byte, from now on.
    pub(crate) fn send_at_once(&mut self, bytes: usize) {
        self.at_once_bytes = bytes.max(1);
    }

    /// Bytes that the next call may send.
    pub(crate) fn bytes_at_once(&self) -> usize {
        self.unsent_bytes().min(self.at_once_bytes)
    }

    /// Makes the parts up to an index, which is returned, so many bytes, or all there are.
    fn cut(&mut self, bytes: usize) -> usize {
        self.mend();
        if self.unsent_bytes() <= bytes {
            return self.iovecs.len();
        }
        let mut room = bytes;
        let mut index = self.first_unsent;
        while room > self.iovecs[index].iov_len {
            room -= self.iovecs[index].iov_len;
            index += 1;
        }
        self.cut = Some((index, self.iovecs[index].iov_len - room));
        self.iovecs[index].iov_len = room;
        index + 1
    }

    /// Gives a cut part its end back.
    fn mend(&mut self) {
        if let Some((index, bytes)) = self.cut.take() {
            self.iovecs[index].iov_len += bytes;
        }
    }

    /// The list of what has not been sent, and its length. Valid as long as this Wire neither moves
    /// nor changes.
    pub(crate) fn parts_to_send(&mut self) -> (*const libc::iovec, u32) {
        self.mend();
        let unsent = &self.iovecs[self.first_unsent..];
        let count = u32::try_from(unsent.len()).expect("a Gather has at most 1,024 parts");
        (unsent.as_ptr(), count)
    }

    /// One writev of all of it, as a message to a device.
    pub(crate) fn write(&mut self, file: BorrowedFd<'_>) -> io::Result<usize> {
        let (parts, count) = self.parts_to_send();
        // SAFETY: the iovecs are valid (the invariant) and nothing changes during the call.
        // WHY UNSAFE: std writes slices, and lent pages must not become slices.
        check_bytes(unsafe { libc::writev(file.as_raw_fd(), parts, count.cast_signed()) })
    }

    /// One pwritev of all of it.
    pub(crate) fn write_at(&mut self, file: BorrowedFd<'_>, offset: u64) -> io::Result<usize> {
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (parts, count) = self.parts_to_send();
        // SAFETY: as in `write`.
        // WHY UNSAFE: as in `write`.
        check_bytes(unsafe { libc::pwritev(file.as_raw_fd(), parts, count.cast_signed(), offset) })
    }

    /// One sendmsg of the next `bytes`. Result: bytes; they count as sent.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        flags: libc::c_int,
        bytes: usize,
    ) -> io::Result<usize> {
        let header = self.header(bytes);
        // SAFETY: the header and its iovecs are valid (the invariant) and nothing changes during
        // the call.
        // WHY UNSAFE: std has no sendmsg with flags.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), header, flags | libc::MSG_NOSIGNAL) };
        let sent = check_bytes(sent)?;
        self.advance(sent);
        Ok(sent)
    }

    /// Appends a copy of what has not been sent.
    pub(crate) fn copy_to(&mut self, out: &mut Vec<u8>) {
        self.mend();
        for part in &self.iovecs[self.first_unsent..] {
            let start = out.len();
            out.resize(start + part.iov_len, 0);
            // SAFETY: the part is readable (the invariant), the room for it was just made.
            // WHY UNSAFE: lent pages must not become slices.
            unsafe {
                ptr::copy_nonoverlapping(
                    part.iov_base.cast(),
                    out[start..].as_mut_ptr(),
                    part.iov_len,
                );
            }
        }
    }

    #[inline(always)]
    fn push(&mut self, start: NonNull<u8>, bytes: usize) {
        assert!(
            self.parts_left() > 0,
            "a Gather's {} parts are full",
            self.iovecs.capacity()
        );
        self.iovecs.push(libc::iovec {
            iov_base: start.as_ptr().cast(),
            iov_len: bytes,
        });
    }
}

/// Where lent bytes lie.
#[inline(always)]
fn lent_at(lent: &Lent, start: usize, bytes: usize) -> NonNull<u8> {
    let (mapping, offset) = lent.mapping();
    mapping.pointer(offset + start, bytes)
}

impl Drop for Wire {
    fn drop(&mut self) {
        let area = ptr::slice_from_raw_parts_mut(self.area.as_ptr().cast(), self.area_bytes);
        // SAFETY: `area` was leaked by `new` with exactly this length, and no iovec is used any
        // more; this is the only place that frees it.
        // WHY UNSAFE: the box could not be kept as a box while iovecs point into it.
        drop(unsafe { Box::<[MaybeUninit<u8>]>::from_raw(area) });
    }
}

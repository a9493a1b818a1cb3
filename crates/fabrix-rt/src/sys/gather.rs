//! The raw vectors of one send: copied headers, held payload, and the position of the kernel.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use super::check_bytes;
use crate::{Buf, Lent};

/// The owner of the memory of a part.
pub(crate) enum Keep {
    /// A shard's buffer.
    Buf(Buf),
    /// A loan of a disk.
    Lent(Lent),
}

/// A list of iovecs, the owners of the memory they point to, and a message header for the list.
///
/// Invariant: until `clear`, every iovec lies inside `area` or inside the memory of a value in
/// `keep`.
///
/// Aligned so that no other shard writes to its cache lines; see [`crate::Apart`].
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
    /// A part that is shortened for the current call: its index, and the bytes cut off at its end.
    cut: Option<(usize, usize)>,
    at_once_bytes: usize,
    header: libc::msghdr,
}

impl Wire {
    /// A list with room for `bytes` copied bytes and `parts` parts. It does not grow.
    pub(crate) fn new(bytes: usize, parts: usize) -> Self {
        // Not zeroed: zeroing would touch pages that an idle connection never needs. Only pushed
        // bytes are read.
        let area = Box::leak(Box::<[u8]>::new_uninit_slice(bytes));
        // SAFETY: a msghdr consists of numbers and raw pointers, for which zero is valid.
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

    /// Room for copied bytes.
    pub(crate) fn bytes_left(&self) -> usize {
        self.area_bytes - self.area_used
    }

    /// Room for parts.
    pub(crate) fn parts_left(&self) -> usize {
        self.iovecs.capacity() - self.iovecs.len()
    }

    /// Number of parts.
    pub(crate) fn parts(&self) -> usize {
        self.iovecs.len()
    }

    /// Bytes of all parts.
    pub(crate) fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// Bytes that the kernel has not taken yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.total_bytes - self.sent_bytes
    }

    /// Copies bytes in. They extend the last part if it is a copy too.
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
        // SAFETY: the area has room behind `area_used`, as just checked. The area belongs to this
        // value alone, so `bytes` does not overlap it. WHY UNSAFE: iovecs point into the area, so
        // no `&mut` to all of it may exist.
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

    /// Adds `bytes` from `start` of the memory of `keep`, which is held until `clear`. Panics
    /// outside that memory.
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

    /// Adds a loan, which is held until `clear`. The first of several loans of one view in a row
    /// holds the memory for all of them.
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

    /// Drops all parts and their owners.
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

    /// Counts `bytes` more as taken by the kernel.
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

    /// The message header for the next `bytes`. It is valid while this Wire neither moves nor
    /// changes.
    pub(crate) fn header(&mut self, bytes: usize) -> *const libc::msghdr {
        let end = self.cut(bytes);
        let next = &mut self.iovecs[self.first_unsent..end];
        self.header.msg_iovlen = next.len() as _;
        self.header.msg_iov = next.as_mut_ptr();
        &raw const self.header
    }

    /// Limits the bytes of one call, at least to one byte.
    pub(crate) fn send_at_once(&mut self, bytes: usize) {
        self.at_once_bytes = bytes.max(1);
    }

    /// Most bytes of the next call.
    pub(crate) fn bytes_at_once(&self) -> usize {
        self.unsent_bytes().min(self.at_once_bytes)
    }

    /// Shortens a part so that the unsent parts up to the returned index have `bytes` bytes.
    /// Shortens none if fewer are unsent.
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

    /// Undoes `cut`.
    fn mend(&mut self) {
        if let Some((index, bytes)) = self.cut.take() {
            self.iovecs[index].iov_len += bytes;
        }
    }

    /// The unsent parts and their number. Valid while this Wire neither moves nor changes.
    pub(crate) fn parts_to_send(&mut self) -> (*const libc::iovec, u32) {
        self.mend();
        let unsent = &self.iovecs[self.first_unsent..];
        let count = u32::try_from(unsent.len()).expect("a Gather has at most 1,024 parts");
        (unsent.as_ptr(), count)
    }

    /// One writev(2) of all parts: a message to a device.
    pub(crate) fn write(&mut self, file: BorrowedFd<'_>) -> io::Result<usize> {
        let (parts, count) = self.parts_to_send();
        // SAFETY: by the invariant every iovec points to readable memory, and `&mut self` keeps the
        // list from changing during the call. WHY UNSAFE: std writes slices, and no slice of lent
        // memory may be formed.
        check_bytes(unsafe { libc::writev(file.as_raw_fd(), parts, count.cast_signed()) })
    }

    /// One pwritev(2) of all parts.
    pub(crate) fn write_at(&mut self, file: BorrowedFd<'_>, offset: u64) -> io::Result<usize> {
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let (parts, count) = self.parts_to_send();
        // SAFETY: as in `write`.
        // WHY UNSAFE: as in `write`.
        check_bytes(unsafe { libc::pwritev(file.as_raw_fd(), parts, count.cast_signed(), offset) })
    }

    /// One sendmsg(2) of the next `bytes`. Result: bytes, which are counted as sent.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        flags: libc::c_int,
        bytes: usize,
    ) -> io::Result<usize> {
        let header = self.header(bytes);
        // SAFETY: the header names iovecs that are valid by the invariant, and `&mut self` keeps
        // the list from changing during the call. WHY UNSAFE: std has no sendmsg with flags.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), header, flags | libc::MSG_NOSIGNAL) };
        let sent = check_bytes(sent)?;
        self.advance(sent);
        Ok(sent)
    }

    /// Appends a copy of the unsent bytes.
    pub(crate) fn copy_to(&mut self, out: &mut Vec<u8>) {
        self.mend();
        for part in &self.iovecs[self.first_unsent..] {
            let start = out.len();
            out.resize(start + part.iov_len, 0);
            // SAFETY: by the invariant the part is readable; `resize` has made room for it, and a
            // Vec does not overlap our mappings. WHY UNSAFE: no slice of lent memory may be formed.
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

/// Address of a range of a loan.
#[inline(always)]
fn lent_at(lent: &Lent, start: usize, bytes: usize) -> NonNull<u8> {
    let (mapping, offset) = lent.mapping();
    mapping.pointer(offset + start, bytes)
}

impl Drop for Wire {
    fn drop(&mut self) {
        let area = ptr::slice_from_raw_parts_mut(self.area.as_ptr().cast(), self.area_bytes);
        // SAFETY: `new` has leaked a box of exactly this length, and only this function frees it.
        // The iovecs that point into it go with this value. WHY UNSAFE: a box must not exist while
        // iovecs point into it.
        drop(unsafe { Box::<[MaybeUninit<u8>]>::from_raw(area) });
    }
}

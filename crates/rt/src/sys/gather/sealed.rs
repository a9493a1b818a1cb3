//! A part of a send whose bytes must be what the sum behind them says, and that is not copied for it where the socket
//! takes it at once.

use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::slice;

use super::{Keep, Wire, lent_at};
use crate::holds::{self, HELD_MOST};
use crate::sys::prefetch::prefetch;
use crate::{Buf, Lent};

/// A sum over bytes and what follows them.
pub(crate) type Sum = fn(&[u8], &[u8]) -> u32;

/// A disk's pages, and where their copy and their sum go. Made by `Wire::push_sealed` alone, which gives both their
/// room.
pub(super) struct Sealed {
    lent: Lent,
    /// Room for as many bytes.
    copy_at: NonNull<u8>,
    /// What follows the pages, before the sum over both.
    fill: &'static [u8],
    sum: Sum,
    sum_at: NonNull<[u8; 4]>,
    /// Its index among the parts of its message.
    part: usize,
    /// Where in the message the pages begin, and where the sum ends.
    starts_at: usize,
    ends_at: usize,
}

/// What is asked for before its sum begins. Of 4 KiB the whole gave no more.
const BEGINNING_BYTES: usize = 1 << 10;
/// Of the processor's cache.
const LINE_BYTES: usize = 64;

/// Whether a block of so many bytes is copied at once for its sum. Less than a page is soon copied, and more such
/// blocks go with one call than can be held together. Of pages as many as are held together stay in the core's own
/// cache from the summing to the kernel's copy; of blocks up to 32 KiB they do not, and the copy, which does, was
/// faster.
fn is_copied(bytes: usize) -> bool {
    bytes < 4 << 10 || (8 << 10..32 << 10).contains(&bytes)
}

impl Wire {
    /// Adds pages of a disk, what they are filled up with, and the sum over both. The pages leave as they are where the
    /// socket takes them at once, and otherwise, or where that is faster, as a copy, which has its room in a buffer.
    pub(crate) fn push_sealed(
        &mut self,
        lent: Lent,
        (buf, start): (Buf, usize),
        fill: &'static [u8],
        sum: Sum,
    ) {
        let bytes = lent.len();
        let copy_at = buf.chunk().source(start, bytes);
        let (part, starts_at) = (self.iovecs.len(), self.total_bytes);
        self.push_kept(Keep::Buf(buf), start, bytes);
        self.push_bytes(fill);
        // SAFETY: what was used of the area ends inside it, or where it ends.
        // WHY UNSAFE: pointer arithmetic.
        let sum_at = unsafe { self.area.add(self.area_used).cast() };
        self.push_bytes(&[0; 4]);
        let sealed = Sealed {
            lent,
            copy_at,
            fill,
            sum,
            sum_at,
            part,
            starts_at,
            ends_at: self.total_bytes,
        };
        if is_copied(bytes) {
            sealed.settle();
        } else {
            self.sealed.push_back(sealed);
        }
    }

    /// How many of the next `most` bytes one call sends: as much of what is sealed as can be held together.
    pub(crate) fn piece(&self, most: usize) -> usize {
        let last = self.sealed.get(HELD_MOST - 1);
        last.map_or(most, |last| most.min(last.ends_at - self.sent_bytes))
    }

    /// Whether anything is sealed that has not begun to leave.
    pub(crate) fn is_sealed(&self) -> bool {
        !self.sealed.is_empty()
    }

    /// What is sealed leaves as a copy of what it is now.
    pub(crate) fn settle(&mut self) {
        self.sealed.drain(..).for_each(|sealed| sealed.settle());
    }

    /// One sendmsg of the next `bytes`, which are a [`piece`](Self::piece). Result: bytes; they count as sent.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        flags: libc::c_int,
        bytes: usize,
    ) -> io::Result<usize> {
        let end = self.sent_bytes + bytes;
        let begun = self.sealed.iter().take_while(|next| next.starts_at < end);
        let count = begun.count();
        if count == 0 {
            return self.send_parts(socket, flags, bytes);
        }
        let mut sealed = mem::take(&mut self.sealed);
        let leaving = sealed.iter().take(count);
        let held = Sealed::hold(leaving.clone(), || {
            for next in leaving.clone() {
                self.iovecs[next.part].iov_base = next.pages().as_ptr().cast();
            }
            let sent = self.send_parts(socket, flags, bytes);
            self.copy_the_rest(leaving.clone());
            sent
        });
        let sent = held.unwrap_or_else(|| {
            leaving.for_each(Sealed::settle);
            self.send_parts(socket, flags, bytes)
        });
        sealed.drain(..count);
        self.sealed = sealed;
        sent
    }

    /// What the kernel did not take of sealed parts is a copy from now on.
    fn copy_the_rest<'a>(&mut self, sealed: impl Iterator<Item = &'a Sealed>) {
        self.mend();
        for next in sealed.filter(|next| next.part >= self.first_unsent) {
            let rest = &mut self.iovecs[next.part];
            let taken = rest.iov_base.addr() - next.pages().addr().get();
            rest.iov_base = next.copy_from(taken).as_ptr().cast();
        }
    }
}

impl Sealed {
    /// Does `work` while nobody writes what all of these lend, and their sums are said; None: somebody is writing some
    /// of it now.
    fn hold<'a, R>(
        all: impl Iterator<Item = &'a Self> + Clone,
        work: impl FnOnce() -> R,
    ) -> Option<R> {
        let ranges = all.clone().map(|sealed| sealed.lent.addresses());
        holds::hold(&ranges, || {
            let mut next = all.clone().skip(1);
            for sealed in all {
                if let Some(next) = next.next() {
                    next.ask_for_its_beginning();
                }
                sealed.sum_up(sealed.pages());
            }
            work()
        })
    }

    /// Has the first lines of the pages come from memory while something else is summed: a sum begins with a wait for
    /// them, and by the time it is behind them the processor brings the others by itself.
    fn ask_for_its_beginning(&self) {
        let pages = self.pages().as_ptr();
        for start in (0..self.lent.len().min(BEGINNING_BYTES)).step_by(LINE_BYTES) {
            prefetch(pages.cast_const().wrapping_add(start));
        }
    }

    /// Where the pages lie.
    fn pages(&self) -> NonNull<u8> {
        lent_at(&self.lent, 0, self.lent.len())
    }

    /// From now on the part is a copy of what the pages are now, and the sum is that of the copy.
    fn settle(&self) {
        self.sum_up(self.copy_from(0));
    }

    /// Copies the pages from a byte on. Result: where the copy of that byte lies.
    fn copy_from(&self, start: usize) -> NonNull<u8> {
        let bytes = self.lent.len() - start;
        let from = lent_at(&self.lent, start, bytes);
        // SAFETY: there is room for a copy of all the pages, in a shard's own memory, and `start` lies in them.
        // WHY UNSAFE: lent pages must not become slices.
        unsafe {
            let to = self.copy_at.add(start);
            ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), bytes);
            to
        }
    }

    /// Says the sum of the pages while they are held, or of their copy.
    fn sum_up(&self, bytes: NonNull<u8>) {
        // SAFETY: nobody writes pages that are held, and the copy and the sum's place are ours alone.
        // WHY UNSAFE: a slice of a region's memory; the copy and the sum lie in what iovecs point to.
        unsafe {
            let bytes = slice::from_raw_parts(bytes.as_ptr(), self.lent.len());
            self.sum_at
                .write((self.sum)(bytes, self.fill).to_le_bytes());
        }
    }
}

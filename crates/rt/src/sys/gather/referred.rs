//! Sends by reference: from memory of the connection's own, into which all is copied first, or from where it lies.
//!
//! A part of [`Wire`], as `sealed` is another: knows which bytes are referred to and in which pieces; that
//! the bytes stay as they are until the peer has them is the promise of whoever asked for it.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;

use super::{Keep, Wire, lent_at};
use crate::{Lent, Referral, Staged};

/// What of a gather is referred to.
pub(super) enum Through {
    /// A copy of all of it in this memory, made piece by piece.
    Copy(Staged),
    /// Its long parts, where they lie.
    Place(Referral),
}

impl Wire {
    /// All of it goes through this memory, which is as long.
    pub(crate) fn send_through(&mut self, staged: Staged) {
        assert_eq!(staged.lent.len(), self.total_bytes, "room for all of it");
        self.settle();
        self.through = Some(Through::Copy(staged));
    }

    /// The long parts go from where they lie, in buffers.
    pub(crate) fn send_in_place(&mut self, referral: &Referral) {
        let is_lent = |keep: &Keep| matches!(keep, Keep::Lent(_));
        assert!(
            !self.keep.iter().any(is_lent),
            "pages that others write are not sent from their place"
        );
        self.through = Some(Through::Place(referral.clone()));
    }

    /// Whether what is left is to go by reference.
    pub(crate) fn is_referred(&self) -> bool {
        self.through.is_some()
    }

    /// What was not sent by now goes as it is.
    pub(crate) fn copy_from_now_on(&mut self) {
        self.through = None;
    }

    /// How many bytes, at least one and at most so many, [`refer`](Self::refer) is to send next.
    pub(crate) fn next_piece(&mut self, most: usize) -> usize {
        self.mend();
        if !matches!(self.through, Some(Through::Place(_))) {
            return self.unsent_bytes().min(most);
        }
        let unsent = &self.iovecs[self.first_unsent..];
        if unsent.first().is_some_and(|part| self.is_referred_to(part)) {
            return unsent[0].iov_len.min(most);
        }
        let short = unsent
            .iter()
            .take_while(|part| !self.is_referred_to(part))
            .map(|part| part.iov_len);
        short.sum::<usize>().min(most)
    }

    /// Sends the next piece, by reference unless it consists of short parts. Result: bytes; they count as sent. What is
    /// left after an error goes as it is.
    pub(crate) fn refer(&mut self, socket: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
        let Some(through) = self.through.take() else {
            return Ok(0);
        };
        let sent = match &through {
            Through::Copy(staged) => self.refer_to_copy(staged, socket, bytes)?,
            Through::Place(referral) => self.refer_to_place(referral, socket, bytes)?,
        };
        self.through = Some(through);
        Ok(sent)
    }

    fn refer_to_copy(
        &mut self,
        staged: &Staged,
        socket: BorrowedFd<'_>,
        bytes: usize,
    ) -> io::Result<usize> {
        let place = staged.lent.slice(self.sent_bytes, bytes);
        self.copy_into(&place);
        let part = libc::iovec {
            iov_base: lent_at(&place, 0, bytes).as_ptr().cast(),
            iov_len: bytes,
        };
        self.refer_to(&staged.referral, part, socket)
    }

    fn refer_to_place(
        &mut self,
        referral: &Referral,
        socket: BorrowedFd<'_>,
        bytes: usize,
    ) -> io::Result<usize> {
        let first = self.iovecs[self.first_unsent];
        if !self.is_referred_to(&first) {
            return self.send_parts(socket, libc::MSG_DONTWAIT | libc::MSG_MORE, bytes);
        }
        let part = libc::iovec {
            iov_len: bytes,
            ..first
        };
        self.refer_to(referral, part, socket)
    }

    fn refer_to(
        &mut self,
        referral: &Referral,
        part: libc::iovec,
        socket: BorrowedFd<'_>,
    ) -> io::Result<usize> {
        if !referral.is_of_use() {
            return Ok(0);
        }
        let more = part.iov_len < self.unsent_bytes();
        let sent = referral.pipe.send(part, socket, more)?;
        self.advance(sent);
        Ok(sent)
    }

    /// Whether a part is referred to where it lies: it is long, and no copied bytes of ours, which are soon others.
    fn is_referred_to(&self, part: &libc::iovec) -> bool {
        let copied = self.area.addr().get()..self.area.addr().get() + self.area_bytes;
        part.iov_len >= REFERRED_BYTES && !copied.contains(&part.iov_base.addr())
    }

    /// Copies what is to be sent next to where lent bytes lie, as many as there is room.
    fn copy_into(&mut self, lent: &Lent) {
        self.mend();
        let mut copied = 0;
        for part in &self.iovecs[self.first_unsent..] {
            let bytes = part.iov_len.min(lent.len() - copied);
            let to = lent_at(lent, copied, bytes);
            // SAFETY: the part is readable (the invariant), the place was checked, and they may overlap.
            // WHY UNSAFE: lent pages must not become slices.
            unsafe { ptr::copy(part.iov_base.cast(), to.as_ptr(), bytes) };
            copied += bytes;
        }
    }
}

/// The kernel copies shorter ones as quickly as it takes their pages by themselves.
const REFERRED_BYTES: usize = 16 << 10;

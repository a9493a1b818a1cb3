//! Memory that this process exchanges with the kernel's FUSE, one request at a time.
//!
//! An exchange belongs to one queue. While a command for it is on its way
//! ([`Op::Exchange`](crate::Op::Exchange)) both its buffers are the kernel's; when the command has
//! ended with zero, they hold a request, and whoever has the exchange writes the answer over it and
//! gives it back. What lies where in the buffers is the protocol's business, but for the number by
//! which the kernel knows the request: it is read here as the command ends and kept from everybody,
//! because the kernel writes into the memory of whichever request of its device a command names.
//! Source: include/uapi/linux/fuse.h and Documentation/filesystems/fuse/fuse-io-uring.rst of the
//! Linux kernel.

use std::fmt;

use crate::{Buf, File};

/// One place for a request of the kernel.
pub struct Exchange {
    file: File,
    queue: u16,
    header: Buf,
    payload: Buf,
    /// Both buffers, as the kernel is told of them. They stay where they are, for an exchange
    /// travels in its box.
    parts: [libc::iovec; 2],
    next: Next,
}

/// What the next command is.
#[derive(Clone, Copy)]
enum Next {
    /// The kernel learns of this memory.
    Register,
    /// It takes the answer to the request of this number, and brings the next one.
    Commit(u64),
    /// The same, of a simulator's: no kernel knows this memory.
    Simulated(u64),
}

impl Exchange {
    /// An exchange of a queue of an open /dev/fuse. The header is at least [`HEADER_BYTES`] long;
    /// nobody else holds either buffer.
    pub fn new(file: File, queue: u16, header: Buf, payload: Buf) -> Box<Self> {
        assert!(header.len() >= HEADER_BYTES, "a header of {header:?}");
        let part = |buf: &Buf| libc::iovec {
            iov_base: buf.chunk().target(0, buf.len()).as_ptr().cast(),
            iov_len: buf.len(),
        };
        let parts = [part(&header), part(&payload)];
        Box::new(Self {
            file,
            queue,
            header,
            payload,
            parts,
            next: Next::Register,
        })
    }

    /// Which queue it belongs to.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// What the kernel says of its request; what it is answered.
    pub fn header(&self) -> &[u8] {
        self.header.bytes()
    }

    /// As [`Exchange::header`].
    pub fn header_mut(&mut self) -> &mut [u8] {
        self.header.bytes_mut()
    }

    /// The data that comes with a request; the body of its answer.
    pub fn payload(&self) -> &[u8] {
        self.payload.bytes()
    }

    /// As [`Exchange::payload`].
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload.bytes_mut()
    }

    /// The next command makes this memory known to a queue, whatever it was for before.
    pub fn begin_anew(&mut self, queue: u16) {
        self.queue = queue;
        self.next = Next::Register;
    }

    /// Which request the next command answers, by the kernel's number. None: it makes the memory
    /// known.
    pub fn answers(&self) -> Option<u64> {
        match self.next {
            Next::Register => None,
            Next::Commit(id) | Next::Simulated(id) => Some(id),
        }
    }

    /// Holds a request of a simulator from now on, of this number. No kernel gets it any more.
    pub fn simulate(&mut self, id: u64) {
        self.next = Next::Simulated(id);
    }

    /// The device whose requests it holds.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Its command has ended, in the kernel: with zero there is a request in it.
    pub(crate) fn came(&mut self, result: i32) {
        if result == 0 {
            let id = &self.header()[COMMIT_ID_AT..][..8];
            self.next = Next::Commit(u64::from_ne_bytes(id.try_into().expect("eight bytes")));
        }
    }

    /// The number of the next command, and what it says. None: it is not the kernel's.
    pub(crate) fn command(&self) -> Option<(u32, [u8; AREA_BYTES])> {
        match self.next {
            Next::Register => Some((REGISTER, area(0, self.queue))),
            Next::Commit(id) => Some((COMMIT_AND_FETCH, area(id, self.queue))),
            Next::Simulated(_) => None,
        }
    }

    /// The buffers, for a command that makes them known.
    pub(crate) fn parts(&self) -> Option<&[libc::iovec; 2]> {
        matches!(self.next, Next::Register).then_some(&self.parts)
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Exchange(queue {}, {:?}, answers {:?})",
            self.queue,
            self.payload,
            self.answers()
        )
    }
}

/// `struct fuse_uring_cmd_req`: flags, the number of the request, the queue, padding; and zeroes.
fn area(id: u64, queue: u16) -> [u8; AREA_BYTES] {
    let mut area = [0; AREA_BYTES];
    area[8..16].copy_from_slice(&id.to_ne_bytes());
    area[16..18].copy_from_slice(&queue.to_ne_bytes());
    area
}

/// Bytes of `struct fuse_uring_req_header`.
pub const HEADER_BYTES: usize = 288;
/// Where in the header the number of the request stands: `ring_ent_in_out.commit_id`.
const COMMIT_ID_AT: usize = 256 + 8;
/// The area of a command in an entry of 128 bytes.
pub(crate) const AREA_BYTES: usize = 80;
/// FUSE_IO_URING_CMD_REGISTER.
const REGISTER: u32 = 1;
/// FUSE_IO_URING_CMD_COMMIT_AND_FETCH.
const COMMIT_AND_FETCH: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Arena;
    use crate::slab::Slabs;

    fn exchange() -> Box<Exchange> {
        let arena = Arena::new(4 << 20, Slabs::new());
        let buf = |bytes| Buf::new(arena.take(bytes).expect("room"));
        let file = std::fs::File::open("/dev/null").expect("it is everywhere");
        Exchange::new(File::from(file), 0x0203, buf(HEADER_BYTES), buf(8192))
    }

    #[test]
    fn a_command_is_what_the_kernel_reads() {
        let mut exchange = exchange();
        let (opcode, said) = exchange.command().expect("the kernel's");
        let parts = exchange.parts().expect("it is told of the memory");
        assert_eq!((opcode, &said[..16]), (1, &[0; 16][..]));
        assert_eq!(said[16..24], [3, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(parts.map(|part| part.iov_len), [288, 8192]);
        assert_eq!(
            parts[1].iov_base.cast_const().cast(),
            exchange.payload().as_ptr()
        );

        exchange.header_mut()[264..272].copy_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1]);
        exchange.came(0);
        let (opcode, said) = exchange.command().expect("the kernel's");
        assert_eq!((opcode, exchange.parts().is_none()), (2, true));
        assert_eq!(said[..16], [0, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(said[16..24], [3, 2, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn which_request_is_answered_is_the_kernels_to_say() {
        let mut exchange = exchange();
        exchange.header_mut()[264] = 5;
        exchange.came(0);
        exchange.header_mut()[264] = 6;
        assert_eq!(exchange.answers(), Some(5), "not who holds the memory");
        exchange.came(-libc::EINTR);
        assert_eq!(exchange.answers(), Some(5), "what failed brought nothing");
        exchange.begin_anew(1);
        assert_eq!((exchange.answers(), exchange.queue()), (None, 1));
    }

    #[test]
    fn a_simulated_request_is_not_for_the_kernel() {
        let mut exchange = exchange();
        exchange.simulate(9);
        assert_eq!(exchange.answers(), Some(9));
        assert!(exchange.command().is_none());
    }
}

//! Exchanges: memory for one request of FUSE over io_uring, and its answer.
//!
//! An exchange belongs to one queue. While a command for it is in progress
//! ([`Op::Exchange`](crate::Op::Exchange)) the kernel owns both buffers. After a command with
//! result zero they hold a request. The task writes the answer over the request and starts the next
//! command.
//!
//! The kernel writes to the memory of the request that a command names by number. So this file
//! reads the number when a command ends and lets nobody else set it. The rest of the layout belongs
//! to the protocol. Source: include/uapi/linux/fuse.h and
//! Documentation/filesystems/fuse/fuse-io-uring.rst of the Linux kernel.

use std::fmt;

use crate::{Buf, File};

/// Memory for one request and its answer.
pub struct Exchange {
    file: File,
    queue: u16,
    header: Buf,
    payload: Buf,
    /// Addresses and lengths of both buffers, for the kernel. This list has a stable address,
    /// because an exchange always lies in a box.
    parts: [libc::iovec; 2],
    next: Next,
}

/// Kind of the next command.
#[derive(Clone, Copy)]
enum Next {
    /// Tells the kernel of this memory.
    Register,
    /// Answers the request with this number, and waits for the next one.
    Commit(u64),
    /// Answers a request of a simulator. No kernel knows this memory.
    Simulated(u64),
}

impl Exchange {
    /// An exchange of a queue of an open /dev/fuse. Panics for a header shorter than
    /// [`HEADER_BYTES`], and for a buffer with another holder.
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

    /// Number of the queue.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Header of the request, and later of its answer.
    pub fn header(&self) -> &[u8] {
        self.header.bytes()
    }

    /// The header, to be changed.
    pub fn header_mut(&mut self) -> &mut [u8] {
        self.header.bytes_mut()
    }

    /// Data of the request, and later the body of its answer.
    pub fn payload(&self) -> &[u8] {
        self.payload.bytes()
    }

    /// The payload, to be changed.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload.bytes_mut()
    }

    /// Makes the next command tell the kernel of this memory, for a queue.
    pub fn begin_anew(&mut self, queue: u16) {
        self.queue = queue;
        self.next = Next::Register;
    }

    /// Number of the request that the next command answers. None: the command tells the kernel of
    /// this memory.
    pub fn answers(&self) -> Option<u64> {
        match self.next {
            Next::Register => None,
            Next::Commit(id) | Next::Simulated(id) => Some(id),
        }
    }

    /// Makes this exchange hold a request of a simulator. No kernel gets the exchange after that.
    pub fn simulate(&mut self, id: u64) {
        self.next = Next::Simulated(id);
    }

    /// The open /dev/fuse.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Notes the end of a command. With result zero the buffers hold a request.
    pub(crate) fn came(&mut self, result: i32) {
        if result == 0 {
            let id = &self.header()[COMMIT_ID_AT..][..8];
            self.next = Next::Commit(u64::from_ne_bytes(id.try_into().expect("eight bytes")));
        }
    }

    /// Opcode and contents of the next command. None: the exchange is a simulator's.
    pub(crate) fn command(&self) -> Option<(u32, [u8; AREA_BYTES])> {
        match self.next {
            Next::Register => Some((REGISTER, area(0, self.queue))),
            Next::Commit(id) => Some((COMMIT_AND_FETCH, area(id, self.queue))),
            Next::Simulated(_) => None,
        }
    }

    /// The buffers, for a command that tells the kernel of them.
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

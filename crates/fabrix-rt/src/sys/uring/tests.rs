//! Entries as the kernel reads them, where no test has the driver of the kernel's that would show
//! it: registered memory, and exchanges.
//! Source: include/uapi/linux/io_uring.h of the Linux kernel, `struct io_uring_sqe`.

use std::fs::File;

use super::*;
use crate::buf::Arena;
use crate::slab::Slabs;
use crate::sys::entry::{Long, Short};
use crate::{Buf, Exchange, File as Shared, Registered};

const READ_FIXED: u8 = 4;
const WRITE_FIXED: u8 = 5;
const URING_CMD: u8 = 46;

/// The first half of an entry.
struct Said([u8; 64]);

impl Said {
    fn of<E: Form>(op: &mut Op) -> Self {
        let entry: E = describe(op, None).expect("the kernel's structures can say it");
        // SAFETY: an entry is the kernel's structure, 64 bytes or 128, all plain numbers without
        // padding.
        // WHY UNSAFE: the crate shows nothing of it.
        Self(unsafe { ptr::from_ref(&entry).cast::<[u8; 64]>().read() })
    }

    fn opcode(&self) -> u8 {
        self.0[0]
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    fn place(&self) -> [u8; 2] {
        [self.0[40], self.0[41]]
    }
}

const OFFSET: usize = 8;
const ADDRESS: usize = 16;
const LENGTH: usize = 24;
const FLAGS: usize = 28;

fn null() -> Shared {
    Shared::from(File::open("/dev/null").expect("it is everywhere"))
}

#[test]
fn registered_memory_is_named_by_its_place_and_taken_from_its_start() {
    let memory = Registered {
        place: 0x0203,
        bytes: 4096,
    };
    let offset = 1 << 40;
    let read = Op::ReadRegistered {
        file: null(),
        memory,
        offset,
    };
    let write = |durable| Op::WriteRegistered {
        file: null(),
        memory,
        offset,
        durable,
    };
    let flags = libc::RWF_DSYNC.cast_unsigned();
    for (mut op, opcode, flags) in [
        (read, READ_FIXED, 0),
        (write(false), WRITE_FIXED, 0),
        (write(true), WRITE_FIXED, flags),
    ] {
        let said = Said::of::<Short>(&mut op);
        assert_eq!((said.opcode(), said.long(OFFSET)), (opcode, offset));
        assert_eq!((said.long(ADDRESS), said.word(LENGTH)), (0, 4096));
        assert_eq!(
            (said.word(FLAGS), said.place()),
            (flags, 0x0203_u16.to_ne_bytes())
        );
    }
}

#[test]
fn the_memory_of_an_exchange_is_told_when_it_is_registered() {
    let arena = Arena::new(4 << 20, Slabs::new());
    let buf = |bytes| Buf::new(arena.take(bytes).expect("room"));
    let header = buf(crate::exchange::HEADER_BYTES);
    let exchange = Exchange::new(null(), 1, header, buf(8192));
    let parts = exchange.parts().expect("it is told of them").as_ptr() as u64;
    let mut op = Op::Exchange { exchange };
    let said = Said::of::<Long>(&mut op);
    assert_eq!((said.opcode(), said.word(OFFSET)), (URING_CMD, 1));
    assert_eq!((said.long(ADDRESS), said.word(LENGTH)), (parts, 2));

    if let Op::Exchange { exchange } = &mut op {
        exchange.came(0);
    }
    let said = Said::of::<Long>(&mut op);
    assert_eq!((said.opcode(), said.word(OFFSET)), (URING_CMD, 2));
    assert_eq!((said.long(ADDRESS), said.word(LENGTH)), (0, 0));
}

//! Registered memory with a real kernel: what lies at the place that is named moves between there and the file. Drivers
//! of the kernel's put it there; here it is a mapping of the test's.

use std::os::unix::fs::FileExt;

use super::*;
use crate::sys::entry::Short;
use crate::sys::mmap::Mapping;
use crate::{File as Shared, Registered};

const PLACES: u16 = 4;
const BYTES: usize = 8192;

/// A ring whose last place is this memory; the ring goes first. None: io_uring is not to be had here.
fn ring_with(memory: &Mapping) -> Option<Ring<Short>> {
    let event = File::open("/dev/null").expect("every Linux has it");
    let mut ring = match Ring::new(4, Arc::new(event)) {
        Ok(ring) => ring,
        Err(error) => {
            println!("SKIPPED: registered memory: no io_uring: {error}");
            return None;
        }
    };
    ring.make_table(PLACES).expect("a table");
    let pages = [libc::iovec {
        iov_base: memory.pointer(0, BYTES).as_ptr().cast(),
        iov_len: BYTES,
    }];
    let last = u32::from(PLACES) - 1;
    // SAFETY: the mapping outlives the ring, and is accessed by raw copies alone.
    // WHY UNSAFE: the kernel is given an address.
    let put = unsafe {
        ring.ring
            .submitter()
            .register_buffers_update(last, &pages, None)
    };
    put.expect("there is such a place");
    Some(ring)
}

fn run(ring: &mut Ring<Short>, op: Op) -> i32 {
    assert!(ring.push(Token::NOBODY, op).is_ok(), "there is room");
    loop {
        ring.submit_and_wait(None).expect("it is taken");
        if let Some(Reaped::Ended { result, .. }) = ring.reap() {
            return result;
        }
    }
}

fn pattern(seed: usize) -> Vec<u8> {
    (seed..seed + BYTES)
        .map(|at| u8::try_from(at % 251).expect("below 251"))
        .collect()
}

#[test]
fn what_lies_at_a_place_moves_to_where_it_belongs_in_the_file_and_back() {
    let memory = Mapping::new(BYTES).expect("memory");
    let Some(mut ring) = ring_with(&memory) else {
        return;
    };
    let file = tempfile::tempfile().expect("a scratch file");
    let shared = Shared::from(file.try_clone().expect("a descriptor"));
    let registered = |bytes| Registered {
        place: PLACES - 1,
        bytes,
    };
    memory.write(0, &pattern(1));
    for (durable, offset) in [(false, 16384), (true, 4096)] {
        let write = Op::WriteRegistered {
            file: shared.clone(),
            memory: registered(4096),
            offset,
            durable,
        };
        assert_eq!(run(&mut ring, write), 4096);
        let mut written = [0; 4096];
        file.read_exact_at(&mut written, offset)
            .expect("it was written");
        assert!(written == pattern(1)[..4096]);
    }
    let bytes = file.metadata().expect("it is open").len();
    assert_eq!(bytes, 16384 + 4096, "no more than was asked for");

    file.write_all_at(&pattern(2), 4096).expect("room");
    let read = Op::ReadRegistered {
        file: shared.clone(),
        memory: registered(2048),
        offset: 4096,
    };
    assert_eq!(run(&mut ring, read), 2048);
    let mut is = vec![0; BYTES];
    memory.read(0, &mut is);
    assert!(is[..2048] == pattern(2)[..2048]);
    assert!(
        is[2048..] == pattern(1)[2048..],
        "no more than was asked for"
    );
    let too_much = Op::ReadRegistered {
        file: shared,
        memory: registered(BYTES as u32 + 1),
        offset: 0,
    };
    assert_eq!(run(&mut ring, too_much), -libc::EFAULT);
}

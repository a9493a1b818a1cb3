//! FUSE over io_uring: a request and its answer in memory that kernel and server share.
//!
//! The header holds the start of a message in parts at fixed positions. The payload is a separate
//! buffer. Otherwise requests and answers are the same as in messages.
//! Source: include/uapi/linux/fuse.h and Documentation/filesystems/fuse/fuse-io-uring.rst of the
//! Linux kernel, 6.14.

use zerocopy::FromBytes;
use zerocopy::native_endian::{U32, U64};

use super::answer::head;
use super::layout::InHeader;
use super::{OUT_HEADER_BYTES, Operation, operation};

wire! {
    /// `struct fuse_uring_req_header`. 288 bytes.
    struct ExchangeHeader: 288 bytes {
        in_out: [u8; 128],    // start of a message or of an answer
        operation: [u8; 128], // op_in: the operation's arguments, without data
        sizes @ 256: ExchangeSizes, // ring_ent_in_out
    }

    /// `struct fuse_uring_ent_in_out`. 32 bytes.
    struct ExchangeSizes: 32 bytes {
        flags: U64,
        commit_id: U64, // number that the kernel expects with the answer
        payload_bytes: U32,
        padding: U32,
        reserved: U64,
    }
}

/// Parses the request in an exchange whose payload buffer has `room` bytes. Returns the unique
/// number for the answer, and the operation, or `None` without a whole header.
#[must_use]
pub fn parse_exchange(header: &[u8], room: usize) -> Option<(u64, Operation)> {
    let (exchange, _) = ExchangeHeader::ref_from_prefix(header).ok()?;
    let (header, _) = InHeader::read_from_prefix(&exchange.in_out).ok()?;
    let data = exchange.sizes.payload_bytes.get() as usize;
    if data > room {
        return Some((header.unique, Operation::Broken));
    }
    Some((
        header.unique,
        operation(&header, &exchange.operation, Some(data)),
    ))
}

/// Writes the result of a request over the header of its exchange: `error` is zero or a negative
/// errno, `bytes` is the length of the answer's data in the payload. A header that is too short
/// stays unchanged.
pub fn answer_exchange(header: &mut [u8], unique: u64, error: i32, bytes: usize) {
    let Ok((exchange, _)) = ExchangeHeader::mut_from_prefix(header) else {
        return;
    };
    exchange.in_out[..OUT_HEADER_BYTES].copy_from_slice(&head(unique, error, bytes));
    exchange.sizes.payload_bytes = U32::new(u32::try_from(bytes).unwrap_or(u32::MAX));
}

#[cfg(test)]
mod tests {
    use super::super::layout::InitOut;
    use super::super::{OVER_IO_URING, Offer, init, parse};
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// A write of 4,096 bytes at offset 8,192, as a 64-bit little-endian kernel stores it.
    #[rustfmt::skip]
    const WRITE: [(usize, &[u8]); 4] = [
        (0, &[0x50, 0x10, 0, 0, 16, 0, 0, 0, 0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        (128 + 8, &[0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0]),
        (256 + 8, &[0x2a, 0, 0, 0, 0, 0, 0, 0]),
        (256 + 16, &[0, 0x10, 0, 0]),
    ];

    fn header(parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut header = vec![0; 288];
        for (at, bytes) in parts {
            header[*at..][..bytes.len()].copy_from_slice(bytes);
        }
        header
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_request_is_read_from_its_places_and_the_answer_written_over_it() {
        let mut header = header(&WRITE);
        let operation = Operation::Write {
            offset: 8192,
            bytes: 4096,
        };
        assert_eq!(parse_exchange(&header, 4096), Some((42, operation)));
        let before = header.clone();
        answer_exchange(&mut header, 42, -5, 8);
        assert_eq!(
            header[..16],
            [24, 0, 0, 0, 0xfb, 255, 255, 255, 42, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(header[272..276], [8, 0, 0, 0]);
        assert!(
            header[16..272] == before[16..272],
            "what the kernel looks for is left alone"
        );
    }

    #[test]
    fn a_write_brings_as_much_as_it_says_and_no_more_than_there_is_room() {
        let mut short = header(&WRITE);
        short[273] = 0x0f;
        assert_eq!(parse_exchange(&short, 4096), Some((42, Operation::Broken)));
        assert_eq!(
            parse_exchange(&header(&WRITE), 4095),
            Some((42, Operation::Broken))
        );
        assert_eq!(parse_exchange(&[0; 287], 4096), None);
        let mut cut = [7; 287];
        answer_exchange(&mut cut, 1, 0, 0);
        assert_eq!(cut, [7; 287]);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn requests_over_io_uring_are_taken_where_the_kernel_offers_them_and_we_do() {
        // Version 7.45, from a kernel with more than 32 flags. Flag 41 is among those that it sets.
        let mut first = vec![104, 0, 0, 0, 26, 0, 0, 0, 2];
        first.resize(40, 0);
        first.extend([
            7, 0, 0, 0, 45, 0, 0, 0, 0, 0, 2, 0, 0, 0x80, 0, 0x40, 0x07, 2, 0, 0,
        ]);
        let Some((2, Operation::Init { flags, .. })) = parse(&first) else {
            panic!("the first message");
        };
        assert_eq!(flags, OVER_IO_URING | 0x07_4000_8000);
        assert_eq!(
            parse(&first[..58]),
            Some((2, Operation::Broken)),
            "half of the flags"
        );
        for (kernel, ours) in [(true, true), (false, true), (true, false)] {
            let offer = Offer {
                bytes_max: 128 << 10,
                page_bytes: 65536,
                background: 1,
                over_uring: ours,
            };
            let flags = if kernel {
                flags
            } else {
                flags & !OVER_IO_URING
            };
            let out = init((7, 45, flags), 0, &offer).expect("a kernel of today");
            let out = InitOut::read_from_bytes(&out).expect("64 bytes");
            let expected = if kernel && ours { 1 << 9 } else { 0 };
            assert_eq!((out.flags2, out.max_pages), (expected, 2));
            assert_eq!(out.flags, if ours { 0x4000_8000 } else { 0x8000 });
        }
    }

    proptest! {
        #[test]
        fn no_exchange_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 288), opcode in 0_u8..60) {
            let _refused_or_not = parse_exchange(&bytes, 4096);
            let mut known = bytes;
            known[4..8].copy_from_slice(&[opcode, 0, 0, 0]);
            let _refused_or_not = parse_exchange(&known, 4096);
        }
    }
}

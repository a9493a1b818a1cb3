//! Tests: the format of verified blocks.

use super::*;

const RUN: u64 = 77;

fn block(checksum: Checksum, offset: u64, generation: u32) -> Vec<u8> {
    let mut block = vec![0xa5; 4096];
    let stamp = Stamp {
        offset,
        generation,
        run: RUN,
    };
    seal_block(&mut block, checksum, stamp);
    block
}

fn check(block: &[u8], generation: u32) -> Result<(), Found> {
    let expected = Expected {
        oldest: generation,
        newest: generation,
    };
    check_block(block, Checksum::Crc32c, 8192, Some((RUN, expected)))
}

fn check_medium(block: &[u8], checksum: Checksum) -> Result<(), Found> {
    check_block(block, checksum, 8192, None)
}

const CHECKSUMS: [Checksum; 5] = [
    Checksum::Crc32c,
    Checksum::Sha512,
    Checksum::Meta,
    Checksum::Md5,
    Checksum::Crc7,
];

#[test]
fn accepts_what_it_wrote() {
    assert_eq!(check(&block(Checksum::Crc32c, 8192, 3), 3), Ok(()));
    for checksum in CHECKSUMS {
        let block = block(checksum, 8192, 9);
        assert_eq!(check_medium(&block, checksum), Ok(()), "{checksum:?}");
        assert_eq!(check_medium(&block, Checksum::Meta), Ok(()));
        assert!(is_verified(&block) && !is_verified(&block[1..]) && !is_verified(&block[..30]));
    }
}

#[test]
fn tells_stale_misdirected_foreign_zeroed_and_unknown_blocks_apart() {
    let stale = block(Checksum::Crc32c, 8192, 2);
    assert_eq!(check(&stale, 3), Err(Found::Generation(2)));
    let elsewhere = Found::Elsewhere {
        offset: 4096,
        generation: Some(3),
    };
    assert_eq!(check(&block(Checksum::Crc32c, 4096, 3), 3), Err(elsewhere));
    let mut other = vec![0; 4096];
    let stamp = Stamp {
        offset: 8192,
        generation: 3,
        run: RUN + 1,
    };
    seal_block(&mut other, Checksum::Crc32c, stamp);
    assert_eq!(check(&other, 3), Err(Found::OtherRun));
    assert_eq!(check(&[0; 4096], 3), Err(Found::Zeroes));
    assert_eq!(check(&[0xA5; 4096], 3), Err(Found::Garbage));
}

#[test]
fn a_block_of_another_shape_is_described() {
    let block = block(Checksum::Md5, 8192, 1);
    let found = Found::Checksum(Ok(Checksum::Md5));
    assert_eq!(check_medium(&block, Checksum::Crc32c), Err(found));
    let half = check_medium(&block[..2048], Checksum::Md5);
    assert_eq!(half, Err(Found::Length(4096)));
}

#[test]
fn sees_every_single_flipped_bit_under_any_checksum() {
    for checksum in CHECKSUMS {
        let mut block = block(checksum, 8192, 3);
        for bit in (0..block.len() * 8).step_by(7) {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(
                check_medium(&block, checksum).is_err(),
                "{checksum:?}: bit {bit}"
            );
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn patterns_repeat_over_the_request_with_its_offset() {
    let mut pattern = Pattern::parse("0xff%o\"abcd\"-12").expect("fio's example");
    let mut bytes = vec![0; 34];
    pattern.fill(8192, &mut bytes);
    let one = [
        &[0xff, 0, 0x20, 0, 0, 0, 0, 0, 0][..],
        b"abcd",
        &[0xf4, 0xff, 0xff, 0xff],
    ]
    .concat();
    assert_eq!(bytes, [one.clone(), one].concat());
    assert_eq!(pattern.check(8192, 20, &bytes[20..]), Ok(()));
    let wrong = Found::Byte {
        at: 2,
        found: 0x20,
        expected: 0x10,
    };
    assert_eq!(pattern.check(4096, 0, &bytes), Err(wrong));
    assert_eq!(pattern.text(), "0xff%o0x61626364f4ffffff");
    assert!(Pattern::parse("").is_err() && Pattern::parse("%x").is_err());
}

//! Tests: which blocks are right and which are wrong.

use super::*;

const RUN: u64 = 77;

fn verifier(options: &Verify, region: Region, block_bytes: u32) -> Verifier {
    Verifier::new(options, region, block_bytes, RUN, true)
}

#[test]
fn after_a_failed_write_old_and_new_are_right_until_the_next_success() {
    let region = Region {
        lba: 2,
        units: 8,
        blocks_per_unit: 1,
    };
    let mut verifier = verifier(&Verify::default(), region, 4096);
    let mut writes = vec![vec![0; 4096]; 4];
    let seen = |verifier: &mut Verifier, bytes: &[u8]| {
        let mut verified = Verified::default();
        verifier.check(0, bytes, &mut verified);
        (verified.blocks_checked, verified.errors)
    };
    verifier.stamp(0, &mut writes[0]);
    assert_eq!(
        seen(&mut verifier, &writes[0]),
        (0, 0),
        "nothing is acknowledged yet"
    );
    verifier.acknowledge(0);
    verifier.stamp(0, &mut writes[1]);
    verifier.stamp(0, &mut writes[2]);
    assert!(
        writes[..3]
            .iter()
            .all(|bytes| seen(&mut verifier, bytes) == (1, 0))
    );
    verifier.stamp(0, &mut writes[3]);
    verifier.acknowledge(0);
    assert_eq!(seen(&mut verifier, &writes[3]), (1, 0));
    assert!(
        writes[..3]
            .iter()
            .all(|bytes| seen(&mut verifier, bytes) == (1, 1))
    );
}

#[test]
fn the_first_wrong_block_is_named_with_offset_lba_and_generations() {
    let region = Region {
        lba: 16,
        units: 8,
        blocks_per_unit: 16,
    };
    let mut verifier = verifier(&Verify::fine(8192), region, 512);
    let mut old = vec![0; 8192];
    verifier.stamp(1, &mut old);
    let mut new = old.clone();
    verifier.stamp(1, &mut new);
    verifier.acknowledge(1);
    new[4096..].copy_from_slice(&old[4096..]);
    let mut verified = Verified::default();
    verifier.check(1, &new, &mut verified);
    assert_eq!((verified.blocks_checked, verified.errors), (2, 1));
    assert_eq!(
        verified.first_error.as_deref(),
        Some(
            "offset 20480 (LBA 40): expected generation 2 of this run, found generation 1 (a stale block)"
        )
    );
}

#[test]
fn a_job_that_only_reads_checks_the_blocks_of_others() {
    let region = Region {
        lba: 0,
        units: 2,
        blocks_per_unit: 8,
    };
    let pattern = Pattern::parse("0xab%o").ok();
    let header = |checksum| Method::Header(checksum);
    for (method, offset, pattern, wrong) in [
        (header(Checksum::Md5), 0, None, "found a damaged block"),
        (header(Checksum::Crc32), 60, None, "found a damaged block"),
        (
            header(Checksum::Meta),
            0,
            pattern.clone(),
            "found a damaged block",
        ),
        (
            Method::Pattern,
            0,
            pattern,
            "found 0xab instead of 0xaa at byte 2001",
        ),
    ] {
        let options = Verify {
            method,
            offset,
            pattern,
            interval: 1024,
            ..Verify::default()
        };
        let mut bytes = vec![0; 4096];
        verifier(&options, region, 512).stamp(1, &mut bytes);
        let mut reader = Verifier::new(&options, region, 512, RUN + 1, false);
        assert!(reader.claim(1) && reader.claim(1) && !reader.reads_back());
        let mut verified = Verified::default();
        reader.check(1, &bytes, &mut verified);
        assert_eq!(
            (verified.errors, verified.first_error.as_ref()),
            (0, None),
            "{method:?}"
        );
        reader.check(0, &bytes, &mut verified);
        assert!(
            verified.errors > 0,
            "{method:?}: the block of another address"
        );
        let mut verified = Verified::default();
        bytes[2001] ^= 1;
        reader.check(1, &bytes, &mut verified);
        assert_eq!(verified.errors, 1, "{method:?}");
        let first = verified.first_error.unwrap_or_default();
        let found = first.split(", ").last().unwrap_or_default();
        assert!(
            method == Method::Pattern || found.starts_with(wrong),
            "{first}"
        );
    }
}

#[test]
fn a_place_is_claimed_once() {
    let region = Region {
        lba: 0,
        units: 70,
        blocks_per_unit: 1,
    };
    let mut verifier = verifier(&Verify::default(), region, 4096);
    assert!(verifier.claim(69) && !verifier.claim(69) && verifier.claim(68));
    verifier.release(69);
    assert!(verifier.claim(69));
}

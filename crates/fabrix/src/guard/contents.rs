//! Recognises files with contents that no benchmark wrote: neither zeroes nor random bytes,
//! verified blocks or patterns.
//!
//! The first data of a file is examined wherever it stands, and single places behind it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fabrix_bench::verify::is_verified;
use fabrix_block::Spec;
use fabrix_block::spec::{Disk, Size};
use fabrix_rt::{Stretch, stretch};

use crate::failure::Failure;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Most zeroes that are read in search of the first data, without holes: a fraction of a second
/// from the page cache, and some seconds from a hard disk.
const ZEROES_MOST: u64 = 256 << 20;
/// Places that are examined in equal distances over the whole file.
const PLACES: u64 = 16;
/// Bytes that are read at each place.
const PLACE_BYTES: usize = 64 << 10;
/// Bytes other than zero that a block of a place needs to be judged. Fewer may be the end of a
/// request, and too few random bytes do not look random.
const PLACE_FILLED_LEAST: usize = 512;
/// Length of the blocks that are checked for random contents, in bytes.
const CONTENTS_BYTES: usize = 4096;
/// Different values among random bytes. 512 random bytes have 221 on average, and 4096 have 256.
/// Texts have fewer.
const DISTINCT_LEAST: usize = 190;
/// Largest value of the chi-squared test for random bytes. Without the zeroes there are 254 degrees
/// of freedom, so that random bytes have 254 on average, with a deviation of 23. Texts, programs
/// and numbers have thousands.
const CHI_SQUARED_MOST: f64 = 500.0;
/// Longest pattern that is recognised.
const PATTERN_BYTES_MAX: usize = 512;
/// Starts of compressed files, whose other bytes look random.
const PACKED: &[&[u8]] = &[
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"\xfd7zXZ",
    b"\x28\xb5\x2f\xfd",
    b"BZh",
    b"7z\xbc\xaf",
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"OggS",
    b"fLaC",
    b"\x1a\x45\xdf\xa3",
    b"RIFF",
    b"%PDF",
    b"Salted__",
];

/// Description of the contents of a regular file that no benchmark wrote. None for other disks.
///
/// Errors: the file cannot be read.
pub(super) fn of_file(name: &str) -> Result<Option<String>, Failure> {
    let Ok(Spec {
        disk: Disk::File { path, .. },
        ..
    }) = Spec::parse(name)
    else {
        return Ok(None);
    };
    let path = Path::new(&path);
    if !path.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let file = File::open(path).map_err(Failure::at(path))?;
    let offset = foreign_data(&file).map_err(Failure::at(path))?;
    Ok(offset.map(|offset| format!("data that no benchmark wrote at offset {}", Size(offset))))
}

/// Offset of data that no benchmark wrote.
fn foreign_data(file: &File) -> std::io::Result<Option<u64>> {
    let length = file.metadata()?.len();
    let mut buf = vec![0; READ_BYTES];
    if let Some(offset) = first_data(file, length, &mut buf)? {
        let block = read_at(file, &mut buf[..CONTENTS_BYTES], offset)?;
        if is_foreign(block) {
            return Ok(Some(offset));
        }
    }
    for place in 0..PLACES {
        let offset = length / PLACES * place / CONTENTS_BYTES as u64 * CONTENTS_BYTES as u64;
        let bytes = read_at(file, &mut buf[..PLACE_BYTES], offset)?;
        let mut blocks = (offset..)
            .step_by(CONTENTS_BYTES)
            .zip(bytes.chunks_exact(CONTENTS_BYTES));
        let is_filled =
            |block: &[u8]| block.iter().filter(|byte| **byte != 0).count() >= PLACE_FILLED_LEAST;
        if let Some((offset, block)) = blocks.find(|(_, block)| is_filled(block))
            && is_foreign(block)
        {
            return Ok(Some(offset));
        }
    }
    Ok(None)
}

/// Offset of the first block that is not zero, among the first [`ZEROES_MOST`] bytes outside holes.
fn first_data(file: &File, length: u64, buf: &mut [u8]) -> std::io::Result<Option<u64>> {
    let (mut offset, mut zeroes) = (0, 0);
    while offset < length && zeroes < ZEROES_MOST {
        let end = match stretch(file, offset) {
            Ok(Stretch::Hole { end }) => {
                offset = end.max(offset + 1);
                if end >= length {
                    return Ok(None);
                }
                continue;
            }
            Ok(Stretch::Data { end }) => end,
            Err(_) => length,
        };
        let wanted = buf
            .len()
            .min(usize::try_from(end - offset).unwrap_or(usize::MAX));
        let bytes = read_at(file, &mut buf[..wanted], offset)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            return Ok(Some(
                (offset + at as u64) / CONTENTS_BYTES as u64 * CONTENTS_BYTES as u64,
            ));
        }
        offset += bytes.len() as u64;
        zeroes += bytes.len() as u64;
    }
    Ok(None)
}

/// The bytes at `offset`, fewer at the end of the file.
fn read_at<'a>(file: &File, buf: &'a mut [u8], offset: u64) -> std::io::Result<&'a [u8]> {
    let mut length = 0;
    while length < buf.len() {
        match file.read_at(&mut buf[length..], offset + length as u64)? {
            0 => break,
            more => length += more,
        }
    }
    Ok(&buf[..length])
}

/// Whether no benchmark wrote a block that is not zero.
fn is_foreign(block: &[u8]) -> bool {
    if is_verified(block) || is_pattern(block) {
        return false;
    }
    let packed = PACKED.iter().any(|magic| block.starts_with(magic));
    packed || !is_random(block)
}

/// Whether the bytes of a block that are not zero are equally frequent. Zeroes do not count,
/// because benchmarks write them between random bytes (`buffer_compress_percentage`).
fn is_random(block: &[u8]) -> bool {
    let mut counts = [0_u32; 256];
    block
        .iter()
        .for_each(|byte| counts[usize::from(*byte)] += 1);
    let distinct = counts.iter().filter(|count| **count > 0).count();
    let counts = &counts[1..];
    let mean = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
    let deviations = counts
        .iter()
        .map(|count| (f64::from(*count) - mean).powi(2));
    distinct >= DISTINCT_LEAST && deviations.sum::<f64>() / mean <= CHI_SQUARED_MOST
}

/// Whether a block repeats a short pattern that is no text (`buffer_pattern`, `verify_pattern`).
fn is_pattern(block: &[u8]) -> bool {
    let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    if block.iter().all(is_text) {
        return false;
    }
    let repeats = |period: usize| block[period..] == block[..block.len() - period];
    block.len() == CONTENTS_BYTES && (1..=PATTERN_BYTES_MAX).any(repeats)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offset of foreign data in a file of `length` bytes that has `bytes` at `offset`.
    fn found(length: u64, offset: u64, bytes: &[u8]) -> Option<u64> {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(length).expect("a size");
        file.write_all_at(bytes, offset).expect("written");
        foreign_data(&file).expect("it can be read")
    }

    fn random(length: u64) -> Vec<u8> {
        (0..length)
            .map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7])
            .collect()
    }

    #[test]
    fn the_first_data_is_found_wherever_it_stands() {
        let text = b"somebody's text, short";
        for offset in [0, 5000, 131_072, 700_000, (2 << 20) - 22] {
            let block = offset / 4096 * 4096;
            assert_eq!(found(2 << 20, offset, text), Some(block), "in a hole");
            let zeroes = [&vec![0; usize::try_from(offset).expect("short")][..], text].concat();
            assert_eq!(found(2 << 20, 0, &zeroes), Some(block), "behind zeroes");
        }
        assert_eq!(found(2 << 20, 0, &[0; 8192]), None);
        assert_eq!(found(0, 0, &[]), None);
    }

    #[test]
    fn text_behind_random_bytes_is_found_at_the_places() {
        let text = b"a line of a log\n".repeat(1 << 14);
        let bytes = [&random(1 << 20)[..], &text].concat();
        assert_eq!(found(2 << 20, 0, &bytes), Some(1 << 20));
        assert_eq!(found(2 << 20, 4096, &random(1 << 20)), None);
    }

    #[test]
    fn files_that_no_benchmark_wrote_are_found() {
        let random = random(4096);
        let contents = |bytes: &[u8]| found(bytes.len() as u64, 0, bytes);
        assert_eq!(contents(&[0; 8192]), None);
        assert_eq!(contents(&random), None);
        assert!(contents(b"[global]\nrw=write\n").is_some());
        assert!(contents(&[&[0; 4096][..], b"somebody's text"].concat()).is_some());
        assert!(contents(&[&b"\x1f\x8b"[..], &random].concat()).is_some());
        let program = std::fs::read("/proc/self/exe").expect("this program");
        assert!(contents(&program[..8192]).is_some());
        let numbers: Vec<u8> = (0..2048_u32).flat_map(u32::to_le_bytes).collect();
        assert!(contents(&numbers).is_some());
        assert_eq!(contents(&[0xde, 0xad, 0xfa, 0xce].repeat(2048)), None);
        assert!(contents(&b"a line of a log\n".repeat(600)).is_some());
        let halves: Vec<u8> = random
            .chunks(256)
            .flat_map(|half| [half, &[0; 256]].concat())
            .collect();
        assert_eq!(contents(&halves), None, "compressible contents");
    }
}

//! Protects existing data from benchmarks: looks for the signatures of partition tables and file
//! systems at the start of a disk, and for contents of files that no benchmark wrote.
//!
//! It reads the first bytes through a channel of the disk.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabrix_bench::verify::is_verified;
use fabrix_block::spec::Disk;
use fabrix_block::{Device, Operation, Payload, Request, Spec, Status, Submit};
use fabrix_rt::{Buf, Completion, Loan, Shard, ShardConfig, SpinPolicy, Task, Token, Wait};

use crate::failure::Failure;

/// Length of the examined start in bytes. The last signature below ends before it.
const LOOK_BYTES: u32 = 68 << 10;
/// Time limit for a read.
const PATIENCE: Duration = Duration::from_secs(30);

/// Signatures: offset, bytes, and description.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
    (512, b"LABELONE", "an LVM physical volume"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (4086, b"SWAPSPACE2", "swap space"),
    (
        4096,
        &[0xfc, 0x4e, 0x2b, 0xa9],
        "a member of a software RAID",
    ),
    (510, &[0x55, 0xaa], "a partition table or a boot sector"),
];

/// Bytes of a file that are checked for random contents.
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

/// Description of the first known signature.
fn signature(start: &[u8]) -> Option<&'static str> {
    let found = SIGNATURES
        .iter()
        .find(|(at, magic, _)| start.get(*at..*at + magic.len()) == Some(*magic));
    found.map(|(_, _, whose)| *whose)
}

/// Description of the contents of a file that is neither empty nor full of random bytes, verified
/// blocks or patterns, which are what benchmarks leave.
fn contents(start: &[u8]) -> Option<&'static str> {
    let mut blocks = start.chunks(CONTENTS_BYTES);
    let block = blocks.find(|block| block.iter().any(|byte| *byte != 0))?;
    if is_verified(block) || is_pattern(block) {
        return None;
    }
    let packed = PACKED.iter().any(|magic| block.starts_with(magic));
    (packed || !is_random(block)).then_some("data that no benchmark wrote")
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

/// Whether a disk is a regular file.
fn is_regular_file(uri: &str) -> bool {
    let Ok(Spec {
        disk: Disk::File { path, .. },
        ..
    }) = Spec::parse(uri)
    else {
        return false;
    };
    std::fs::metadata(path).is_ok_and(|found| found.is_file())
}

/// Refuses a disk with a known signature, and a file with other contents. Errors contain `name`.
pub(crate) fn refuse_used(device: &Arc<dyn Device>, uri: &str, name: &str) -> Result<(), Failure> {
    let start = read_start(device).map_err(|error| Failure::io(format!("{name}: {error}")))?;
    let of_file = || is_regular_file(uri).then(|| contents(&start)).flatten();
    match signature(&start).or_else(of_file) {
        None => Ok(()),
        Some(whose) => Err(Failure::usage(format!(
            "{name} carries {whose}: writing would destroy it; use --allow-write if that is what you want"
        ))),
    }
}

/// A task that receives the completion of one read.
struct Reader {
    ended: Option<Completion>,
}

impl Task for Reader {
    fn completed(&mut self, _shard: &mut Shard, _slot: u32, completion: Completion) {
        self.ended = Some(completion);
    }
}

/// Reads the start of a disk.
fn read_start(device: &Arc<dyn Device>) -> Result<Vec<u8>, String> {
    let geometry = device.geometry();
    let most = u64::from(LOOK_BYTES / geometry.block_bytes).min(geometry.blocks);
    let per_read = u64::from(geometry.max_transfer_bytes / geometry.block_bytes).max(1);
    let config = ShardConfig {
        spin: SpinPolicy::Never,
        arena_bytes: 16 << 20,
        ..ShardConfig::default()
    };
    let mut shard = Shard::new(config).map_err(|error| error.to_string())?;
    let mut channel = device.open(&mut shard).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let mut lba = 0;
    while lba < most {
        let blocks = u32::try_from((most - lba).min(per_read)).expect("bounded by LOOK_BYTES");
        let length = blocks as usize * geometry.block_bytes as usize;
        let buf = shard
            .take_buf(length)
            .ok_or("no memory to read its start")?;
        let buf = read(&mut shard, &mut *channel, lba, blocks, buf)?;
        bytes.extend_from_slice(&buf.bytes()[..length]);
        lba += u64::from(blocks);
    }
    drop(channel);
    for _ in 0..10 {
        shard.turn(Wait::AtMost(Duration::from_millis(1)));
    }
    Ok(bytes)
}

fn read(
    shard: &mut Shard,
    channel: &mut dyn fabrix_block::Channel,
    lba: u64,
    blocks: u32,
    buf: Buf,
) -> Result<Buf, String> {
    let reader = Rc::new(RefCell::new(Reader { ended: None }));
    let task = shard.add(reader.clone());
    let token = Token { task, slot: 0 };
    let request = Request {
        operation: Operation::Read,
        lba,
        blocks,
        payload: Payload::Owned(buf),
        token,
    };
    let (status, loan) = match channel.submit(shard, request) {
        Submit::Done(status, loan) => (status, loan),
        Submit::Busy(_) => return Err("it is too busy to be read".to_owned()),
        Submit::Pending => {
            let until = Instant::now() + PATIENCE;
            let completion = loop {
                if let Some(completion) = reader.borrow_mut().ended.take() {
                    break completion;
                }
                if Instant::now() > until {
                    return Err(format!(
                        "its start could not be read within {} s",
                        PATIENCE.as_secs()
                    ));
                }
                shard.turn(Wait::AtMost(Duration::from_millis(100)));
            };
            (Status::from_result(completion.result), completion.loan)
        }
    };
    shard.remove(task);
    match (status, loan) {
        (Status::Ok, Loan::Buf(buf)) => Ok(buf),
        (status, _) => Err(format!("its start cannot be read: {status:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk_with(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut disk = vec![0; LOOK_BYTES as usize];
        disk[at..at + bytes.len()].copy_from_slice(bytes);
        disk
    }

    #[test]
    fn an_empty_disk_is_nobodys() {
        assert_eq!(signature(&vec![0; LOOK_BYTES as usize]), None);
        assert_eq!(signature(&[]), None);
    }

    #[test]
    fn files_that_no_benchmark_wrote_are_found() {
        let random: Vec<u8> = (0_u64..4096)
            .map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7])
            .collect();
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

    #[test]
    fn every_signature_is_within_what_is_read() {
        for (at, magic, whose) in SIGNATURES {
            assert_eq!(signature(&disk_with(*at, magic)), Some(*whose));
        }
    }
}

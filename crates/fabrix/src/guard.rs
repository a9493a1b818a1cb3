//! Protects existing data from benchmarks: looks for the signatures of partition tables and file
//! systems at the start of a disk, and for contents of files that no benchmark wrote.
//!
//! The start of a disk is read through a channel of the disk. `contents` reads files themselves.

mod contents;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fabrix_block::{Device, Operation, Payload, Request, Status, Submit};
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

/// Description of the first known signature.
fn signature(start: &[u8]) -> Option<&'static str> {
    let found = SIGNATURES
        .iter()
        .find(|(at, magic, _)| start.get(*at..*at + magic.len()) == Some(*magic));
    found.map(|(_, _, whose)| *whose)
}

/// Refuses a disk with a known signature, and a file with other contents. Errors contain `name`.
pub(crate) fn refuse_used(device: &Arc<dyn Device>, uri: &str, name: &str) -> Result<(), Failure> {
    let start = read_start(device).map_err(|error| Failure::io(format!("{name}: {error}")))?;
    let found = match signature(&start) {
        None => contents::of_file(uri)?,
        Some(whose) => Some(whose.to_owned()),
    };
    match found {
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
    fn every_signature_is_within_what_is_read() {
        for (at, magic, whose) in SIGNATURES {
            assert_eq!(signature(&disk_with(*at, magic)), Some(*whose));
        }
    }
}

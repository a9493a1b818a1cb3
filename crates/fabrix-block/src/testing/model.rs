//! Random operation sequences, executed on a disk and on a `Vec` that models it.

use std::sync::Arc;

use fabrix_rt::Loan;
use proptest::prelude::*;

use super::{FrontEnd, bytes_of};
use crate::{Device, Operation, Payload, Status};

/// One operation of a random sequence on a disk with blocks of 512 bytes.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    operation: Operation,
    lba: u64,
    blocks: u32,
    fill: u8,
    owned: bool,
}

pub(crate) fn steps(disk_blocks: u64, longest: u32) -> impl Strategy<Value = Vec<Step>> {
    let operation = prop_oneof![
        4 => Just(Operation::Read),
        4 => any::<bool>().prop_map(|durable| Operation::Write { durable }),
        1 => Just(Operation::Flush),
        1 => any::<(bool, bool)>().prop_map(|(deallocate, durable)| Operation::WriteZeroes { deallocate, durable }),
        1 => Just(Operation::Deallocate),
    ];
    let step = (operation, 0..disk_blocks, 0..=longest, 1u8.., any::<bool>()).prop_map(
        move |(operation, lba, blocks, fill, owned)| {
            let room = u32::try_from(disk_blocks - lba).unwrap_or(u32::MAX);
            Step {
                operation,
                lba,
                blocks: blocks.min(room),
                fill,
                owned,
            }
        },
    );
    prop::collection::vec(step, 1..24)
}

/// Executes every step on the disk and on a `Vec`. Compares every read, and the whole disk at the
/// end.
pub(crate) fn compare_with_model(front: &mut FrontEnd, device: &Arc<dyn Device>, steps: &[Step]) {
    let disk_bytes = usize::try_from(device.geometry().bytes()).expect("a small disk");
    let mut model = vec![0; disk_bytes];
    let mut channel = front.open(device);
    for step in steps {
        let start = usize::try_from(step.lba).expect("a small disk") * 512;
        let range = start..start + step.blocks as usize * 512;
        let blocks = (step.fill..=u8::MAX).chain(0..=u8::MAX).cycle();
        let pattern: Vec<u8> = blocks
            .flat_map(|fill| [fill; 512])
            .take(range.len())
            .collect();
        let owned = |front: &mut FrontEnd| {
            let mut buf = front.buf(pattern.len(), 0xee);
            buf.bytes_mut().copy_from_slice(&pattern);
            Payload::Owned(buf)
        };
        let payload = match step.operation {
            Operation::Read if step.owned => Payload::Owned(front.buf(range.len(), 0xee)),
            Operation::Read => Payload::Lend,
            Operation::Write { .. } if step.owned => owned(front),
            Operation::Write { .. } => Payload::Borrowed(&pattern),
            _ => Payload::None,
        };
        let gives_buf = matches!(payload, Payload::Owned(_));
        let (status, loan) =
            front.ask(&mut channel, step.operation, step.lba, step.blocks, payload);
        assert_eq!(status, Status::Ok, "{step:?}");
        assert!(
            !gives_buf || matches!(loan, Loan::Buf(_)),
            "{step:?}: the buffer did not come back"
        );
        match step.operation {
            Operation::Read if step.blocks > 0 => {
                assert_eq!(bytes_of(&loan, range.len()), model[range], "{step:?}");
            }
            Operation::Write { .. } => model[range].copy_from_slice(&pattern),
            Operation::WriteZeroes { .. } | Operation::Deallocate => model[range].fill(0),
            _ => {}
        }
    }
    let all = u32::try_from(disk_bytes / 512).expect("a small disk");
    for lba in (0..all).step_by(1024) {
        let blocks = (all - lba).min(1024);
        let read = front
            .read(&mut channel, u64::from(lba), blocks)
            .expect("the disk reads");
        let start = lba as usize * 512;
        assert!(
            read == model[start..start + read.len()],
            "the disk differs from the model"
        );
    }
}

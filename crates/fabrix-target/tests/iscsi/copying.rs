//! Common parts of the tests of EXTENDED COPY: lists by the standard's tables, and two disks.
//!
//! Source: SPC-4, "EXTENDED COPY(LID1) command", "RECEIVE COPY STATUS(LID1) command".

use std::sync::Arc;

use fabrix_block::Device;
use fabrix_rt::Engine;

use crate::common::{Plan, Stage, ram};
use crate::initiator::{Ended, FINAL, Initiator, WRITE};

/// Sense data of a copy that a disk refused or failed: COPY ABORTED, THIRD PARTY DEVICE FAILURE.
pub(crate) const COPY_ABORTED: Option<[u8; 3]> = Some([0xA, 0x0D, 1]);

/// A list with one segment of `blocks`, from the start of the first disk to `to` of the second.
pub(crate) fn copy_list(id: u8, disks: [&[u8; 8]; 2], blocks: u16, to: u64) -> Vec<u8> {
    let mut list = vec![id, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    for naa in disks {
        list.extend([0xE4, 0, 0, 0, 1, 3, 0, 8]);
        list.extend(naa);
        list.extend([0; 13]);
        list.extend([0, 2, 0]);
    }
    list.extend([2, 0, 0, 24, 0, 0, 0, 1, 0, 0]);
    list.extend(blocks.to_be_bytes());
    list.extend([0; 8]);
    list.extend(to.to_be_bytes());
    list
}

pub(crate) fn extended_copy(initiator: &mut Initiator, list: &[u8]) -> Ended {
    initiator.write(&copy_cdb(list), list, list.len(), 0)
}

/// Begins a copy without waiting for its end.
pub(crate) fn begin_copy(initiator: &mut Initiator, list: &[u8]) {
    initiator.begin(FINAL | WRITE, &copy_cdb(list), list.len(), list);
}

fn copy_cdb(list: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, u8::try_from(list.len()).expect("short"));
    cdb
}

/// COPY MANAGER STATUS, segments and bytes. `None`: the target knows no such copy.
pub(crate) fn copy_status(initiator: &mut Initiator, id: u8) -> Option<(u8, u8, u32)> {
    let cdb = [0x84, 0, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0];
    let ended = initiator.command(&cdb, 12);
    let data = ended.sense.is_none().then_some(ended.data)?;
    let bytes = u32::from_be_bytes(data[8..12].try_into().expect("four"));
    Some((data[4], data[6], bytes))
}

/// The NAA designator of logical unit `lun`: the first one on the page.
pub(crate) fn naa(initiator: &mut Initiator, lun: u8) -> [u8; 8] {
    initiator.lun = lun;
    // The first command for a logical unit gets a unit attention.
    let _attention = initiator.command(&[0; 6], 0);
    let page = initiator.command(&[0x12, 1, 0x83, 0, 255, 0], 255).data;
    initiator.lun = 0;
    page[8..16].try_into().expect("eight")
}

/// A stage with two disks. The caller chooses the second.
pub(crate) fn two_disks(engine: Engine, second: Arc<dyn Device>) -> Stage {
    let mut plan = Plan::of(ram("first", 512, 8 << 20));
    plan.devices.push(second);
    Stage::set(engine, plan)
}

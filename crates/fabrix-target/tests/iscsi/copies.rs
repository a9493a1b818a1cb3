//! EXTENDED COPY by one initiator. The tests of reservations cover the effect of other initiators'
//! reservations.

use fabrix_rt::Engine;

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::{pattern, ram};
use crate::copying::{COPY_ABORTED, copy_list, copy_status, extended_copy, naa, two_disks};
use crate::{good, on_both_engines, rw, session};

on_both_engines!(
    copies_from_disk_to_disk_and_remembers_how_it_went,
    cve_2020_28374_copies_nothing_that_the_initiator_might_not_write,
    a_copy_that_fails_is_told_and_remembered,
);

fn copies_from_disk_to_disk_and_remembers_how_it_went(engine: Engine) {
    let stage = two_disks(engine, ram("second", 512, 8 << 20));
    let mut initiator = session(&stage, 1, false);
    let disks = [naa(&mut initiator, 0), naa(&mut initiator, 1)];
    // More blocks than one piece, and no multiple of it.
    let data = pattern(1201 * 512, 3);
    good(&initiator.write(&rw(0x2A, 0, 1201), &data, 0, 0));
    let list = copy_list(7, [&disks[0], &disks[1]], 1201, 100);
    good(&extended_copy(&mut initiator, &list));
    initiator.lun = 1;
    assert!(initiator.command(&rw(0x28, 100, 1201), data.len()).data == data);
    let around = initiator.command(&rw(0x28, 1301, 1), 512).data;
    assert!(around == [0; 512], "one block more was written");
    initiator.lun = 0;
    assert_eq!(copy_status(&mut initiator, 8), None);
    assert_eq!(copy_status(&mut initiator, 7), Some((1, 1, 1201 * 512)));
    assert_eq!(copy_status(&mut initiator, 7), None, "who asked knows");
}

fn cve_2020_28374_copies_nothing_that_the_initiator_might_not_write(engine: Engine) {
    let stage = two_disks(engine, ram("second", 512, 8 << 20));
    let (mut one, mut two) = (session(&stage, 1, false), session(&stage, 2, false));
    let disks = [naa(&mut one, 0), naa(&mut one, 1)];
    let _attention = naa(&mut two, 1);
    two.lun = 1;
    good(&two.command(&[0x16, 0, 0, 0, 0, 0], 0));
    let list = copy_list(1, [&disks[0], &disks[1]], 8, 0);
    assert_eq!(extended_copy(&mut one, &list).sense, COPY_ABORTED);
    good(&two.command(&[0x17, 0, 0, 0, 0, 0], 0));
    good(&extended_copy(&mut one, &list));
    // A name that no disk has that this initiator sees.
    let stranger = copy_list(1, [&disks[0], &[0x31; 8]], 8, 0);
    assert_eq!(
        extended_copy(&mut one, &stranger).sense,
        Some([0xA, 0x0D, 2])
    );
}

fn a_copy_that_fails_is_told_and_remembered(engine: Engine) {
    let disk = TestDisk::new(16 << 20);
    let stage = two_disks(engine, disk.clone());
    let mut initiator = session(&stage, 1, false);
    let disks = [naa(&mut initiator, 0), naa(&mut initiator, 1)];
    disk.when(
        Kind::Write,
        Do::AnswerLater(fabrix_block::Status::MediaWrite),
    );
    let list = copy_list(5, [&disks[0], &disks[1]], 2048, 0);
    assert_eq!(extended_copy(&mut initiator, &list).sense, COPY_ABORTED);
    assert_eq!(copy_status(&mut initiator, 5), Some((2, 0, 0)));
    good(&initiator.command(&[0; 6], 0));
}

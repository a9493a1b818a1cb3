//! Invalid commands on a valid transport. Each gets the status of its fault, and the connection
//! continues.

mod connects;

use fabrix_proto::nvme::command::DatasetRange;
use fabrix_proto::nvme::fabrics::Property;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use zerocopy::IntoBytes;

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::{Data, wish};
use crate::common::wire::Digests;
use crate::common::{Plan, Stage};
use crate::on_both_engines;

on_both_engines!(
    io_commands_that_are_wrong_are_answered_and_the_queue_goes_on,
    admin_commands_that_are_wrong_are_answered_and_the_queue_goes_on,
    a_command_id_in_use_is_refused_and_its_owner_is_not_disturbed,
    more_commands_than_the_queue_has_room_for_end_the_connection,
);

fn io_commands_that_are_wrong_are_answered_and_the_queue_goes_on(engine: Engine) {
    let stage = Stage::new(engine);
    let (_admin, mut io) = stage.admin_and_io();
    let (last, page) = (32768, vec![7; 4096]);
    let two_mib = vec![0; 2 << 20];
    let read = SubmissionEntry::read;
    let write = |nsid, lba, blocks| SubmissionEntry::write(nsid, lba, blocks, false);
    let with = |mut entry: SubmissionEntry, change: &dyn Fn(&mut SubmissionEntry)| {
        change(&mut entry);
        entry
    };
    let reserved_flag = with(read(1, 0, 8), &|entry| entry.flags |= 4);
    let prp = with(read(1, 0, 8), &|entry| entry.flags = 0);
    let protection = with(read(1, 0, 8), &|entry| entry.cdw12.set(7 | 1 << 26));
    let ranges = [DatasetRange::new(last - 1, 2)];
    let unknown = SubmissionEntry::new(0x7c);
    let cases = [
        (
            "an unknown opcode",
            unknown,
            Data::None,
            Status::INVALID_OPCODE,
        ),
        (
            "an unknown opcode that reads",
            SubmissionEntry::new(0x82),
            Data::Expect(512),
            Status::INVALID_OPCODE,
        ),
        (
            "an unknown opcode that writes",
            SubmissionEntry::new(0x81),
            Data::Fetch(&page),
            Status::INVALID_OPCODE,
        ),
        (
            "an unknown opcode with data",
            SubmissionEntry::new(0x81),
            Data::Inline(&page),
            Status::INVALID_OPCODE,
        ),
        (
            "NSID 0",
            read(0, 0, 8),
            Data::Expect(4096),
            Status::INVALID_NAMESPACE,
        ),
        (
            "NSID 2",
            read(2, 0, 8),
            Data::Expect(4096),
            Status::INVALID_NAMESPACE,
        ),
        (
            "NSID of all",
            write(u32::MAX, 0, 8),
            Data::Inline(&page),
            Status::INVALID_NAMESPACE,
        ),
        (
            "a flush of all",
            SubmissionEntry::flush(u32::MAX),
            Data::None,
            Status::INVALID_NAMESPACE,
        ),
        (
            "LBA past the end",
            read(1, last, 1),
            Data::Expect(512),
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "an end past the end",
            read(1, last - 1, 2),
            Data::Expect(1024),
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "an end past 2^64",
            read(1, u64::MAX, 2),
            Data::Expect(1024),
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "a write past the end",
            write(1, last - 7, 8),
            Data::Inline(&page),
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "a fetch past the end",
            write(1, last - 7, 8),
            Data::Fetch(&page),
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "zeroes past the end",
            SubmissionEntry::write_zeroes(1, last, 1, false, false),
            Data::None,
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "a range past the end",
            SubmissionEntry::dataset_management(1, 1, true),
            Data::Inline(ranges.as_bytes()),
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "a read above MDTS",
            read(1, 0, 4096),
            Data::Expect(2 << 20),
            Status::INVALID_FIELD,
        ),
        (
            "a write above MDTS",
            write(1, 0, 4096),
            Data::Fetch(&two_mib),
            Status::INVALID_FIELD,
        ),
        (
            "blocks above MDTS, SGL not",
            read(1, 0, 4096),
            Data::Expect(4096),
            Status::INVALID_FIELD,
        ),
        (
            "SGL too short",
            read(1, 0, 8),
            Data::Expect(4092),
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "SGL too long",
            read(1, 0, 8),
            Data::Expect(8192),
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "no SGL",
            read(1, 0, 8),
            Data::None,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "a capsule too short",
            write(1, 0, 16),
            Data::Inline(&page),
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "a capsule too long",
            write(1, 0, 4),
            Data::Inline(&page),
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "a write without data",
            write(1, 0, 8),
            Data::None,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "fewer ranges than NR",
            SubmissionEntry::dataset_management(1, 2, true),
            Data::Inline(ranges.as_bytes()),
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "a flush with data",
            SubmissionEntry::flush(1),
            Data::Expect(512),
            Status::SUCCESS,
        ),
        (
            "a reserved flag",
            reserved_flag,
            Data::Expect(4096),
            Status::INVALID_FIELD,
        ),
        ("PRPs", prp, Data::Expect(4096), Status::INVALID_FIELD),
        (
            "protection information",
            protection,
            Data::Expect(4096),
            Status::INVALID_FIELD,
        ),
        (
            "a property",
            SubmissionEntry::property_get(Property::CSTS),
            Data::None,
            Status::COMMAND_SEQUENCE_ERROR,
        ),
        (
            "128 KiB in the capsule, past the end",
            SubmissionEntry::write(1, last, 256, false),
            Data::Inline(&two_mib[..128 << 10]),
            Status::LBA_OUT_OF_RANGE,
        ),
        (
            "128 KiB in the capsule of an unknown command",
            SubmissionEntry::new(0x7d),
            Data::Inline(&two_mib[..128 << 10]),
            Status::INVALID_OPCODE,
        ),
        (
            "a second Connect",
            wish().to_wire().0,
            Data::Inline(&page[..1024]),
            Status::COMMAND_SEQUENCE_ERROR,
        ),
    ];
    for (what, entry, data, status) in cases {
        let id = io.fresh_id();
        let bytes = io.capsule(entry, id, data);
        io.expect_answer(id, Data::None); // neither data nor an R2T
        io.send(&bytes);
        assert_eq!(io.finish(id).status, status, "{what}");
    }
    assert_eq!(io.read(1, last - 8, 8), [0; 4096], "nothing was written");
    io.write(1, 0, &page);
    assert_eq!(io.read(1, 0, 8), page);
}

fn admin_commands_that_are_wrong_are_answered_and_the_queue_goes_on(engine: Engine) {
    let stage = Stage::new(engine);
    let mut admin = stage.admin();
    let set = |property, value| SubmissionEntry::property_set(property, value);
    let page = vec![0; 4096];
    let mut format = SubmissionEntry::new(0x80);
    format.nsid.set(1);
    let create_queue = SubmissionEntry::new(0x01);
    let mut sized = SubmissionEntry::property_get(Property::CAP);
    sized.cdw10.set(0);
    for (what, entry, data, status) in [
        ("Format NVM", format, Data::None, Status::INVALID_OPCODE),
        (
            "Create I/O Queue",
            create_queue,
            Data::Fetch(&page),
            Status::INVALID_OPCODE,
        ),
        (
            "vendor specific",
            SubmissionEntry::new(0xc2),
            Data::Expect(4096),
            Status::INVALID_OPCODE,
        ),
        (
            "Identify without SGL",
            SubmissionEntry::new(0x06),
            Data::None,
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        (
            "Identify with a short SGL",
            SubmissionEntry::new(0x06),
            Data::Expect(512),
            Status::DATA_SGL_LENGTH_INVALID,
        ),
        ("CAP as 4 bytes", sized, Data::None, Status::INVALID_FIELD),
        (
            "an unknown property",
            SubmissionEntry::property_get(Property(0x1234)),
            Data::None,
            Status::INVALID_FIELD,
        ),
        (
            "a write to CSTS",
            set(Property::CSTS, 0),
            Data::None,
            Status::INVALID_FIELD,
        ),
        (
            "Disconnect of the admin queue",
            SubmissionEntry::disconnect(),
            Data::None,
            Status::INVALID_QUEUE_TYPE,
        ),
        (
            "a second Connect",
            wish().to_wire().0,
            Data::Inline(&page[..1024]),
            Status::COMMAND_SEQUENCE_ERROR,
        ),
        (
            "more queues than there are numbers",
            SubmissionEntry::set_features(fabrix_proto::nvme::features::FeatureId(7), u32::MAX),
            Data::None,
            Status::INVALID_FIELD,
        ),
    ] {
        let id = admin.fresh_id();
        let bytes = admin.capsule(entry, id, data);
        admin.expect_answer(id, Data::None);
        admin.send(&bytes);
        assert_eq!(admin.finish(id).status, status, "{what}");
    }
    assert_eq!(admin.property(Property::CSTS), 1);
    let mut damaged = stage.dial();
    damaged.open(Digests::BOTH);
    damaged.connect_admin();
    let id = damaged.fresh_id();
    let timestamp = SubmissionEntry::set_features(fabrix_proto::nvme::features::FeatureId(0xe), 0);
    let mut bytes = damaged.capsule(timestamp, id, Data::Inline(&[0; 8]));
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    damaged.expect_answer(id, Data::None);
    damaged.send(&bytes);
    assert_eq!(damaged.finish(id).status, Status::TRANSIENT_TRANSPORT_ERROR);
    damaged.enable();
}

fn a_command_id_in_use_is_refused_and_its_owner_is_not_disturbed(engine: Engine) {
    let disk = TestDisk::new(1 << 20);
    let stage = Stage::set(engine, Plan::of(disk.clone()));
    let (_admin, mut io) = stage.admin_and_io();
    io.write(1, 0, &[4; 4096]);
    disk.when(Kind::Read, Do::Keep);
    let id = io.submit(SubmissionEntry::read(1, 0, 8), Data::Expect(4096));
    disk.until_kept(1);
    let conflict = Status::COMMAND_ID_CONFLICT;
    for (entry, data) in [
        (SubmissionEntry::flush(1), Data::None),
        (
            SubmissionEntry::write(1, 0, 8, false),
            Data::Inline(&[5; 4096]),
        ),
        (
            SubmissionEntry::write(1, 0, 32, false),
            Data::Fetch(&[5; 16384]),
        ),
    ] {
        let bytes = io.capsule(entry, id, data);
        io.send(&bytes);
        let answer = io.receive().expect("CapsuleResp");
        assert_eq!((answer.kind, answer.u16(20)), (5, id));
        assert_eq!(Status::from_field(answer.u16(22)), conflict, "{entry:?}");
    }
    disk.when(Kind::Read, Do::Obey);
    disk.release();
    assert_eq!(
        io.finish(id).data,
        [4; 4096],
        "the first command has its own answer"
    );
    let bytes = io.capsule(SubmissionEntry::flush(1), id, Data::None);
    io.expect_answer(id, Data::None);
    io.send(&bytes);
    assert_eq!(io.finish(id).status, Status::SUCCESS, "now the id is free");
}

fn more_commands_than_the_queue_has_room_for_end_the_connection(engine: Engine) {
    let disk = TestDisk::new(1 << 20);
    let stage = Stage::set(
        engine,
        Plan {
            max_queue_entries: 32,
            ..Plan::of(disk.clone())
        },
    );
    let (admin, mut io) = stage.admin_and_io();
    disk.when(Kind::Flush, Do::Keep);
    for _ in 0..32 {
        io.submit(SubmissionEntry::flush(1), Data::None);
    }
    disk.until_kept(32);
    io.submit(SubmissionEntry::flush(1), Data::None);
    io.expect_term(2, "one command more");
    drop(io);
    stage.notice(|notice| notice.to_string().contains("more commands at once"));
    assert_eq!(
        stage.target.connections(),
        2,
        "the disk has still to answer"
    );
    disk.release();
    stage.until("all is over", |stage| stage.target.connections() == 1);
    drop(admin);
    stage.until_empty();
}

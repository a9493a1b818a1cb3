//! A reply never contains another request's data. The test fills all buffers with a secret,
//! provokes every kind of failure, and checks every byte that the target sends.

use fabrix_block::Status as DiskStatus;
use fabrix_proto::nvme::admin::{GetLogPage, Identify};
use fabrix_proto::nvme::fabrics::Property;
use fabrix_proto::nvme::features::FeatureId;
use fabrix_proto::nvme::identify::Cns;
use fabrix_proto::nvme::log_page::LogId;
use fabrix_proto::nvme::spec::SubmissionEntry;
use fabrix_rt::Engine;

use crate::common::disk::{Do, Kind, TestDisk};
use crate::common::host::{Data, Host};
use crate::common::wire::{Digests, icreq};
use crate::common::{Plan, Stage, ram};
use crate::on_both_engines;

on_both_engines!(no_reply_contains_what_another_host_wrote);

const SECRET: u8 = 0xc7;
/// Number of equal bytes in a row that is no accident.
const RUN: usize = 4;

fn no_reply_contains_what_another_host_wrote(engine: Engine) {
    let disk = TestDisk::new(4 << 20);
    let devices = vec![ram("secret", 512, 4 << 20), disk.clone()];
    let plan = Plan {
        shards: 1,
        devices,
        arena_bytes: 32 << 20,
        ..Plan::default()
    };
    let stage = Stage::set(engine, plan);
    for digests in [Digests::NONE, Digests::BOTH] {
        let mut admin = stage.admin();
        let mut io = Host::io_with(stage.address, admin.controller, 1, digests);
        (admin.seen, io.seen) = (Some(Vec::new()), Some(Vec::new()));
        spread_the_secret(&stage, digests);
        ask_the_controller(&mut admin);
        spread_the_secret(&stage, digests);
        fail_reads(&disk, &mut io);
        spread_the_secret(&stage, digests);
        read_odd_lengths(&disk, &mut io);
        io.send_anyway(&icreq(Digests::NONE));
        io.expect_close_politely();
        for (what, host) in [("admin queue", admin), ("I/O queue", io)] {
            check(what, &host.seen.unwrap_or_default());
        }
        stage.until_empty();
    }
}

/// Fills receive buffers, fetch buffers and read buffers of the shard with the secret.
fn spread_the_secret(stage: &Stage, digests: Digests) {
    let owner = stage.admin();
    let mut io = Host::io_with(stage.address, owner.controller, 1, digests);
    for bytes in [512, 4096, 8192, 64 << 10, 256 << 10, 1 << 20] {
        io.write(1, 0, &vec![SECRET; bytes]);
        let blocks = u32::try_from(bytes / 512).expect("small");
        assert!(io.read(1, 0, blocks).iter().all(|byte| *byte == SECRET));
    }
}

fn ask_the_controller(admin: &mut Host) {
    for cns in 0..=0x20 {
        for nsid in [0, 1, 2, 3, u32::MAX] {
            let identify = Identify::new(Cns(cns), nsid);
            admin.run_anyway(SubmissionEntry::identify(identify), Data::Expect(4096));
        }
    }
    for page in (0..=0x80).map(LogId) {
        for (offset, bytes) in [
            (0, 4),
            (0, 4096),
            (4, 12),
            (508, 8),
            (4092, 4),
            (4096, 8192),
        ] {
            let log = GetLogPage {
                page,
                nsid: u32::MAX,
                offset,
                bytes: u64::from(bytes),
                specific: 0,
                retain_event: true,
                command_set: 0,
            };
            admin.run_anyway(SubmissionEntry::get_log_page(log), Data::Expect(bytes));
        }
    }
    for feature in (0..=0x20).chain([0x80, 0x81]).map(FeatureId) {
        for data in [
            Data::None,
            Data::Expect(8),
            Data::Expect(16),
            Data::Expect(4096),
        ] {
            admin.run_anyway(SubmissionEntry::get_features(feature, 1), data);
        }
    }
    for property in (0..0x80).step_by(4).map(Property) {
        admin.run_anyway(SubmissionEntry::property_get(property), Data::None);
    }
    admin.run_anyway(SubmissionEntry::new(0xc2), Data::Expect(4096));
}

fn fail_reads(disk: &TestDisk, io: &mut Host) {
    let statuses = [
        DiskStatus::MediaRead,
        DiskStatus::NotReady,
        DiskStatus::Aborted,
        DiskStatus::Internal,
    ];
    for status in statuses {
        disk.when(Kind::Read, Do::Soil(SECRET, status));
        for blocks in [1, 8, 128, 2048] {
            let answer = io.try_read(2, 0, blocks, 512);
            assert!(!answer.status.is_success() && answer.data.is_empty());
            let data = vec![0; 512 * blocks as usize];
            let compare = SubmissionEntry::compare(2, 0, blocks);
            io.run_anyway(compare, Data::Fetch(&data));
            io.run_anyway(SubmissionEntry::verify(2, 0, blocks), Data::None);
        }
    }
    disk.when(Kind::Read, Do::Obey);
}

/// Reads disk 2, which holds zeroes. The disk answers from its own pages, and from buffers of the
/// shard.
fn read_odd_lengths(disk: &TestDisk, io: &mut Host) {
    for way in [Do::Obey, Do::Copy] {
        disk.when(Kind::Read, way);
        for blocks in [1, 3, 7, 9, 15, 17, 33, 127, 129, 511, 2047, 2048] {
            let answer = io.try_read(2, 1, blocks, 512);
            assert!(answer.data.iter().all(|byte| *byte == 0), "{blocks} blocks");
            assert_eq!(answer.data.len(), 512 * blocks as usize);
        }
        let short = Data::Expect(4096);
        io.run_anyway(SubmissionEntry::read(2, 0, 1), short);
        io.run_anyway(SubmissionEntry::read(2, 0, 2048), short);
        io.run_anyway(SubmissionEntry::read(2, u64::MAX, 8), short);
        io.run_anyway(SubmissionEntry::new(0x82), short);
        let differs = SubmissionEntry::compare(2, 0, 8);
        io.run_anyway(differs, Data::Inline(&[1; 4096]));
    }
}

fn check(what: &str, seen: &[u8]) {
    assert!(seen.len() > 10_000, "something was received");
    let found = seen.windows(RUN).position(|window| window == [SECRET; RUN]);
    assert_eq!(found, None, "the secret came back on the {what}");
}

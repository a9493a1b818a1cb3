//! I/O commands of all sizes and kinds of data transfer, on several namespaces, with and without
//! digests.

use fabrix_proto::nvme::command::DatasetRange;
use fabrix_proto::nvme::fabrics::Connect;
use fabrix_proto::nvme::spec::{Status, SubmissionEntry};
use fabrix_rt::Engine;
use zerocopy::IntoBytes;

use crate::common::host::{Data, Host, wish};
use crate::common::wire::Digests;
use crate::common::{Plan, Stage, pattern, ram};
use crate::on_both_engines;

on_both_engines!(
    what_is_written_is_read_at_every_size_and_with_every_digest,
    namespaces_with_large_and_small_blocks_are_separate,
    flush_zeroes_and_deallocate_do_what_they_say,
    compare_and_verify_look_at_the_disk,
    only_without_flow_control_a_read_ends_with_its_data,
    many_commands_in_progress_are_all_answered,
);

const SIZES: [usize; 8] = [
    512,
    4096,
    8192,
    16 << 10,
    100 << 9,
    128 << 10,
    (1 << 20) - 512,
    1 << 20,
];

fn what_is_written_is_read_at_every_size_and_with_every_digest(engine: Engine) {
    let stage = Stage::new(engine);
    let admin = stage.admin();
    let (header, data) = (true, true);
    for digests in [
        Digests::NONE,
        Digests {
            header,
            data: false,
        },
        Digests {
            header: false,
            data,
        },
        Digests::BOTH,
    ] {
        let mut io = Host::io_with(stage.address, admin.controller, 1, digests);
        for (seed, bytes) in (1..).zip(SIZES) {
            let (lba, written) = (u64::from(seed) * 2048, pattern(bytes, seed));
            io.write(1, lba, &written);
            let blocks = u32::try_from(bytes / 512).expect("small");
            assert!(
                io.read(1, lba, blocks) == written,
                "{bytes} bytes, {digests:?}"
            );
            let entry = SubmissionEntry::write(1, lba, blocks, true);
            let again = io.run(entry, Data::Fetch(&written));
            assert_eq!(again.status, Status::SUCCESS);
            let asked: u32 = again.r2ts.iter().sum();
            assert_eq!(asked as usize, bytes, "every byte is asked for once");
        }
        drop(io);
        stage.until("the queue has ended", |stage| {
            stage.target.connections() == 1
        });
    }
}

fn namespaces_with_large_and_small_blocks_are_separate(engine: Engine) {
    let devices = vec![
        ram("a", 512, 4 << 20),
        ram("b", 4096, 4 << 20),
        ram("c", 512, 1 << 20),
    ];
    let stage = Stage::set(
        engine,
        Plan {
            devices,
            ..Plan::default()
        },
    );
    let (_admin, mut io) = stage.admin_and_io();
    for (nsid, block_bytes) in [(1, 512), (2, 4096), (3, 512)] {
        let data = pattern(16384, nsid);
        let answer = io.try_write(nsid.into(), 0, &data, block_bytes);
        assert_eq!(answer.status, Status::SUCCESS);
    }
    for (nsid, block_bytes) in [(1, 512), (2, 4096), (3, 512)] {
        let answer = io.try_read(nsid.into(), 0, 16384 / block_bytes, block_bytes);
        assert!(answer.data == pattern(16384, nsid), "namespace {nsid}");
    }
    let last = io.try_write(2, 1023, &[5; 4096], 4096);
    assert_eq!(last.status, Status::SUCCESS, "the last block");
    let past = io.try_write(2, 1024, &[5; 4096], 4096);
    assert_eq!(past.status, Status::LBA_OUT_OF_RANGE);
}

fn flush_zeroes_and_deallocate_do_what_they_say(engine: Engine) {
    let stage = Stage::new(engine);
    let (_admin, mut io) = stage.admin_and_io();
    let full = pattern(128 << 10, 3);
    io.write(1, 0, &full);
    assert_eq!(
        io.run(SubmissionEntry::flush(1), Data::None).status,
        Status::SUCCESS
    );
    let zeroes = SubmissionEntry::write_zeroes(1, 8, 16, false, true);
    assert_eq!(io.run(zeroes, Data::None).status, Status::SUCCESS);
    let mut expected = full;
    expected[8 * 512..24 * 512].fill(0);
    assert!(io.read(1, 0, 256) == expected, "write zeroes");
    let mut list = [DatasetRange::new(0, 0); 256];
    list[0] = DatasetRange::new(32, 8);
    list[2] = DatasetRange::new(100, 1);
    list[3] = DatasetRange::new(u64::MAX, u32::MAX); // after the ranges that count
    let trim = SubmissionEntry::dataset_management(1, 3, true);
    let answer = io.run(trim, Data::Inline(list.as_bytes()));
    assert_eq!(
        answer.status,
        Status::SUCCESS,
        "Linux always sends 4096 bytes"
    );
    expected[32 * 512..40 * 512].fill(0);
    expected[100 * 512..101 * 512].fill(0);
    assert!(io.read(1, 0, 256) == expected, "deallocate");
    let by_r2t = io.run(trim, Data::Fetch(list.as_bytes()));
    assert_eq!(by_r2t.status, Status::SUCCESS);
    let trim = SubmissionEntry::dataset_management(1, 4, true);
    let answer = io.run(trim, Data::Inline(list.as_bytes()));
    assert_eq!(answer.status, Status::LBA_OUT_OF_RANGE);
    assert!(
        io.read(1, 0, 256) == expected,
        "a refused list has done nothing"
    );
}

fn compare_and_verify_look_at_the_disk(engine: Engine) {
    let stage = Stage::new(engine);
    let admin = stage.admin();
    for (qid, digests) in [(1, Digests::NONE), (2, Digests::BOTH)] {
        let mut io = Host::io_with(stage.address, admin.controller, qid, digests);
        let data = pattern(32 << 10, 9);
        io.write(1, 40, &data);
        let compare = SubmissionEntry::compare(1, 40, 64);
        assert_eq!(io.run(compare, Data::Fetch(&data)).status, Status::SUCCESS);
        let mut other = data.clone();
        other[20_000] ^= 1;
        assert_eq!(
            io.run(compare, Data::Fetch(&other)).status,
            Status::COMPARE_FAILURE
        );
        let first = SubmissionEntry::compare(1, 40, 1);
        assert_eq!(
            io.run(first, Data::Inline(&data[..512])).status,
            Status::SUCCESS
        );
        let second = io.run(first, Data::Inline(&data[512..1024]));
        assert_eq!(second.status, Status::COMPARE_FAILURE);
        let verify = SubmissionEntry::verify(1, 0, 32768);
        assert_eq!(
            io.run(verify, Data::None).status,
            Status::SUCCESS,
            "all of the disk"
        );
        let verify = SubmissionEntry::verify(1, 1, 32768);
        assert_eq!(io.run(verify, Data::None).status, Status::LBA_OUT_OF_RANGE);
    }
}

fn only_without_flow_control_a_read_ends_with_its_data(engine: Engine) {
    let stage = Stage::new(engine);
    let admin = stage.admin();
    for (qid, disabled) in [(1, true), (2, false)] {
        let mut io = stage.dial();
        io.open(Digests::NONE);
        let connect = Connect {
            controller_id: admin.controller,
            queue_id: qid,
            queue_entries: 32,
            disable_sq_flow_control: disabled,
            ..wish()
        };
        assert_eq!(io.connect(&connect).status, Status::SUCCESS);
        for round in 0..70_u16 {
            let read = io.try_read(1, 0, 8, 512);
            assert_eq!(read.by_flag, disabled, "SUCCESS");
            let flush = io.run(SubmissionEntry::flush(1), Data::None);
            let head = (2 * round + 3) % 32; // after Connect and two answers a round
            let expected = if disabled { u16::MAX } else { head };
            assert_eq!(flush.sq_head, expected, "SQHD in round {round}");
        }
        let failed = io.try_read(1, u64::MAX, 8, 512);
        assert_eq!(
            (failed.status, failed.by_flag),
            (Status::LBA_OUT_OF_RANGE, false)
        );
    }
}

fn many_commands_in_progress_are_all_answered(engine: Engine) {
    let stage = Stage::new(engine);
    let (_admin, mut io) = stage.admin_and_io();
    let small: Vec<_> = (0..40).map(|seed| pattern(4096, seed)).collect();
    let large: Vec<_> = (0..8).map(|seed| pattern(64 << 10, 100 + seed)).collect();
    let write = |lba, blocks| SubmissionEntry::write(1, lba, blocks, false);
    for _ in 0..20 {
        let mut ids = Vec::new();
        for (lba, data) in (0..).step_by(8).zip(&small) {
            ids.push(io.submit(write(lba, 8), Data::Inline(data)));
        }
        for ((lba, data), by_r2t) in (4096..)
            .step_by(128)
            .zip(&large)
            .zip([true, false].into_iter().cycle())
        {
            let data = if by_r2t {
                Data::Fetch(data)
            } else {
                Data::Inline(data)
            };
            ids.push(io.submit(write(lba, 128), data));
        }
        for id in ids.drain(..).rev() {
            assert_eq!(io.finish(id).status, Status::SUCCESS);
        }
        let lbas = (0..).step_by(8).take(small.len());
        for lba in lbas.chain((4096..).step_by(8).take(64)) {
            ids.push(io.submit(SubmissionEntry::read(1, lba, 8), Data::Expect(4096)));
        }
        let pieces = large.iter().flat_map(|data| data.chunks(4096));
        let expected = small.iter().map(Vec::as_slice).chain(pieces);
        for (id, expected) in ids.drain(..).zip(expected) {
            assert!(io.finish(id).data == expected, "command {id:#x}");
        }
    }
}

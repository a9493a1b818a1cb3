//! Requests at a correct target: verified data at depth, unsupported operations, commands that
//! cover a part of a request, and limits of the target.

mod common;

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use common::{Asked, DISK_BLOCKS, Fake, Rig, Script, Then, options};
use fabrix_block::{Deallocate, Device, Operation, Payload, Status};
use fabrix_host::{Options, connect};
use fabrix_proto::nvme::identify::{IdentifyController, IdentifyNamespace, IdentifyNvmController};
use fabrix_proto::nvme::spec::{Opcode, Status as Nvme};
use fabrix_rt::{Engine, Loan};
use zerocopy::FromBytes;

const WRITE: Operation = Operation::Write { durable: false };
const ZEROES: Operation = Operation::WriteZeroes {
    deallocate: false,
    durable: false,
};

fn rig(fake: &Fake, options: &Options) -> Rig {
    Rig::new(
        options.engine,
        &connect(&fake.address(), options).expect("an honest target"),
    )
}

/// A target that says something else of its controller.
fn controller(change: impl Fn(&mut IdentifyController) + Send + Sync + 'static) -> Script {
    let page = move |cns: u8, page: &mut [u8]| {
        if cns == 1 {
            change(IdentifyController::mut_from_bytes(page).expect("a page"));
        }
    };
    Script {
        page: Box::new(page),
        ..Script::default()
    }
}

on_both_engines!(
    verified_at_depth,
    verified_at_depth_with_digests,
    a_deep_queue_is_filled_and_never_overfilled,
);

fn verified_at_depth(engine: Engine) {
    let (options, _) = options(engine);
    verify(&Options {
        nr_io_queues: 3,
        ..options
    });
}

fn verified_at_depth_with_digests(engine: Engine) {
    let (options, _) = options(engine);
    verify(&Options {
        header_digest: true,
        data_digest: true,
        ..options
    });
}

/// Writes and reads of many sizes at depth 24; every byte read is the one written last.
fn verify(options: &Options) {
    let fake = Fake::honest();
    let mut rig = rig(&fake, options);
    let mut load = rig.load(7, 24);
    load.run(1500);
    load.check_all();
    assert_eq!(fake.shared.cuts.load(Ordering::Relaxed), 0);
}

fn a_deep_queue_is_filled_and_never_overfilled(engine: Engine) {
    // The controller allows 8 entries and 2 queues; we ask for 64 and 5.
    let mut script = controller(|it| it.max_commands = 6.into());
    script.capabilities = script.capabilities & !0xFFFF | 7;
    script.granted_queues = 2;
    let fake = Fake::start(script);
    let (options, _) = options(engine);
    let mut rig = rig(
        &fake,
        &Options {
            nr_io_queues: 5,
            queue_size: 64,
            ..options
        },
    );
    rig.read(0, 1).expect("connected");
    let mut asked = 0;
    let busy = loop {
        match rig.ask(asked, Operation::Read, (0, 1), Payload::Lend) {
            Asked::Pending => asked += 1,
            Asked::Busy(_) => break true,
            Asked::Done(..) => break false,
        }
        assert!(asked < 100, "a full channel says so");
    };
    assert!(busy && asked == 12, "two queues of six: {asked}");
    let in_progress = asked;
    for _ in 0..in_progress {
        assert_eq!(rig.next().1, Status::Ok);
        // After any ending there is room again.
        if asked < 200 {
            let again = rig.ask(asked, Operation::Read, (0, 1), Payload::Lend);
            assert!(matches!(again, Asked::Pending), "{again:?}");
            asked += 1;
        }
    }
    assert!(fake.shared.deepest.load(Ordering::Relaxed) <= 6);
    assert_eq!(fake.open_connections(), 3);
}

#[test]
fn what_the_target_cannot_do_is_unsupported_so_that_callers_fall_back() {
    let fake = Fake::start(controller(|it| {
        it.nvm_commands = 0.into();
        it.fused_operations = 0.into();
    }));
    let (options, _) = options(Engine::Epoll);
    let disk = connect(&fake.address(), &options).expect("a plain target");
    assert_eq!(disk.geometry().deallocate, Deallocate::No);
    assert!(!disk.compares_and_writes());
    let mut rig = Rig::new(Engine::Epoll, &disk);
    let unsupported = |rig: &mut Rig| {
        assert_eq!(
            rig.call(ZEROES, (0, 8), Payload::None).0,
            Status::Unsupported
        );
        assert_eq!(
            rig.call(Operation::Deallocate, (0, 8), Payload::None).0,
            Status::Unsupported
        );
        let pair = rig.buf(1024, 0);
        let asked = rig.call(
            Operation::CompareAndWrite { durable: false },
            (0, 1),
            Payload::Owned(pair),
        );
        assert!(
            matches!(asked, (Status::Unsupported, Loan::Buf(_))),
            "{asked:?}"
        );
    };
    rig.read(0, 1).expect("connected");
    unsupported(&mut rig);
    assert_eq!(
        rig.call(Operation::Flush, (0, 0), Payload::None).0,
        Status::Ok
    );
    assert_eq!(
        fake.count(Opcode::WRITE_ZEROES) + fake.count(Opcode::DATASET_MANAGEMENT),
        0
    );
}

#[test]
fn a_limit_that_the_target_did_not_tell_is_unsupported_too() {
    let command = |link: &mut common::Link, it: &common::Command| {
        let hint = [Opcode::WRITE_ZEROES, Opcode::DATASET_MANAGEMENT];
        if link.qid == Some(1) && hint.contains(&it.entry.io_opcode()) {
            link.respond(it.cid, Nvme::INVALID_FIELD, 0)?;
            return Ok(Then::Done);
        }
        Ok(Then::Usual)
    };
    let fake = Fake::start(Script {
        command: Box::new(command),
        ..Script::default()
    });
    let (options, _) = options(Engine::Epoll);
    let mut rig = rig(&fake, &options);
    assert_eq!(
        rig.call(ZEROES, (0, 8), Payload::None).0,
        Status::Unsupported
    );
    assert_eq!(
        rig.call(Operation::Deallocate, (0, 8), Payload::None).0,
        Status::Unsupported
    );
}

#[test]
fn zeroes_and_deallocation_reach_exactly_their_blocks() {
    let fake = Fake::honest();
    let (options, _) = options(Engine::Epoll);
    let mut rig = rig(&fake, &options);
    assert_eq!(rig.write(0, &[1; 512 * 8]), Status::Ok);
    let (status, loan) = rig.call(ZEROES, (1, 2), Payload::None);
    assert!(status.is_ok() && matches!(loan, Loan::None), "{loan:?}");
    let (status, loan) = rig.call(Operation::Deallocate, (5, 1), Payload::None);
    assert!(
        status.is_ok() && matches!(loan, Loan::None),
        "the range is ours: {loan:?}"
    );
    let firsts: Vec<u8> = rig
        .read(0, 8)
        .expect("read")
        .chunks(512)
        .map(|it| it[0])
        .collect();
    assert_eq!(firsts, [1, 0, 0, 1, 1, 0, 1, 1]);
}

#[test]
fn zeroes_longer_than_one_command_are_written_in_several() {
    let blocks = 65_536 * 2 + 5;
    let page = move |cns: u8, page: &mut [u8]| {
        if cns == 0 {
            let page = IdentifyNamespace::mut_from_bytes(page).expect("a page");
            (page.size, page.capacity) = (u64::from(blocks).into(), u64::from(blocks).into());
        }
    };
    let script = Script {
        page: Box::new(page),
        blocks: blocks.into(),
        ..Script::default()
    };
    let fake = Fake::start(script);
    fake.shared.disk.lock().expect("no panic").fill(1);
    let (options, _) = options(Engine::Epoll);
    let mut rig = rig(&fake, &options);
    assert_eq!(
        rig.call(ZEROES, (1, blocks - 2), Payload::None).0,
        Status::Ok
    );
    assert_eq!(fake.count(Opcode::WRITE_ZEROES), 3);
    let disk = fake.shared.disk.lock().expect("no panic");
    assert!(
        disk[..512]
            .iter()
            .chain(&disk[disk.len() - 512..])
            .all(|byte| *byte == 1)
    );
    assert!(disk[512..disk.len() - 512].iter().all(|byte| *byte == 0));
}

#[test]
fn limits_that_the_target_names_are_kept_in_pieces_that_cover_every_block() {
    let page = move |cns: u8, page: &mut [u8]| {
        if cns == 6 {
            let page = IdentifyNvmController::mut_from_bytes(page).expect("a page");
            page.write_zeroes_limit = 1; // 8 KiB: 16 blocks
            page.dataset_range_blocks.set(9);
            page.dataset_blocks.set(7);
        }
    };
    let command = |link: &mut common::Link, it: &common::Command| {
        let zeroes = it.entry.io_opcode() == Opcode::WRITE_ZEROES;
        if link.qid == Some(1) && zeroes && it.entry.cdw12.get() & 0xFFFF >= 16 {
            link.respond(it.cid, Nvme::INVALID_FIELD, 0)?;
            return Ok(Then::Done);
        }
        Ok(Then::Usual)
    };
    let fake = Fake::start(Script {
        page: Box::new(page),
        command: Box::new(command),
        ..Script::default()
    });
    let (options, _) = options(Engine::Epoll);
    let mut rig = rig(&fake, &options);
    for (operation, opcode, commands) in [
        (ZEROES, Opcode::WRITE_ZEROES, 4),
        (Operation::Deallocate, Opcode::DATASET_MANAGEMENT, 8),
    ] {
        fake.shared.disk.lock().expect("no panic").fill(1);
        assert_eq!(rig.call(operation, (3, 50), Payload::None).0, Status::Ok);
        assert_eq!(fake.count(opcode), commands, "{operation:?}");
        let disk = fake.shared.disk.lock().expect("no panic");
        for (lba, block) in (0..60).zip(disk.chunks(512)) {
            let expected = u8::from(!(3..53).contains(&lba));
            let right = block.iter().all(|byte| *byte == expected);
            assert!(right, "block {lba} after {operation:?}");
        }
    }
}

#[test]
fn nothing_asked_is_nothing_done() {
    let fake = Fake::honest();
    let (options, _) = options(Engine::Epoll);
    let mut rig = rig(&fake, &options);
    let buf = rig.buf(512, 1);
    let (status, loan) = rig.call(WRITE, (0, 0), Payload::Owned(buf));
    assert!(status.is_ok() && matches!(loan, Loan::Buf(_)));
    assert_eq!(rig.call(ZEROES, (0, 0), Payload::None).0, Status::Ok);
    assert_eq!(
        fake.count(Opcode::WRITE) + fake.count(Opcode::WRITE_ZEROES),
        0
    );
}

#[test]
fn buffers_come_back_as_they_were_given() {
    let fake = Fake::honest();
    let (options, _) = options(Engine::Epoll);
    let mut rig = rig(&fake, &options);
    let buf = rig.buf(1024, 6);
    let (status, loan) = rig.call(WRITE, (3, 2), Payload::Owned(buf));
    let Loan::Buf(buf) = loan else {
        panic!("the buffer of a write comes back")
    };
    assert!(status.is_ok() && buf.is_unique());
    let (status, loan) = rig.call(WRITE, (5, 1), Payload::Borrowed(&[8; 512]));
    assert!(
        status.is_ok() && matches!(loan, Loan::None),
        "nothing was given: {loan:?}"
    );
    let (status, loan) = rig.call(Operation::Flush, (0, 0), Payload::Owned(buf));
    let Loan::Buf(buf) = loan else {
        panic!("what came with a flush comes back")
    };
    assert!(status.is_ok());
    let (status, loan) = rig.call(Operation::Read, (3, 2), Payload::Owned(buf));
    let Loan::Buf(buf) = loan else {
        panic!("the buffer of a read comes back")
    };
    assert!(status.is_ok() && buf.is_unique() && buf.bytes() == [6; 1024]);
    assert_eq!(rig.read(5, 1), Ok(vec![8; 512]));
}

fn compare_and_write(rig: &mut Rig, lba: u64, expected: u8, new: u8, blocks: u32) -> Status {
    let half = blocks as usize * 512;
    let mut both = rig.buf(half * 2, expected);
    both.bytes_mut()[half..].fill(new);
    let (status, loan) = rig.call(
        Operation::CompareAndWrite { durable: false },
        (lba, blocks),
        Payload::Owned(both),
    );
    let Loan::Buf(buf) = loan else {
        panic!("the buffer comes back")
    };
    assert!(buf.is_unique(), "with no holder but its user");
    status
}

/// Both halves in their capsules, and both by R2T.
fn pairs(script: Script) {
    let fake = Fake::start(script);
    let (options, _) = options(Engine::Epoll);
    let mut rig = rig(&fake, &options);
    for blocks in [1, 16, 128] {
        assert_eq!(compare_and_write(&mut rig, 9, 0, 5, blocks), Status::Ok);
        assert_eq!(
            compare_and_write(&mut rig, 9, 0, 6, blocks),
            Status::CompareFailed
        );
        assert_eq!(compare_and_write(&mut rig, 9, 5, 0, blocks), Status::Ok);
    }
    assert_eq!(rig.read(9, 128), Ok(vec![0; 128 * 512]));
}

#[test]
fn compares_and_writes_whatever_the_size() {
    pairs(Script::default());
}

#[test]
fn a_pair_whose_halves_are_answered_backwards_ends_the_same() {
    pairs(Script {
        answers_pairs_backwards: true,
        ..Script::default()
    });
}

#[test]
fn a_pair_waits_for_room_for_both_halves_and_others_do_not_pass_it_by_for_ever() {
    let fake = Fake::honest();
    let (options, _) = options(Engine::Epoll);
    let mut rig = rig(
        &fake,
        &Options {
            queue_size: 4,
            ..options
        },
    );
    rig.read(0, 1).expect("connected");
    for slot in 0..2 {
        assert!(matches!(
            rig.ask(slot, Operation::Read, (0, 1), Payload::Lend),
            Asked::Pending
        ));
    }
    let pair = rig.buf(1024, 0);
    let asked = rig.ask(
        7,
        Operation::CompareAndWrite { durable: false },
        (0, 1),
        Payload::Owned(pair),
    );
    assert!(
        matches!(asked, Asked::Busy(Some(_))),
        "one slot is not enough: {asked:?}"
    );
    let _ = (rig.next(), rig.next());
    assert_eq!(compare_and_write(&mut rig, 0, 0, 1, 1), Status::Ok);
}

#[test]
fn a_write_that_must_be_durable_says_so_on_the_wire() {
    let command = |link: &mut common::Link, it: &common::Command| {
        if link.qid == Some(1) && it.entry.io_opcode() == Opcode::WRITE {
            let fua = it.entry.cdw12.get() >> 30 & 1 != 0;
            if fua != (it.entry.cdw10.get() == 1) {
                link.shared
                    .fault(format!("FUA {fua} at {}", it.entry.cdw10));
            }
        }
        Ok(Then::Usual)
    };
    let fake = Fake::start(Script {
        command: Box::new(command),
        ..Script::default()
    });
    let (options, _) = options(Engine::Epoll);
    let mut rig = rig(&fake, &options);
    let durable = Operation::Write { durable: true };
    assert_eq!(rig.write(0, &[1; 512]), Status::Ok);
    assert_eq!(
        rig.call(durable, (1, 1), Payload::Borrowed(&[1; 512])).0,
        Status::Ok
    );
}

#[test]
fn the_largest_transfer_goes_through_whole() {
    let fake = Fake::honest();
    let (options, _) = options(Engine::Epoll);
    let mut rig = rig(
        &fake,
        &Options {
            data_digest: true,
            ..options
        },
    );
    let data: Vec<u8> = (0..1 << 20)
        .map(|at: u32| (at >> 9).to_le_bytes()[0])
        .collect();
    assert_eq!(rig.write(DISK_BLOCKS - 2048, &data), Status::Ok);
    assert!(rig.read(DISK_BLOCKS - 2048, 2048) == Ok(data));
}

#[test]
fn every_channel_has_a_controller_of_its_own() {
    let fake = Fake::honest();
    let (options, _) = options(Engine::Epoll);
    let disk = connect(&fake.address(), &options).expect("an honest target");
    let mut rigs: Vec<Rig> = (0..3).map(|_| Rig::new(Engine::Epoll, &disk)).collect();
    let mut written = HashMap::new();
    for (rig, lba) in rigs.iter_mut().zip(0_u8..) {
        assert_eq!(rig.write(lba.into(), &[lba + 1; 512]), Status::Ok);
        written.insert(lba, lba + 1);
    }
    for (lba, byte) in written {
        assert_eq!(rigs[0].read(lba.into(), 1), Ok(vec![byte; 512]));
    }
    assert_eq!(fake.open_connections(), 6);
}

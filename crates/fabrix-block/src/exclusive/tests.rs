//! Compare and write: it is atomic across channels and threads, and no request waits for ever.

use super::*;
use crate::file::{FileDisk, FileOptions};
use crate::filter::fault::Fault;
use crate::spec::{Effect, Inject, On};
use crate::testing::{
    FrontEnd, Kernel, KernelCall, compare_with_model, config, on_both_engines, ram_disk, steps,
};
use crate::{Operation, Payload, Request, Status, Submit};
use fabrix_rt::{Loan, Wait};
use proptest::prelude::*;
use std::thread;
use std::time::Duration;

fn slow_writes(micros: u64) -> Arc<dyn Device> {
    let effect = Effect::Delay(Duration::from_micros(micros));
    Fault::new(
        ram_disk(4096),
        &[Inject {
            effect,
            on: On::Write,
        }],
        0,
    )
}

fn compare_and_write(
    front: &mut FrontEnd,
    channel: &mut Box<dyn Channel>,
    lba: u64,
    old: u8,
    new: u8,
) -> Status {
    let mut payload = vec![old; 512];
    payload.resize(1024, new);
    front
        .ask(
            channel,
            Operation::CompareAndWrite { durable: false },
            lba,
            1,
            Payload::Borrowed(&payload),
        )
        .0
}

#[test]
fn writes_if_equal_and_only_then() {
    on_both_engines(|front| {
        for inner in [ram_disk(4096), slow_writes(10)] {
            let mut channel = front.open(&Exclusive::new(inner));
            assert_eq!(compare_and_write(front, &mut channel, 7, 0, 1), Status::Ok);
            assert_eq!(
                compare_and_write(front, &mut channel, 7, 0, 2),
                Status::CompareFailed
            );
            assert_eq!(front.read(&mut channel, 7, 1), Ok(vec![1; 512]));
            assert_eq!(compare_and_write(front, &mut channel, 7, 1, 3), Status::Ok);
            assert_eq!(
                front.read(&mut channel, 6, 3),
                Ok([[0; 512], [3; 512], [0; 512]].concat())
            );
        }
    });
}

#[test]
fn an_owned_payload_comes_back_and_errors_are_told() {
    let mut front = FrontEnd::new();
    let fails = |on| {
        Fault::new(
            ram_disk(64),
            &[Inject {
                effect: Effect::ErrorNth(1),
                on,
            }],
            0,
        )
    };
    for (on, expected) in [
        (On::Read, Status::MediaRead),
        (On::Write, Status::MediaWrite),
    ] {
        let mut channel = front.open(&Exclusive::new(fails(on)));
        let buf = front.buf(1024, 0);
        let (status, loan) = front.ask(
            &mut channel,
            Operation::CompareAndWrite { durable: false },
            0,
            1,
            Payload::Owned(buf),
        );
        assert_eq!(status, expected);
        assert!(matches!(loan, Loan::Buf(_)));
        assert_eq!(
            compare_and_write(&mut front, &mut channel, 0, 0, 1),
            Status::Ok,
            "the gate is open again"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn a_disk_behind_the_gate_is_the_same_disk(steps in steps(4096, 300)) {
        on_both_engines(|front| {
            let disk: Arc<dyn Device> = Exclusive::new(slow_writes(1));
            compare_with_model(front, &disk, &steps);
        });
    }
}

#[test]
fn writes_that_come_during_a_comparison_wait_and_then_are_done() {
    on_both_engines(|front| {
        let disk = Exclusive::new(slow_writes(500));
        let (mut first, mut second) = (front.open(&disk), front.open(&disk));
        let before = Payload::Borrowed(&[9; 512]);
        let write = Operation::Write { durable: false };
        let before = front
            .submit(&mut first, write, 0, 1, before)
            .expect_err("slow");
        let payload = [vec![9; 512], vec![1; 512]].concat();
        let compare = Operation::CompareAndWrite { durable: false };
        let compared = front
            .submit(&mut second, compare, 0, 1, Payload::Borrowed(&payload))
            .expect_err("waits");
        let mut after = vec![2; 512];
        let parked = front
            .submit(&mut first, write, 0, 1, Payload::Borrowed(&after))
            .expect_err("waits");
        after.fill(0xee);
        assert_eq!(front.wait(before).0, Status::Ok);
        assert_eq!(
            front.wait(compared).0,
            Status::Ok,
            "it saw the write before it"
        );
        assert_eq!(front.wait(parked).0, Status::Ok);
        assert_eq!(
            front.read(&mut first, 0, 1),
            Ok(vec![2; 512]),
            "the write after it came after it"
        );
    });
}

#[test]
fn a_full_queue_is_busy_and_everything_in_it_is_answered() {
    let disk = Exclusive::new(slow_writes(2000));
    let mut front = FrontEnd::new();
    let (mut first, mut second) = (front.open(&disk), front.open(&disk));
    let write = Operation::Write { durable: false };
    let mut slots = vec![
        front
            .submit(&mut first, write, 0, 1, Payload::Borrowed(&[1; 512]))
            .expect_err("slow"),
    ];
    let compare = Operation::CompareAndWrite { durable: false };
    slots.push(
        front
            .submit(&mut second, compare, 1, 1, Payload::Borrowed(&[0; 1024]))
            .expect_err("waits"),
    );
    let mut busy = 0;
    for lba in 0..400 {
        let token = front.token();
        let request = Request {
            operation: write,
            lba,
            blocks: 1,
            payload: Payload::Borrowed(&[3; 512]),
            token,
        };
        match first.submit(&mut front.shard, request) {
            Submit::Pending => slots.push(token.slot),
            Submit::Busy(request) => {
                assert_eq!(request.token, token);
                busy += 1;
            }
            Submit::Done(..) => panic!("the gate is closed"),
        }
    }
    assert_eq!(busy, 400 - 256);
    for slot in slots {
        assert_eq!(front.wait(slot).0, Status::Ok);
    }
}

#[test]
fn a_shard_that_ends_with_the_gate_closed_does_not_keep_it_closed() {
    let disk = Exclusive::new(slow_writes(2000));
    let gone = Arc::clone(&disk);
    thread::spawn(move || {
        let mut front = FrontEnd::new();
        let mut channel = front.open(&gone);
        let write = Operation::Write { durable: false };
        front
            .submit(&mut channel, write, 0, 1, Payload::Borrowed(&[0; 512]))
            .expect_err("slow");
        let compare = Operation::CompareAndWrite { durable: false };
        front
            .submit(&mut channel, compare, 0, 1, Payload::Borrowed(&[0; 1024]))
            .expect_err("waits");
    })
    .join()
    .expect("the shard ends");
    let mut front = FrontEnd::new();
    let mut channel = front.open(&disk);
    assert_eq!(front.write(&mut channel, 0, &[1; 512]), Status::Ok);
    assert_eq!(
        compare_and_write(&mut front, &mut channel, 0, 1, 2),
        Status::Ok
    );
}

/// Two threads increment counters in one block with compare and write of the whole block. Each
/// thread has its own counter and shares a second one. Meanwhile both write the second block with
/// plain writes. The sums must contain every successful step.
#[test]
fn no_update_is_lost_between_two_shards() {
    for inner in [ram_disk(4096), slow_writes(20)] {
        let disk = Exclusive::new(inner);
        let workers: Vec<_> = (0..2u8)
            .map(|number| {
                let disk = Arc::clone(&disk);
                thread::spawn(move || count_up(&disk, number))
            })
            .collect();
        for worker in workers {
            worker.join().expect("no worker fails");
        }
        let mut front = FrontEnd::new();
        let mut channel = front.open(&disk);
        let block = front.read(&mut channel, 0, 1).expect("the block");
        let field = |at: usize| {
            u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
        };
        assert_eq!([field(0), field(4), field(8)], [STEPS, STEPS, 2 * STEPS]);
    }
}

fn count_up(disk: &Arc<Exclusive>, number: u8) {
    let shard = fabrix_rt::Shard::new(fabrix_rt::ShardConfig {
        id: number.into(),
        ..config()
    });
    let mut front = FrontEnd::on(shard.expect("a shard"));
    let mut channel = front.open(disk);
    let mut done = 0;
    while done < STEPS {
        let old = front.read(&mut channel, 0, 1).expect("a read");
        let mut new = old.clone();
        for at in [usize::from(number) * 4, 8] {
            let field: &mut [u8; 4] = (&mut new[at..at + 4]).try_into().expect("four bytes");
            *field = (u32::from_le_bytes(*field) + 1).to_le_bytes();
        }
        let payload = [old, new].concat();
        let write = Operation::Write { durable: false };
        let plain = front.submit(&mut channel, write, 1, 1, Payload::Borrowed(&[number; 512]));
        match front
            .ask(
                &mut channel,
                Operation::CompareAndWrite { durable: false },
                0,
                1,
                Payload::Borrowed(&payload),
            )
            .0
        {
            Status::Ok => done += 1,
            status => assert_eq!(status, Status::CompareFailed),
        }
        if let Err(slot) = plain {
            assert_eq!(front.wait(slot).0, Status::Ok);
        }
        front.shard.turn(Wait::Never);
    }
}

const STEPS: u32 = 300;

/// A plain writer increments the first byte. The comparison writes the counter it has read back and
/// sets a mark. A plain write between the comparison's read and write, or one in progress at its
/// start, would be lost.
#[test]
fn no_plain_write_gets_between_reading_and_writing() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Exclusive::new(file(folder.path()));
    let writer = {
        let disk = Arc::clone(&disk);
        thread::spawn(move || {
            let mut front = FrontEnd::new();
            let mut channel = front.open(&disk);
            for _ in 0..8 {
                for count in 0..=255u8 {
                    let mut block = [0; 512];
                    block[0] = count;
                    assert_eq!(front.write(&mut channel, 0, &block), Status::Ok);
                    let now = front.read(&mut channel, 0, 1).expect("a read");
                    assert_eq!(now[0], count, "a write was undone");
                }
            }
        })
    };
    let mut front = FrontEnd::new();
    let mut channel = front.open(&disk);
    let mut marked = 0;
    while !writer.is_finished() {
        let old = front.read(&mut channel, 0, 1).expect("a read");
        let mut new = old.clone();
        new[511] = 1;
        let payload = [old, new].concat();
        let compare = Operation::CompareAndWrite { durable: false };
        match front
            .ask(&mut channel, compare, 0, 1, Payload::Borrowed(&payload))
            .0
        {
            Status::Ok => marked += 1,
            status => assert_eq!(status, Status::CompareFailed),
        }
    }
    writer.join().expect("no write is undone");
    assert!(marked > 0);
}

fn file(folder: &std::path::Path) -> Arc<dyn Device> {
    let mut options = FileOptions::new(folder.join("disk"));
    options.create_bytes = Some(1 << 20);
    options.block_bytes = Some(512);
    options.direct = false;
    FileDisk::open(options).expect("a file")
}

#[test]
fn a_comparison_reads_only_when_every_write_before_it_has_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Exclusive::new(file(folder.path()));
    let kernel = Kernel::default();
    let mut front = kernel.front_end();
    let (mut first, mut second) = (front.open(&disk), front.open(&disk));
    kernel.hold_results(true);
    let write = Operation::Write { durable: false };
    let written = front
        .submit(&mut first, write, 0, 1, Payload::Borrowed(&[1; 512]))
        .expect_err("pending");
    let compare = Operation::CompareAndWrite { durable: false };
    let compared = front
        .submit(&mut second, compare, 0, 1, Payload::Borrowed(&[1; 1024]))
        .expect_err("pending");
    let later = front
        .submit(&mut first, write, 0, 1, Payload::Borrowed(&[2; 512]))
        .expect_err("pending");
    front.turns(5);
    assert_eq!(
        front.shard.operations_in_flight(),
        1,
        "the first write, and nothing else yet"
    );
    kernel.hold_results(false);
    for slot in [written, compared, later] {
        front.wait(slot);
    }
    let asked = kernel.take_calls();
    let kinds: Vec<_> = asked
        .iter()
        .map(|asked| matches!(asked, KernelCall::Read { .. }))
        .collect();
    assert_eq!(kinds[..2], [false, true], "{asked:?}");
    assert!(
        matches!(asked.last(), Some(KernelCall::Write { source, .. }) if source[0] == 2),
        "{asked:?}"
    );
}

#[test]
fn a_comparison_that_must_be_durable_writes_durably() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = Exclusive::new(file(folder.path()));
    let kernel = Kernel::default();
    let mut front = kernel.front_end();
    let mut channel = front.open(&disk);
    for durable in [false, true] {
        let compare = Operation::CompareAndWrite { durable };
        let same = front.buf(1024, 0);
        let (status, _) = front.ask(&mut channel, compare, 0, 1, Payload::Owned(same));
        assert_eq!(status, Status::Ok);
        let asked = kernel.take_calls();
        let wrote =
            matches!(asked.last(), Some(KernelCall::Write { durable: is, .. }) if *is == durable);
        assert!(wrote, "{asked:?}");
    }
}

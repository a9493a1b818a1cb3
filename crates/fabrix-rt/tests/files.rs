//! Files over both drivers.

mod common;

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{Bench, pattern};
use fabrix_rt::exchange::HEADER_BYTES;
use fabrix_rt::{Allocate, Engine, Exchange, File, Loan, Op, Registered, ShardConfig, Wait, errno};

on_both_drivers!(
    what_was_written_durably_is_read_back,
    a_read_past_the_end_is_short,
    a_punched_hole_reads_as_zeroes_and_gives_space_back,
    an_offset_the_kernel_cannot_say_is_refused,
    a_file_that_cannot_be_written_says_so,
    a_command_that_a_device_does_not_know_is_refused,
    what_could_be_an_address_is_not_said_to_a_device,
    memory_that_nobody_has_lent_is_neither_read_nor_written,
    an_exchange_reaches_its_device_from_shards_that_take_it,
    many_reads_end_over_several_turns,
    a_file_that_becomes_readable_is_told_once_and_stays_unread,
    a_removed_task_lets_go_of_the_file_that_it_waited_for,
    a_file_that_nobody_can_write_any_more_is_no_readable_one,
);

fn scratch() -> File {
    File::from(tempfile::tempfile().expect("a scratch file"))
}

fn what_was_written_durably_is_read_back(engine: Engine) {
    let mut bench = Bench::new(engine);
    let file = scratch();
    for durable in [false, true] {
        let mut buf = bench.buf(20_000);
        buf.bytes_mut()
            .copy_from_slice(&pattern(20_000, u8::from(durable)));
        let shared = buf.clone();
        let file = file.clone();
        bench.start(
            1,
            Op::Write {
                file: file.clone(),
                buf,
                start: 100,
                bytes: 10_000,
                offset: 4096,
                durable,
            },
        );
        assert_eq!(bench.ending_with_buf(1).0, 10_000);
        bench.start(2, Op::Sync { file: file.clone() });
        assert_eq!(bench.ending(2).result, 0);
        let buf = bench.buf(20_000);
        bench.start(
            3,
            Op::Read {
                file,
                buf,
                start: 7,
                bytes: 10_000,
                offset: 4096,
            },
        );
        let (result, read) = bench.ending_with_buf(3);
        assert_eq!(result, 10_000);
        assert!(read.bytes()[7..10_007] == shared.bytes()[100..10_100]);
    }
}

/// Epoll has no batch to cut: it runs each read when it is begun.
fn many_reads_end_over_several_turns(engine: Engine) {
    for folder in [std::env::temp_dir(), "/dev/shm".into()] {
        let mut bench = Bench::new(engine);
        let file = File::from(tempfile::tempfile_in(folder).expect("a scratch file"));
        file.file().set_len(4096).expect("room");
        for slot in 0..READS {
            let (file, buf) = (file.clone(), bench.buf(4096));
            bench.start(
                slot,
                Op::Read {
                    file,
                    buf,
                    start: 0,
                    bytes: 4096,
                    offset: 0,
                },
            );
        }
        let (mut ended, mut most) = (0, 0);
        let deadline = Instant::now() + Duration::from_secs(10);
        while ended < READS as usize {
            assert!(Instant::now() < deadline, "only {ended} reads have ended");
            bench.shard.turn(Wait::AtMost(Duration::from_secs(1)));
            let now = bench.recorder.borrow().completions.len();
            most = most.max(now - ended);
            ended = now;
        }
        assert!(
            most <= READS as usize / 2 || bench.shard.engine() == Engine::Epoll,
            "{most} of {READS} reads ended in one turn"
        );
    }
}

const READS: u32 = 64;

fn a_read_past_the_end_is_short(engine: Engine) {
    let mut bench = Bench::new(engine);
    let file = scratch();
    file.file().set_len(5000).expect("room");
    let buf = bench.buf(4096);
    bench.start(
        1,
        Op::Read {
            file: file.clone(),
            buf,
            start: 0,
            bytes: 4096,
            offset: 4096,
        },
    );
    let (result, buf) = bench.ending_with_buf(1);
    assert_eq!(result, 5000 - 4096);
    bench.start(
        2,
        Op::Read {
            file,
            buf,
            start: 0,
            bytes: 4096,
            offset: 8192,
        },
    );
    assert_eq!(bench.ending_with_buf(2).0, 0);
}

fn a_punched_hole_reads_as_zeroes_and_gives_space_back(engine: Engine) {
    let mut bench = Bench::new(engine);
    let file = scratch();
    let mut buf = bench.buf(1 << 20);
    buf.bytes_mut().fill(9);
    bench.start(
        1,
        Op::Write {
            file: file.clone(),
            buf,
            start: 0,
            bytes: 1 << 20,
            offset: 0,
            durable: true,
        },
    );
    let (_, buf) = bench.ending_with_buf(1);
    let before = file.file().metadata().expect("open").blocks();
    let how = Allocate::PunchHole;
    bench.start(
        2,
        Op::Allocate {
            file: file.clone(),
            how,
            offset: 65_536,
            bytes: 1 << 19,
        },
    );
    let result = bench.ending(2).result;
    if result == -libc::EOPNOTSUPP {
        return eprintln!("skipped: this file system punches no holes");
    }
    assert_eq!(result, 0);
    let metadata = file.file().metadata().expect("open");
    assert!(metadata.blocks() < before && metadata.len() == 1 << 20);
    bench.start(
        3,
        Op::Read {
            file: file.clone(),
            buf,
            start: 0,
            bytes: 1 << 20,
            offset: 0,
        },
    );
    let (_, buf) = bench.ending_with_buf(3);
    assert!(
        buf.bytes()[65_536..65_536 + (1 << 19)]
            .iter()
            .all(|byte| *byte == 0)
    );
    assert!(buf.bytes()[..65_536].iter().all(|byte| *byte == 9));
    let how = Allocate::ZeroRange;
    bench.start(
        4,
        Op::Allocate {
            file: file.clone(),
            how,
            offset: 0,
            bytes: 4096,
        },
    );
    match bench.ending(4).result {
        0 => {
            bench.start(
                5,
                Op::Read {
                    file,
                    buf,
                    start: 0,
                    bytes: 8192,
                    offset: 0,
                },
            );
            let (_, buf) = bench.ending_with_buf(5);
            assert!(buf.bytes()[..4096].iter().all(|byte| *byte == 0) && buf.bytes()[4096] == 9);
        }
        result => assert_eq!(result, -libc::EOPNOTSUPP, "tmpfs has no zero range"),
    }
}

fn an_offset_the_kernel_cannot_say_is_refused(engine: Engine) {
    let mut bench = Bench::new(engine);
    let file = scratch();
    let buf = bench.buf(512);
    bench.start(
        1,
        Op::Read {
            file: file.clone(),
            buf,
            start: 0,
            bytes: 512,
            offset: u64::MAX,
        },
    );
    let (result, buf) = bench.ending_with_buf(1);
    assert_eq!(result, -libc::EINVAL);
    bench.start(
        2,
        Op::Write {
            file: file.clone(),
            buf,
            start: 0,
            bytes: 512,
            offset: 1 << 63,
            durable: false,
        },
    );
    assert_eq!(bench.ending_with_buf(2).0, -libc::EINVAL);
    bench.start(
        3,
        Op::Allocate {
            file,
            how: Allocate::PunchHole,
            offset: u64::MAX,
            bytes: 1,
        },
    );
    assert_eq!(bench.ending(3).result, -libc::EINVAL);
}

fn a_file_that_cannot_be_written_says_so(engine: Engine) {
    let mut bench = Bench::new(engine);
    let named = tempfile::NamedTempFile::new().expect("a scratch file");
    let file = File::from(std::fs::File::open(named.path()).expect("readable"));
    let buf = bench.buf(512);
    bench.start(
        1,
        Op::Write {
            file,
            buf,
            start: 0,
            bytes: 512,
            offset: 0,
            durable: false,
        },
    );
    assert_eq!(bench.ending_with_buf(1).0, -libc::EBADF);
}

fn a_command_that_a_device_does_not_know_is_refused(engine: Engine) {
    let mut bench = Bench::new(engine);
    let device = std::fs::File::open("/dev/full").expect("every Linux has it");
    bench.start(
        1,
        Op::DeviceCommand {
            file: File::from(device),
            opcode: 0xc010_7520,
            words: [0, 0],
            number: 0,
        },
    );
    assert_eq!(bench.ending(1).result, -fabrix_rt::errno::EOPNOTSUPP);
}

fn what_could_be_an_address_is_not_said_to_a_device(engine: Engine) {
    let mut bench = Bench::new(engine);
    let device = File::from(std::fs::File::open("/dev/full").expect("every Linux has it"));
    let refused = match bench.shard.engine() {
        Engine::IoUring => -fabrix_rt::errno::EINVAL,
        _ => -fabrix_rt::errno::EOPNOTSUPP,
    };
    let numbers = [
        (0x1_ffff, -fabrix_rt::errno::EOPNOTSUPP),
        (0x2_0000, refused),
    ];
    for (number, result) in numbers {
        let op = Op::DeviceCommand {
            file: device.clone(),
            opcode: 0xc010_7520,
            words: [0, 0],
            number,
        };
        bench.start(1, op);
        assert_eq!(bench.ending(1).result, result, "{number}");
    }
}

/// What lies at a place is put there by drivers of the kernel's: nothing, here.
fn memory_that_nobody_has_lent_is_neither_read_nor_written(engine: Engine) {
    let mut bench = Bench::new(engine);
    let file = scratch();
    file.file().set_len(4096).expect("room");
    let memory = Registered {
        place: 3,
        bytes: 4096,
    };
    let refused = match bench.shard.engine() {
        Engine::IoUring => -fabrix_rt::errno::EFAULT,
        _ => -fabrix_rt::errno::EOPNOTSUPP,
    };
    for with_a_table in [false, true] {
        if with_a_table {
            let made = bench.shard.make_table(4);
            assert_eq!(made.is_ok(), engine != Engine::Epoll, "{made:?}");
            let again = bench.shard.make_table(4);
            assert!(again.is_err(), "a second table");
        }
        let (read, written) = (file.clone(), file.clone());
        bench.start(
            1,
            Op::ReadRegistered {
                file: read,
                memory,
                offset: 0,
            },
        );
        assert_eq!(bench.ending(1).result, refused);
        bench.start(
            2,
            Op::WriteRegistered {
                file: written,
                memory,
                offset: 0,
                durable: true,
            },
        );
        assert_eq!(bench.ending(2).result, refused);
    }
}

/// What is said to /dev/null is taken at once, whatever it is, by kernels that give it commands at
/// all.
fn an_exchange_reaches_its_device_from_shards_that_take_it(engine: Engine) {
    for exchanges in [false, true] {
        let mut bench = Bench::with(ShardConfig {
            engine,
            exchanges,
            arena_bytes: 64 << 20,
            ..ShardConfig::default()
        });
        let takes = exchanges && engine != Engine::Epoll;
        assert_eq!(bench.shard.takes_exchanges(), takes, "{exchanges}");
        let device = std::fs::File::open("/dev/null").expect("every Linux has it");
        let device = File::from(device);
        let command = Op::DeviceCommand {
            file: device.clone(),
            opcode: 1,
            words: [0, 0],
            number: 0,
        };
        bench.start(2, command);
        let is_given_commands = bench.ending(2).result == 0;
        let (mut header, payload) = (bench.buf(HEADER_BYTES), bench.buf(8192));
        header.bytes_mut()[264] = 7; // where the kernel says which request it is
        let exchange = Exchange::new(device, 0, header, payload);
        bench.start(1, Op::Exchange { exchange });
        let ending = bench.ending(1);
        let Loan::Exchange(exchange) = ending.loan else {
            panic!("it comes back: {:?}", ending.loan);
        };
        let ended = match takes && is_given_commands {
            true => (0, Some(7)),
            false => (-errno::EOPNOTSUPP, None),
        };
        assert_eq!((ending.result, exchange.answers()), ended);
    }
}

fn a_file_that_becomes_readable_is_told_once_and_stays_unread(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let file = reader.try_clone().expect("a descriptor");
    let file = File::from(std::fs::File::from(OwnedFd::from(file)));
    for (round, is_written_before) in [(1_u8, false), (2, true), (3, false)] {
        let file = file.clone();
        if is_written_before {
            writer.write_all(&[round]).expect("room in the pipe");
            bench.start(1, Op::Readable { file });
        } else {
            bench.start(1, Op::Readable { file });
            bench.settle();
            let told = bench.recorder.borrow().completions.len();
            assert_eq!((told, bench.shard.operations_in_flight()), (0, 1));
            writer.write_all(&[round]).expect("room in the pipe");
        }
        assert_eq!(bench.ending(1).result, 0);
        bench.settle();
        let told = bench.recorder.borrow().completions.len();
        assert_eq!((told, bench.shard.operations_in_flight()), (0, 0));
        let mut byte = [0];
        reader.read_exact(&mut byte).expect("it was left there");
        assert_eq!(byte, [round]);
    }
}

fn a_removed_task_lets_go_of_the_file_that_it_waited_for(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (near, mut far) = UnixStream::pair().expect("two ends");
    let file = File::from(std::fs::File::from(OwnedFd::from(near)));
    bench.start(1, Op::Readable { file });
    bench.settle();
    bench.shard.remove(bench.task);
    let deadline = Instant::now() + Duration::from_secs(10);
    while bench.shard.operations_in_flight() > 0 {
        assert!(Instant::now() < deadline, "it still waits");
        bench.shard.turn(Wait::AtMost(Duration::from_secs(1)));
    }
    let left = far.read(&mut [0]).expect("an orderly end");
    assert_eq!(left, 0, "nobody holds the file any more");
    assert!(bench.recorder.borrow().completions.is_empty());
}

fn a_file_that_nobody_can_write_any_more_is_no_readable_one(engine: Engine) {
    let mut bench = Bench::new(engine);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let file = File::from(std::fs::File::from(OwnedFd::from(reader)));
    bench.start(1, Op::Readable { file });
    bench.settle();
    drop(writer);
    assert_eq!(bench.ending(1).result, -errno::EIO);
}

/// A device's name lies in memory, its data does not: it is not read in place, where the whole
/// shard waits for it.
#[test]
fn a_device_is_not_in_memory_because_its_name_is() {
    let device = std::fs::File::open("/dev/full").expect("every Linux has it");
    assert!(!fabrix_rt::is_in_memory(&device));
    let in_memory = tempfile::tempfile_in("/dev/shm").expect("a scratch file");
    assert!(fabrix_rt::is_in_memory(&in_memory));
}

#[test]
fn what_is_given_to_a_device_lies_where_it_belongs() {
    let bench = Bench::new(Engine::Auto);
    let file = scratch();
    let mut gather = fabrix_rt::Gather::new(8, 2);
    gather.push_bytes(b"before");
    gather.push_lent(bench.shard.zeroes(4096).expect("a page of zeroes"));
    assert_eq!(file.give_at(&mut gather, 1 << 33).expect("room"), 4102);
    let metadata = file.file().metadata().expect("it is open");
    assert_eq!(metadata.size(), (1 << 33) + 4102);
    let refused = file
        .give_at(&mut gather, u64::MAX)
        .expect_err("no such place");
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
}

//! A disk as vhost-user-blk with both engines and a simulated monitor and guest. Guests read what
//! they wrote. Violations disconnect the guest with a sentence, and the next guest is served. This
//! file tests one process; `reconnect` tests restarts and resizes.

mod heard;
mod monitor;
mod reconnect;

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc;

use fabrix_block::Operation;
use fabrix_proto::virtio::vhost_user::request;
use fabrix_rt::counting::{CountingAllocator, allocations, allocations_of};
use fabrix_rt::{Engine, Remote, Shard};
use monitor::{
    ANSWER, AVAILABLE, BOUND, Bench, DATA, DISCARD, FLUSH, GET_ID, GUEST, HEAD, IN, MEMORY_BYTES,
    Machine, NEXT, OUT, SIZE, USED, WRITE, ZEROES, on_both_engines, pair,
};
use sys_devices::descriptors;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| u8::try_from(at * 31 % 251).expect("below 251"))
        .collect()
}

#[test]
fn a_guest_reads_what_it_wrote_in_every_size() {
    on_both_engines(|bench| {
        let mut guest = Machine::start(bench);
        // The last length exceeds the disk's longest transfer.
        for bytes in [512, 4096, 65_536, 1 << 20, (1 << 20) + 512, 3 << 20] {
            let data = pattern(bytes);
            let length = u32::try_from(bytes).expect("short");
            guest.put(&data);
            assert_eq!((guest.request(OUT, 8, length), guest.written()), (0, 1));
            guest.put(&vec![0; bytes]);
            assert_eq!(guest.request(IN, 8, length), 0);
            assert_eq!(guest.written(), length + 1);
            assert!(guest.get(bytes) == data, "{bytes} bytes");
        }
        assert_eq!(guest.request(FLUSH, 0, 0), 0);
        assert_eq!(guest.request(GET_ID, 0, 20), 0);
        assert!(guest.get(20).starts_with(b"FBX"));
        for kind in [DISCARD, ZEROES] {
            guest.put(&[1; 2048]);
            assert_eq!(guest.request(OUT, 0, 2048), 0);
            guest.range(1, 2, 0);
            assert_eq!(guest.request(kind, 0, 16), 0);
            assert_eq!(guest.request(IN, 0, 2048), 0);
            assert_eq!(
                guest.get(2048),
                [vec![1; 512], vec![0; 1024], vec![1; 512]].concat()
            );
        }
        (&guest.call)
            .read_exact(&mut [0; 8])
            .expect("it was called");
    });
}

#[test]
fn what_the_disk_cannot_do_is_answered_and_the_guest_goes_on() {
    on_both_engines(|bench| {
        let mut guest = Machine::start(bench);
        let (failed, unknown) = (1, 2);
        assert_eq!(guest.request(IN, (8 << 20) / 512, 512), failed);
        assert_eq!(guest.request(OUT, u64::MAX, 512), failed);
        assert_eq!(guest.request(IN, 0, 511), failed);
        assert_eq!(guest.request(77, 0, 512), unknown);
        assert_eq!(guest.request(ZEROES, 0, 15), failed);
        guest.range(0, 1, 2);
        assert_eq!(guest.request(ZEROES, 0, 16), unknown);
        guest.range(u64::MAX, u32::MAX, 0);
        assert_eq!(guest.request(DISCARD, 0, 16), failed);
        guest.works();
    });
}

#[test]
fn a_queue_stops_and_goes_on_and_a_machine_that_has_gone_makes_room() {
    on_both_engines(|bench| {
        let mut guest = Machine::start(bench);
        guest.works();
        assert!(bench.socket.is_connected());
        let base = guest.ask(request::GET_VRING_BASE, &pair(0, 0));
        assert_eq!(base, pair(0, 2));
        guest.memory_table(MEMORY_BYTES / 2);
        guest.queue(SIZE.into(), 2);
        guest.kick_by(0);
        guest.works();
        drop(guest);
        Machine::start(bench).works();
    });
}

#[test]
fn a_disk_that_takes_its_time_is_waited_for_and_what_it_has_ends_before_a_queue_does() {
    let folder = tempfile::tempdir().expect("a folder");
    for engine in [Engine::Auto, Engine::Epoll] {
        let disk = format!("file:{},size=8M", folder.path().join("disk").display());
        let bench = Bench::of(engine, &disk);
        let mut guest = Machine::start(&bench);
        guest.works();
        let data = pattern(3 << 20);
        guest.put(&data);
        assert_eq!(guest.request(OUT, 8, 3 << 20), 0);
        guest.put(&vec![0; 3 << 20]);
        assert_eq!(guest.request(IN, 8, 3 << 20), 0);
        assert!(guest.get(3 << 20) == data);
        drop(guest);
        bench.end();
        let bench = Bench::of(engine, "ram:8M,inject=delay:300ms:read");
        let mut guest = Machine::start(&bench);
        guest.head(IN, 0);
        guest.describe(0, GUEST + HEAD as u64, 16, NEXT, 1);
        guest.describe(1, GUEST + DATA as u64, 513, WRITE, 0);
        guest.offer(0);
        // The request was taken, or is taken before the queue stops. Either way it is answered
        // first.
        let base = guest.ask(request::GET_VRING_BASE, &pair(0, 0));
        assert_eq!(base, pair(0, guest.memory.load(USED + 2).into()));
        drop(guest);
        bench.end();
    }
}

#[test]
fn the_memory_stays_until_what_is_in_progress_has_ended() {
    let bench = Bench::of(Engine::Auto, "ram:8M,inject=delay:100ms:read");
    let mut guest = Machine::start(&bench);
    guest.head(IN, 0);
    guest.describe(0, GUEST + HEAD as u64, 16, NEXT, 1);
    guest.describe(1, GUEST + DATA as u64, 513, WRITE, 0);
    guest.offer(0);
    guest.waits_until_in_progress(1);
    guest.memory_table(MEMORY_BYTES / 2);
    guest.is_heard();
    assert_eq!(guest.memory.load(USED + 2), 1);
    drop(guest);
    bench.end();
}

#[test]
fn a_queue_that_is_disabled_takes_nothing() {
    on_both_engines(|bench| {
        let mut guest = Machine::start(bench);
        guest.works();
        let ring = |on| guest.say(request::SET_VRING_ENABLE, &pair(0, on), &[]);
        ring(0);
        guest.is_heard();
        guest.offer(0);
        // Every order makes the queue check for requests.
        guest.say(request::SET_VRING_ENABLE, &pair(0, 0), &[]);
        guest.is_heard();
        assert_eq!(guest.memory.load(USED + 2), 2);
        guest.say(request::SET_VRING_ENABLE, &pair(0, 1), &[]);
        guest.wait();
        guest.works();
    });
}

#[test]
fn a_read_only_disk_is_not_written() {
    let bench = Bench::of(Engine::Auto, "ram:8M,ro");
    let mut guest = Machine::start(&bench);
    assert_eq!(guest.request(OUT, 0, 512), 1);
    guest.range(0, 1, 0);
    assert_eq!(guest.request(ZEROES, 0, 16), 1);
    assert_eq!(guest.request(DISCARD, 0, 16), 1);
    assert_eq!(guest.request(IN, 0, 512), 0);
    drop(guest);
    bench.end();
}

#[test]
fn writes_are_on_the_medium_for_a_guest_that_takes_no_flushes_or_wants_no_cache() {
    let (disk, operations) = heard::disk();
    let bench = Bench::with(Engine::Auto, disk);
    let writes = |guest: &mut Machine| {
        assert_eq!(guest.request(OUT, 0, 512), 0);
        heard::last(&operations)
    };
    let durable = |durable| Operation::Write { durable };
    let mut guest = Machine::start(&bench);
    assert_eq!(writes(&mut guest), durable(false));
    let no_cache = [&pair(32, 1)[..], &[0; 4], &[0]].concat();
    guest.say(request::SET_CONFIG, &no_cache, &[]);
    guest.is_heard();
    assert_eq!(writes(&mut guest), durable(true));
    drop(guest);
    let mut guest = Machine::start(&bench);
    assert_eq!(writes(&mut guest), durable(false));
    drop(guest);
    let mut guest = Machine::connect(&bench);
    guest.negotiate_without(1 << 29 | 1 << 9);
    guest.queue(SIZE.into(), 0);
    guest.kick_by(0);
    assert_eq!(writes(&mut guest), durable(true));
    drop(guest);
    bench.end();
}

#[test]
fn nothing_more_is_taken_from_who_has_broken_the_rules() {
    on_both_engines(|bench| {
        let mut guest = Machine::start(bench);
        guest.head(OUT, 0);
        guest.memory.write(ANSWER, &[0xff]);
        // A request without room for an answer, followed by a valid one with the same kick.
        guest.describe(0, GUEST + HEAD as u64, 16, NEXT, 1);
        guest.describe(1, GUEST + DATA as u64, 512, 0, 0);
        guest.describe(2, GUEST + HEAD as u64, 16, NEXT, 3);
        guest.describe(3, GUEST + DATA as u64, 512, NEXT, 4);
        guest.describe(4, GUEST + ANSWER as u64, 1, WRITE, 0);
        guest.memory.store(AVAILABLE + 4 + 2, 2);
        guest.offered = 1;
        guest.memory.store(AVAILABLE + 4, 0);
        guest.offer(2);
        assert!(guest.is_cut_off());
        assert!(bench.violation().contains("no room for its answer"));
        Machine::start(bench).works();
        let mut answer = [0];
        guest.memory.read(ANSWER, &mut answer);
        assert_eq!((answer[0], guest.memory.load(USED + 2)), (0xff, 0));
    });
}

#[test]
fn a_second_machine_is_turned_away_and_the_first_goes_on() {
    let bench = Bench::new(Engine::Auto, 512);
    let mut guest = Machine::start(&bench);
    let second = Machine::connect(&bench);
    assert!(second.is_cut_off());
    assert!(bench.violation().contains("another virtual machine"));
    guest.works();
    drop(guest);
    bench.end();
}

/// A violation of the protocol by a guest or monitor.
type Breach = (&'static str, fn(&mut Machine));

const BREACHES: [Breach; 18] = [
    ("outside the guest's memory", |guest| {
        guest.describe(0, GUEST + MEMORY_BYTES - 8, 16, NEXT, 1);
        guest.offer(0);
    }),
    ("outside the guest's memory", |guest| {
        guest.describe(0, GUEST - 8, 16, NEXT, 1);
        guest.offer(0);
    }),
    ("loop", |guest| {
        guest.describe(0, GUEST, 16, NEXT, 1);
        guest.describe(1, GUEST, 16, NEXT, 0);
        guest.offer(0);
    }),
    ("shorter than its head", |guest| {
        guest.describe(0, GUEST, 15, 0, 0);
        guest.offer(0);
    }),
    ("no room for its answer", |guest| {
        guest.describe(0, GUEST, 512, 0, 0);
        guest.offer(0);
    }),
    ("outside its table", |guest| guest.offer(SIZE)),
    ("more requests are available", |guest| {
        guest.offered = 2 * SIZE;
        guest.offer(0);
    }),
    ("changed while it runs", |guest| {
        guest.say(request::SET_VRING_NUM, &pair(0, 8), &[])
    }),
    ("starts", |guest| guest.kick_by(0)),
    ("power of two", |guest| {
        guest.say(request::SET_VRING_NUM, &pair(1, 0), &[])
    }),
    ("power of two", |guest| {
        guest.say(request::SET_VRING_NUM, &pair(1, 12), &[])
    }),
    ("addresses are not known", |guest| guest.kick_by(1)),
    ("does not need", |guest| {
        let files = [guest.file.as_fd(); descriptors::MOST];
        guest.say(request::SET_OWNER, &[], &files[..8]);
    }),
    ("more descriptors than any", |guest| {
        guest.say(
            request::SET_OWNER,
            &[],
            &[guest.file.as_fd(); descriptors::MOST],
        );
    }),
    ("not all in its file", |guest| {
        guest.memory_table(MEMORY_BYTES + 4096)
    }),
    ("the socket for changes", |guest| {
        guest.say(request::SET_BACKEND_REQ_FD, &[], &[guest.file.as_fd()])
    }),
    ("a record comes while", |guest| guest.keep_record()),
    ("ended within a message", |guest| {
        (&guest.stream).write_all(&[5, 0, 0]).expect("it listens");
        guest
            .stream
            .shutdown(std::net::Shutdown::Write)
            .expect("it was open");
    }),
];

#[test]
fn who_breaks_the_rules_is_cut_off_and_the_next_one_is_served() {
    on_both_engines(|bench| {
        for (sentence, breach) in BREACHES {
            let mut guest = Machine::start(bench);
            guest.works();
            breach(&mut guest);
            assert!(guest.is_cut_off(), "{sentence}");
            let told = bench.violation();
            let sentence = if sentence == "starts" {
                "is started that runs"
            } else {
                sentence
            };
            assert!(told.contains(sentence), "{told}, not {sentence}");
        }
        Machine::start(bench).works();
    });
}

#[test]
fn a_monitor_that_keeps_no_record_is_served_too() {
    on_both_engines(|bench| {
        drop(Machine::start(bench));
        let mut guest = Machine::connect(bench);
        guest.negotiate();
        // More entries than the record of the previous machine had.
        guest.queue(64, 0);
        guest.kick_by(0);
        guest.works();
    });
}

#[test]
fn what_is_no_counter_is_no_kick() {
    on_both_engines(|bench| {
        let guest = Machine::connect(bench);
        guest.negotiate();
        guest.queue(SIZE.into(), 0);
        guest.say(
            request::SET_VRING_KICK,
            &0_u64.to_ne_bytes(),
            &[guest.file.as_fd()],
        );
        assert!(guest.is_cut_off());
        assert!(bench.violation().contains("no counter"));
    });
}

#[test]
fn blocks_of_4096_bytes_are_told_and_kept_to() {
    let bench = Bench::new(Engine::Auto, 4096);
    let mut guest = Machine::start(&bench);
    let space = guest.ask(request::GET_CONFIG, &[&pair(0, 24)[..], &[0; 28]].concat());
    let field = |at: usize| u32::from_le_bytes(space[12 + at..16 + at].try_into().expect("four"));
    assert_eq!((field(0), field(20)), ((8 << 20) / 512, 4096));
    assert_eq!(guest.request(IN, 0, 512), 1);
    assert_eq!(guest.request(IN, 1, 4096), 1);
    assert_eq!(guest.request(IN, 8, 4096), 0);
    drop(guest);
    bench.end();
}

#[test]
fn a_disk_that_is_closed_cuts_its_machine_off() {
    let bench = Bench::new(Engine::Auto, 512);
    let mut guest = Machine::start(&bench);
    guest.works();
    bench.end();
    assert!(guest.is_cut_off());
}

/// Allocations of the shard's thread so far. The result channel is created before, so that it does
/// not count.
fn allocated(remote: &Remote) -> u64 {
    let (sender, receiver) = mpsc::sync_channel(1);
    let ask = Box::new(move |_: &mut Shard| {
        let _nobody_waits = sender.send(allocations());
    });
    remote.run(ask).expect("it listens");
    receiver.recv_timeout(BOUND).expect("it answers")
}

#[test]
fn nothing_is_allocated_for_an_io() {
    on_both_engines(|bench| {
        let mut guest = Machine::start(bench);
        let mut both = || {
            for _ in 0..100 {
                assert_eq!(guest.request(OUT, 0, 65_536), 0);
                assert_eq!(guest.request(IN, 0, 4096), 0);
            }
        };
        let made = allocations_of(|| allocated(&bench.shard.remote), &mut both);
        assert_eq!(made, 0, "allocations for 200 requests");
    });
}

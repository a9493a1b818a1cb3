//! A machine whose disk server dies and is replaced, and a machine whose disk is resized.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use fabrix_proto::virtio::vhost_user::request;
use fabrix_rt::{Engine, File, counter};

use crate::monitor::{
    ANSWER, BOUND, Bench, DATA, GUEST, HEAD, IN, Machine, NEXT, OUT, SIZE, USED, WRITE, pair,
};

/// Offsets in the record: version, entries, last returned head, used index, and the in-progress
/// mark of each entry.
const VERSION: usize = 8;
const ENTRIES: usize = 10;
const LAST: usize = 12;
const GIVEN: usize = 14;
const ENTRY: usize = 16;
const BYTES_OF_ENTRY: usize = 16;

const BLOCK: usize = 512;

/// A disk that completes no write during a test, and a disk with the same name that does.
const STUCK: &str = "ram:8M,name=disk,inject=delay:60s:write";
const DISK: &str = "ram:8M,name=disk";

impl Machine {
    /// Makes a write of one block of `byte` to sector 8 available, as request `number` of at most
    /// five, without waiting.
    fn writes(&mut self, number: u16, byte: u8) {
        let at = usize::from(number);
        let (head, data) = (HEAD + 16 * at, DATA + BLOCK * at);
        self.memory.write(head, &OUT.to_le_bytes());
        self.memory.write(head + 8, &8_u64.to_le_bytes());
        self.memory.write(data, &[byte; BLOCK]);
        self.memory.write(ANSWER + at, &[0xff]);
        let first = number * 3;
        self.describe(first, GUEST + head as u64, 16, NEXT, first + 1);
        self.describe(first + 1, GUEST + data as u64, 512, NEXT, first + 2);
        self.describe(first + 2, GUEST + (ANSWER + at) as u64, 1, WRITE, 0);
        self.offer(first);
    }

    fn answer(&self, number: usize) -> u8 {
        let mut answer = [0];
        self.memory.read(ANSWER + number, &mut answer);
        answer[0]
    }

    /// The heads in the used ring, in order.
    fn given(&self) -> Vec<u16> {
        let entry = |at: u16| USED + 4 + 8 * usize::from(at % SIZE);
        (0..self.memory.load(USED + 2))
            .map(|at| self.memory.load(entry(at)))
            .collect()
    }

    fn in_progress(&self) -> usize {
        let record = self.record();
        let flags = (0..32).map(|head| record.load(ENTRY + BYTES_OF_ENTRY * head));
        flags.map(usize::from).sum()
    }

    pub(super) fn waits_until_in_progress(&self, requests: usize) {
        let until = Instant::now() + BOUND;
        while self.in_progress() != requests {
            assert!(Instant::now() < until, "{} in progress", self.in_progress());
            std::thread::yield_now();
        }
    }

    fn block(&mut self) -> Vec<u8> {
        assert_eq!(self.request(IN, 8, 512), 0);
        self.get(BLOCK)
    }

    fn was_called(&self) {
        let until = Instant::now() + BOUND;
        while (&self.call).read_exact(&mut [0; 8]).is_err() {
            assert!(Instant::now() < until, "it was not called");
            std::thread::yield_now();
        }
    }

    fn forgets_calls(&self) {
        counter::ring(&File::from(self.call.try_clone().expect("a descriptor")));
        self.was_called();
    }
}

/// A machine whose server died with three writes of the same block in progress, of bytes 1, 2 and
/// 3.
fn dead(engine: Engine) -> Machine {
    let bench = Bench::of(engine, STUCK);
    let mut guest = Machine::start(&bench);
    assert_eq!(guest.block(), [0; BLOCK]);
    assert_eq!(guest.in_progress(), 0);
    for (number, byte) in [(4, 1), (0, 2), (2, 3)] {
        guest.writes(number, byte);
    }
    guest.waits_until_in_progress(3);
    // The forgotten server answers nothing any more, like a dead one. It would only still receive
    // kicks.
    std::mem::forget(bench);
    guest.kick = counter::new().expect("a counter");
    guest.forgets_calls();
    guest
}

#[test]
fn what_a_dead_process_had_in_progress_is_carried_out_once_and_in_its_order() {
    for engine in [Engine::Auto, Engine::Epoll] {
        let mut guest = dead(engine);
        let bench = Bench::of(engine, DISK);
        // A request that no server has seen yet.
        guest.writes(1, 4);
        guest.reconnect(&bench);
        guest.wait();
        assert_eq!(guest.given(), [0, 12, 0, 6, 3]);
        assert_eq!([4, 0, 2, 1].map(|number| guest.answer(number)), [0; 4]);
        assert_eq!(guest.in_progress(), 0);
        guest.was_called();
        assert_eq!(guest.block(), [4; BLOCK]);
        guest.works();
        drop(guest);
        bench.end();
    }
}

#[test]
fn what_was_answered_is_not_carried_out_again_though_it_was_not_noted() {
    let mut guest = dead(Engine::Auto);
    // The server died between returning the write of 3 and recording that.
    let given = guest.memory.load(USED + 2);
    let at = USED + 4 + 8 * usize::from(given);
    guest.memory.write(at, &[6, 0, 0, 0, 1, 0, 0, 0]);
    guest.record().store(LAST, 6);
    guest.memory.store(USED + 2, given + 1);
    let bench = Bench::of(Engine::Auto, DISK);
    guest.reconnect(&bench);
    guest.wait();
    assert_eq!(guest.given(), [0, 6, 12, 0]);
    assert_eq!(guest.answer(2), 0xff);
    assert_eq!(guest.block(), [2; BLOCK]);
    drop(guest);
    bench.end();
}

#[test]
fn who_died_before_it_called_has_its_machine_called_by_the_next() {
    let bench = Bench::of(Engine::Auto, DISK);
    let mut guest = Machine::start(&bench);
    guest.works();
    guest.forgets_calls();
    guest.reconnect(&bench);
    guest.was_called();
    drop(guest);
    bench.end();
}

/// A defect of a record, and the function that creates it.
type Nonsense = (&'static str, fn(&Machine));

/// Invalid contents of a record.
const NONSENSE: [Nonsense; 5] = [
    ("another version", |guest| guest.record().store(VERSION, 7)),
    ("another version or size", |guest| {
        guest.record().store(ENTRIES, 16)
    }),
    ("of another queue", |guest| {
        guest.record().store(GIVEN, 4000)
    }),
    ("names one that cannot be", |guest| {
        let record = guest.record();
        record.store(LAST, u16::MAX);
        record.store(GIVEN, u16::MAX);
    }),
    ("requests in progress of another disk", |guest| {
        let record = guest.record();
        record.write(record.len() - 50, b"other");
    }),
];

#[test]
fn a_record_that_cannot_be_followed_is_refused_and_the_next_machine_is_served() {
    let bench = Bench::of(Engine::Auto, DISK);
    for (sentence, scribble) in NONSENSE {
        let mut guest = dead(Engine::Auto);
        scribble(&guest);
        guest.reconnect(&bench);
        assert!(guest.is_cut_off(), "{sentence}");
        let told = bench.violation();
        assert!(told.contains(sentence), "{told}, not {sentence}");
    }
    Machine::start(&bench).works();
    bench.end();
}

#[test]
fn whatever_else_stands_in_a_record_comes_to_an_end() {
    let bench = Bench::of(Engine::Auto, DISK);
    // All entries in progress, with heads that lead to chains, to invalid descriptors and beyond
    // the queue.
    let mut guest = dead(Engine::Auto);
    let record = guest.record();
    for head in 0..32 {
        record.write(ENTRY + BYTES_OF_ENTRY * head, &[1, 9, 9, 9, 9, 9, 9, 9]);
    }
    guest.reconnect(&bench);
    assert!(guest.is_cut_off());
    bench.violation();
    // A record that is shorter than announced.
    let mut guest = dead(Engine::Auto);
    let (file, said) = guest.record.take().expect("there is one");
    drop(file);
    let short = tempfile::tempfile().expect("a file");
    short.set_len(100).expect("its length");
    guest.record = Some((short, said));
    guest.reconnect(&bench);
    assert!(guest.is_cut_off());
    assert!(bench.violation().contains("not all in its file"));
    Machine::start(&bench).works();
    bench.end();
}

#[test]
fn a_queue_without_a_place_in_the_record_does_not_begin() {
    let bench = Bench::of(Engine::Auto, DISK);
    let guest = Machine::start(&bench);
    guest.ask(request::GET_VRING_BASE, &pair(0, 0));
    guest.queue(64, 0);
    guest.kick_by(0);
    assert!(guest.is_cut_off());
    assert!(bench.violation().contains("no place in the record"));
    drop(guest);
    bench.end();
}

#[test]
fn a_running_machine_is_told_that_its_disk_has_another_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("disk");
    for engine in [Engine::Auto, Engine::Epoll] {
        let _there_was_none = std::fs::remove_file(&path);
        let bench = Bench::of(engine, &format!("file:{},size=8M", path.display()));
        let mut guest = Machine::start(&bench);
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        guest.say(request::SET_BACKEND_REQ_FD, &[], &[theirs.as_fd()]);
        drop(theirs);
        ours.set_read_timeout(Some(BOUND)).expect("a timeout");
        // The answer also shows that the previous message was handled.
        assert_eq!(sectors(&guest), 8 << 11);
        assert_eq!(guest.request(OUT, (8 << 11) + 7, 512), 1);
        let resized = |bytes| {
            let disk = bench.disk.resize(bytes).expect("the same file");
            bench.socket.resized(disk).expect("the same disk");
        };
        resized(Some(16 << 20));
        let mut said = [0; 12];
        (&ours).read_exact(&mut said).expect("it is told");
        assert_eq!(said[..], [2_u32, 1, 0].map(u32::to_ne_bytes).concat());
        assert_eq!(sectors(&guest), 16 << 11);
        assert_eq!(guest.request(OUT, (8 << 11) + 7, 512), 0);
        // A monitor that does not read must not block the server.
        for _ in 0..400 {
            resized(None);
        }
        guest.works();
        // The notification socket closes with its monitor, even when it holds unread messages.
        drop(guest);
        std::io::copy(&mut &ours, &mut std::io::sink()).expect("it has an end");
        bench.end();
    }
}

fn sectors(guest: &Machine) -> u64 {
    let space = guest.ask(request::GET_CONFIG, &[&pair(0, 8)[..], &[0; 12]].concat());
    u64::from_le_bytes(space[12..].try_into().expect("eight bytes"))
}

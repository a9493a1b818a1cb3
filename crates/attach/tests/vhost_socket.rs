//! A disk as vhost-user-blk, on both engines, at a monitor and a guest that are played here: what a guest reads is what
//! it wrote, and whoever breaks the rules is cut off with a sentence, and the next one served.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use fabrix_attach::Told;
use fabrix_attach::vhost::VhostSocket;
use fabrix_block::open_local;
use fabrix_proto::virtio::vhost_user::{OFFERED, Region, request};
use fabrix_rt::counting::{CountingAllocator, allocations, allocations_of};
use fabrix_rt::{
    Engine, File, Remote, Shard, ShardConfig, ShardThread, SharedMemory, descriptors, spawn,
};
use zerocopy::IntoBytes;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const BOUND: Duration = Duration::from_secs(20);
const MEMORY_BYTES: u64 = 4 << 20;
/// Where the guest has its memory, and where the monitor has it.
const GUEST: u64 = 0x10_0000;
const USER: u64 = 0x7f00_0000_0000;
const SIZE: u16 = 16;
/// The parts of the queue, the head of a request, its answer and its data, from the start of the memory.
const AVAILABLE: usize = 0x1000;
const USED: usize = 0x2000;
const HEAD: usize = 0x3000;
const ANSWER: usize = 0x3100;
const DATA: usize = 0x1_0000;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const ZEROES: u32 = 13;

struct Bench {
    shard: ShardThread,
    socket: VhostSocket,
    told: mpsc::Receiver<Told>,
    path: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new(engine: Engine, block_bytes: u32) -> Self {
        Self::of(engine, &format!("ram:8M,block={block_bytes}"))
    }

    fn of(engine: Engine, disk: &str) -> Self {
        let config = ShardConfig {
            engine,
            ..ShardConfig::default()
        };
        let shard = spawn(config, None, |_| {}).expect("a shard");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let (tell, told) = mpsc::channel();
        let tell = Box::new(move |news| {
            let _nobody_waits = tell.send(news);
        });
        let disk = open_local(&disk.parse().expect("a disk's words")).expect("a disk");
        let socket = VhostSocket::begin(&shard.remote, disk, listener, tell);
        Self {
            shard,
            socket: socket.expect("it begins"),
            told,
            path,
            _folder: folder,
        }
    }

    fn violation(&self) -> String {
        match self.told.recv_timeout(BOUND).expect("it is told") {
            Told::Violation(sentence) => sentence,
            Told::Over => panic!("it is over"),
        }
    }

    fn end(self) {
        self.socket.close();
        let told = self.told.recv_timeout(BOUND).expect("it is over some day");
        assert_eq!(told, Told::Over);
        self.shard.remote.stop();
        self.shard.join.join().expect("the shard ends");
    }
}

fn on_both_engines(test: impl Fn(&Bench)) {
    for engine in [Engine::Auto, Engine::Epoll] {
        let bench = Bench::new(engine, 512);
        test(&bench);
        bench.end();
    }
}

/// A monitor and its guest, with one queue.
struct Machine {
    stream: UnixStream,
    file: std::fs::File,
    memory: SharedMemory,
    kick: std::fs::File,
    call: std::fs::File,
    offered: u16,
}

impl Machine {
    /// Connected, and nothing said.
    fn connect(bench: &Bench) -> Self {
        let stream = UnixStream::connect(&bench.path).expect("it answers");
        stream.set_read_timeout(Some(BOUND)).expect("a timeout");
        let file = tempfile::tempfile().expect("a file");
        file.set_len(MEMORY_BYTES).expect("its length");
        let memory = SharedMemory::map(&file, 0, MEMORY_BYTES).expect("memory");
        Self {
            stream,
            memory,
            file,
            kick: descriptors::new_counter().expect("a counter"),
            call: descriptors::new_counter().expect("a counter"),
            offered: 0,
        }
    }

    /// Ready: all features but events by index, the queue runs.
    fn start(bench: &Bench) -> Self {
        let machine = Self::connect(bench);
        machine.negotiate();
        machine.queue(SIZE.into(), 0);
        machine.kick_by(0);
        machine
    }

    fn negotiate(&self) {
        let features = self.ask(request::GET_FEATURES, &[]);
        let features = u64::from_ne_bytes(features.try_into().expect("eight bytes"));
        self.say(
            request::SET_FEATURES,
            &(features & !(1 << 29)).to_ne_bytes(),
            &[],
        );
        self.say(request::SET_PROTOCOL_FEATURES, &OFFERED.to_ne_bytes(), &[]);
        self.memory_table(MEMORY_BYTES);
    }

    fn memory_table(&self, bytes: u64) {
        let region = Region {
            guest: GUEST,
            bytes,
            user: USER,
            offset: 0,
        };
        let table = [&pair(1, 0)[..], region.as_bytes()].concat();
        self.say(request::SET_MEM_TABLE, &table, &[self.file.as_fd()]);
    }

    fn queue(&self, size: u32, base: u32) {
        self.say(request::SET_VRING_NUM, &pair(0, size), &[]);
        self.say(request::SET_VRING_BASE, &pair(0, base), &[]);
        let addresses = [USER, USER + USED as u64, USER + AVAILABLE as u64, 0];
        let addresses = [&pair(0, 0)[..], addresses.as_bytes()].concat();
        self.say(request::SET_VRING_ADDR, &addresses, &[]);
    }

    fn kick_by(&self, ring: u64) {
        self.say(
            request::SET_VRING_CALL,
            &ring.to_ne_bytes(),
            &[self.call.as_fd()],
        );
        self.say(
            request::SET_VRING_KICK,
            &ring.to_ne_bytes(),
            &[self.kick.as_fd()],
        );
        self.say(request::SET_VRING_ENABLE, &pair(0, 1), &[]);
    }

    fn say(&self, kind: u32, body: &[u8], files: &[BorrowedFd<'_>]) {
        let length = u32::try_from(body.len()).expect("short");
        let message = [
            &kind.to_ne_bytes()[..],
            &1_u32.to_ne_bytes(),
            &length.to_ne_bytes(),
            body,
        ];
        // Who was cut off notices when he listens.
        let _cut_off = descriptors::send(&self.stream, &message.concat(), files);
    }

    fn ask(&self, kind: u32, body: &[u8]) -> Vec<u8> {
        self.say(kind, body, &[]);
        let mut head = [0; 12];
        (&self.stream).read_exact(&mut head).expect("an answer");
        assert_eq!(head[..4], kind.to_ne_bytes());
        let mut answer =
            vec![0; u32::from_ne_bytes([head[8], head[9], head[10], head[11]]) as usize];
        (&self.stream).read_exact(&mut answer).expect("its body");
        answer
    }

    fn is_cut_off(&self) -> bool {
        matches!((&self.stream).read(&mut [0; 64]), Ok(0) | Err(_))
    }

    fn describe(&self, index: u16, address: u64, bytes: u32, flags: u16, next: u16) {
        let at = 16 * usize::from(index);
        self.memory.write(at, &address.to_le_bytes());
        self.memory.write(at + 8, &bytes.to_le_bytes());
        self.memory.write(at + 12, &flags.to_le_bytes());
        self.memory.write(at + 14, &next.to_le_bytes());
    }

    fn head(&self, kind: u32, sector: u64) {
        self.memory.write(HEAD, &kind.to_le_bytes());
        self.memory.write(HEAD + 8, &sector.to_le_bytes());
    }

    fn offer(&mut self, head: u16) {
        self.memory
            .store(AVAILABLE + 4 + 2 * usize::from(self.offered % SIZE), head);
        self.offered = self.offered.wrapping_add(1);
        self.memory.store(AVAILABLE + 2, self.offered);
        descriptors::ring(&File::from(self.kick.try_clone().expect("a descriptor")));
    }

    fn wait(&self) {
        let until = Instant::now() + BOUND;
        while self.memory.load(USED + 2) != self.offered {
            assert!(Instant::now() < until, "no answer came");
            std::thread::yield_now();
        }
    }

    /// A request whose data lies in `DATA`, in three pieces of which one is crooked. Its answer.
    fn request(&mut self, kind: u32, sector: u64, bytes: u32) -> u8 {
        self.head(kind, sector);
        let flags = if matches!(kind, IN | GET_ID) {
            WRITE
        } else {
            0
        };
        let data = GUEST + DATA as u64;
        let pieces = [bytes.min(100), bytes.saturating_sub(100)];
        self.describe(0, GUEST + HEAD as u64, 16, NEXT, 3);
        self.describe(3, data, pieces[0], NEXT | flags, 1);
        self.describe(1, data + 100, pieces[1], NEXT | flags, 2);
        self.describe(2, GUEST + ANSWER as u64, 1, WRITE, 0);
        self.memory.write(ANSWER, &[0xff]);
        self.offer(0);
        self.wait();
        let mut answer = [0];
        self.memory.read(ANSWER, &mut answer);
        answer[0]
    }

    fn put(&self, data: &[u8]) {
        self.memory.write(DATA, data);
    }

    fn get(&self, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.memory.read(DATA, &mut data);
        data
    }

    fn range(&self, sector: u64, sectors: u32, flags: u32) {
        let numbers = [
            sector.to_le_bytes(),
            (u64::from(flags) << 32 | u64::from(sectors)).to_le_bytes(),
        ];
        self.put(&numbers.concat());
    }

    fn works(&mut self) {
        self.put(&[9; 512]);
        assert_eq!(self.request(OUT, 3, 512), 0);
        self.put(&[0; 512]);
        assert_eq!(self.request(IN, 3, 512), 0);
        assert_eq!(self.get(512), [9; 512]);
    }
}

fn pair(index: u32, value: u32) -> Vec<u8> {
    [index.to_ne_bytes(), value.to_ne_bytes()].concat()
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| u8::try_from(at * 31 % 251).expect("below 251"))
        .collect()
}

#[test]
fn a_guest_reads_what_it_wrote_in_every_size() {
    on_both_engines(|bench| {
        let mut guest = Machine::start(bench);
        // The last one is longer than a disk moves at once.
        for bytes in [512, 4096, 65_536, 1 << 20, (1 << 20) + 512, 3 << 20] {
            let data = pattern(bytes);
            let length = u32::try_from(bytes).expect("short");
            guest.put(&data);
            assert_eq!(guest.request(OUT, 8, length), 0);
            guest.put(&vec![0; bytes]);
            assert_eq!(guest.request(IN, 8, length), 0);
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
        // It has been taken, or is taken now, before the queue ends: then it is answered before, too.
        let base = guest.ask(request::GET_VRING_BASE, &pair(0, 0));
        assert_eq!(base, pair(0, guest.memory.load(USED + 2).into()));
        drop(guest);
        bench.end();
    }
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

/// How a guest, or its monitor, breaks the rules.
type Breach = (&'static str, fn(&mut Machine));

const BREACHES: [Breach; 16] = [
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

/// What the shard's thread has allocated so far. The way back has its memory before: it would count.
fn allocated(remote: &Remote) -> u64 {
    let (tell, told) = mpsc::sync_channel(1);
    let ask = Box::new(move |_: &mut Shard| {
        let _nobody_waits = tell.send(allocations());
    });
    remote.run(ask).expect("it listens");
    told.recv_timeout(BOUND).expect("it answers")
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

//! A disk on a socket, with both engines: clients read what they wrote, and an I/O allocates
//! nothing.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc;
use std::time::Duration;

use fabrix_attach::FrontEndEvent;
use fabrix_attach::nbd::{NbdPeer, NbdSocket, flags};
use fabrix_block::null::NullDisk;
use fabrix_block::ram::RamDisk;
use fabrix_block::{Device, Geometry, Identity};
use fabrix_rt::counting::{CountingAllocator, allocations, allocations_of};
use fabrix_rt::{Engine, HugePages, Remote, ShardConfig, ShardThread, spawn};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const BOUND: Duration = Duration::from_secs(20);
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

/// A disk on a socket, by default of 8 MiB, and its client.
struct Bench {
    shard: ShardThread,
    socket: NbdSocket,
    events: mpsc::Receiver<FrontEndEvent>,
    path: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new(engine: Engine) -> Self {
        Self::of(engine, disk(8 << 20))
    }

    fn of(engine: Engine, disk: std::sync::Arc<dyn Device>) -> Self {
        let config = ShardConfig {
            engine,
            ..ShardConfig::default()
        };
        let shard = spawn(config, None, |_| {}).expect("a shard");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let (sender, events) = mpsc::channel();
        let on_event = Box::new(move |event| {
            let _nobody_waits = sender.send(event);
        });
        let socket = NbdSocket::begin(&shard.remote, disk, OwnedFd::from(listener), on_event);
        Self {
            shard,
            socket: socket.expect("it begins"),
            events,
            path,
            _folder: folder,
        }
    }

    fn client(&self) -> Client {
        let mut stream = UnixStream::connect(&self.path).expect("it answers");
        stream.set_read_timeout(Some(BOUND)).expect("a timeout");
        stream.read_exact(&mut [0; 18]).expect("a greeting");
        let begin = [&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
        stream.write_all(&begin).expect("it listens");
        stream.read_exact(&mut [0; 10]).expect("size and flags");
        Client(stream)
    }

    fn end(self) {
        self.socket.close();
        loop {
            match self
                .events
                .recv_timeout(BOUND)
                .expect("it is over some day")
            {
                FrontEndEvent::Ended => break,
                FrontEndEvent::Violation(_) => {}
            }
        }
        self.shard.remote.stop();
        self.shard.join.join().expect("the shard ends");
    }
}

struct Client(UnixStream);

impl Client {
    fn ask(&mut self, kind: u16, offset: u64, length: u32, data: &[u8]) {
        let mut head = [0; 28];
        head[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
        head[6..8].copy_from_slice(&kind.to_be_bytes());
        head[16..24].copy_from_slice(&offset.to_be_bytes());
        head[24..].copy_from_slice(&length.to_be_bytes());
        self.0.write_all(&head).expect("it listens");
        self.0.write_all(data).expect("it listens");
    }

    fn answer(&mut self, into: &mut [u8]) -> u32 {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).expect("an answer");
        let error = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        if error == 0 {
            self.0.read_exact(into).expect("its data");
        }
        error
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        let length = u32::try_from(data.len()).expect("short");
        self.ask(WRITE, offset, length, data);
        self.answer(&mut [])
    }

    fn read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.ask(READ, offset, u32::try_from(bytes).expect("short"), &[]);
        assert_eq!(self.answer(&mut data), 0);
        data
    }
}

fn on_both_engines(test: impl Fn(&Bench)) {
    for engine in [Engine::Auto, Engine::Epoll] {
        let bench = Bench::new(engine);
        test(&bench);
        bench.end();
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| u8::try_from(at * 31 % 251).expect("below 251"))
        .collect()
}

#[test]
fn what_is_read_is_what_was_written_in_every_size() {
    on_both_engines(|bench| {
        let mut client = bench.client();
        // The disk accepts at most 1 MiB per request.
        for bytes in [
            512,
            4096,
            8192,
            8704,
            65_536,
            1 << 20,
            2 << 20,
            (5 << 20) + 512,
        ] {
            let data = pattern(bytes);
            assert_eq!(client.write(1 << 20, &data), 0);
            assert!(client.read(1 << 20, bytes) == data, "{bytes} bytes");
        }
        client.ask(FLUSH, 0, 0, &[]);
        assert_eq!(client.answer(&mut []), 0);
        for kind in [TRIM, ZEROES] {
            assert_eq!(client.write(0, &[1; 4096]), 0);
            client.ask(kind, 512, 1024, &[]);
            assert_eq!(client.answer(&mut []), 0);
            let expected = [vec![1; 512], vec![0; 1024], vec![1; 512]].concat();
            assert_eq!(client.read(0, 2048), expected);
        }
    });
}

#[test]
fn what_one_client_wrote_the_other_reads_and_many_requests_wait_their_turn() {
    on_both_engines(|bench| {
        let (mut one, mut other) = (bench.client(), bench.client());
        assert_eq!(bench.socket.clients(), 2);
        assert_eq!(one.write(4096, &[5; 512]), 0);
        assert_eq!(other.read(4096, 512), [5; 512]);
        // More requests than slots, all sent before the first answer is read.
        for _ in 0..500 {
            one.ask(READ, 4096, 512, &[]);
        }
        for _ in 0..500 {
            let mut data = [0; 512];
            assert_eq!(one.answer(&mut data), 0);
            assert_eq!(data, [5; 512]);
        }
    });
}

#[test]
fn a_client_that_talks_nonsense_is_cut_off_and_the_others_are_not() {
    on_both_engines(|bench| {
        let (mut good, mut bad) = (bench.client(), bench.client());
        bad.0.write_all(&[7; 28]).expect("it listens");
        assert_eq!(bad.0.read(&mut [0; 1]).expect("the end"), 0);
        let event = bench.events.recv_timeout(BOUND).expect("it is told");
        assert!(matches!(event, FrontEndEvent::Violation(_)), "{event:?}");
        assert_eq!(good.read(0, 512), [0; 512]);
    });
}

#[test]
fn many_long_requests_at_once_are_all_carried_out() {
    const LENGTH: usize = 3 << 20;
    on_both_engines(|bench| {
        let mut client = bench.client();
        let data = pattern(LENGTH);
        assert_eq!(client.write(0, &data), 0);
        let length = u32::try_from(LENGTH).expect("short");
        for _ in 0..9 {
            client.ask(READ, 0, length, &[]);
        }
        client.ask(FLUSH, 0, 0, &[]);
        let mut read = vec![0; LENGTH];
        for _ in 0..9 {
            assert_eq!(client.answer(&mut read), 0);
            assert!(read == data);
        }
        assert_eq!(client.answer(&mut []), 0, "the flush");
    });
}

#[test]
fn a_refused_write_of_32_mib_is_answered_and_the_connection_lives() {
    on_both_engines(|bench| {
        let mut client = bench.client();
        let no_space = 28;
        assert_eq!(client.write(0, &vec![1; 32 << 20]), no_space);
        assert_eq!(client.read(0, 512), [0; 512]);
    });
}

/// A client of `base:allocation` with structured replies or, if `extended`, with extended headers.
fn status_client(bench: &Bench, extended: bool) -> Client {
    let mut stream = UnixStream::connect(&bench.path).expect("it answers");
    stream.set_read_timeout(Some(BOUND)).expect("a timeout");
    stream.read_exact(&mut [0; 18]).expect("a greeting");
    let option = |number: u32, data: &[u8]| {
        let length = u32::try_from(data.len()).expect("short");
        let numbers = [number, length].map(u32::to_be_bytes).concat();
        [&b"IHAVEOPT"[..], &numbers, data].concat()
    };
    let query = [&[0; 4][..], &[0, 0, 0, 1, 0, 0, 0, 15], b"base:allocation"].concat();
    let said = [
        vec![0, 0, 0, 3],
        option(if extended { 11 } else { 8 }, &[]),
        option(10, &query),
        option(7, &[0; 6]),
    ];
    stream.write_all(&said.concat()).expect("it listens");
    // Bytes: chunks; a context and the end of the list; the export, its sizes and the end.
    let answers = 20 + (20 + 19) + 20 + (20 + 12) + (20 + 14) + 20;
    stream.read_exact(&mut vec![0; answers]).expect("answers");
    Client(stream)
}

#[test]
fn block_status_tells_what_was_written() {
    on_both_engines(|bench| {
        let mut client = status_client(bench, false);
        let status = |client: &mut Client, offset: u64, length: u32, extents: usize| {
            client.ask(BLOCK_STATUS, offset, length, &[]);
            let mut answer = vec![0; 20 + 4 + 8 * extents];
            client.0.read_exact(&mut answer).expect("an answer");
            let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four"));
            assert_eq!(number(&answer[16..20]) as usize, answer.len() - 20);
            let extents = answer[24..].chunks_exact(8);
            extents
                .map(|extent| (number(&extent[..4]), number(&extent[4..])))
                .collect::<Vec<_>>()
        };
        let (data, hole) = (0, 3);
        let all = 8 << 20;
        assert_eq!(status(&mut client, 0, all, 1), [(all, hole)]);
        let mut writer = bench.client();
        assert_eq!(writer.write(1 << 20, &[7; 1 << 16]), 0);
        let rest = all - (1 << 20) - (1 << 16);
        let expected = [(1 << 20, hole), (1 << 16, data), (rest, hole)];
        assert_eq!(status(&mut client, 0, all, 3), expected);
        let part = [(512, data)];
        assert_eq!(status(&mut client, 1 << 20, 512, 1), part);
    });
}

/// A client with extended headers.
struct Extended(Client);

impl Extended {
    fn ask(&mut self, flags: u16, kind: u16, offset: u64, length: u64, data: &[u8]) {
        let request = [
            &0x21e4_1c71_u32.to_be_bytes()[..],
            &[flags, kind].map(u16::to_be_bytes).concat(),
            &[0, offset, length].map(u64::to_be_bytes).concat(),
            data,
        ];
        self.0.0.write_all(&request.concat()).expect("it listens");
    }

    /// The only chunk of an answer: type and content.
    fn answer(&mut self, offset: u64) -> (u16, Vec<u8>) {
        let mut head = [0; 32];
        self.0.0.read_exact(&mut head).expect("an answer");
        assert_eq!(head[..6], [0x6e, 0x8a, 0x27, 0x8c, 0, 1]);
        assert_eq!(head[16..24], offset.to_be_bytes());
        let length = u64::from_be_bytes(head[24..].try_into().expect("eight"));
        let mut body = vec![0; usize::try_from(length).expect("short")];
        self.0.0.read_exact(&mut body).expect("what it says");
        (u16::from_be_bytes([head[6], head[7]]), body)
    }
}

const PAYLOAD_LEN: u16 = 1 << 5;

#[test]
fn a_client_of_extended_headers_writes_reads_and_asks_for_the_status() {
    on_both_engines(|bench| {
        let mut client = Extended(status_client(bench, true));
        let data = pattern(64 << 10);
        client.ask(PAYLOAD_LEN, WRITE, 1 << 20, 64 << 10, &data);
        assert_eq!(client.answer(1 << 20), (0, vec![]));
        client.ask(0, READ, 1 << 20, 64 << 10, &[]);
        let read = [&(1_u64 << 20).to_be_bytes()[..], &data].concat();
        assert!(client.answer(1 << 20) == (1, read));
        client.ask(0, BLOCK_STATUS, 0, 8 << 20, &[]);
        let (data, hole) = (0, 3);
        let rest = (7 << 20) - (64 << 10);
        let extents = [1 << 20, hole, 64 << 10, data, rest, hole];
        let extents = extents.map(u64::to_be_bytes).concat();
        let told = [&[0, 0, 0, 1, 0, 0, 0, 3][..], &extents].concat();
        assert_eq!(client.answer(0), (6, told));
        let (past_the_end, no_space) = (8 << 20, vec![0, 0, 0, 28, 0, 0]);
        client.ask(PAYLOAD_LEN, WRITE, past_the_end, 1 << 20, &[1; 1 << 20]);
        assert_eq!(client.answer(past_the_end), (0x8001, no_space));
        client.ask(0, FLUSH, 0, 0, &[]);
        assert_eq!(client.answer(0), (0, vec![]));
    });
}

fn null(bytes: u64) -> std::sync::Arc<dyn Device> {
    let identity = Identity::derive("null", "null", "nothing");
    NullDisk::new(Geometry::new(512, bytes / 512), identity)
}

#[test]
fn a_trim_that_takes_minutes_gives_another_its_turn_and_ends_with_its_client() {
    const BYTES: u64 = 1 << 52;
    for engine in [Engine::Auto, Engine::Epoll] {
        let bench = Bench::of(engine, null(BYTES));
        let mut client = Extended(status_client(&bench, true));
        client.ask(0, TRIM, 0, BYTES, &[]);
        client.ask(0, TRIM, 512, 64 << 30, &[]);
        assert_eq!(client.answer(512), (0, vec![]));
        drop(client);
        bench.end();
    }
}

#[test]
fn a_whole_disk_of_a_tebibyte_is_trimmed_zeroed_and_mapped_by_one_request() {
    const BYTES: u64 = 1 << 40;
    for engine in [Engine::Auto, Engine::Epoll] {
        let bench = Bench::of(engine, null(BYTES));
        let mut client = Extended(status_client(&bench, true));
        for kind in [TRIM, ZEROES] {
            client.ask(0, kind, 512, BYTES - 512, &[]);
            assert_eq!(client.answer(512), (0, vec![]));
        }
        client.ask(0, BLOCK_STATUS, 0, BYTES, &[]);
        let extent = [BYTES, 0].map(u64::to_be_bytes).concat();
        let told = [&[0, 0, 0, 1, 0, 0, 0, 1][..], &extent].concat();
        assert_eq!(client.answer(0), (6, told));
        bench.end();
    }
}

/// A disk of `bytes` bytes.
fn disk(bytes: u64) -> std::sync::Arc<dyn Device> {
    let identity = Identity::derive("disk", "disk", "a disk");
    RamDisk::new(Geometry::new(512, bytes / 512), HugePages::No, identity).expect("memory")
}

#[test]
fn a_client_that_knows_everything_begins_with_a_request_and_ends_it_by_leaving() {
    for engine in [Engine::Auto, Engine::Epoll] {
        let config = ShardConfig {
            engine,
            ..ShardConfig::default()
        };
        let shard = spawn(config, None, |_| {}).expect("a shard");
        let (small, large) = (disk(1 << 20), disk(2 << 20));
        // Flags, flush, FUA, trim, write zeroes, multiple connections, cache and fast zeroes. The
        // export is writable.
        assert_eq!(flags(&*small), 0b1101_0110_1101);
        let (sender, events) = mpsc::channel();
        let on_event = Box::new(move |event| {
            let _nobody_waits = sender.send(event);
        });
        let (theirs, ours) = UnixStream::pair().expect("a pair");
        let peer = NbdPeer::begin(&shard.remote, small, ours, on_event).expect("it begins");
        theirs.set_read_timeout(Some(BOUND)).expect("a timeout");
        let mut client = Client(theirs);
        assert_eq!(client.write(4096, &[5; 512]), 0);
        assert_eq!(client.read(4096, 512), [5; 512]);
        let (einval, behind) = (22, (1 << 20) + 512);
        client.ask(READ, behind, 512, &[]);
        assert_eq!(client.answer(&mut []), einval);
        peer.resized(large).expect("it lives");
        assert_eq!(client.read(behind, 512), [0; 512]);
        drop(client);
        assert_eq!(events.recv_timeout(BOUND), Ok(FrontEndEvent::Ended));
        shard.remote.stop();
        shard.join.join().expect("the shard ends");
    }
}

/// Allocations of the shard's thread so far. The result channel is created before, so that it does
/// not count.
fn allocated(remote: &Remote) -> u64 {
    let (sender, receiver) = mpsc::sync_channel(1);
    let ask = Box::new(move |_: &mut fabrix_rt::Shard| {
        let _nobody_waits = sender.send(allocations());
    });
    remote.run(ask).expect("it listens");
    receiver.recv_timeout(BOUND).expect("it answers")
}

#[test]
fn nothing_is_allocated_for_an_io() {
    on_both_engines(|bench| {
        let mut client = bench.client();
        let data = pattern(64 << 10);
        let mut both = |times: usize| {
            for _ in 0..times {
                assert_eq!(client.write(0, &data), 0);
                assert_eq!(client.write(0, &data[..4096]), 0);
                assert!(client.read(0, 4096) == data[..4096]);
            }
        };
        let made = allocations_of(|| allocated(&bench.shard.remote), || both(100));
        assert_eq!(made, 0, "allocations for 300 requests");
    });
}

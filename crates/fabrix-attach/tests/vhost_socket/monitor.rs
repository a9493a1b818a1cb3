//! A simulated monitor and guest: messages on the socket, and the contents of guest memory.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use fabrix_attach::FrontEndEvent;
use fabrix_attach::vhost::VhostSocket;
use fabrix_block::{Device, open_local};
use fabrix_proto::virtio::vhost_user::{OFFERED, Region, request};
use fabrix_rt::{Engine, File, ShardConfig, ShardThread, counter, spawn};
use sys_devices::{SharedMemory, descriptors};
use zerocopy::IntoBytes;

pub(super) const BOUND: Duration = Duration::from_secs(20);
pub(super) const MEMORY_BYTES: u64 = 4 << 20;
/// Guest address and monitor address of the memory.
pub(super) const GUEST: u64 = 0x10_0000;
pub(super) const USER: u64 = 0x7f00_0000_0000;
pub(super) const SIZE: u16 = 16;
/// Offsets in the memory: the parts of the queue, a request's header, its answer and its data.
pub(super) const AVAILABLE: usize = 0x1000;
pub(super) const USED: usize = 0x2000;
pub(super) const HEAD: usize = 0x3000;
pub(super) const ANSWER: usize = 0x3100;
pub(super) const DATA: usize = 0x1_0000;

pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const IN: u32 = 0;
pub(super) const OUT: u32 = 1;
pub(super) const FLUSH: u32 = 4;
pub(super) const GET_ID: u32 = 8;
pub(super) const DISCARD: u32 = 11;
pub(super) const ZEROES: u32 = 13;

pub(super) struct Bench {
    pub(super) shard: ShardThread,
    pub(super) disk: Arc<dyn Device>,
    pub(super) socket: VhostSocket,
    pub(super) events: mpsc::Receiver<FrontEndEvent>,
    pub(super) path: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

impl Bench {
    pub(super) fn new(engine: Engine, block_bytes: u32) -> Self {
        Self::of(engine, &format!("ram:8M,block={block_bytes}"))
    }

    pub(super) fn of(engine: Engine, disk: &str) -> Self {
        let disk = open_local(&disk.parse().expect("a disk's words")).expect("a disk");
        Self::with(engine, disk)
    }

    pub(super) fn with(engine: Engine, disk: Arc<dyn Device>) -> Self {
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
        let socket = VhostSocket::begin(&shard.remote, Arc::clone(&disk), listener, on_event);
        Self {
            shard,
            disk,
            socket: socket.expect("it begins"),
            events,
            path,
            _folder: folder,
        }
    }

    pub(super) fn violation(&self) -> String {
        match self.events.recv_timeout(BOUND).expect("it is told") {
            FrontEndEvent::Violation(sentence) => sentence,
            FrontEndEvent::Ended => panic!("it is over"),
        }
    }

    pub(super) fn end(self) {
        self.socket.close();
        let event = self
            .events
            .recv_timeout(BOUND)
            .expect("it is over some day");
        assert_eq!(event, FrontEndEvent::Ended);
        self.shard.remote.stop();
        self.shard.join.join().expect("the shard ends");
    }
}

pub(super) fn on_both_engines(test: impl Fn(&Bench)) {
    for engine in [Engine::Auto, Engine::Epoll] {
        let bench = Bench::new(engine, 512);
        test(&bench);
        bench.end();
    }
}

/// A monitor and its guest with one queue.
pub(super) struct Machine {
    pub(super) stream: UnixStream,
    pub(super) file: std::fs::File,
    pub(super) memory: SharedMemory,
    pub(super) kick: std::fs::File,
    pub(super) call: std::fs::File,
    pub(super) offered: u16,
    /// Record of requests in progress: its file and its description.
    pub(super) record: Option<(std::fs::File, Vec<u8>)>,
}

/// Number of queues and descriptors per queue in the record.
const RECORDED: (u16, u16) = (2, 32);

impl Machine {
    /// Connects without sending anything.
    pub(super) fn connect(bench: &Bench) -> Self {
        let stream = UnixStream::connect(&bench.path).expect("it answers");
        stream.set_read_timeout(Some(BOUND)).expect("a timeout");
        let file = tempfile::tempfile().expect("a file");
        file.set_len(MEMORY_BYTES).expect("its length");
        let memory = SharedMemory::map(&file, 0, MEMORY_BYTES).expect("memory");
        Self {
            stream,
            memory,
            file,
            kick: counter::new().expect("a counter"),
            call: counter::new().expect("a counter"),
            offered: 0,
            record: None,
        }
    }

    /// Starts the queue, with all features except event index, and with a record of requests in
    /// progress.
    pub(super) fn start(bench: &Bench) -> Self {
        let mut machine = Self::connect(bench);
        machine.negotiate();
        machine.new_record();
        machine.keep_record();
        machine.queue(SIZE.into(), 0);
        machine.kick_by(0);
        machine
    }

    /// Connects to the successor of a dead server.
    pub(super) fn reconnect(&mut self, bench: &Bench) {
        let _it_was_over = self.stream.shutdown(std::net::Shutdown::Both);
        self.stream = UnixStream::connect(&bench.path).expect("it answers");
        self.stream
            .set_read_timeout(Some(BOUND))
            .expect("a timeout");
        self.negotiate();
        self.keep_record();
        // QEMU does the same when it could not ask the dead server for its position.
        self.queue(SIZE.into(), self.memory.load(USED + 2).into());
        self.kick_by(0);
    }

    fn new_record(&mut self) {
        let (queues, entries) = RECORDED;
        let shape = [queues.to_ne_bytes(), entries.to_ne_bytes(), [0; 2], [0; 2]];
        let body = [&[0; 16], shape.as_flattened()].concat();
        self.say(request::GET_INFLIGHT_FD, &body, &[]);
        let (mut answer, mut files) = ([0; 36], Vec::new());
        let received = descriptors::receive(&self.stream, &mut answer, &mut files);
        assert_eq!((received.expect("an answer"), files.len()), (36, 1));
        assert_eq!(answer[..4], request::GET_INFLIGHT_FD.to_ne_bytes());
        self.record = Some((files.remove(0).into(), answer[12..].to_vec()));
    }

    pub(super) fn keep_record(&self) {
        let (file, said) = self.record.as_ref().expect("there is one");
        self.say(request::SET_INFLIGHT_FD, said, &[file.as_fd()]);
    }

    /// The record's memory, writable by both sides.
    pub(super) fn record(&self) -> SharedMemory {
        let (file, _) = self.record.as_ref().expect("there is one");
        let bytes = file.metadata().expect("a file").len();
        SharedMemory::map(file, 0, bytes).expect("all of it")
    }

    pub(super) fn negotiate(&self) {
        self.negotiate_without(1 << 29);
    }

    pub(super) fn negotiate_without(&self, not: u64) {
        let features = self.ask(request::GET_FEATURES, &[]);
        let features = u64::from_ne_bytes(features.try_into().expect("eight bytes"));
        self.say(request::SET_FEATURES, &(features & !not).to_ne_bytes(), &[]);
        self.say(request::SET_PROTOCOL_FEATURES, &OFFERED.to_ne_bytes(), &[]);
        self.memory_table(MEMORY_BYTES);
    }

    pub(super) fn memory_table(&self, bytes: u64) {
        let region = Region {
            guest: GUEST,
            bytes,
            user: USER,
            offset: 0,
        };
        let table = [&pair(1, 0)[..], region.as_bytes()].concat();
        self.say(request::SET_MEM_TABLE, &table, &[self.file.as_fd()]);
    }

    pub(super) fn queue(&self, size: u32, base: u32) {
        self.say(request::SET_VRING_NUM, &pair(0, size), &[]);
        self.say(request::SET_VRING_BASE, &pair(0, base), &[]);
        let addresses = [USER, USER + USED as u64, USER + AVAILABLE as u64, 0];
        let addresses = [&pair(0, 0)[..], addresses.as_bytes()].concat();
        self.say(request::SET_VRING_ADDR, &addresses, &[]);
    }

    pub(super) fn kick_by(&self, ring: u64) {
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

    pub(super) fn say(&self, kind: u32, body: &[u8], files: &[BorrowedFd<'_>]) {
        let length = u32::try_from(body.len()).expect("short");
        let message = [
            &kind.to_ne_bytes()[..],
            &1_u32.to_ne_bytes(),
            &length.to_ne_bytes(),
            body,
        ];
        // A disconnected peer notices when it reads.
        let _cut_off = descriptors::send(&self.stream, &message.concat(), files);
    }

    pub(super) fn ask(&self, kind: u32, body: &[u8]) -> Vec<u8> {
        self.say(kind, body, &[]);
        let mut head = [0; 12];
        (&self.stream).read_exact(&mut head).expect("an answer");
        assert_eq!(head[..4], kind.to_ne_bytes());
        let mut answer =
            vec![0; u32::from_ne_bytes([head[8], head[9], head[10], head[11]]) as usize];
        (&self.stream).read_exact(&mut answer).expect("its body");
        answer
    }

    pub(super) fn is_cut_off(&self) -> bool {
        matches!((&self.stream).read(&mut [0; 64]), Ok(0) | Err(_))
    }

    pub(super) fn describe(&self, index: u16, address: u64, bytes: u32, flags: u16, next: u16) {
        let at = 16 * usize::from(index);
        self.memory.write(at, &address.to_le_bytes());
        self.memory.write(at + 8, &bytes.to_le_bytes());
        self.memory.write(at + 12, &flags.to_le_bytes());
        self.memory.write(at + 14, &next.to_le_bytes());
    }

    pub(super) fn head(&self, kind: u32, sector: u64) {
        self.memory.write(HEAD, &kind.to_le_bytes());
        self.memory.write(HEAD + 8, &sector.to_le_bytes());
    }

    pub(super) fn offer(&mut self, head: u16) {
        self.memory
            .store(AVAILABLE + 4 + 2 * usize::from(self.offered % SIZE), head);
        self.offered = self.offered.wrapping_add(1);
        self.memory.store(AVAILABLE + 2, self.offered);
        counter::ring(&File::from(self.kick.try_clone().expect("a descriptor")));
    }

    pub(super) fn wait(&self) {
        let until = Instant::now() + BOUND;
        while self.memory.load(USED + 2) != self.offered {
            assert!(Instant::now() < until, "no answer came");
            std::thread::yield_now();
        }
    }

    /// Sends a request with its data in `DATA`, in three pieces of which one is unaligned. Returns
    /// its answer.
    pub(super) fn request(&mut self, kind: u32, sector: u64, bytes: u32) -> u8 {
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

    /// Bytes written for the last answered request, from the used ring.
    pub(super) fn written(&self) -> u32 {
        let last = self.memory.load(USED + 2).wrapping_sub(1) % SIZE;
        let mut bytes = [0; 4];
        self.memory
            .read(USED + 8 + 8 * usize::from(last), &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Waits until all earlier messages are handled.
    pub(super) fn is_heard(&self) {
        self.ask(request::GET_QUEUE_NUM, &[]);
    }

    pub(super) fn put(&self, data: &[u8]) {
        self.memory.write(DATA, data);
    }

    pub(super) fn get(&self, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.memory.read(DATA, &mut data);
        data
    }

    pub(super) fn range(&self, sector: u64, sectors: u32, flags: u32) {
        let numbers = [
            sector.to_le_bytes(),
            (u64::from(flags) << 32 | u64::from(sectors)).to_le_bytes(),
        ];
        self.put(&numbers.concat());
    }

    pub(super) fn works(&mut self) {
        self.put(&[9; 512]);
        assert_eq!(self.request(OUT, 3, 512), 0);
        self.put(&[0; 512]);
        assert_eq!(self.request(IN, 3, 512), 0);
        assert_eq!(self.get(512), [9; 512]);
    }
}

pub(super) fn pair(index: u32, value: u32) -> Vec<u8> {
    [index.to_ne_bytes(), value.to_ne_bytes()].concat()
}

//! Fake NVMe/TCP target: a listener, a thread for each connection, a disk in memory, and a script
//! of its faults. Without a script the target is correct. It notes every violation of the host.

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use fabrix_host::Address;
use fabrix_proto::nvme::spec::Opcode;
use fabrix_proto::nvme::tcp::pdu::InitializeResponse;
use fabrix_sim::{Listener, Place, Stream};

use super::link::{Command, Link, Then};
use super::pages::{DISK_BLOCKS, NQN};

/// How a connection begins.
#[derive(Clone)]
pub enum Greeting {
    Serve,
    Close,
    Silence,
    Say(Vec<u8>),
}

type OnPage<Which> = dyn Fn(Which, &mut [u8]) + Send + Sync;
type OnCommand = dyn Fn(&mut Link, &Command) -> std::io::Result<Then> + Send + Sync;

/// How the fake misbehaves; the default does not.
pub struct Script {
    /// By the connection's number.
    pub greeting: Box<dyn Fn(usize) -> Greeting + Send + Sync>,
    /// While this is false nothing is accepted.
    pub accepting: Box<dyn Fn() -> bool + Send + Sync>,
    pub icresp: Box<dyn Fn(&mut InitializeResponse) + Send + Sync>,
    /// Changes what Identify answers, by CNS.
    pub page: Box<OnPage<u8>>,
    /// The discovery log from an offset.
    pub log: Box<OnPage<u64>>,
    pub command: Box<OnCommand>,
    /// Bytes that a connection sends before it is cut, by its number.
    pub budget: Box<dyn Fn(usize) -> u64 + Send + Sync>,
    pub capabilities: u64,
    pub granted_queues: u16,
    pub max_h2c: u32,
    pub discovery: bool,
    pub answers_pairs_backwards: bool,
    pub ignores_stray_data: bool,
    pub blocks: u64,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            greeting: Box::new(|_| Greeting::Serve),
            accepting: Box::new(|| true),
            icresp: Box::new(|_| {}),
            page: Box::new(|_, _| {}),
            log: Box::new(|_, _| {}),
            command: Box::new(|_, _| Ok(Then::Usual)),
            budget: Box::new(|_| u64::MAX),
            capabilities: CAPABILITIES,
            granted_queues: 4,
            max_h2c: 8192,
            discovery: false,
            answers_pairs_backwards: false,
            ignores_stray_data: false,
            blocks: DISK_BLOCKS,
        }
    }
}

/// CAP: queues of 128 entries, 1 s to become ready, the NVM command set.
pub const CAPABILITIES: u64 = 127 | 2 << 24 | 1 << 37;

/// What all connections of a fake share.
pub struct Shared {
    pub place: Place,
    pub script: Script,
    pub disk: Mutex<Vec<u8>>,
    /// What the host did wrong.
    pub faults: Mutex<Vec<String>>,
    /// FES of the goodbyes the host said.
    pub goodbyes: Mutex<Vec<u16>>,
    pub keep_alives: AtomicUsize,
    pub cuts: AtomicUsize,
    pub connections: AtomicUsize,
    /// Connections that are served right now.
    pub open: AtomicUsize,
    /// Most commands that one I/O queue had in progress.
    pub deepest: AtomicUsize,
    counts: Mutex<HashMap<u8, usize>>,
    associations: Mutex<Associations>,
    stopping: AtomicBool,
}

#[derive(Default)]
struct Associations {
    last: u16,
    /// By controller id: connections that are open, and whether one of them has ended.
    all: HashMap<u16, (usize, bool)>,
}

impl Shared {
    pub fn fault(&self, what: String) {
        self.faults.lock().expect("no panic").push(what);
    }

    fn associations(&self) -> MutexGuard<'_, Associations> {
        self.associations.lock().expect("no panic")
    }

    /// A new controller. As a target should, it lets nobody in before all connections of lost
    /// controllers have ended, so that nothing of theirs is carried out any more.
    pub fn begin_association(&self) -> u16 {
        let lost = |it: &Associations| it.all.values().any(|(open, dead)| *dead && *open > 0);
        while lost(&self.associations()) && !self.is_stopping() {
            self.place.pause(MOMENT);
        }
        let mut all = self.associations();
        all.last += 1;
        let id = all.last;
        all.all.insert(id, (1, false));
        id
    }

    /// One more connection of a controller; false: it is lost.
    pub fn join_association(&self, id: u16) -> bool {
        let mut all = self.associations();
        match all.all.get_mut(&id) {
            Some((open, false)) => {
                *open += 1;
                true
            }
            _ => false,
        }
    }

    pub fn connection_ended(&self, id: u16, _qid: u16) {
        let mut all = self.associations();
        if let Some((open, dead)) = all.all.get_mut(&id) {
            *open -= 1;
            *dead = true;
        }
    }

    /// The test is over, well or not.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub fn count(&self, opcode: Opcode) {
        *self
            .counts
            .lock()
            .expect("no panic")
            .entry(opcode.0)
            .or_default() += 1;
    }

    pub fn read(&self, blocks: (u64, u64)) -> Vec<u8> {
        self.disk.lock().expect("no panic")[bytes(blocks)].to_vec()
    }

    pub fn write(&self, blocks: (u64, u64), data: &[u8]) {
        self.disk.lock().expect("no panic")[bytes(blocks)].copy_from_slice(data);
    }

    pub fn zero(&self, blocks: (u64, u64)) {
        self.disk.lock().expect("no panic")[bytes(blocks)].fill(0);
    }

    pub fn compare_and_write(&self, blocks: (u64, u64), expected: &[u8], data: &[u8]) -> bool {
        let mut disk = self.disk.lock().expect("no panic");
        let place = &mut disk[bytes(blocks)];
        if place != expected {
            return false;
        }
        place.copy_from_slice(data);
        true
    }
}

fn bytes((lba, blocks): (u64, u64)) -> std::ops::Range<usize> {
    let at = |block: u64| usize::try_from(block * 512).expect("a small disk");
    at(lba)..at(lba + blocks)
}

/// A running target.
pub struct Fake {
    pub shared: Arc<Shared>,
    pub socket_address: SocketAddr,
    listener: Option<JoinHandle<()>>,
    streams: Arc<Mutex<Vec<Stream>>>,
}

impl Fake {
    pub fn honest() -> Self {
        Self::start(Script::default())
    }

    pub fn start(script: Script) -> Self {
        Self::start_at(&Place::machine(), script)
    }

    /// In a world of its own, which this thread owns.
    pub fn in_world(script: Script) -> Self {
        Self::start_at(&Place::world(), script)
    }

    /// At a place that others have, too.
    pub fn start_at(place: &Place, script: Script) -> Self {
        let listener = place.listen();
        let socket_address = listener.address();
        let bytes = usize::try_from(script.blocks * 512).expect("a small disk");
        let shared = Arc::new(Shared {
            place: place.clone(),
            script,
            disk: Mutex::new(vec![0; bytes]),
            faults: Mutex::default(),
            goodbyes: Mutex::default(),
            keep_alives: AtomicUsize::new(0),
            cuts: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            deepest: AtomicUsize::new(0),
            counts: Mutex::default(),
            associations: Mutex::default(),
            stopping: AtomicBool::new(false),
        });
        let streams = Arc::new(Mutex::new(Vec::new()));
        let (ours, kept) = (Arc::clone(&shared), Arc::clone(&streams));
        let listener = place.spawn(move || accept(&listener, &ours, &kept));
        Self {
            shared,
            socket_address,
            listener: Some(listener),
            streams,
        }
    }

    /// The disk's address.
    pub fn address(&self) -> Address {
        Address {
            transport: fabrix_host::Transport::Tcp,
            host: self.socket_address.ip().to_string(),
            port: self.socket_address.port(),
            subsystem: Some(NQN.to_owned()),
            nsid: None,
        }
    }

    /// How many commands with an opcode were carried out.
    pub fn count(&self, opcode: Opcode) -> usize {
        self.shared
            .counts
            .lock()
            .expect("no panic")
            .get(&opcode.0)
            .copied()
            .unwrap_or(0)
    }

    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Ends all connections.
    pub fn disconnect_all(&self) {
        for stream in self.streams.lock().expect("no panic").drain(..) {
            stream.shutdown(Shutdown::Both);
        }
    }

    pub fn faults(&self) -> Vec<String> {
        self.shared.faults.lock().expect("no panic").clone()
    }
}

fn accept(listener: &Listener, shared: &Arc<Shared>, streams: &Mutex<Vec<Stream>>) {
    let mut threads = Vec::new();
    while let Ok(stream) = listener.accept() {
        if shared.is_stopping() {
            break;
        }
        while !(shared.script.accepting)() && !shared.is_stopping() {
            shared.place.pause(MOMENT);
        }
        streams.lock().expect("no panic").push(stream.clone());
        let number = shared.connections.fetch_add(1, Ordering::AcqRel);
        let place = shared.place.clone();
        let shared = Arc::clone(shared);
        threads.push(place.spawn(move || {
            shared.open.fetch_add(1, Ordering::AcqRel);
            Link::new(Arc::clone(&shared), stream, number).serve();
            shared.open.fetch_sub(1, Ordering::AcqRel);
        }));
    }
    for stream in streams.lock().expect("no panic").drain(..) {
        stream.shutdown(Shutdown::Both);
    }
    for thread in threads {
        shared.place.join(thread);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        let place = &self.shared.place;
        let _wakes_the_listener = place.connect(self.socket_address);
        if let Some(listener) = self.listener.take() {
            place.join(listener);
        }
        if !std::thread::panicking() {
            assert_eq!(
                self.faults(),
                Vec::<String>::new(),
                "what the host did wrong"
            );
        }
    }
}

/// Between two looks at something that no connection tells.
const MOMENT: Duration = Duration::from_millis(1);

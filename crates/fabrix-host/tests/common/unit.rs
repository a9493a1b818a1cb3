//! Fake iSCSI target with the machine of `proto`: a listener, a thread for each connection, a disk
//! in memory, and a script of its faults. Without a script the target is correct.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use fabrix_host::iscsi::{Address, Initiator};
use fabrix_proto::iscsi::login::{Admission, Auth, Grant};
use fabrix_proto::iscsi::target::{Answer, Event, Target, TargetLimits, Transfer};
use fabrix_proto::iscsi::tcp::{Tcp, TcpFraming};
use fabrix_proto::{Claim, Machine, Nanos, Pass, Sink, Slot, Want};
use fabrix_sim::{Listener, Place, Stream};
use fabrix_transport::pass::crc32c;

/// What the fake does with a command.
pub enum Reply {
    /// What it should.
    Usual,
    /// This, at once.
    Say(Answer),
    /// It cuts the connection.
    Cut,
}

type Script = dyn Fn(usize, &[u8; 16]) -> Reply + Send + Sync;

struct Shared {
    place: Place,
    script: Box<Script>,
    disk: Mutex<Vec<u8>>,
    naa: Mutex<[u8; 16]>,
    /// The access state (ALUA), and the number of changes. None: the disk has none.
    access: Mutex<Option<(u8, u32)>>,
    /// Where logins are redirected, for good or for now.
    moved: Mutex<Option<(bool, String)>>,
    /// Commands that read or write, over all connections.
    commands: AtomicUsize,
    sessions: AtomicUsize,
    /// How long a Logout takes.
    logout_takes: Mutex<Duration>,
    /// Logouts that were answered, and those whose host left before.
    logouts: Mutex<(usize, usize)>,
    stopping: AtomicBool,
    open: Mutex<Vec<Stream>>,
}

pub struct Unit {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: Option<JoinHandle<()>>,
}

const BLOCKS: u64 = 4096;
const DISK_BYTES: usize = 4096 * 512;
const TARGET: &str = "iqn.2026-01.example:fake";
/// Target port group of the fake's only port.
const GROUP: u8 = 7;

pub fn initiator() -> Initiator {
    Initiator {
        name: "iqn.2026-01.example:host".to_owned(),
        ours: None,
        theirs: None,
    }
}

pub fn address(unit: &Unit) -> Address {
    Address {
        transport: fabrix_host::Transport::Tcp,
        host: unit.address.ip().to_string(),
        port: unit.address.port(),
        target: Some(TARGET.to_owned()),
        lun: None,
    }
}

impl Unit {
    pub fn honest() -> Self {
        Self::with(|_, _| Reply::Usual)
    }

    /// `script` is asked with the number of each command that reads or writes, from 0, and its CDB.
    pub fn with(script: impl Fn(usize, &[u8; 16]) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at(&Place::machine(), script)
    }

    /// At a place.
    pub fn start_at(
        place: &Place,
        script: impl Fn(usize, &[u8; 16]) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = place.listen();
        let address = listener.address();
        let shared = Arc::new(Shared {
            place: place.clone(),
            script: Box::new(script),
            disk: Mutex::new(vec![0; DISK_BYTES]),
            naa: Mutex::new([0x6A; 16]),
            access: Mutex::default(),
            moved: Mutex::default(),
            commands: AtomicUsize::new(0),
            sessions: AtomicUsize::new(0),
            logout_takes: Mutex::default(),
            logouts: Mutex::default(),
            stopping: AtomicBool::new(false),
            open: Mutex::new(Vec::new()),
        });
        let all = Arc::clone(&shared);
        let thread = place.spawn(move || accept(&listener, &all));
        Self {
            shared,
            address,
            listener: Some(thread),
        }
    }

    pub fn sessions(&self) -> usize {
        self.shared.sessions.load(Ordering::Acquire)
    }

    /// From now on a Logout takes so long.
    pub fn logout_takes(&self, time: Duration) {
        *self.shared.logout_takes.lock().expect("no panic") = time;
    }

    /// Logouts that were answered, and those whose host left before.
    pub fn logouts(&self) -> (usize, usize) {
        *self.shared.logouts.lock().expect("no panic")
    }

    /// From now on it is another disk.
    pub fn rename(&self, name: u8) {
        *self.shared.naa.lock().expect("no panic") = [name; 16];
    }

    /// From now on the disk has this access state. Each session gets a unit attention, unless the
    /// disk had none before.
    pub fn serves(&self, state: u8) {
        let mut access = self.shared.access.lock().expect("no panic");
        let changes = access.map_or(0, |(_, changes)| changes + 1);
        *access = Some((state, changes));
    }

    /// From now on logins are redirected to `place`; None: not any more.
    pub fn redirect(&self, permanently: bool, place: Option<String>) {
        let moved = place.map(|place| (permanently, place));
        *self.shared.moved.lock().expect("no panic") = moved;
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        for socket in self.shared.open.lock().expect("no panic").drain(..) {
            socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.cut();
        let place = &self.shared.place;
        let _wakes = place.connect(self.address);
        if let Some(thread) = self.listener.take() {
            place.join(thread);
        }
    }
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    while let Ok(socket) = listener.accept() {
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        shared.open.lock().expect("no panic").push(socket.clone());
        let place = shared.place.clone();
        let shared = Arc::clone(shared);
        let _ends_with_its_socket = place.spawn(move || {
            let mut link = Link::new(socket, shared);
            let _over = link.serve();
            link.socket.shutdown(Shutdown::Both);
        });
    }
}

/// What is to be sent, by value.
struct Out<'a> {
    sent: &'a mut Vec<u8>,
    memory: &'a [Vec<u8>],
}

impl Sink for Out<'_> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
    }

    fn payload(&mut self, slot: Slot, offset: u32, bytes: u32, pass: Pass) {
        let (start, end) = (offset as usize, (offset + bytes) as usize);
        let mut payload = self.memory[usize::from(slot.0)][start..end].to_vec();
        payload.resize(payload.len().next_multiple_of(4), 0);
        self.sent.extend_from_slice(&payload);
        if pass == Pass::Crc32c {
            self.sent.extend_from_slice(&crc32c(&payload).to_le_bytes());
        }
    }
}

struct Link {
    socket: Stream,
    shared: Arc<Shared>,
    machine: Tcp<Target>,
    memory: Vec<Vec<u8>>,
    cdbs: Vec<[u8; 16]>,
    sent: Vec<u8>,
    /// Changes of the access state that the session knows.
    changes_told: u32,
}

impl Link {
    fn new(socket: Stream, shared: Arc<Shared>) -> Self {
        let limits = TargetLimits {
            window: 32,
            ..TargetLimits::default()
        };
        let slots = usize::from(limits.slots());
        let access = *shared.access.lock().expect("no panic");
        Self {
            changes_told: access.map_or(0, |(_, changes)| changes),
            socket,
            shared,
            machine: Tcp::new(Target::new(limits, Nanos(0)), crc32c),
            memory: vec![vec![0; 1 << 20]; slots],
            cdbs: vec![[0; 16]; slots],
            sent: Vec::new(),
        }
    }

    fn with<R>(&mut self, call: impl FnOnce(&mut Target, &mut TcpFraming<&mut Out<'_>>) -> R) -> R {
        let (machine, mut out) = self.driven();
        let (target, mut framing) = machine.speak(&mut out);
        call(target, &mut framing)
    }

    /// The machine, and its sink.
    fn driven(&mut self) -> (&mut Tcp<Target>, Out<'_>) {
        let out = Out {
            sent: &mut self.sent,
            memory: &self.memory,
        };
        (&mut self.machine, out)
    }

    fn serve(&mut self) -> std::io::Result<()> {
        let mut input = vec![0; 1 << 20];
        loop {
            let want = self.machine.want();
            let event = match want {
                Want::Closed => return Ok(()),
                Want::Header { bytes } => {
                    self.socket.read_exact(&mut input[..bytes])?;
                    let header = input[..bytes].to_vec();
                    let (machine, mut out) = self.driven();
                    machine.header(&header, &mut out).map(|taken| taken.event)
                }
                Want::Payload {
                    slot,
                    offset,
                    bytes,
                    pass,
                } => {
                    let (start, bytes) = (offset as usize, bytes as usize);
                    let trailer = bytes.next_multiple_of(4) - bytes + pass.trailer_bytes();
                    let place = &mut self.memory[usize::from(slot.0)][start..start + bytes];
                    self.socket.read_exact(place)?;
                    self.socket.read_exact(&mut input[..trailer])?;
                    let (machine, mut out) = self.driven();
                    machine.payload(true, &mut out)
                }
            };
            let mut event = event.map_err(|_| std::io::Error::other("a violation"))?;
            while let Some(taken) = event {
                event = self.take(taken)?;
            }
            let sent = std::mem::take(&mut self.sent);
            self.socket.write_all(&sent)?;
        }
    }

    fn take(&mut self, event: Event) -> std::io::Result<Option<Event>> {
        match event {
            Event::Authorize => {
                let admit = Admission::Admit(Grant {
                    portal_group_tag: 1,
                    auth: Auth::None,
                });
                let moved = self.shared.moved.lock().expect("no panic").clone();
                let admission = moved.map_or(admit, |(permanently, place)| Admission::Moved {
                    permanently,
                    address: place.into(),
                });
                return Ok(self.with(|target, out| target.admit(admission, out)));
            }
            Event::Proved => {
                return Ok(self.with(|target, out| target.enter(Ok(NonZeroU16::MIN), out)));
            }
            Event::LoggedIn => {
                self.shared.sessions.fetch_add(1, Ordering::AcqRel);
            }
            Event::Command {
                claim,
                cdb,
                transfer,
                ..
            } => {
                let slot = claim.slot();
                self.cdbs[usize::from(slot.0)] = cdb;
                if let Some(sense) = self.access_sense(cdb[0]) {
                    let answer = Answer::check_condition(&sense);
                    self.with(|target, out| target.answer(claim, &answer, out));
                    return Ok(None);
                }
                if matches!(cdb[0], 0x88..=0x8A | 0x35 | 0x42 | 0x93) {
                    let number = self.shared.commands.fetch_add(1, Ordering::AcqRel);
                    match (self.shared.script)(number, &cdb) {
                        Reply::Usual => {}
                        Reply::Say(answer) => {
                            self.with(|target, out| target.answer(claim, &answer, out));
                            return Ok(None);
                        }
                        Reply::Cut => return Err(std::io::Error::other("cut")),
                    }
                }
                match transfer {
                    Transfer::Fetch { .. } => self.with(|target, out| target.fetch(slot, out)),
                    _ => self.carry_out(slot),
                }
            }
            Event::Fetched { slot, .. } => self.carry_out(slot),
            Event::Logout(_) => self.log_out()?,
            _ => {}
        }
        Ok(None)
    }

    /// Answers a Logout, unless the host leaves before.
    fn log_out(&mut self) -> std::io::Result<()> {
        let takes = *self.shared.logout_takes.lock().expect("no panic");
        let has_left = !takes.is_zero() && {
            self.socket.set_patience(takes);
            self.socket.read(&mut [0]).is_ok()
        };
        let mut logouts = self.shared.logouts.lock().expect("no panic");
        if has_left {
            logouts.1 += 1;
            return Err(std::io::Error::other("the host has left"));
        }
        logouts.0 += 1;
        drop(logouts);
        self.with(|target, out| target.answer_logout(out));
        Ok(())
    }

    /// The sense data of a command that the access state refuses, or that tells of its change.
    fn access_sense(&mut self, opcode: u8) -> Option<[u8; 18]> {
        let (state, changes) = (*self.shared.access.lock().expect("no panic"))?;
        let (key, asc, ascq) = match (opcode, state) {
            (0x12 | 0xA0, _) => return None,
            _ if changes != self.changes_told => (6, 0x2A, 0x06),
            (0xA3 | 0x9E | 0x1A, _) => return None,
            (_, 0x2) => (2, 0x04, 0x0B),
            (_, 0x3) => (2, 0x04, 0x0C),
            (_, 0xF) => (2, 0x04, 0x0A),
            _ => return None,
        };
        self.changes_told = changes;
        let mut sense = [0; 18];
        (sense[0], sense[2], sense[7]) = (0x70, key, 10);
        (sense[12], sense[13]) = (asc, ascq);
        Some(sense)
    }

    /// Does what an honest disk does.
    fn carry_out(&mut self, slot: Slot) {
        let cdb = self.cdbs[usize::from(slot.0)];
        let memory = &mut self.memory[usize::from(slot.0)];
        let mut disk = self.shared.disk.lock().expect("no panic");
        let place = |blocks: u32| {
            let lba = u64::from_be_bytes(*cdb[2..10].first_chunk().expect("8"));
            let start = usize::try_from(lba).expect("small") * 512;
            start..start + blocks as usize * 512
        };
        let blocks = u32::from_be_bytes(*cdb[10..14].first_chunk().expect("4"));
        let moved = match cdb[0] {
            0x88 => {
                let from = &disk[place(blocks)];
                memory[..from.len()].copy_from_slice(from);
                from.len()
            }
            0x8A => {
                let to = &mut disk[place(blocks)];
                to.copy_from_slice(&memory[..to.len()]);
                to.len()
            }
            0x93 => {
                disk[place(blocks)].fill(0);
                512
            }
            0x42 => 24,
            0x00 | 0x35 => 0,
            _ => {
                let naa = *self.shared.naa.lock().expect("no panic");
                let access = *self.shared.access.lock().expect("no panic");
                let page = page(&cdb, naa, access.map(|(state, _)| state));
                memory[..page.len()].copy_from_slice(&page);
                page.len()
            }
        };
        drop(disk);
        let moved = u32::try_from(moved).expect("small");
        let claim = Claim::new(slot);
        self.with(|target, out| target.answer(claim, &Answer::good(moved), out));
    }
}

/// What the disk says of itself.
fn page(cdb: &[u8; 16], naa: [u8; 16], access: Option<u8>) -> Vec<u8> {
    match (cdb[0], cdb[1] & 1, cdb[2]) {
        (0xA0, ..) => [&[0, 0, 0, 8, 0, 0, 0, 0][..], &[0; 8]].concat(),
        (0x12, 0, _) => {
            let mut data = vec![0; 36];
            (data[2], data[4]) = (6, 31);
            data[5] = u8::from(access.is_some()) << 4; // TPGS
            data[8..20].copy_from_slice(b"FAKE    disk");
            data[20..36].fill(b' ');
            data
        }
        (0x12, _, 0x00) => vec![0, 0x00, 0, 3, 0x00, 0x83, 0xB0],
        (0x12, _, 0x83) => [
            &[0, 0x83, 0, 28, 1, 3, 0, 16][..],
            &naa,
            &[0x51, 0x95, 0, 4, 0, 0, 0, GROUP],
        ]
        .concat(),
        // Another group, which is optimized, with two ports; and this one.
        (0xA3, ..) => [
            &[0, 0, 0, 28][..],
            &[0, 0x8F, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2],
            &[access.unwrap_or(0), 0x8F, 0, GROUP, 0, 0, 0, 1, 0, 0, 0, 3],
        ]
        .concat(),
        (0x12, _, 0xB0) => {
            let mut data = vec![0; 64];
            (data[1], data[3]) = (0xB0, 60);
            data
        }
        (0x9E, ..) => {
            let mut data = vec![0; 32];
            data[..8].copy_from_slice(&(BLOCKS - 1).to_be_bytes());
            data[8..12].copy_from_slice(&512_u32.to_be_bytes());
            data
        }
        // No cache, and FUA.
        _ => vec![
            23, 0, 0x10, 0, 0x08, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ],
    }
}

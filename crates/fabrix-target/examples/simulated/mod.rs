//! Shards of a target with simulated drivers. Each driver plays a host that reads 4 KiB blocks,
//! from memory and without a system call. Real hosts connect over loopback first. Then the driver
//! that finds such a connection on its shard takes the connection over: DEPTH commands arrive in
//! one receive, and every answer brings one more.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use common::host::{Data, Host, wish};
use common::wire::Digests;
use common::{NQN, ram};
use fabrix_proto::nvme::fabrics::Connect;
use fabrix_proto::nvme::spec::SubmissionEntry;
use fabrix_rt::driver::{Completed, Driver, Submission, Until};
use fabrix_rt::{
    Completion, Listener, Loan, Nanos, Op, Remote, Shard, ShardConfig, Socket, TaskId, net,
};
use fabrix_target::{Catalog, Export, Limits, Listen, Target, TargetConfig};

const BLOCKS: u32 = 8;
const READ_BYTES: usize = 4096;
/// Header and data. The data is marked last and successful, so no other answer follows.
const ANSWER_BYTES: usize = 24 + READ_BYTES;
const DISK_BYTES: u64 = 16 << 20;

/// DEPTH and COMMANDS of the command line.
pub(crate) fn depth_and_commands() -> Option<[usize; 2]> {
    let words = std::env::args().skip(1);
    let words: Result<Vec<usize>, _> = words.map(|word| word.parse()).collect();
    let [depth, commands] = words.ok()?.try_into().ok()?;
    (1..=64).contains(&depth).then_some([depth, commands])
}

/// State shared by the drivers of a target's shards and the main thread.
#[derive(Default)]
pub(crate) struct Play {
    loads: OnceLock<Vec<Arc<Load>>>,
}

/// A shard's use of the kernel until it had answered every command of its host.
pub(crate) struct Tally {
    pub(crate) operations: usize,
    pub(crate) submitting_turns: usize,
}

impl Play {
    /// A shard for this thread.
    pub(crate) fn shard(self: &Arc<Self>) -> Shard {
        let driver = Box::new(ByHand::new(Arc::clone(self)));
        Shard::with_driver(&ShardConfig::default(), driver).expect("a shard")
    }

    /// True if every host has its answers.
    pub(crate) fn has_ended(&self) -> bool {
        let has_ended = |load: &Arc<Load>| load.tally.get().is_some();
        let loads = self.loads.get();
        loads.is_some_and(|loads| loads.iter().all(has_ended))
    }

    /// Tallies of the hosts that have their answers.
    pub(crate) fn tallies(&self) -> impl Iterator<Item = &Tally> {
        let loads = self.loads.get().into_iter().flatten();
        loads.filter_map(|load| load.tally.get())
    }
}

/// A target with a connected host for each of its shards. The target assigns connections in turn.
pub(crate) struct Connected {
    _target: Target,
    hosts: Vec<Host>,
}

impl Connected {
    /// Connects the hosts. The shards have to turn meanwhile.
    pub(crate) fn start(shards: Vec<Remote>) -> Self {
        let queues = u16::try_from(shards.len()).expect("few");
        let target = Target::start(config(queues), shards).expect("a target");
        let address = target.addresses()[0];
        let mut hosts = vec![Host::admin(address)];
        let controller = hosts[0].controller;
        hosts.extend((1..=queues).map(|queue| io_queue(address, controller, queue)));
        Self {
            _target: target,
            hosts,
        }
    }

    /// Lets the drivers play the hosts. Each host has `depth` commands in flight until `commands`
    /// are answered.
    pub(crate) fn play(&self, play: &Play, depth: usize, commands: usize) {
        let io_queues = self.hosts.iter().enumerate().skip(1);
        let loads = io_queues.map(|(queue, io)| Arc::new(Load::new(io, queue, depth, commands)));
        let set = play.loads.set(loads.collect());
        assert!(set.is_ok(), "set once");
    }
}

/// An I/O queue with room for every depth.
fn io_queue(address: SocketAddr, controller: u16, queue: u16) -> Host {
    let mut io = Host::dial(address);
    io.open(Digests::NONE);
    let answer = io.connect(&Connect {
        controller_id: controller,
        queue_id: queue,
        queue_entries: 128,
        disable_sq_flow_control: true,
        ..wish()
    });
    assert!(answer.status.is_success(), "the queue is made");
    io
}

fn config(queues: u16) -> TargetConfig {
    let disk = Export::new(1, ram("turn", 512, DISK_BYTES));
    TargetConfig {
        catalog: Catalog {
            subsystems: vec![common::subsystem(NQN, vec![disk])],
            iscsi_targets: Vec::new(),
            listen: vec![Listen::nvme_tcp(SocketAddr::from(([127, 0, 0, 1], 0)))],
            ana_states: Vec::new(),
            gateways: fabrix_target::Gateways::default(),
        },
        limits: Limits {
            max_io_queues: queues,
            max_queue_entries: 128,
            max_transfer_bytes: 1 << 20,
        },
        reservation_store: None,
        counts: false,
        max_unauthenticated: 16,
        max_connections: 8,
        notify: Box::new(|_| ()),
    }
}

/// The commands of a simulated host.
struct Load {
    /// Address of the host's end of the connection.
    host: SocketAddr,
    /// Capsules of `depth` reads, each of another block and with another id.
    capsules: Vec<u8>,
    depth: usize,
    commands: usize,
    tally: OnceLock<Tally>,
}

impl Load {
    /// The commands of a queue, which reads blocks of its own.
    fn new(io: &Host, queue: usize, depth: usize, commands: usize) -> Self {
        let expected = u32::try_from(READ_BYTES).expect("small");
        let capsule = |id: u16| {
            let block = (queue as u64 * 64 + u64::from(id)) * 64;
            io.capsule(
                SubmissionEntry::read(1, block, BLOCKS),
                id,
                Data::Expect(expected),
            )
        };
        let ids = 0..u16::try_from(depth).expect("at most 64");
        Self {
            host: io.stream.address(),
            capsules: ids.flat_map(capsule).collect(),
            depth,
            commands,
            tally: OnceLock::new(),
        }
    }
}

/// Executes every operation by a system call until its shard has a connection with a load. From
/// then on the driver is the other end of this connection.
struct ByHand {
    play: Arc<Play>,
    waiting: Vec<Submission>,
    simulated: Option<Simulated>,
}

/// The connection of the simulated host.
struct Simulated {
    task: TaskId,
    load: Arc<Load>,
    /// Bytes of capsules that were sent and not received. `at` is their start in the ring of
    /// capsules.
    unread: usize,
    at: usize,
    answered_bytes: usize,
    answers: usize,
    operations: usize,
    submitting_turns: usize,
}

impl ByHand {
    fn new(play: Arc<Play>) -> Self {
        Self {
            play,
            waiting: Vec::with_capacity(64),
            simulated: None,
        }
    }

    /// Takes a connection over as soon as loads exist and the target waits to receive from one of
    /// them.
    fn take_over(&mut self) {
        let Some(loads) = self.play.loads.get() else {
            return;
        };
        self.simulated = self.waiting.iter().find_map(|(token, op)| {
            let Op::Receive { socket, .. } = op else {
                return None;
            };
            let peer = socket.peer_addr().ok()?;
            let load = loads.iter().find(|load| load.host == peer)?;
            Some(Simulated::new(token.task, Arc::clone(load)))
        });
    }

    fn try_all(&mut self, endings: &mut Vec<Completed>) {
        for (token, op) in std::mem::take(&mut self.waiting) {
            match attempt(op) {
                Ok(completion) => endings.push((token, completion)),
                Err(op) => self.waiting.push((token, op)),
            }
        }
        if endings.is_empty() {
            // Pause between two attempts while a host connects. Without the pause the attempts
            // would dominate the count.
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Driver for ByHand {
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Completed>,
        _until: Until,
    ) -> Nanos {
        if self.simulated.is_none() {
            self.take_over();
        }
        let asked = submissions.len();
        self.waiting.append(submissions);
        match &mut self.simulated {
            Some(simulated) => simulated.turn(asked, &mut self.waiting, endings),
            None => self.try_all(endings),
        }
        Nanos::now()
    }

    fn forget(&mut self, task: TaskId) {
        self.waiting.retain(|(token, _)| token.task != task);
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }
}

impl Simulated {
    fn new(task: TaskId, load: Arc<Load>) -> Self {
        Self {
            task,
            unread: load.capsules.len(),
            load,
            at: 0,
            answered_bytes: 0,
            answers: 0,
            operations: 0,
            submitting_turns: 0,
        }
    }

    /// Counts `asked` new operations, and answers the waiting ones.
    fn turn(&mut self, asked: usize, waiting: &mut Vec<Submission>, endings: &mut Vec<Completed>) {
        self.operations += asked;
        self.submitting_turns += usize::from(asked > 0);
        self.answer(waiting, endings);
        if self.answers >= self.load.commands {
            let _already = self.load.tally.set(self.tally());
        }
    }

    /// Completes the target's operations on this connection. Others stay.
    fn answer(&mut self, waiting: &mut Vec<Submission>, endings: &mut Vec<Completed>) {
        let mut index = 0;
        while index < waiting.len() {
            let (token, op) = &waiting[index];
            let is_ours = token.task == self.task;
            if !is_ours || (matches!(op, Op::Receive { .. }) && self.unread == 0) {
                index += 1;
                continue;
            }
            let (token, op) = waiting.swap_remove(index);
            endings.push((token, self.end_of(op)));
        }
    }

    fn end_of(&mut self, op: Op) -> Completion {
        let load = &self.load;
        match op {
            Op::Receive {
                mut buf,
                start,
                bytes,
                ..
            } => {
                // At most to the end of the ring. The next receive gets the bytes after it.
                let bytes = bytes.min(self.unread).min(load.capsules.len() - self.at);
                let capsules = &load.capsules[self.at..self.at + bytes];
                buf.bytes_mut()[start..start + bytes].copy_from_slice(capsules);
                self.unread -= bytes;
                self.at = (self.at + bytes) % load.capsules.len();
                ended(bytes, Loan::Buf(buf))
            }
            Op::Send { gather, .. } => {
                let bytes = gather.total_bytes();
                self.answered_bytes += bytes;
                let answers = self.answered_bytes / ANSWER_BYTES;
                self.unread += (answers - self.answers) * (load.capsules.len() / load.depth);
                self.answers = answers;
                ended(bytes, Loan::Gather(gather))
            }
            other => panic!("a connection asked for {other:?}"),
        }
    }

    fn tally(&self) -> Tally {
        assert!(
            self.answered_bytes.is_multiple_of(ANSWER_BYTES),
            "only whole answers"
        );
        Tally {
            operations: self.operations,
            submitting_turns: self.submitting_turns,
        }
    }
}

/// Tries an operation without waiting. Returns the operation if it would wait.
fn attempt(op: Op) -> Result<Completion, Op> {
    match op {
        Op::Accept { listener } => match accept(&listener) {
            Ok(socket) => Ok(ended(0, Loan::Socket(socket))),
            Err(_) => Err(Op::Accept { listener }),
        },
        Op::Receive {
            socket,
            mut buf,
            start,
            bytes,
        } => {
            socket.stream().set_nonblocking(true).expect("a socket");
            let read = socket
                .stream()
                .read(&mut buf.bytes_mut()[start..start + bytes]);
            socket.stream().set_nonblocking(false).expect("a socket");
            match read {
                Ok(bytes) => Ok(ended(bytes, Loan::Buf(buf))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Op::Receive {
                    socket,
                    buf,
                    start,
                    bytes,
                }),
                Err(error) => panic!("the host has gone: {error}"),
            }
        }
        Op::Send { socket, mut gather } => {
            let bytes = net::send_now(&socket, &mut gather).expect("the host reads");
            Ok(ended(bytes, Loan::Gather(gather)))
        }
        other => Err(other),
    }
}

fn accept(listener: &Listener) -> std::io::Result<Socket> {
    let listener = TcpListener::from(listener.as_fd().try_clone_to_owned()?);
    listener.set_nonblocking(true)?;
    Ok(Socket::from(listener.accept()?.0))
}

fn ended(bytes: usize, loan: Loan) -> Completion {
    Completion {
        result: i32::try_from(bytes).expect("below 2 GiB"),
        loan,
    }
}

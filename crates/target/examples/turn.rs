//! Runs so many 4 KiB reads through a target's shard whose driver is simulated: for counting what a turn of the loop
//! costs, in instructions (a profiler counts them) and in operations asked of the kernel (printed at the end).
//!
//! `turn DEPTH COMMANDS`. A host connects over loopback, as hosts do; then the driver plays its part from memory: DEPTH
//! commands arrive in one receive, every answer brings one more, and no system call is made.

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use common::host::{Data, Host, wish};
use common::wire::Digests;
use common::{NQN, ram};
use fabrix_proto::nvme::fabrics::Connect;
use fabrix_proto::nvme::spec::SubmissionEntry;
use fabrix_rt::driver::{Driver, Ending, Submission, Until};
use fabrix_rt::{Completion, Listener, Loan, Nanos, Op, Shard, ShardConfig, Socket, TaskId, net};
use fabrix_target::{Export, Listen, SubsystemConfig, Target, TargetConfig};

const BLOCKS: u32 = 8;
const READ_BYTES: usize = 4096;
/// The header of the data, which is marked last and successful: no other answer follows.
const ANSWER_BYTES: usize = 24 + READ_BYTES;
const DISK_BYTES: u64 = 16 << 20;

fn main() -> ExitCode {
    let words: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let [depth @ 1..=64, commands] = words[..] else {
        eprintln!("usage: turn DEPTH COMMANDS, where DEPTH is 1 to 64");
        return ExitCode::from(2);
    };
    let load = Arc::new(OnceLock::new());
    let (tell, told) = channel();
    let driver_load = Arc::clone(&load);
    thread::spawn(move || {
        let driver = Box::new(ByHand::new(driver_load));
        let mut shard = Shard::with_driver(&ShardConfig::default(), driver).expect("a shard");
        tell.send(shard.remote()).expect("main waits");
        shard.run();
    });
    let remote = told.recv().expect("the shard has started");
    let target = Target::start(config(), vec![remote]).expect("a target");
    let address = target.addresses()[0];
    let admin = Host::admin(address);
    let io = io_queue(address, admin.controller);
    let host = io.stream.local_addr().expect("connected");
    let set = load.set(Load::new(&io, host, depth, commands));
    assert!(set.is_ok(), "set once");
    loop {
        thread::park(); // the driver ends the process
    }
}

/// A queue with room for every depth.
fn io_queue(address: SocketAddr, controller: u16) -> Host {
    let mut io = Host::dial(address);
    io.open(Digests::NONE);
    let answer = io.connect(&Connect {
        controller_id: controller,
        queue_id: 1,
        queue_entries: 128,
        disable_sq_flow_control: true,
        ..wish()
    });
    assert!(answer.status.is_success(), "the queue is made");
    io
}

fn config() -> TargetConfig {
    TargetConfig {
        subsystem: SubsystemConfig {
            nqn: NQN.to_owned(),
            serial: "FBXTURN".to_owned(),
            model: "Fabrix".to_owned(),
            firmware: "0".to_owned(),
            hosts: None,
            max_io_queues: 1,
            max_queue_entries: 128,
            grows: false,
            max_transfer_bytes: 1 << 20,
        },
        exports: vec![Export {
            nsid: 1,
            device: ram("turn", 512, DISK_BYTES),
        }],
        iscsi_name: common::IQN.to_owned(),
        initiators: fabrix_target::Initiators::anybody(),
        keeper: None,
        max_strangers: 16,
        listen: vec![Listen::nvme_tcp(SocketAddr::from(([127, 0, 0, 1], 0)))],
        max_connections: 4,
        notify: Box::new(|_| ()),
    }
}

/// What the simulated host asks.
struct Load {
    /// The host's end of the connection that it takes over.
    host: SocketAddr,
    /// Capsules of `depth` reads, each of another place and with an id of its own.
    capsules: Vec<u8>,
    depth: usize,
    commands: usize,
}

impl Load {
    fn new(io: &Host, host: SocketAddr, depth: usize, commands: usize) -> Self {
        let expected = u32::try_from(READ_BYTES).expect("small");
        let capsule = |id: u16| {
            let read = SubmissionEntry::read(1, u64::from(id) * 64, BLOCKS);
            io.capsule(read, id, Data::Expect(expected))
        };
        let ids = 0..u16::try_from(depth).expect("at most 64");
        Self {
            host,
            capsules: ids.flat_map(capsule).collect(),
            depth,
            commands,
        }
    }
}

/// Tries every operation by hand until there is a load; from then on it is the other end of one connection.
struct ByHand {
    load: Arc<OnceLock<Load>>,
    waiting: Vec<Submission>,
    simulated: Option<Simulated>,
}

/// The connection of the simulated host.
struct Simulated {
    task: TaskId,
    /// Bytes of capsules that have been sent and not received, and where in the ring of capsules they begin.
    unread: usize,
    at: usize,
    answered_bytes: usize,
    answers: usize,
    operations: usize,
    submitting_turns: usize,
}

impl ByHand {
    fn new(load: Arc<OnceLock<Load>>) -> Self {
        Self {
            load,
            waiting: Vec::with_capacity(64),
            simulated: None,
        }
    }

    /// Becomes the host as soon as there is a load and the target waits for it.
    fn take_over(&mut self) {
        let Some(load) = self.load.get().filter(|_| self.simulated.is_none()) else {
            return;
        };
        let is_host = |(_, op): &&Submission| match op {
            Op::Receive { socket, .. } => socket.peer_addr().is_ok_and(|peer| peer == load.host),
            _ => false,
        };
        self.simulated = self
            .waiting
            .iter()
            .find(is_host)
            .map(|(token, _)| Simulated {
                task: token.task,
                unread: load.capsules.len(),
                at: 0,
                answered_bytes: 0,
                answers: 0,
                operations: 0,
                submitting_turns: 0,
            });
    }
}

impl Driver for ByHand {
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Ending>,
        _until: Until,
    ) -> Nanos {
        self.take_over();
        if let (Some(simulated), Some(load)) = (&mut self.simulated, self.load.get()) {
            simulated.operations += submissions.len();
            simulated.submitting_turns += usize::from(!submissions.is_empty());
            self.waiting.append(submissions);
            simulated.answer(load, &mut self.waiting, endings);
            if simulated.answers >= load.commands {
                simulated.end();
            }
            return Nanos::now();
        }
        self.waiting.append(submissions);
        for (token, op) in std::mem::take(&mut self.waiting) {
            match attempt(op) {
                Ok(completion) => endings.push((token, completion)),
                Err(op) => self.waiting.push((token, op)),
            }
        }
        if endings.is_empty() {
            // Between two tries of a host that is being connected: what is counted would drown in tries otherwise.
            thread::sleep(Duration::from_millis(1));
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
    /// Ends what the target asked of this connection; what others wait for stays where it is.
    fn answer(&mut self, load: &Load, waiting: &mut Vec<Submission>, endings: &mut Vec<Ending>) {
        let mut index = 0;
        while index < waiting.len() {
            let (token, op) = &waiting[index];
            let is_ours = token.task == self.task;
            if !is_ours || (matches!(op, Op::Receive { .. }) && self.unread == 0) {
                index += 1;
                continue;
            }
            let (token, op) = waiting.swap_remove(index);
            endings.push((token, self.end_of(load, op)));
        }
    }

    fn end_of(&mut self, load: &Load, op: Op) -> Completion {
        match op {
            Op::Receive {
                mut buf,
                start,
                bytes,
                ..
            } => {
                // To the end of the ring at most: what comes round again comes with the next receive.
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

    fn end(&self) -> ! {
        assert!(
            self.answered_bytes.is_multiple_of(ANSWER_BYTES),
            "only whole answers"
        );
        println!("operations: {}", self.operations);
        println!("submitting-turns: {}", self.submitting_turns);
        std::process::exit(0)
    }
}

/// Tries an operation without waiting; gives it back if it would.
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

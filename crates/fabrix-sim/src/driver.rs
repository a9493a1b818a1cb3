//! The driver of a simulated shard: carries its operations out on the simulated network and on
//! simulated files, and never waits.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use fabrix_rt::driver::{Completed, Driver, Submission, Until};
use fabrix_rt::{Completion, Listener, Loan, Nanos, Op, Poller, Socket, TaskId, Token, errno};

use crate::files::{FileOperation, Files};
use crate::net::{EndId, Net, State, StreamSocket, Tried};

/// The driver of one shard.
pub(crate) struct SimDriver {
    net: Net,
    files: Files,
    shard: usize,
    waiting: Vec<Waiting>,
    pollers: Vec<(Token, Rc<dyn Poller>)>,
}

/// An operation in progress.
struct Waiting {
    submission: Submission,
    /// The bytes of a send, and how many of them are sent.
    bytes: Vec<u8>,
    sent: usize,
    /// What the operation does with a file.
    file: Option<FileOperation>,
}

impl SimDriver {
    pub(crate) fn new(net: &Net, files: &Files, shard: usize) -> Self {
        Self {
            net: net.clone(),
            files: files.clone(),
            shard,
            waiting: Vec::new(),
            pollers: Vec::new(),
        }
    }

    /// Begins an operation. A connect, a send and an operation of a file have something to prepare.
    fn begin(&mut self, state: &mut State, (token, mut op): Submission) {
        let mut bytes = Vec::new();
        match &mut op {
            Op::Connect { socket, address } => state.connect(id(socket), *address),
            Op::Send { gather, .. } => gather.copy_to(&mut bytes),
            _ => {}
        }
        let file = self.files.of(&op);
        let file = file.map(|file| FileOperation::begin(file, &op, state.now()));
        for at in file.iter().flat_map(FileOperation::times) {
            state.wake_shard_at(self.shard, at);
        }
        self.waiting.push(Waiting {
            submission: (token, op),
            bytes,
            sent: 0,
            file,
        });
    }

    /// Goes on with an operation. None: it waits.
    fn go_on(&self, state: &mut State, waiting: &mut Waiting) -> Option<(i32, Option<Loan>)> {
        let op = &mut waiting.submission.1;
        if let Some(file) = &mut waiting.file {
            return file.go_on(op, state.now()).map(|result| (result, None));
        }
        let tried = match op {
            Op::Accept { listener } => {
                let address = listener.local_addr().expect("it listens");
                match state.try_accept(self.shard, address) {
                    Ok(end) => {
                        let socket = Socket::from(self.net.accepted(end));
                        return Some((0, Some(Loan::Socket(socket))));
                    }
                    Err(tried) => tried,
                }
            }
            Op::Connect { socket, .. } => state.try_connect(id(socket)),
            Op::Receive {
                socket,
                buf,
                start,
                bytes,
            } => {
                let end = id(socket);
                state.belongs_to(end, self.shard);
                let into = &mut buf.bytes_mut()[*start..*start + *bytes];
                state.try_receive(end, into)
            }
            Op::Send { socket, .. } => {
                let end = id(socket);
                state.belongs_to(end, self.shard);
                match state.send(end, &waiting.bytes[waiting.sent..]) {
                    Ok(taken) => {
                        waiting.sent += taken;
                        match waiting.sent < waiting.bytes.len() {
                            true => Tried::Waits,
                            false => Tried::Ended(i32::try_from(waiting.sent).expect("a send")),
                        }
                    }
                    Err(tried) => tried,
                }
            }
            _ => Tried::Ended(-errno::EOPNOTSUPP),
        };
        match tried {
            Tried::Waits => None,
            Tried::Ended(result) => Some((result, None)),
        }
    }
}

fn id(socket: &Socket) -> EndId {
    StreamSocket::id_of(socket.simulated().expect("a simulated socket"))
}

impl Driver for SimDriver {
    fn turn(
        &mut self,
        submissions: &mut Vec<Submission>,
        endings: &mut Vec<Completed>,
        _until: Until,
    ) -> Nanos {
        let net = self.net.clone();
        let mut state = net.state();
        let begins = !submissions.is_empty();
        let mut ended = Vec::new();
        for submission in submissions.drain(..) {
            self.begin(&mut state, submission);
        }
        if state.take_ready(self.shard) || begins {
            for mut waiting in std::mem::take(&mut self.waiting) {
                match self.go_on(&mut state, &mut waiting) {
                    None => self.waiting.push(waiting),
                    Some((result, loan)) => ended.push((waiting.submission, result, loan)),
                }
            }
        }
        let now = state.now();
        // An operation may have the last handle of its socket: closing it needs the network.
        drop(state);
        for ((token, op), result, loan) in ended {
            let loan = loan.unwrap_or_else(|| op.into_loan());
            endings.push((token, Completion { result, loan }));
        }
        for (token, _) in self.pollers.iter().filter(|(_, poller)| poller.is_ready()) {
            let (result, loan) = (0, Loan::None);
            endings.push((*token, Completion { result, loan }));
        }
        now
    }

    fn now(&self) -> Nanos {
        self.net.now()
    }

    fn stream(&mut self, _to: &SocketAddr, from: Option<IpAddr>) -> io::Result<Socket> {
        Ok(Socket::from(self.net.socket(self.shard, from)))
    }

    fn listen(&mut self, address: SocketAddr) -> io::Result<Listener> {
        self.net.listen(self.shard, address).map(Listener::from)
    }

    fn add_poller(&mut self, token: Token, poller: Rc<dyn Poller>) -> io::Result<()> {
        self.pollers.push((token, poller));
        Ok(())
    }

    fn forget(&mut self, task: TaskId) {
        self.pollers.retain(|(token, _)| token.task != task);
        let stays = |waiting: &Waiting| {
            let (token, op) = &waiting.submission;
            token.task != task || !op.waits_for_a_peer()
        };
        self.waiting.retain(stays);
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }
}

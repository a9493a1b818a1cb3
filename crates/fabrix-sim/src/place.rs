//! Where a test runs that is written out and not drawn from a seed: on the loopback of this machine
//! and by its clock, or in a world of its own, whose time passes at once.
//!
//! The thread that makes a world owns it: its waiting lets the world go on. Other threads of the
//! test, such as a fake target, use the network of the world with the same blocking calls.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fabrix_rt::simulated::{SimulatedListener, SimulatedSocket};
use fabrix_rt::{Control, ControlThread, Nanos, Remote};

use crate::net::{EndId, Habits, Net, ShardId, State, StreamSocket, Tried};
use crate::run::{Cut, Run, Source};
use crate::world::{self, World};

/// Where a test runs.
#[derive(Clone, Debug)]
pub struct Place(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// Loopback, and the real time since this instant.
    Machine(Instant),
    World(Net),
}

impl Place {
    /// This machine.
    pub fn machine() -> Self {
        Self(Kind::Machine(Instant::now()))
    }

    /// A new world, which this thread owns. Its network is fast and has no faults.
    pub fn world() -> Self {
        let habits = Habits {
            latency: Duration::from_micros(10),
            jitter: Duration::ZERO,
            window: 1 << 20,
            piece: 1 << 16,
            short_receives: false,
        };
        Self(Kind::World(
            World::new(&Run::new(&Source::Seed(0), &Cut::default()), habits)
                .net()
                .clone(),
        ))
    }

    /// The world that this thread owns, or else this machine.
    pub fn current() -> Self {
        match world::current() {
            Some(world) => Self(Kind::World(world.net().clone())),
            None => Self::machine(),
        }
    }

    /// Ends the world, which this thread owns.
    pub fn leave(&self) {
        if let Kind::World(_) = self.0 {
            world::leave();
        }
    }

    /// Whether it is a world.
    pub fn is_world(&self) -> bool {
        matches!(self.0, Kind::World(_))
    }

    /// For code that waits without a shard.
    pub fn control(&self) -> Arc<dyn Control> {
        match &self.0 {
            Kind::Machine(_) => Arc::new(ControlThread),
            Kind::World(_) => world::current().expect(OWNER).control(),
        }
    }

    /// Adds a shard to the world, which turns it. Result: its number in the world, and its mailbox.
    ///
    /// # Panics
    /// On a machine, where a shard needs a thread.
    pub fn add_shard(&self) -> (usize, Remote) {
        let (number, shard) = world::current().expect(OWNER).add_shard();
        let remote = shard.borrow().remote();
        (number, remote)
    }

    /// Lets a shard of the world stand still for a time, as a suspended process does.
    pub fn stop_shard(&self, number: usize, time: Duration) {
        let world = world::current().expect(OWNER);
        world.stop_shard(number, world.now() + time);
    }

    /// The time since some instant.
    pub fn now(&self) -> Duration {
        match &self.0 {
            Kind::Machine(began) => began.elapsed(),
            Kind::World(net) => Duration::from_nanos(net.now().0),
        }
    }

    /// Lets time pass on the thread of the test.
    pub fn pause(&self, time: Duration) {
        match &self.0 {
            Kind::Machine(_) => std::thread::sleep(time),
            Kind::World(net) => {
                let number = net.take_number();
                let until = net.now() + time;
                let _nothing_comes: Option<()> = wait(net, number, until, |_| None);
            }
        }
    }

    /// Starts a thread of the test.
    pub fn spawn(&self, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        let Kind::World(net) = &self.0 else {
            return std::thread::spawn(run);
        };
        net.thread_begins();
        let net = net.clone();
        std::thread::spawn(move || {
            let _ends = Ends(net);
            run();
        })
    }

    /// Waits for the end of a thread. A panic of it is not told.
    pub fn join(&self, thread: JoinHandle<()>) {
        while !thread.is_finished() {
            if let Kind::World(_) = self.0 {
                self.pause(Duration::from_millis(1));
            }
            std::thread::yield_now();
        }
        let _it_has_told = thread.join();
    }

    /// Listens on a free port.
    pub fn listen(&self) -> Listener {
        let Kind::World(net) = &self.0 else {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            return Listener(Listening::Machine(listener));
        };
        let number = net.take_number();
        let address = SocketAddr::from(([10, 0, 0, 2], 0));
        let socket = net.listen(number, address).expect("a free port");
        Listener(Listening::World {
            net: net.clone(),
            number,
            socket,
        })
    }

    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(&self, address: SocketAddr) -> io::Result<Stream> {
        let Kind::World(net) = &self.0 else {
            return Stream::of_machine(TcpStream::connect(address)?);
        };
        let number = net.take_number();
        let socket = net.socket(number, None);
        let end = StreamSocket::id_of(&*socket);
        net.state().connect(end, address);
        let result = wait(net, number, Nanos::MAX, |state| {
            match state.try_connect(end) {
                Tried::Waits => None,
                Tried::Ended(result) => Some(result),
            }
        });
        match result.expect("it waits for ever") {
            0 => Ok(Stream::of_world(net, number, socket)),
            result => Err(error(result)),
        }
    }
}

/// Tells that a thread of a test has ended, also with a panic.
struct Ends(Net);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.thread_ends();
    }
}

/// A socket that listens, for blocking calls.
#[derive(Debug)]
pub struct Listener(Listening);

#[derive(Debug)]
enum Listening {
    Machine(TcpListener),
    World {
        net: Net,
        number: ShardId,
        socket: Box<dyn SimulatedListener>,
    },
}

impl Listener {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        match &self.0 {
            Listening::Machine(listener) => listener.local_addr().expect("it listens"),
            Listening::World { socket, .. } => socket.local_addr(),
        }
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// It listens no longer.
    pub fn accept(&self) -> io::Result<Stream> {
        match &self.0 {
            Listening::Machine(listener) => Stream::of_machine(listener.accept()?.0),
            Listening::World {
                net,
                number,
                socket,
            } => {
                let address = socket.local_addr();
                let own = net.take_number();
                let accepted = wait(net, *number, Nanos::MAX, |state| {
                    match state.try_accept(own, address) {
                        Ok(end) => Some(Ok(end)),
                        Err(Tried::Waits) => None,
                        Err(Tried::Ended(result)) => Some(Err(error(result))),
                    }
                });
                let end = accepted.expect("it waits for ever")?;
                let socket = net.accepted(end);
                Ok(Stream::of_world(net, own, socket))
            }
        }
    }
}

/// One end of a connection, for blocking calls.
#[derive(Clone, Debug)]
pub struct Stream {
    patience: Duration,
    kind: Connected,
}

#[derive(Clone, Debug)]
enum Connected {
    Machine(Arc<TcpStream>),
    World {
        net: Net,
        number: ShardId,
        socket: Arc<dyn SimulatedSocket>,
    },
}

impl Stream {
    fn of_machine(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self {
            patience: PATIENCE,
            kind: Connected::Machine(Arc::new(stream)),
        })
    }

    fn of_world(net: &Net, number: ShardId, socket: Box<dyn SimulatedSocket>) -> Self {
        Self {
            patience: PATIENCE,
            kind: Connected::World {
                net: net.clone(),
                number,
                socket: Arc::from(socket),
            },
        }
    }

    /// The longest time that a read or a write waits.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
        if let Connected::Machine(stream) = &self.kind {
            stream.set_read_timeout(Some(patience)).expect("a socket");
            stream.set_write_timeout(Some(patience)).expect("a socket");
        }
    }

    /// The address of this end.
    pub fn address(&self) -> SocketAddr {
        let address = match &self.kind {
            Connected::Machine(stream) => stream.local_addr(),
            Connected::World { socket, .. } => socket.local_addr(),
        };
        address.expect("connected")
    }

    /// Ends one direction or both, as shutdown(2).
    pub fn shutdown(&self, how: Shutdown) {
        match &self.kind {
            Connected::Machine(stream) => drop(stream.shutdown(how)),
            Connected::World { socket, .. } => socket.shutdown(how),
        }
    }

    fn wait_for(
        &self,
        mut attempt: impl FnMut(&mut State, EndId) -> Result<usize, Tried>,
    ) -> io::Result<usize> {
        let Connected::World {
            net,
            number,
            socket,
        } = &self.kind
        else {
            unreachable!("a stream of a world")
        };
        let end = StreamSocket::id_of(&**socket);
        let until = net.now() + self.patience;
        let result = wait(net, *number, until, |state| match attempt(state, end) {
            Ok(0) | Err(Tried::Waits) => None,
            Ok(bytes) => Some(Ok(bytes)),
            Err(Tried::Ended(result)) if result < 0 => Some(Err(error(result))),
            Err(Tried::Ended(result)) => Some(Ok(usize::try_from(result).expect("a length"))),
        });
        result.unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &self.kind {
            Connected::Machine(stream) => (&**stream).read(into),
            Connected::World { .. } if into.is_empty() => Ok(0),
            Connected::World { .. } => {
                self.wait_for(|state, end| Err(state.try_receive(end, into)))
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.kind {
            Connected::Machine(stream) => (&**stream).write(bytes),
            Connected::World { .. } if bytes.is_empty() => Ok(0),
            Connected::World { .. } => self.wait_for(|state, end| state.send(end, bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until `attempt` brings something. None: `until` is over.
fn wait<T>(
    net: &Net,
    number: ShardId,
    until: Nanos,
    mut attempt: impl FnMut(&mut State) -> Option<T>,
) -> Option<T> {
    let Some(world) = world::current() else {
        return net.wait_on_thread(number, until, attempt);
    };
    loop {
        let result = attempt(&mut net.state());
        if result.is_some() || world.now() >= until {
            return result;
        }
        let far = world.now() + FAR;
        let happened = world.step(until.min(far));
        assert!(happened || until < far, "the test waits for ever");
    }
}

fn error(result: i32) -> io::Error {
    io::Error::from_raw_os_error(-result)
}

const OWNER: &str = "the thread that has made the world";
/// The longest time that a read or a write waits, if a test sets no other.
const PATIENCE: Duration = Duration::from_secs(20);
/// A world in which nothing happens for so long has come to its end.
const FAR: Duration = Duration::from_secs(100_000);

//! Connections between the processes of a group. They carry no data of hosts. Without them, a
//! silent gateway is missed after some seconds, and a change is seen within one.
//!
//! The end of a connection says that the process at its other end has ended, if that one refuses a
//! new connection. A gateway that is alive is shut out by mistake if something between does both:
//! it comes back by a new client. A byte says that the state has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use fabrix_gateways::State;

use super::Event;
use crate::locks::lock;

/// The connections of this process.
pub(super) struct Neighbours {
    address: SocketAddr,
    /// Connections that others have made.
    callers: Callers,
    /// Those that this process has made. Dropping one ends its thread.
    called: BTreeMap<SocketAddr, Arc<()>>,
    events: SyncSender<Event>,
}

type Callers = Arc<Mutex<Vec<TcpStream>>>;

/// Most connections of others: enough for the largest group, and for strangers.
const CALLERS_MOST: usize = 64;
/// Time for a connection, and longest time between two attempts.
const CALL: Duration = Duration::from_secs(1);
/// Shortest time between two attempts. While a process ends, it may still take a connection.
const AGAIN: Duration = Duration::from_millis(20);

impl Neighbours {
    /// Listens on an address of this machine, at a port that the system chooses.
    pub(super) fn listen(ip: IpAddr, events: SyncSender<Event>) -> io::Result<Self> {
        let listener = TcpListener::bind((ip, 0))?;
        let address = listener.local_addr()?;
        let callers = Callers::default();
        let taken = Arc::clone(&callers);
        thread::Builder::new()
            .name("neighbours".to_owned())
            .spawn(move || accept(&listener, &taken))?;
        Ok(Self {
            address,
            callers,
            called: BTreeMap::new(),
            events,
        })
    }

    /// The address for other gateways.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells the others that the state has changed.
    pub(super) fn ring(&self) {
        lock(&self.callers).retain(|mut caller| caller.write(&[1]).is_ok());
    }

    /// Has a connection to each other gateway of a state.
    pub(super) fn follow(&mut self, state: &State) {
        let members = state.members.values();
        let others = members.filter_map(|member| member.neighbour.parse().ok());
        let others: BTreeSet<SocketAddr> = others.filter(|it| *it != self.address).collect();
        self.called.retain(|address, _| others.contains(address));
        for address in others {
            let events = self.events.clone();
            self.called.entry(address).or_insert_with(|| {
                let alive = Arc::new(());
                call(address, (Arc::downgrade(&alive), events));
                alive
            });
        }
    }
}

/// Keeps the connections of others. The end of this process ends them.
fn accept(listener: &TcpListener, callers: &Callers) {
    for caller in listener.incoming() {
        let Ok(caller) = caller else {
            // The process may have no descriptor left.
            thread::sleep(CALL);
            continue;
        };
        let mut callers = lock(callers);
        callers.retain(is_there);
        let is_quiet = caller.set_nonblocking(true).is_ok();
        if is_quiet && callers.len() < CALLERS_MOST {
            callers.push(caller);
        }
    }
}

/// Whether the other end is there. It never sends.
fn is_there(caller: &TcpStream) -> bool {
    let mut caller = caller;
    matches!(caller.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Starts the thread that listens to another gateway.
fn call(address: SocketAddr, (alive, events): (Weak<()>, SyncSender<Event>)) {
    let listening = thread::Builder::new()
        .name("neighbour".to_owned())
        .spawn(move || {
            // Who was never reached may be behind a firewall that refuses connections.
            let mut was_there = false;
            let mut pause = AGAIN;
            while alive.strong_count() > 0 {
                match TcpStream::connect_timeout(&address, CALL) {
                    Ok(stream) => {
                        was_there = true;
                        let began = Instant::now();
                        listen_to(&stream, &alive, &events);
                        pause = match began.elapsed() < CALL {
                            true => (pause * 2).min(CALL),
                            false => AGAIN,
                        };
                        thread::sleep(pause);
                    }
                    Err(error) if was_there && error.kind() == ErrorKind::ConnectionRefused => {
                        // Something between may refuse while the process beats on.
                        was_there = false;
                        let _ending = events.send(Event::Ended(address));
                    }
                    Err(_) => thread::sleep(CALL),
                }
            }
        });
    // Without a thread the gateway is missed later.
    drop(listening);
}

/// Passes on what another gateway says, until the connection ends.
fn listen_to(mut stream: &TcpStream, alive: &Weak<()>, events: &SyncSender<Event>) {
    if stream.set_read_timeout(Some(CALL)).is_err() {
        return;
    }
    while alive.strong_count() > 0 {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return,
            // Whoever has many events looks at the state anyway.
            Ok(_) => drop(events.try_send(Event::Changed)),
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {}
            Err(_) => return,
        }
    }
}

//! The disk as NBD: on a listening socket, for qemu, nbdcopy, fio, and every other program that
//! speaks it; and on sockets of the kernel's own client, which makes a block device of them.
//!
//! Knows accepting and how many clients there are; what one of them does is `connection`. The
//! listening socket, a Unix socket or one of TCP, is handed over: its maker decides who can reach
//! it.

mod connection;
mod extents;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fabrix_block::{Deallocate, Device, Geometry, OpenError};
use fabrix_proto::nbd::server::Export;
use fabrix_rt::{Completion, Listener, Loan, Op, Remote, Shard, Socket, Task, TaskId, Token};

use crate::job::trims;
use crate::lane::Lane;
use crate::{BeginError, Resize, Tell, Told, on_shard, resize};
use connection::Connection;

/// A disk that is served on a socket.
#[derive(Debug)]
pub struct NbdSocket {
    remote: Remote,
    task: TaskId,
    clients: Arc<AtomicUsize>,
}

/// A disk that is served to the kernel's client.
#[derive(Debug)]
pub struct NbdPeers {
    remote: Remote,
    task: TaskId,
}

/// What is told to a port.
enum Order {
    Resized(Resize),
    Close,
}

impl NbdSocket {
    /// Serves `device` on `listener`, on the shard of `remote`. `tell` hears when it is over.
    ///
    /// # Errors
    /// The disk cannot be opened on the shard.
    pub fn begin(
        remote: &Remote,
        device: Arc<dyn Device>,
        listener: OwnedFd,
        tell: Tell,
    ) -> Result<Self, BeginError> {
        let clients = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&clients);
        let task = on_shard(remote, move |shard| {
            Port::open(shard, device, listener, counter, tell)
        })??;
        Ok(Self {
            remote: remote.clone(),
            task,
            clients,
        })
    }

    /// How many clients are connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Clients that come when this has returned see this size; those that are there keep theirs.
    ///
    /// # Errors
    /// The disk cannot be opened again, so its old size stays; or it is over.
    pub fn resized(&self, device: Arc<dyn Device>) -> Result<(), BeginError> {
        resize((&self.remote, self.task), device, Order::Resized)
    }

    /// Takes no more clients and lets those that are there go; [`Told::Over`] follows.
    pub fn close(&self) {
        let _it_is_over = self.remote.send(self.task, Box::new(Order::Close));
    }
}

impl NbdPeers {
    /// Serves `device` on these sockets, on the shard of `remote`; the other ends begin with their
    /// first requests. `tell` hears when the last of them has gone.
    ///
    /// # Errors
    /// The disk cannot be opened on the shard.
    pub fn begin(
        remote: &Remote,
        device: Arc<dyn Device>,
        sockets: Vec<UnixStream>,
        tell: Tell,
    ) -> Result<Self, BeginError> {
        let task = on_shard(remote, move |shard| {
            // Without the privilege memory may run short in a bad moment; it works all the same.
            let _unprivileged = fabrix_rt::process::carries_io();
            Port::serve(shard, device, sockets, tell)
        })??;
        Ok(Self {
            remote: remote.clone(),
            task,
        })
    }

    /// The disk has another size, which is served when this has returned.
    ///
    /// # Errors
    /// The disk cannot be opened again, so its old size stays; or it is over.
    pub fn resized(&self, device: Arc<dyn Device>) -> Result<(), BeginError> {
        resize((&self.remote, self.task), device, Order::Resized)?;
        // What the other ends' tasks were told of it lies before this in the mailbox.
        on_shard(&self.remote, |_| ())
    }
}

/// The transmission flags with which a client that does not negotiate is to begin.
#[must_use]
pub fn flags(device: &dyn Device) -> u16 {
    export(device).flags(false)
}

/// What the clients of one socket have in common.
struct Common {
    lane: Rc<Lane>,
    export: RefCell<Export>,
    clients: Arc<AtomicUsize>,
    /// The clients' tasks, to be told that it is over.
    tasks: RefCell<Vec<TaskId>>,
    closing: Cell<bool>,
    tell: Tell,
}

impl Common {
    fn open(
        shard: &mut Shard,
        device: Arc<dyn Device>,
        clients: Arc<AtomicUsize>,
        tell: Tell,
    ) -> Result<Rc<Self>, BeginError> {
        let export = export(&*device);
        let lane = Lane::open(shard, device).map_err(|error| BeginError(error.to_string()))?;
        Ok(Rc::new(Self {
            lane: Rc::new(lane),
            export: RefCell::new(export),
            clients,
            tasks: RefCell::default(),
            closing: Cell::new(false),
            tell,
        }))
    }

    fn tell_clients(&self, shard: &Shard, news: impl Fn() -> News) {
        for task in self.tasks.borrow().iter() {
            // A full mailbox is tried again by who has asked.
            let _full = shard.remote().send(*task, Box::new(news()));
        }
    }

    fn joined(&self, task: TaskId) {
        self.tasks.borrow_mut().push(task);
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    fn left(&self, task: TaskId) {
        self.tasks.borrow_mut().retain(|id| *id != task);
        self.clients.fetch_sub(1, Ordering::Relaxed);
        self.end_if_empty();
    }

    fn end_if_empty(&self) {
        if self.closing.get() && self.tasks.borrow().is_empty() {
            (self.tell)(Told::Over);
        }
    }
}

/// Told to a client.
enum News {
    /// It is over.
    Leave,
    /// The disk has so many bytes now.
    Resized(u64),
}

struct Port {
    task: TaskId,
    /// None: all clients are there from the beginning.
    listener: Option<Listener>,
    common: Rc<Common>,
}

impl Port {
    fn open(
        shard: &mut Shard,
        device: Arc<dyn Device>,
        listener: OwnedFd,
        clients: Arc<AtomicUsize>,
        tell: Tell,
    ) -> Result<TaskId, BeginError> {
        let common = Common::open(shard, device, clients, tell)?;
        let task = shard.reserve();
        let port = Self {
            task,
            listener: Some(Listener::from(listener)),
            common,
        };
        port.accept(shard);
        shard.install(task, Rc::new(RefCell::new(port)));
        Ok(task)
    }

    fn serve(
        shard: &mut Shard,
        device: Arc<dyn Device>,
        sockets: Vec<UnixStream>,
        tell: Tell,
    ) -> Result<TaskId, BeginError> {
        let common = Common::open(shard, device, Arc::default(), tell)?;
        // Nobody comes any more: it is over with the last that is there.
        common.closing.set(true);
        for socket in sockets {
            Connection::adopt_begun(shard, Socket::from(OwnedFd::from(socket)), &common);
        }
        let task = shard.reserve();
        let port = Self {
            task,
            listener: None,
            common,
        };
        shard.install(task, Rc::new(RefCell::new(port)));
        Ok(task)
    }

    fn accept(&self, shard: &mut Shard) {
        let token = Token {
            task: self.task,
            slot: ACCEPT,
        };
        if let Some(listener) = self.listener.clone() {
            shard.start(token, Op::Accept { listener });
        }
    }

    /// Whoever is connected keeps the size that he was told, but for the kernel, which takes
    /// another one.
    fn resized(&self, shard: &mut Shard, device: Arc<dyn Device>) -> Result<(), OpenError> {
        let fresh = export(&*device);
        let bytes = fresh.bytes;
        self.common.lane.replace(shard, device)?;
        self.common.export.replace(fresh);
        if self.listener.is_none() {
            self.common.tell_clients(shard, || News::Resized(bytes));
        }
        Ok(())
    }
}

impl Task for Port {
    fn completed(&mut self, shard: &mut Shard, _slot: u32, completion: Completion) {
        match completion.loan {
            // More than the limit are let in no further than the door.
            Loan::Socket(socket) if self.common.clients.load(Ordering::Relaxed) < CLIENTS_MAX => {
                Connection::adopt(shard, socket, &self.common);
                self.accept(shard);
            }
            Loan::Socket(_) => self.accept(shard),
            // No descriptor is free for one more: it waits in the queue, and we with it.
            _ => {
                let token = Token {
                    task: self.task,
                    slot: ACCEPT,
                };
                let at = shard.now() + std::time::Duration::from_millis(PAUSE_MS);
                shard.set_timer(token, at);
            }
        }
    }

    fn expired(&mut self, shard: &mut Shard, _slot: u32) {
        self.accept(shard);
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let Ok(order) = message.downcast::<Order>() else {
            return debug_assert!(false, "a port is told orders only");
        };
        match *order {
            Order::Resized(Resize { disk, tell }) => {
                let _nobody_waits = tell.send(self.resized(shard, disk));
            }
            Order::Close => {
                self.listener.iter().for_each(Listener::shutdown);
                self.common.closing.set(true);
                self.common.tell_clients(shard, || News::Leave);
                self.common.end_if_empty();
                shard.remove(self.task);
            }
        }
    }
}

/// What clients are told of a disk.
fn export(device: &dyn Device) -> Export {
    let geometry = device.geometry();
    let identity = device.identity();
    Export {
        name: identity.name.chars().take(NAME_CHARS_MAX).collect(),
        description: identity.model.clone(),
        bytes: geometry.bytes(),
        block_bytes: geometry.block_bytes,
        preferred_bytes: preferred(geometry),
        most_bytes: geometry.max_transfer_bytes,
        read_only: geometry.read_only,
        trims: trims(geometry),
        zeroes_fast: geometry.deallocate == Deallocate::Zeroes,
        // One channel for all connections: see the head of this crate.
        multi_conn: true,
    }
}

/// A power of two between the block and what moves at once.
fn preferred(geometry: &Geometry) -> u32 {
    let best = geometry
        .physical_block_bytes
        .max(geometry.block_bytes)
        .max(4096);
    best.next_power_of_two()
        .min(geometry.max_transfer_bytes.max(geometry.block_bytes))
}

const ACCEPT: u32 = 0;
const PAUSE_MS: u64 = 100;
/// Programs connect a few times each; this many do not exhaust our memory.
const CLIENTS_MAX: usize = 64;
/// What a name may have in NBD is 4,096 bytes; a character has up to four.
const NAME_CHARS_MAX: usize = 1000;

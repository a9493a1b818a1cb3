//! The disk as an NBD server: on a listening socket for qemu, nbdcopy, fio and other clients, and
//! on a socket of the kernel's own client, which makes a block device of it.
//!
//! This file accepts clients and counts them, and `connection` serves one of them. The caller opens
//! the listening socket (Unix or TCP) and so decides about access.

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

use crate::disk_channel::DiskChannel;
use crate::job::trims;
use crate::{BeginError, EventHandler, FrontEnd, FrontEndEvent, Resize, on_shard};
use connection::Connection;

/// A disk served on a listening socket.
#[derive(Debug)]
pub struct NbdSocket {
    front_end: FrontEnd,
    clients: Arc<AtomicUsize>,
}

/// A disk served to the kernel's client.
#[derive(Debug)]
pub struct NbdPeer(FrontEnd);

/// An order to the port from another thread.
enum Order {
    Resized(Resize),
    Close,
}

impl NbdSocket {
    /// Serves `device` on `listener`, on the shard of `remote`. `on_event` is called when the
    /// server has ended.
    ///
    /// # Errors
    /// The disk cannot be opened on the shard.
    pub fn begin(
        remote: &Remote,
        device: Arc<dyn Device>,
        listener: OwnedFd,
        on_event: EventHandler,
    ) -> Result<Self, BeginError> {
        let clients = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&clients);
        let front_end = FrontEnd::begin(remote, move |shard| {
            let client = Client::Unknown(Listener::from(listener));
            Port::open(shard, device, client, counter, on_event)
        })?;
        Ok(Self { front_end, clients })
    }

    /// Number of connected clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Changes the size. Clients that connect after this call see the new size, and connected
    /// clients keep the old one.
    ///
    /// # Errors
    /// The disk cannot be opened in its new size, so the old size stays; or the server has ended.
    pub fn resized(&self, device: Arc<dyn Device>) -> Result<(), BeginError> {
        self.front_end.resize(device, Order::Resized)
    }

    /// Accepts no more clients and disconnects the current ones. [`FrontEndEvent::Ended`] follows.
    pub fn close(&self) {
        self.front_end.send(Order::Close);
    }
}

impl NbdPeer {
    /// Serves `device` on this socket, on the shard of `remote`. The other end sends requests
    /// without negotiation. `on_event` is called when it has closed.
    ///
    /// # Errors
    /// The disk cannot be opened on the shard.
    pub fn begin(
        remote: &Remote,
        device: Arc<dyn Device>,
        socket: UnixStream,
        on_event: EventHandler,
    ) -> Result<Self, BeginError> {
        let front_end = FrontEnd::begin(remote, move |shard| {
            // Without this privilege a memory shortage can block the server. It works nevertheless.
            let _unprivileged = fabrix_rt::process::carries_io();
            let client = Client::Known(socket);
            Port::open(shard, device, client, Arc::default(), on_event)
        });
        front_end.map(Self)
    }

    /// Changes the size. The new size is served when this function returns.
    ///
    /// # Errors
    /// The disk cannot be opened in its new size, so the old size stays; or the server has ended.
    pub fn resized(&self, device: Arc<dyn Device>) -> Result<(), BeginError> {
        self.0.resize(device, Order::Resized)?;
        // The resize message to the connection precedes this one in the mailbox, so it is done.
        on_shard(&self.0.remote, |_| ())
    }
}

/// Transmission flags for a client that skips the negotiation.
#[must_use]
pub fn flags(device: &dyn Device) -> u16 {
    export(device).flags(false)
}

/// State shared by the connections of one server.
struct Common {
    channel: DiskChannel,
    export: RefCell<Export>,
    clients: Arc<AtomicUsize>,
    /// Tasks of the connections, for the closing message.
    tasks: RefCell<Vec<TaskId>>,
    closing: Cell<bool>,
    on_event: EventHandler,
}

impl Common {
    fn open(
        shard: &mut Shard,
        device: Arc<dyn Device>,
        clients: Arc<AtomicUsize>,
        on_event: EventHandler,
    ) -> Result<Rc<Self>, BeginError> {
        let export = export(&*device);
        Ok(Rc::new(Self {
            channel: DiskChannel::open(shard, device)?,
            export: RefCell::new(export),
            clients,
            tasks: RefCell::default(),
            closing: Cell::new(false),
            on_event,
        }))
    }

    fn send_to_connections(&self, shard: &Shard, message: impl Fn() -> ConnectionMessage) {
        for task in self.tasks.borrow().iter() {
            // When a mailbox is full, the caller repeats the order.
            let _full = shard.remote().send(*task, Box::new(message()));
        }
    }

    fn connection_started(&self, task: TaskId) {
        self.tasks.borrow_mut().push(task);
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    fn connection_ended(&self, task: TaskId) {
        self.tasks.borrow_mut().retain(|id| *id != task);
        self.clients.fetch_sub(1, Ordering::Relaxed);
        self.end_if_empty();
    }

    fn end_if_empty(&self) {
        if self.closing.get() && self.tasks.borrow().is_empty() {
            (self.on_event)(FrontEndEvent::Ended);
        }
    }
}

/// A message to a connection.
enum ConnectionMessage {
    /// The server is closing.
    Close,
    /// The new size of the disk in bytes.
    Resized(u64),
}

/// Who is served.
enum Client {
    /// Whoever connects, after the negotiation.
    Unknown(Listener),
    /// The kernel, which needs no negotiation.
    Known(UnixStream),
}

struct Port {
    task: TaskId,
    /// None: the only client is connected from the start.
    listener: Option<Listener>,
    common: Rc<Common>,
}

impl Port {
    /// Serves the clients of a listener, or one without negotiation.
    fn open(
        shard: &mut Shard,
        device: Arc<dyn Device>,
        client: Client,
        clients: Arc<AtomicUsize>,
        on_event: EventHandler,
    ) -> Result<TaskId, BeginError> {
        let common = Common::open(shard, device, clients, on_event)?;
        let listener = match client {
            Client::Unknown(listener) => Some(listener),
            // No more clients follow, so the server ends with this one's connection.
            Client::Known(socket) => {
                common.closing.set(true);
                Connection::adopt_begun(shard, Socket::from(OwnedFd::from(socket)), &common);
                None
            }
        };
        let task = shard.reserve();
        let port = Self {
            task,
            listener,
            common,
        };
        port.accept(shard);
        shard.install(task, Rc::new(RefCell::new(port)));
        Ok(task)
    }

    fn accept(&self, shard: &mut Shard) {
        if let Some(listener) = self.listener.clone() {
            shard.start(self.token(), Op::Accept { listener });
        }
    }

    fn token(&self) -> Token {
        Token {
            task: self.task,
            slot: ACCEPT,
        }
    }

    /// Connected clients keep the size that they negotiated. Only the kernel's client accepts a new
    /// one.
    fn resized(&self, shard: &mut Shard, device: Arc<dyn Device>) -> Result<(), OpenError> {
        let fresh = export(&*device);
        let bytes = fresh.bytes;
        self.common.channel.replace(shard, device)?;
        self.common.export.replace(fresh);
        if self.listener.is_none() {
            self.common
                .send_to_connections(shard, || ConnectionMessage::Resized(bytes));
        }
        Ok(())
    }
}

impl Task for Port {
    fn completed(&mut self, shard: &mut Shard, _slot: u32, completion: Completion) {
        match completion.loan {
            // Clients above the limit are disconnected at once.
            Loan::Socket(socket) if self.common.clients.load(Ordering::Relaxed) < CLIENTS_MAX => {
                Connection::adopt(shard, socket, &self.common);
                self.accept(shard);
            }
            Loan::Socket(_) => self.accept(shard),
            // No file descriptor is free. The client waits in the listen queue until the timer
            // expires.
            _ => {
                let at = shard.now() + std::time::Duration::from_millis(PAUSE_MS);
                shard.set_timer(self.token(), at);
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
            Order::Resized(Resize { disk, result }) => {
                let _nobody_waits = result.send(self.resized(shard, disk));
            }
            Order::Close => {
                self.listener.iter().for_each(Listener::shutdown);
                self.common.closing.set(true);
                self.common
                    .send_to_connections(shard, || ConnectionMessage::Close);
                self.common.end_if_empty();
                shard.remove(self.task);
            }
        }
    }
}

/// The export that clients see.
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
        // All connections share one channel: see the documentation of the crate.
        multi_conn: true,
    }
}

/// Preferred request size: a power of two from the block size to the longest transfer.
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
/// Largest number of clients. Programs open several connections each; this many fit into memory.
const CLIENTS_MAX: usize = 64;
/// Longest export name in characters. NBD allows 4,096 bytes, and a character takes up to four.
const NAME_CHARS_MAX: usize = 1000;

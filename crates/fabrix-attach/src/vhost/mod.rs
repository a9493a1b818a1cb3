//! The disk as a vhost-user-blk device on a Unix socket, for virtual machines of QEMU and similar
//! monitors.
//!
//! A thread accepts monitors and serves them one after the other. The requests of their guests go
//! through the shard (`hub`, `ring`). Two guests at the same time would destroy the data, so a
//! second one is refused.

mod hub;
mod inflight;
mod memory;
mod request;
mod session;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fabrix_block::{Device, Geometry};
use fabrix_proto::virtio::blk::Facts;
use fabrix_proto::virtio::vhost_user::{QUEUES_MAX, config_changed};
use fabrix_rt::net::is_over;
use fabrix_rt::{Listener, Remote, TaskId, needed_thread};
use sys_devices::descriptors;

use crate::job::trims;
use crate::{BeginError, EventHandler, FrontEndEvent, on_shard};
use hub::{Hub, Order, PendingOrder};
use session::{Disconnect, serve};

/// A disk served to virtual machines.
#[derive(Debug)]
pub struct VhostSocket {
    server: Arc<VhostServer>,
    listener: UnixListener,
}

/// The address of the hub on the shard, and the connected monitor.
#[derive(Debug)]
struct VhostServer {
    remote: Remote,
    hub: TaskId,
    /// Identification of the disk in records of requests in progress.
    disk: inflight::Disk,
    state: Mutex<State>,
    /// Signalled when a monitor has disconnected.
    left: Condvar,
}

#[derive(Debug)]
struct State {
    facts: Facts,
    connected: Option<UnixStream>,
    /// Socket for notifications to the connected monitor, if it asked for them. It is non-blocking.
    notifications: Option<UnixStream>,
    closing: bool,
}

/// An event callback shared by the thread and the shard.
type SharedHandler = Arc<Mutex<EventHandler>>;

impl VhostSocket {
    /// Serves `device` on `listener`, on the shard of `remote`. `on_event` is called when the
    /// server has ended.
    ///
    /// # Errors
    /// The disk cannot be opened on the shard, or guests do not support its block size.
    pub fn begin(
        remote: &Remote,
        device: Arc<dyn Device>,
        listener: UnixListener,
        on_event: EventHandler,
    ) -> Result<Self, BeginError> {
        let on_event: SharedHandler = Arc::new(Mutex::new(on_event));
        let facts = facts(device.geometry());
        let shard_handler = Arc::clone(&on_event);
        let handler: EventHandler = Box::new(move |event| lock(&shard_handler)(event));
        let disk = inflight::of(device.identity());
        let hub = on_shard(remote, move |shard| Hub::open(shard, device, handler))??;
        let server = Arc::new(VhostServer {
            remote: remote.clone(),
            hub,
            disk,
            state: Mutex::new(State {
                facts,
                connected: None,
                notifications: None,
                closing: false,
            }),
            left: Condvar::new(),
        });
        let cannot = |error: io::Error| BeginError(format!("cannot listen: {error}"));
        let accepting = listener.try_clone().map_err(cannot)?;
        let (thread_server, thread_handler) = (Arc::clone(&server), on_event);
        needed_thread("vhost-user", move || {
            accept_monitors(&accepting, &thread_server, &thread_handler)
        })
        .map_err(cannot)?;
        Ok(Self { server, listener })
    }

    /// Whether a virtual machine is connected.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.server.state().connected.is_some()
    }

    /// Changes the size, and notifies the connected machine if its monitor asked for notifications.
    ///
    /// # Errors
    /// The disk cannot be opened in its new size, so the old size stays.
    pub fn resized(&self, device: Arc<dyn Device>) -> Result<(), BeginError> {
        let facts = facts(device.geometry());
        let taken = self.server.execute(Order::Resized(device));
        taken.map_err(|Disconnect(sentence)| BeginError(sentence))?;
        let mut state = self.server.state();
        state.facts = facts;
        if let Some(socket) = &state.notifications {
            // A full socket still holds an unread notification with the same meaning.
            let _already_notified = descriptors::send(socket, &config_changed(), &[]);
        }
        Ok(())
    }

    /// Accepts no more machines and disconnects the current one. [`FrontEndEvent::Ended`] follows.
    pub fn close(&self) {
        let mut state = self.server.state();
        state.closing = true;
        if let Some(stream) = &state.connected {
            let _it_has_gone = stream.shutdown(std::net::Shutdown::Both);
        }
        if let Ok(listener) = self.listener.try_clone() {
            Listener::from(OwnedFd::from(listener)).shutdown();
        }
        self.server.left.notify_all();
    }
}

impl VhostServer {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Sends an order to the shard and waits for its answer.
    fn execute(&self, order: Order) -> Result<u16, Disconnect> {
        let (answer, answered) = sync_channel(1);
        let pending = Box::new(PendingOrder { order, answer });
        let lost = || Disconnect("the data path has ended, or is too busy".to_owned());
        self.remote.send(self.hub, pending).map_err(|_| lost())?;
        let done = answered.recv().map_err(|_| lost())?;
        done.map_err(|sentence| Disconnect(sentence.to_owned()))
    }

    /// Stores the socket for notifications to the connected monitor.
    fn set_notification_socket(&self, socket: UnixStream) -> io::Result<()> {
        // A file that is not a socket has no peer address, so this call fails.
        socket.peer_addr()?;
        socket.set_nonblocking(true)?;
        self.state().notifications = Some(socket);
        Ok(())
    }

    /// Marks the connection as ended.
    fn disconnected(&self) {
        let mut state = self.state();
        (state.connected, state.notifications) = (None, None);
        drop(state);
        self.left.notify_all();
    }

    /// Waits until an ending connection has ended. None: another machine is connected, or the
    /// server is closing.
    fn wait_until_free(&self) -> Option<MutexGuard<'_, State>> {
        let leaving = |state: &mut State| {
            let left = state
                .connected
                .as_ref()
                .map(|stream| is_over(stream.as_fd()));
            left.unwrap_or(false) && !state.closing
        };
        let waited = self.left.wait_while(self.state(), leaving);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        (state.connected.is_none() && !state.closing).then_some(state)
    }
}

/// The thread that accepts monitors until the socket is closed.
fn accept_monitors(listener: &UnixListener, server: &Arc<VhostServer>, on_event: &SharedHandler) {
    loop {
        let accepted = listener.accept();
        if server.state().closing {
            break;
        }
        match accepted {
            Ok((stream, _)) => serve_monitor(stream, server, on_event),
            // No file descriptor is free. The monitor waits in the listen queue.
            Err(_) => thread::sleep(PAUSE),
        }
    }
    let state = server.state();
    let taken = |state: &mut State| state.connected.is_some();
    drop(server.left.wait_while(state, taken));
    let _it_is_over_already = server.execute(Order::Close);
    lock(on_event)(FrontEndEvent::Ended);
}

/// Serves a monitor on its own thread.
fn serve_monitor(stream: UnixStream, server: &Arc<VhostServer>, on_event: &SharedHandler) {
    let refuse = |why: &str| lock(on_event)(FrontEndEvent::Violation(why.to_owned()));
    let Some(mut state) = server.wait_until_free() else {
        return refuse("another virtual machine has the disk");
    };
    let (Ok(to_cut), Ok(to_end)) = (stream.try_clone(), stream.try_clone()) else {
        return refuse("no descriptor is free for it");
    };
    state.connected = Some(to_end);
    drop(state);
    let (thread_server, thread_handler) = (Arc::clone(server), Arc::clone(on_event));
    let spawned = needed_thread("vhost guest", move || {
        if let Err(Disconnect(sentence)) = serve(&stream, to_cut, &thread_server) {
            lock(&thread_handler)(FrontEndEvent::Violation(sentence));
        }
        thread_server.disconnected();
    });
    if spawned.is_err() {
        server.disconnected();
        refuse("no thread is to be had for it");
    }
}

/// The properties of a disk as reported to guests.
fn facts(geometry: &Geometry) -> Facts {
    Facts {
        bytes: geometry.bytes(),
        block_bytes: geometry.block_bytes,
        physical_bytes: geometry.physical_block_bytes,
        optimal_bytes: geometry.optimal_io_bytes,
        queues: u16::try_from(QUEUES_MAX).unwrap_or(u16::MAX),
        read_only: geometry.read_only,
        trims: trims(geometry),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const PAUSE: Duration = Duration::from_millis(100);

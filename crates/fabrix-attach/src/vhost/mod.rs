//! The disk as a vhost-user-blk device on a Unix socket: for the virtual machines of QEMU and its
//! like.
//!
//! A thread waits for monitors and serves them one after the other; what their guests ask goes
//! through the shard (`hub`, `ring`). Two guests at once on one disk would destroy it, so a second
//! one is turned away.

mod hub;
mod inflight;
mod memory;
mod request;
mod ring;
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
use crate::{BeginError, Tell, Told, on_shard};
use hub::{Asked, Hub, Order};
use session::{Cut, serve};

/// A disk that is served to virtual machines.
#[derive(Debug)]
pub struct VhostSocket {
    desk: Arc<Desk>,
    listener: UnixListener,
}

/// Where the shard takes orders, and who is connected.
#[derive(Debug)]
struct Desk {
    remote: Remote,
    hub: TaskId,
    /// By what requests in progress are told from those of other disks.
    disk: inflight::Disk,
    state: Mutex<State>,
    /// Told when a monitor has left.
    left: Condvar,
}

#[derive(Debug)]
struct State {
    facts: Facts,
    connected: Option<UnixStream>,
    /// Where the monitor that is connected hears of changes, if it wants to. Writing there does not
    /// wait.
    channel: Option<UnixStream>,
    closing: bool,
}

/// Tells from the thread as well as from the shard.
type SharedTell = Arc<Mutex<Tell>>;

impl VhostSocket {
    /// Serves `device` on `listener`, on the shard of `remote`. `tell` hears when it is over.
    ///
    /// # Errors
    /// The disk cannot be opened on the shard, or has blocks that guests cannot have.
    pub fn begin(
        remote: &Remote,
        device: Arc<dyn Device>,
        listener: UnixListener,
        tell: Tell,
    ) -> Result<Self, BeginError> {
        let tell: SharedTell = Arc::new(Mutex::new(tell));
        let facts = facts(device.geometry());
        let of_shard = Arc::clone(&tell);
        let told: Tell = Box::new(move |told| lock(&of_shard)(told));
        let disk = inflight::of(device.identity());
        let hub = on_shard(remote, move |shard| Hub::open(shard, device, told))??;
        let desk = Arc::new(Desk {
            remote: remote.clone(),
            hub,
            disk,
            state: Mutex::new(State {
                facts,
                connected: None,
                channel: None,
                closing: false,
            }),
            left: Condvar::new(),
        });
        let cannot = |error: io::Error| BeginError(format!("cannot listen: {error}"));
        let door = listener.try_clone().map_err(cannot)?;
        let (of_door, at_door) = (Arc::clone(&desk), tell);
        needed_thread("vhost-user", move || receive(&door, &of_door, &at_door)).map_err(cannot)?;
        Ok(Self { desk, listener })
    }

    /// Whether a virtual machine has the disk.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.desk.state().connected.is_some()
    }

    /// Goes on with the same disk in another size, and tells the machine that has it, if its
    /// monitor wants to hear.
    ///
    /// # Errors
    /// The disk cannot be opened in its new size: it keeps the old one.
    pub fn resized(&self, device: Arc<dyn Device>) -> Result<(), BeginError> {
        let facts = facts(device.geometry());
        let taken = self.desk.ask(Order::Resized(device));
        taken.map_err(|Cut(sentence)| BeginError(sentence))?;
        let mut state = self.desk.state();
        state.facts = facts;
        if let Some(channel) = &state.channel {
            // One that is full is not read: what lies there says the same.
            let _told_already = descriptors::send(channel, &config_changed(), &[]);
        }
        Ok(())
    }

    /// Takes no more machines and cuts off the one that is there; [`Told::Over`] follows.
    pub fn close(&self) {
        let mut state = self.desk.state();
        state.closing = true;
        if let Some(stream) = &state.connected {
            let _it_has_gone = stream.shutdown(std::net::Shutdown::Both);
        }
        if let Ok(listener) = self.listener.try_clone() {
            Listener::from(OwnedFd::from(listener)).shutdown();
        }
        self.desk.left.notify_all();
    }
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Gives an order to the shard and waits until it is carried out.
    fn ask(&self, order: Order) -> Result<u16, Cut> {
        let (answer, answered) = sync_channel(1);
        let asked = Box::new(Asked { order, answer });
        let lost = || Cut("the data path has ended, or is too busy".to_owned());
        self.remote.send(self.hub, asked).map_err(|_| lost())?;
        let done = answered.recv().map_err(|_| lost())?;
        done.map_err(|sentence| Cut(sentence.to_owned()))
    }

    /// Whoever is connected is told of changes at this socket.
    fn tell_at(&self, channel: UnixStream) -> io::Result<()> {
        // What is no socket has no other end.
        channel.peer_addr()?;
        channel.set_nonblocking(true)?;
        self.state().channel = Some(channel);
        Ok(())
    }

    /// Nobody is connected any more.
    fn vacate(&self) {
        let mut state = self.state();
        (state.connected, state.channel) = (None, None);
        drop(state);
        self.left.notify_all();
    }

    /// Waits until who has gone has left nothing behind. None: somebody is there, or it is over.
    fn vacancy(&self) -> Option<MutexGuard<'_, State>> {
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

/// The thread that waits for monitors, until the socket is closed.
fn receive(door: &UnixListener, desk: &Arc<Desk>, tell: &SharedTell) {
    loop {
        let accepted = door.accept();
        if desk.state().closing {
            break;
        }
        match accepted {
            Ok((stream, _)) => welcome(stream, desk, tell),
            // No descriptor is free for one more: it waits in the queue, and we with it.
            Err(_) => thread::sleep(PAUSE),
        }
    }
    let state = desk.state();
    let taken = |state: &mut State| state.connected.is_some();
    drop(desk.left.wait_while(state, taken));
    let _it_is_over_already = desk.ask(Order::Close);
    lock(tell)(Told::Over);
}

/// Serves a monitor on a thread of its own.
fn welcome(stream: UnixStream, desk: &Arc<Desk>, tell: &SharedTell) {
    let turned_away = |why: &str| lock(tell)(Told::Violation(why.to_owned()));
    let Some(mut state) = desk.vacancy() else {
        return turned_away("another virtual machine has the disk");
    };
    let (Ok(to_cut), Ok(to_end)) = (stream.try_clone(), stream.try_clone()) else {
        return turned_away("no descriptor is free for it");
    };
    state.connected = Some(to_end);
    drop(state);
    let (of_thread, told) = (Arc::clone(desk), Arc::clone(tell));
    let spawned = needed_thread("vhost guest", move || {
        if let Err(Cut(sentence)) = serve(&stream, to_cut, &of_thread) {
            lock(&told)(Told::Violation(sentence));
        }
        of_thread.vacate();
    });
    if spawned.is_err() {
        desk.vacate();
        turned_away("no thread is to be had for it");
    }
}

/// What guests are told of a disk.
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

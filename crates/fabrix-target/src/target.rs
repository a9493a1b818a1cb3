//! A running target: its shards and its ports. `change` changes its catalog.

mod ana;
mod change;

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use fabrix_rt::{Control, ControlThread, Nanos, Remote, TaskId};

use crate::config_task::ConfigTask;
use crate::lock::lock;
use crate::port::{self, Port};
use crate::rdma_port::RdmaPort;
use crate::shared::{Carrier, Order, Shared};
use crate::{Deadlines, Listen, Protocol, TargetConfig, TargetError};
use crate::{iscsi, nvme};

/// A running target. Dropping it does not stop it: [`Target::drain`] does.
pub struct Target {
    shared: Arc<Shared>,
    /// Held during a change.
    changing: Mutex<()>,
    ports: Mutex<Vec<(TaskId, Listen)>>,
}

impl Target {
    /// Starts to listen. `shards` serve the connections. The first shard accepts them.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn start(config: TargetConfig, shards: Vec<Remote>) -> Result<Self, TargetError> {
        Self::start_with(
            config,
            Deadlines::default(),
            shards,
            Arc::new(ControlThread),
        )
    }

    /// Starts to listen, with other deadlines than the default ones. `control` is the thread that
    /// calls this and every other method: it waits for the shards.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn start_with(
        config: TargetConfig,
        deadlines: Deadlines,
        shards: Vec<Remote>,
        control: Arc<dyn Control>,
    ) -> Result<Self, TargetError> {
        let desired = config.catalog.clone();
        let shared = Shared::new(config, deadlines, shards, control);
        let config_tasks = shared
            .shards
            .iter()
            .enumerate()
            .map(|(index, shard)| config_task(shard, index, &shared))
            .collect::<Result<_, _>>()?;
        shared.config_tasks.get_or_init(|| config_tasks);
        let target = Self {
            shared,
            changing: Mutex::new(()),
            ports: Mutex::default(),
        };
        target.change(|catalog| {
            *catalog = desired;
            Ok(())
        })?;
        Ok(target)
    }

    /// Number of connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Number of iSCSI sessions, discovery included.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.shared.sessions.len()
    }

    /// Number of NVMe controllers, discovery included.
    #[must_use]
    pub fn controllers(&self) -> usize {
        self.shared.registry.len()
    }

    /// Accepts no more connections, and drains the existing ones.
    pub fn drain(&self) {
        self.shared.draining.store(true, Ordering::SeqCst);
        self.close_all();
        for index in 0..self.shared.shards.len() {
            let _stopped = self.shared.order(index, Order::Drain);
        }
    }

    /// Orders every port to close, without waiting.
    fn close_all(&self) {
        let (done, _nobody_waits) = mpsc::channel();
        for (port, _) in &*self.ports() {
            // A port that gets no order accepts once more, sees the drain, and stops.
            let close = port::Close(done.clone());
            let _not_told = self.shared.shards[0].send(*port, Box::new(close));
        }
    }

    fn ports(&self) -> MutexGuard<'_, Vec<(TaskId, Listen)>> {
        lock(&self.ports)
    }
}

/// Calls `function` on a shard, and waits for its result, without limit.
fn call<T: Send + 'static>(
    control: &dyn Control,
    shard: &Remote,
    function: impl FnOnce(&mut fabrix_rt::Shard) -> T + Send + 'static,
) -> Result<T, TargetError> {
    let (sender, result) = mpsc::sync_channel(1);
    let send = move |shard: &mut fabrix_rt::Shard| {
        let _gone = sender.send(function(shard));
    };
    let sent = shard.run(Box::new(send));
    sent.map_err(|_full| TargetError::Stopped)?;
    let mut called = None;
    control.wait(Nanos::MAX, &mut |at_most| {
        let received = result.recv_timeout(at_most);
        let is_over = !matches!(received, Err(RecvTimeoutError::Timeout));
        called = received.ok();
        is_over
    });
    called.ok_or(TargetError::Stopped)
}

/// Sets up the target's part on a shard.
fn config_task(shard: &Remote, index: usize, shared: &Arc<Shared>) -> Result<TaskId, TargetError> {
    let shared = Arc::clone(shared);
    let control = Arc::clone(&shared.control);
    call(&*control, shard, move |shard| {
        ConfigTask::install(shard, index, shared)
    })
}

/// Opens a port on the accepting shard. The port of a killed process is free only when the kernel
/// has removed its rings, a moment after the end of the process. So a port in use is tried again
/// for that long.
fn listen(at: Listen, shared: &Arc<Shared>) -> Result<(TaskId, Listen), TargetError> {
    let until = shared.control.now() + PORT_PATIENCE;
    loop {
        match try_listen(at, shared) {
            Err(TargetError::Listen(_, error))
                if error.kind() == io::ErrorKind::AddrInUse && shared.control.now() < until =>
            {
                pause(&*shared.control, PORT_RETRY);
            }
            outcome => return outcome,
        }
    }
}

/// Waits for a time.
fn pause(control: &dyn Control, time: Duration) {
    control.wait(control.now() + time, &mut |at_most| {
        thread::sleep(at_most);
        false
    });
}

/// Tries to open a port once.
fn try_listen(at: Listen, shared: &Arc<Shared>) -> Result<(TaskId, Listen), TargetError> {
    let first = shared.shards.first().ok_or(TargetError::Stopped)?;
    let shared = Arc::clone(shared);
    let control = Arc::clone(&shared.control);
    call(&*control, first, move |shard| match at.protocol {
        Protocol::NvmeTcp => Port::open(shard, at, Carrier::NvmeTcp, shared),
        Protocol::Iscsi => Port::open(shard, at, Carrier::Iscsi, shared),
        Protocol::NvmeRdma => RdmaPort::open(shard, at, nvme::rdma::RULES, shared),
        Protocol::Iser => RdmaPort::open(shard, at, iscsi::rdma::RULES, shared),
    })?
    .map_err(|error| TargetError::Listen(at, error))
}

/// Time in which a port in use is tried again, and the delay between attempts.
const PORT_PATIENCE: Duration = Duration::from_millis(500);
const PORT_RETRY: Duration = Duration::from_millis(10);

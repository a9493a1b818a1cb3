//! Shards on threads of their own.

use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use crate::{Remote, Shard, ShardConfig, topology};

/// A shard that runs on its own thread until it is stopped.
#[derive(Debug)]
pub struct ShardThread {
    /// The way to it.
    pub remote: Remote,
    /// Its thread; ends after [`Remote::stop`] with everything of the shard freed.
    pub join: JoinHandle<()>,
}

/// Starts a thread (bound to a CPU when one is given), makes its shard there, runs `setup` on it
/// and then its loop. Returns when `setup` has run.
///
/// Errors: no thread, no such CPU, or the shard's [`StartError`](crate::StartError).
pub fn spawn(
    config: ShardConfig,
    pinned: Option<usize>,
    setup: impl FnOnce(&mut Shard) + Send + 'static,
) -> io::Result<ShardThread> {
    let (ready, started) = mpsc::sync_channel(1);
    let name = format!("shard-{}", config.id);
    let join = thread::Builder::new().name(name).spawn(move || {
        let mut shard = match start(config, pinned) {
            Ok(shard) => shard,
            Err(error) => return drop(ready.send(Err(error))),
        };
        setup(&mut shard);
        if ready.send(Ok(shard.remote())).is_ok() {
            shard.run();
        }
    })?;
    match started.recv() {
        Ok(Ok(remote)) => Ok(ShardThread { remote, join }),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("a shard's setup panicked")),
    }
}

fn start(config: ShardConfig, pinned: Option<usize>) -> io::Result<Shard> {
    if let Some(cpu) = pinned {
        topology::pin(cpu)?;
    }
    Shard::new(config).map_err(io::Error::other)
}

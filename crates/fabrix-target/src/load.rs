//! The load of the shards: how many connections with I/O each of them serves.
//!
//! A new connection goes to the shard with the fewest. An admin queue and a discovery session are
//! no load: if they were counted, a host with one admin queue and one I/O queue would have its I/O
//! queue on the same shard as every other such host.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The loads of all shards.
#[derive(Debug)]
pub(crate) struct Loads {
    /// Connections, by shard.
    connections: Vec<AtomicUsize>,
    /// The first shard to be considered next.
    next: AtomicUsize,
}

/// One connection in the load of its shard. It is dropped when the connection ends, or turns out to
/// carry no I/O.
#[derive(Debug)]
pub(crate) struct Load {
    loads: Arc<Loads>,
    shard: usize,
}

impl Loads {
    /// No connections on so many shards.
    pub(crate) fn new(shards: usize) -> Arc<Self> {
        Arc::new(Self {
            connections: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
            next: AtomicUsize::new(0),
        })
    }

    /// Adds a connection to the shard with the fewest. Among equals it is the next one in turn.
    pub(crate) fn add(self: &Arc<Self>) -> Load {
        let count = self.connections.len();
        let next = self.next.load(Relaxed);
        let in_turn = (next..next + count).map(|shard| shard % count);
        let fewest = in_turn.min_by_key(|shard| self.connections[*shard].load(Relaxed));
        let shard = fewest.expect("a target has a shard");
        self.next.store(shard + 1, Relaxed);
        self.connections[shard].fetch_add(1, Relaxed);
        Load {
            loads: Arc::clone(self),
            shard,
        }
    }
}

impl Load {
    /// The shard.
    pub(crate) fn shard(&self) -> usize {
        self.shard
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.loads.connections[self.shard].fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_one_io_queue_each_use_all_shards() {
        let loads = Loads::new(4);
        let mut shards: Vec<_> = (0..4)
            .map(|_| {
                let admin = loads.add();
                drop(admin); // its Connect says what it is
                loads.add()
            })
            .map(|io| (io.shard(), io))
            .collect();
        shards.sort_by_key(|(shard, _)| *shard);
        let used: Vec<_> = shards.iter().map(|(shard, _)| *shard).collect();
        assert_eq!(used, [0, 1, 2, 3]);
    }

    #[test]
    fn a_shard_whose_connections_have_ended_gets_the_next_ones() {
        let loads = Loads::new(2);
        let mut all: Vec<_> = (0..6).map(|_| loads.add()).collect();
        all.retain(|load| load.shard() == 1);
        let more: Vec<_> = (0..3).map(|_| loads.add()).collect();
        assert!(more.iter().all(|load| load.shard() == 0));
    }
}

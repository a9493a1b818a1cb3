//! Helpers for tests of connections over RDMA: a shard, queue pairs in memory, and a peer that
//! reads and writes memory of the other end.

use fabrix_rt::{Shard, ShardConfig};
use sys_rdma::{Done, Memory, Part, Remote};

use super::Pair;
use super::simulated::{SimulatedPair, SimulatedSizes, link};

pub(crate) fn shard() -> Shard {
    let config = ShardConfig {
        arena_bytes: 16 << 20,
        ..ShardConfig::default()
    };
    Shard::new(config).expect("a shard")
}

/// Both ends of a connection. The receives that have memory are with the devices.
pub(crate) fn linked(sizes: [SimulatedSizes; 2]) -> (SimulatedPair, SimulatedPair) {
    let (mut one, mut other) = link(sizes);
    for pair in [&mut one, &mut other] {
        (0..pair.receives()).for_each(|slot| pair.post_receive(slot));
        pair.flush().expect("in memory");
    }
    (one, other)
}

/// A peer writes into memory of the other end. False: it may not.
pub(crate) fn put(peer: &mut SimulatedPair, shard: &mut Shard, bytes: &[u8], to: Remote) -> bool {
    let mut buf = shard.take_buf(bytes.len()).expect("room");
    buf.bytes_mut().copy_from_slice(bytes);
    let part = part(bytes.len(), to);
    if peer.write(Memory::Buf(buf), &[part]).is_err() {
        return false;
    }
    carry_out(peer);
    let mut news = std::iter::from_fn(|| peer.next_done());
    !news.any(|done| matches!(done, Done::Failed(_)))
}

/// A peer reads memory of the other end. None: it may not.
pub(crate) fn get(
    peer: &mut SimulatedPair,
    shard: &mut Shard,
    bytes: usize,
    from: Remote,
) -> Option<Vec<u8>> {
    let buf = shard.take_buf(bytes).expect("room");
    let part = part(bytes, from);
    peer.read(buf, &[part], MOVE).expect("room");
    match moved(peer)? {
        Memory::Buf(buf) => Some(buf.bytes()[..bytes].to_vec()),
        Memory::Lent(_) => None,
    }
}

fn carry_out(peer: &mut SimulatedPair) {
    peer.flush().expect("in memory");
    while peer.step() {}
}

/// Memory of the RDMA READ in progress, if it ends well.
fn moved(peer: &mut SimulatedPair) -> Option<Memory> {
    carry_out(peer);
    while let Some(done) = peer.next_done() {
        if let Done::Ended {
            is_ok,
            memory,
            token: MOVE,
        } = done
        {
            return memory.filter(|_| is_ok);
        }
    }
    None
}

fn part(bytes: usize, remote: Remote) -> Part {
    Part {
        start: 0,
        bytes: u32::try_from(bytes).expect("short"),
        remote,
    }
}

/// Token of a peer's RDMA READs and WRITEs.
const MOVE: u64 = 0;

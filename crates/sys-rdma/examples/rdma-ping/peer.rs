//! One connection: what its completions mean.

use fabrix_rt::Shard;
use sys_rdma::{Done, QueuePair, Remote};

use crate::client::Client;
use crate::server::Server;

pub(crate) struct Peer {
    pub(crate) queue: QueuePair,
    pub(crate) role: Role,
}

pub(crate) enum Role {
    Client(Client),
    Server(Server),
}

impl Peer {
    /// The connection is established.
    pub(crate) fn begin(&mut self, _: &mut Shard) -> Result<(), String> {
        match &mut self.role {
            Role::Client(client) => client.begin(&mut self.queue),
            Role::Server(_) => Ok(()),
        }
    }

    /// Takes all completions.
    pub(crate) fn take(&mut self, shard: &mut Shard) -> Result<(), String> {
        while let Some(done) = self.queue.next_done() {
            match done {
                Done::Received { slot, bytes, .. } => self.received(shard, slot, bytes)?,
                Done::Ended {
                    token,
                    is_ok: true,
                    memory,
                } => match &mut self.role {
                    Role::Server(server) => server.ended(&mut self.queue, token, memory)?,
                    Role::Client(_) => {}
                },
                Done::Ended { .. } => {}
                Done::Failed(failure) => {
                    if !failure.is_flush() {
                        println!("failed: {failure}");
                    }
                    self.queue.disconnect();
                }
            }
        }
        // A connection that has failed takes nothing more.
        let _closed = self.queue.flush();
        Ok(())
    }

    fn received(&mut self, shard: &mut Shard, slot: u32, bytes: usize) -> Result<(), String> {
        let message = self.queue.message(slot, bytes).to_vec();
        self.queue.post_receive(slot);
        match &mut self.role {
            Role::Server(server) => server.received(shard, &mut self.queue, &message),
            Role::Client(client) => client.received(&mut self.queue, &message),
        }
    }

    /// Whether the connection has ended and nothing of it is left. A client whose connection ended
    /// too early has failed.
    pub(crate) fn is_over(&mut self, shard: &mut Shard) -> Result<bool, String> {
        self.take(shard)?;
        if !self.queue.is_closed() || !self.queue.is_drained() {
            return Ok(false);
        }
        match &self.role {
            Role::Client(client) => client.check().map(|()| true),
            Role::Server(_) => Ok(true),
        }
    }
}

/// A place in memory as `rping` tells it: address, key and bytes, big-endian.
pub(crate) fn write_place(remote: Remote, bytes: u32) -> [u8; PLACE_BYTES] {
    let mut message = [0; PLACE_BYTES];
    message[..8].copy_from_slice(&remote.address.to_be_bytes());
    message[8..12].copy_from_slice(&remote.key.to_be_bytes());
    message[12..].copy_from_slice(&bytes.to_be_bytes());
    message
}

/// None: the message is none of a place.
pub(crate) fn read_place(message: &[u8]) -> Option<(Remote, u32)> {
    let (address, rest) = message.split_first_chunk()?;
    let (key, rest) = rest.split_first_chunk()?;
    let bytes = rest.try_into().ok()?;
    let remote = Remote {
        address: u64::from_be_bytes(*address),
        key: u32::from_be_bytes(*key),
    };
    Some((remote, u32::from_be_bytes(bytes)))
}

/// `struct rping_rdma_info`.
pub(crate) const PLACE_BYTES: usize = 16;

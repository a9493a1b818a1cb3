//! The server of `rping`: reads the client's bytes, and writes them to another place of the client.

use fabrix_rt::{Buf, Shard};
use sys_rdma::{Memory, Part, QueuePair, Unsent};

use crate::peer::{PLACE_BYTES, read_place};

/// What the server of one connection has: the bytes that it has read, until it has written them.
#[derive(Default)]
pub(crate) struct Server {
    read: Option<Buf>,
}

impl Server {
    pub(crate) fn received(
        &mut self,
        shard: &mut Shard,
        queue: &mut QueuePair,
        message: &[u8],
    ) -> Result<(), String> {
        let Some((remote, bytes)) = read_place(message) else {
            return said(queue.send(message, None, None, ECHO));
        };
        let part = Part {
            start: 0,
            bytes,
            remote,
        };
        match self.read.take() {
            None => {
                let buf = shard
                    .take_buf(bytes as usize)
                    .ok_or("the peer wants too much")?;
                said(queue.read(buf, &[part], READ))
            }
            Some(buf) if buf.len() == bytes as usize => {
                said(queue.write(Memory::Buf(buf), &[part], None))?;
                said(queue.send(&GO, None, None, GONE))
            }
            Some(_) => Err("the peer has other room than it had bytes".to_owned()),
        }
    }

    pub(crate) fn ended(
        &mut self,
        queue: &mut QueuePair,
        token: u64,
        memory: Option<Memory>,
    ) -> Result<(), String> {
        if token != READ {
            return Ok(());
        }
        if let Some(Memory::Buf(buf)) = memory {
            self.read = Some(buf);
        }
        said(queue.send(&GO, None, None, GONE))
    }
}

/// A connection that has ended takes no work, and needs none.
pub(crate) fn said(begun: Result<(), Unsent>) -> Result<(), String> {
    match begun {
        Err(unsent) if unsent.why != sys_rdma::Why::Closed => Err(format!("{:?}", unsent.why)),
        _ => Ok(()),
    }
}

/// `rping` looks at the length of the answer only.
const GO: [u8; PLACE_BYTES] = [0; PLACE_BYTES];
const READ: u64 = 1;
const GONE: u64 = 3;
const ECHO: u64 = 4;

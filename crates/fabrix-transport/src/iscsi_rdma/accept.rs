//! The sizes of an accepted connection, and what its initiator is told.

use std::io;
use std::net::SocketAddr;

use fabrix_proto::iscsi::iser::connect::ConnectData;
use fabrix_proto::iscsi::iser::{MESSAGE_BYTES_MAX, REPLY_BYTES_MAX};
use fabrix_proto::iscsi::target::Target;
use fabrix_rt::{Shard, Token};
use sys_rdma::{Parameters, QueueSizes};
use zerocopy::IntoBytes;

use super::IserQueue;
use crate::rdma::{DetachedRequest, Hub, Member};

impl IserQueue<Member> {
    /// Accepts the connection of an initiator. `slots` is the most commands that `target` can have
    /// in progress. `token` is that of the connection's task.
    ///
    /// # Errors
    /// `OutOfMemory` without buffers or locked memory, and what RDMA lacks or the device says. The
    /// initiator is refused then.
    pub fn accept(
        shard: &mut Shard,
        request: DetachedRequest,
        target: Target,
        slots: u16,
        token: Token,
    ) -> io::Result<Self> {
        let hub = Hub::of(shard)?;
        let asked = request.parameters;
        let mut invalidates = ConnectData::parse(&asked.private_data).takes_invalidation();
        let member = hub.accept(shard, request.id, token, |limits| {
            invalidates &= limits.invalidates;
            let reads = asked.initiator_depth.min(limits.initiator_depth);
            let parameters = Parameters {
                private_data: ConnectData::new(invalidates).as_bytes().to_vec(),
                responder_resources: 0,
                initiator_depth: reads.min(READS_MOST),
            };
            (sizes(slots), parameters)
        })?;
        Ok(Self::new(member, target, slots, invalidates))
    }

    /// Address of this end.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.wire.pair.as_ref().and_then(Member::local_addr)
    }
}

/// Sizes of a queue pair for so many commands. What finds no room waits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "messages have a few kilobytes"
)]
fn sizes(slots: u16) -> QueueSizes {
    QueueSizes {
        sends: u32::from(slots) * REQUESTS_PER_SLOT,
        receives: u32::from(slots) + OTHER_REQUESTS,
        receive_bytes: MESSAGE_BYTES_MAX as u32,
        message_bytes: REPLY_BYTES_MAX as u32,
        windows: 0,
    }
}

/// Requests of a slot: one RDMA READ or WRITE, and one response.
const REQUESTS_PER_SLOT: u32 = 2;
/// Receives for requests that are no commands and do not take a CmdSN: pings, task management,
/// texts and a Logout.
const OTHER_REQUESTS: u32 = 8;
/// RDMA READs at the same time. More of them hold up the answers behind them.
const READS_MOST: u8 = 16;

//! The connection of a queue: what the host asks for, and the sentences for its failure.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fabrix_proto::nvme::rdma::capsule::{ENTRY_BYTES, RESPONSE_BYTES};
use fabrix_proto::nvme::rdma::connect::{ConnectAccept, ConnectReject, ConnectRequest};
use fabrix_rt::{Shard, Token};
use sys_rdma::{Limits, Parameters, QueueSizes};
use zerocopy::IntoBytes;

use super::{REQUESTS_OF_A_COMMAND, RdmaHostQueue};
use crate::rdma::{Connecting, Hub, Member, NotConnected, RDMA_READY};
use crate::stream::Ended;

/// The connection of a queue that is not established yet. Dropping it ends the attempt.
pub struct ConnectingRdma {
    connecting: Connecting,
    queue_id: u16,
    slots: u16,
}

impl ConnectingRdma {
    /// Begins the connection of a queue with `slots` slots. `token` is that of the connection's
    /// task: its completions go to [`completed`](Self::completed), later to the queue. `step` is
    /// the most time for the address and for the route; the owner limits the whole.
    ///
    /// # Errors
    /// What RDMA lacks on this machine, or what the connection manager says.
    pub fn begin(
        shard: &mut Shard,
        (to, from): (SocketAddr, Option<IpAddr>),
        (queue_id, slots): (u16, u16),
        step: Duration,
        token: Token,
    ) -> io::Result<Self> {
        Ok(Self {
            connecting: Hub::of(shard)?.connect(to, from, step, token)?,
            queue_id,
            slots,
        })
    }

    /// Takes the word of the hub, a completion's `result`. Result: the queue, once its connection
    /// is established.
    ///
    /// # Errors
    /// Why the connection does not come about, in words.
    pub fn completed(
        &mut self,
        shard: &mut Shard,
        result: i32,
    ) -> Result<Option<RdmaHostQueue<Member>>, Ended> {
        if result < RDMA_READY {
            return Err(Ended::Socket(result));
        }
        let (queue_id, slots) = (self.queue_id, self.slots);
        let choose = |limits: &Limits| (sizes(slots), parameters(limits, queue_id, slots));
        match self.connecting.advance(shard, choose) {
            Ok(None) => Ok(None),
            Ok(Some((member, said))) => {
                ConnectAccept::parse(&said.private_data)
                    .map_err(|sentence| Ended::rdma(&sentence))?;
                Ok(Some(RdmaHostQueue::new(member, slots)))
            }
            Err(error) => Err(Ended::rdma(&sentence(&error))),
        }
    }
}

fn sizes(slots: u16) -> QueueSizes {
    QueueSizes {
        sends: u32::from(slots) * REQUESTS_OF_A_COMMAND,
        receives: receives(slots).into(),
        receive_bytes: RESPONSE_BYTES,
        message_bytes: ENTRY_BYTES,
        windows: slots.into(),
    }
}

/// Receives of a queue: as many as it has entries, of which one is never used.
fn receives(slots: u16) -> u16 {
    slots.saturating_add(1)
}

/// The host reads nothing itself. It answers as many RDMA READs at the same time as its device can.
fn parameters(limits: &Limits, queue_id: u16, slots: u16) -> Parameters {
    let request = ConnectRequest::new(queue_id, slots, receives(slots));
    Parameters {
        private_data: request.as_bytes().to_vec(),
        responder_resources: limits.responder_resources,
        initiator_depth: 0,
    }
}

/// Why there is no connection. A target that refuses says why in its private data.
fn sentence(error: &NotConnected) -> String {
    match error {
        NotConnected::Failed(failure) if failure.is_by_peer() => {
            match ConnectReject::parse(&failure.private_data) {
                Some(reason) => format!("the target refuses the connection: {reason}"),
                None => "the target refuses the connection and does not say why".to_owned(),
            }
        }
        NotConnected::Failed(_) | NotConnected::Ended | NotConnected::Local(_) => error.to_string(),
    }
}

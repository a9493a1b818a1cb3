//! The connection of a session: what the initiator asks for, and the sentences for its failure.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fabrix_proto::iscsi::initiator::Initiator;
use fabrix_proto::iscsi::iser::MESSAGE_BYTES_MAX;
use fabrix_proto::iscsi::iser::connect::ConnectData;
use fabrix_proto::iscsi::iser::initiator::REQUEST_BYTES_MAX;
use fabrix_rt::{Shard, Token};
use sys_rdma::{Limits, Parameters, QueueSizes};
use zerocopy::IntoBytes;

use super::IserInitiatorQueue;
use super::wire::{OTHER_MESSAGES, REQUESTS_OF_A_COMMAND};
use crate::rdma::{Connecting, Hub, Member, NotConnected, RDMA_READY};
use crate::stream::Ended;

/// The connection of a session that is not established yet. Dropping it ends the attempt.
pub struct ConnectingIser {
    connecting: Connecting,
    /// None: the connection is established.
    initiator: Option<Initiator>,
    slots: u16,
}

impl ConnectingIser {
    /// Begins the connection of an initiator with `slots` slots. `token` is that of the
    /// connection's task: its completions go to [`completed`](Self::completed), later to the queue.
    /// `step` is the most time for the address and for the route; the owner limits the whole.
    ///
    /// # Errors
    /// What RDMA lacks on this machine, or what the connection manager says.
    pub fn begin(
        shard: &mut Shard,
        (to, from): (SocketAddr, Option<IpAddr>),
        (initiator, slots): (Initiator, u16),
        step: Duration,
        token: Token,
    ) -> io::Result<Self> {
        Ok(Self {
            connecting: Hub::of(shard)?.connect(to, from, step, token)?,
            initiator: Some(initiator),
            slots,
        })
    }

    /// Takes the word of the hub, a completion's `result`. Result: the queue, once its connection
    /// is established. The first Login Request is prepared.
    ///
    /// # Errors
    /// Why the connection does not come about, in words.
    pub fn completed(
        &mut self,
        shard: &mut Shard,
        result: i32,
    ) -> Result<Option<IserInitiatorQueue<Member>>, Ended> {
        if result < RDMA_READY {
            return Err(Ended::Socket(result));
        }
        let slots = self.slots;
        let choose = |limits: &Limits| (sizes(slots), parameters(limits));
        let advanced = self.connecting.advance(shard, choose);
        let established = advanced.map_err(|error| Ended::rdma(&sentence(&error)))?;
        let Some((member, _)) = established else {
            return Ok(None);
        };
        let Some(initiator) = self.initiator.take() else {
            return Ok(None);
        };
        let mut queue = IserInitiatorQueue::new(member, initiator, slots);
        queue.start();
        Ok(Some(queue))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "messages have a few kilobytes"
)]
fn sizes(slots: u16) -> QueueSizes {
    QueueSizes {
        sends: u32::from(slots) * REQUESTS_OF_A_COMMAND + OTHER_MESSAGES,
        receives: u32::from(slots) + OTHER_RECEIVES,
        receive_bytes: MESSAGE_BYTES_MAX as u32,
        message_bytes: REQUEST_BYTES_MAX as u32,
        windows: slots.into(),
    }
}

/// The initiator reads nothing itself. It answers as many RDMA READs at the same time as its device
/// can. Messages may invalidate tags: those of windows.
fn parameters(limits: &Limits) -> Parameters {
    Parameters {
        private_data: ConnectData::new(limits.invalidates).as_bytes().to_vec(),
        responder_resources: limits.responder_resources,
        initiator_depth: 0,
    }
}

/// Why there is no connection. iSER has no reasons for a refusal.
fn sentence(error: &NotConnected) -> String {
    match error {
        NotConnected::Failed(failure) if failure.is_by_peer() => {
            "the target refuses the RDMA connection and does not say why: is iSER enabled there?"
                .to_owned()
        }
        NotConnected::Failed(_) | NotConnected::Ended | NotConnected::Local(_) => error.to_string(),
    }
}

/// Receives for messages that answer no command: pings and answers to ours, asynchronous messages,
/// texts, and a Logout Response.
const OTHER_RECEIVES: u32 = 8;

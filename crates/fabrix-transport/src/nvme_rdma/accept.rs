//! The sizes of an accepted queue, and what its host is told.

use std::io;
use std::net::SocketAddr;

use fabrix_proto::nvme::rdma::IN_CAPSULE_BYTES;
use fabrix_proto::nvme::rdma::capsule::{ENTRY_BYTES, RESPONSE_BYTES};
use fabrix_proto::nvme::rdma::connect::ConnectAccept;
use fabrix_rt::{Shard, Token};
use sys_rdma::{Parameters, QueueSizes};
use zerocopy::IntoBytes;

use super::RdmaQueue;
use super::work::REQUESTS_OF_A_COMMAND;
use crate::rdma::{DetachedRequest, Hub, Member};

impl RdmaQueue<Member> {
    /// Accepts the connection of a queue with `slots` commands at the same time, or fewer if the
    /// device has no room for so many. `token` is that of the connection's task.
    ///
    /// # Errors
    /// `OutOfMemory` without buffers or locked memory, and what RDMA lacks or the device says. The
    /// host is refused then.
    pub fn accept(
        shard: &mut Shard,
        request: DetachedRequest,
        slots: u16,
        max_data_bytes: u32,
        token: Token,
    ) -> io::Result<Self> {
        let hub = Hub::of(shard)?;
        let asked = request.parameters;
        let mut slots = slots;
        let mut can_invalidate = false;
        let member = hub.accept(shard, request.id, token, |limits| {
            slots = slots_within(limits.work_requests, slots);
            can_invalidate = limits.invalidates;
            let accept = ConnectAccept::new(slots);
            let reads = asked.initiator_depth.min(limits.initiator_depth);
            let parameters = Parameters {
                private_data: accept.as_bytes().to_vec(),
                responder_resources: 0,
                initiator_depth: reads.min(READS_MOST),
            };
            (sizes(slots), parameters)
        })?;
        Ok(Self::new(member, slots, max_data_bytes, can_invalidate))
    }

    /// Address of this end.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.pair.as_ref().and_then(Member::local_addr)
    }
}

/// Commands for which a queue pair with so many work requests has room.
fn slots_within(work_requests: u32, slots: u16) -> u16 {
    let room = work_requests.saturating_sub(REQUESTS_OF_A_COMMAND);
    let most = u16::try_from(room / REQUESTS_PER_SLOT).unwrap_or(u16::MAX);
    slots.min(most).max(1)
}

/// Sizes of a queue pair for so many commands: for most of them one RDMA READ or WRITE and one
/// response, and always enough for one command with the longest list of descriptors.
fn sizes(slots: u16) -> QueueSizes {
    QueueSizes {
        sends: u32::from(slots) * REQUESTS_PER_SLOT + REQUESTS_OF_A_COMMAND,
        receives: slots.into(),
        receive_bytes: ENTRY_BYTES + IN_CAPSULE_BYTES,
        message_bytes: RESPONSE_BYTES,
        windows: 0,
    }
}

/// Requests of a slot: two, and one more because a response may still be on its way when the next
/// command of its slot is answered.
const REQUESTS_PER_SLOT: u32 = 3;
/// RDMA READs at the same time. More of them hold up the answers behind them.
const READS_MOST: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_fits_a_small_device() {
        for work_requests in REQUESTS_OF_A_COMMAND + REQUESTS_PER_SLOT..=512 {
            let slots = slots_within(work_requests, 128);
            let sizes = sizes(slots);
            assert!(sizes.sends.max(sizes.receives) <= work_requests);
            assert!((1..=128).contains(&slots));
        }
        assert_eq!(slots_within(65, 128), 16);
        assert_eq!(slots_within(u32::MAX, 128), 128);
    }
}

//! Connections of NVMe/RDMA: a queue made of a host's request, and the limits of its machine.

use std::rc::Rc;

use fabrix_proto::nvme::rdma::IN_CAPSULE_BYTES;
use fabrix_proto::nvme::rdma::connect::{ConnectReject, ConnectRequest, RejectReason};
use fabrix_proto::nvme::subsystem::Transport;
use fabrix_rt::Shard;
use fabrix_transport::RdmaQueue;
use fabrix_transport::rdma::{DetachedRequest, RdmaRequest};
use zerocopy::IntoBytes;

use super::connection::Nvme;
use crate::Limits;
use crate::connection::{Accepted, Connection};
use crate::local::Local;
use crate::rdma_port::{Refused, RequestRules, make};
use crate::shared::Carrier;

/// Accepts the request of a host for a queue with so many commands at the same time.
pub(crate) fn adopt(
    shard: &mut Shard,
    (request, slots): (DetachedRequest, u16),
    accepted: Accepted,
    local: &Rc<Local>,
) {
    let most = local.shared.catalog.limits.max_transfer_bytes;
    let accept = |shard: &mut Shard, token| RdmaQueue::accept(shard, request, slots, most, token);
    let Some((task, queue)) = make(shard, &local.shared, &accepted, accept) else {
        return;
    };
    let accepted = Accepted {
        address: queue.local_addr(),
        ..accepted
    };
    let nvme = Nvme::new(Transport::Rdma, IN_CAPSULE_BYTES);
    Connection::begin(shard, task, queue, accepted, nvme, local);
}

/// Checks a request, and counts the commands that its queue has at the same time.
fn check(request: RdmaRequest, limits: &Limits) -> Result<Carrier, Refused> {
    let asked = ConnectRequest::parse(request.private_data());
    let reason = match asked {
        Ok(_) if request.reads() == 0 => RejectReason::RESPONDER_RESOURCES,
        Ok(asked) => {
            let most = limits.max_queue_entries;
            let slots = u16::try_from(asked.commands()).map_or(most, |asked| asked.min(most));
            return Ok(Carrier::NvmeRdma(Box::new(request.detach()), slots));
        }
        Err(reason) => reason,
    };
    Err(Refused {
        request,
        answer: answer(reason),
        why: reason.to_string(),
    })
}

fn answer(reason: RejectReason) -> Vec<u8> {
    ConnectReject::new(reason).as_bytes().to_vec()
}

/// How NVMe/RDMA treats requests for connections.
pub(crate) const RULES: RequestRules = RequestRules {
    check,
    no_room: || answer(RejectReason::NO_RESOURCES),
};

//! Connections of iSCSI over RDMA (iSER): a queue made of an initiator's request.

use std::rc::Rc;

use fabrix_proto::iscsi::iser::wishes;
use fabrix_rt::{Shard, Token};
use fabrix_transport::IserQueue;
use fabrix_transport::rdma::{DetachedRequest, RdmaRequest};

use super::connection::{Iscsi, limits};
use crate::connection::{Accepted, Connection};
use crate::lifecycle::STREAM;
use crate::local::Local;
use crate::rdma_port::{Refused, RequestRules, not_made};
use crate::shared::Carrier;
use crate::{Limits, Protocol};

/// Accepts the request of an initiator.
pub(crate) fn adopt(
    shard: &mut Shard,
    request: DetachedRequest,
    accepted: Accepted,
    local: &Rc<Local>,
) {
    let task = shard.reserve();
    let token = Token {
        task,
        slot: STREAM.receive,
    };
    let limits = limits(local, wishes());
    let queue = match IserQueue::accept(shard, request, limits, token) {
        Ok(queue) => queue,
        Err(error) => {
            shard.remove(task);
            return not_made(&local.shared, &accepted, &error);
        }
    };
    let accepted = Accepted {
        address: queue.local_addr(),
        ..accepted
    };
    let iscsi = Iscsi::new(Protocol::Iser);
    Connection::begin(shard, task, queue, accepted, iscsi, local);
}

/// Checks a request. Its private data cannot be wrong. Without RDMA READs there were no writes.
fn check(request: RdmaRequest, _: &Limits) -> Result<Carrier, Refused> {
    match request.reads() {
        0 => Err(Refused {
            request,
            answer: Vec::new(),
            why: "it answers no RDMA READs".to_owned(),
        }),
        _ => Ok(Carrier::Iser(Box::new(request.detach()))),
    }
}

/// How iSER treats requests for connections. The standard has no private data for a refusal.
pub(crate) const RULES: RequestRules = RequestRules {
    check,
    no_room: Vec::new,
};

//! Connections of iSCSI over RDMA (iSER): a queue made of an initiator's request.

use std::rc::Rc;

use fabrix_proto::iscsi::iser::wishes;
use fabrix_rt::Shard;
use fabrix_transport::IserQueue;
use fabrix_transport::rdma::{DetachedRequest, RdmaRequest};

use super::connection::{Iscsi, limits};
use crate::connection::{Accepted, Connection};
use crate::local::Local;
use crate::rdma_port::{Refused, RequestRules, make};
use crate::shared::Carrier;
use crate::{Limits, Protocol};

/// Accepts the request of an initiator.
pub(crate) fn adopt(
    shard: &mut Shard,
    request: DetachedRequest,
    accepted: Accepted,
    local: &Rc<Local>,
) {
    let limits = limits(local, wishes());
    let accept = |shard: &mut Shard, token| IserQueue::accept(shard, request, limits, token);
    let Some((task, queue)) = make(shard, &local.shared, &accepted, accept) else {
        return;
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

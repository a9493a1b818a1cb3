//! Connections of NVMe/RDMA: a queue made of a host's request, and the limits of its machine.

use std::io;
use std::rc::Rc;

use fabrix_proto::nvme::rdma::IN_CAPSULE_BYTES;
use fabrix_proto::nvme::subsystem::Transport;
use fabrix_rt::{Shard, Token};
use fabrix_transport::RdmaQueue;
use fabrix_transport::rdma::DetachedRequest;

use super::connection::Nvme;
use crate::Notice;
use crate::connection::{Accepted, Connection};
use crate::lifecycle::STREAM;
use crate::local::Local;

/// Accepts the request of a host for a queue with so many commands at the same time.
pub(crate) fn adopt(
    shard: &mut Shard,
    (request, slots): (DetachedRequest, u16),
    accepted: Accepted,
    local: &Rc<Local>,
) {
    let task = shard.reserve();
    let token = Token {
        task,
        slot: STREAM.receive,
    };
    let most = local.shared.catalog.limits.max_transfer_bytes;
    let queue = match RdmaQueue::accept(shard, request, slots, most, token) {
        Ok(queue) => queue,
        Err(error) => {
            shard.remove(task);
            let refused = Notice::Refused {
                peer: accepted.peer,
                who: None,
                why: sentence(&error),
            };
            local.shared.notice(&refused);
            return local.shared.disconnected();
        }
    };
    let accepted = Accepted {
        address: queue.local_addr(),
        ..accepted
    };
    let nvme = Nvme::new(Transport::Rdma, IN_CAPSULE_BYTES);
    Connection::begin(shard, task, queue, accepted, nvme, local);
}

/// Why a connection could not be made. Memory that a device knows counts as locked.
fn sentence(error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::OutOfMemory => "; the limit of locked memory (ulimit -l) may be too low",
        _ => "",
    };
    format!("its RDMA connection cannot be made: {error}{hint}")
}

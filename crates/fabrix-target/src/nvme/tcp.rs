//! Connections of NVMe/TCP: a queue made of an accepted socket, and the limits of its machine.

use std::rc::Rc;

use fabrix_proto::nvme::subsystem::Transport;
use fabrix_proto::nvme::tcp::target::{Target, TargetLimits};
use fabrix_rt::{DetachedSocket, Shard, Socket, local_peer};
use fabrix_transport::{Stream, pass};

use super::connection::Nvme;
use crate::connection::{Accepted, Connection};
use crate::lifecycle::STREAM;
use crate::local::Local;

/// Takes over an accepted connection.
pub(crate) fn adopt(
    shard: &mut Shard,
    socket: DetachedSocket,
    accepted: Accepted,
    local: &Rc<Local>,
) {
    let socket = Socket::from(socket);
    let task = shard.reserve();
    let most = &local.shared.catalog.limits;
    let slots = most.max_queue_entries;
    let defaults = TargetLimits::default();
    let most_pdu_bytes = local_peer::most_pdu_bytes(&socket, accepted.peer.ip());
    let limits = TargetLimits {
        max_slots: slots,
        max_data_bytes: most.max_transfer_bytes,
        in_capsule_bytes: IN_CAPSULE_BYTES,
        max_h2c_bytes: defaults.max_h2c_bytes.min(most_pdu_bytes),
        ..defaults
    };
    let machine = Target::new(limits, pass::crc32c);
    let mut stream = Stream::new(machine, socket, task, STREAM, usize::from(slots));
    stream.set_answering();
    let accepted = Accepted {
        address: stream.socket().local_addr().ok(),
        ..accepted
    };
    let nvme = Nvme::new(Transport::Tcp, IN_CAPSULE_BYTES.min(most_pdu_bytes));
    Connection::begin(shard, task, stream, accepted, nvme, local);
}

/// Most data in bytes within a command capsule of an I/O queue. With the common sizes of a write,
/// no R2T is needed. The memory is the same as with R2Ts, which the target sends as soon as a write
/// arrives.
const IN_CAPSULE_BYTES: u32 = 128 << 10;

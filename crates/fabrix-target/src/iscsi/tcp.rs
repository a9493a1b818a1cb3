//! Connections of iSCSI over TCP: the stream of an accepted socket, and the limits of its target.

use std::rc::Rc;

use fabrix_proto::Nanos;
use fabrix_proto::iscsi::target::{Target, TargetLimits};
use fabrix_proto::iscsi::tcp::Tcp;
use fabrix_rt::{DetachedSocket, Shard, Socket};
use fabrix_transport::{Stream, pass};

use super::connection::Iscsi;
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
    let login = local.shared.deadlines.connect.as_millis();
    let limits = TargetLimits {
        max_write_bytes: WRITE_BYTES_MAX,
        max_inline_bytes: INLINE_BYTES_MAX,
        login_ms: u64::try_from(login).unwrap_or(u64::MAX),
        ..TargetLimits::default()
    };
    let target = Target::new(limits, Nanos(shard.now().0));
    let machine = Tcp::new(target, pass::crc32c);
    let slots = usize::from(limits.slots());
    let mut stream = Stream::new(machine, socket, task, STREAM, slots);
    stream.set_answering();
    let accepted = Accepted {
        address: stream.socket().local_addr().ok(),
        ..accepted
    };
    Connection::begin(shard, task, stream, accepted, Iscsi::default(), local);
}

/// Data of one write: twice the longest transfer, because COMPARE AND WRITE has two halves.
const WRITE_BYTES_MAX: u32 = 2 << 20;
/// Writes that came whole and are not longer are handed out where they were received.
const INLINE_BYTES_MAX: u32 = 8 << 10;

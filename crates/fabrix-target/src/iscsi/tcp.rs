//! Connections of iSCSI over TCP: the stream of an accepted socket.

use std::rc::Rc;

use fabrix_proto::Nanos;
use fabrix_proto::iscsi::keys::Wishes;
use fabrix_proto::iscsi::target::Target;
use fabrix_proto::iscsi::tcp::Tcp;
use fabrix_rt::{DetachedSocket, Shard, Socket};
use fabrix_transport::{Stream, pass};

use super::connection::{Iscsi, limits};
use crate::Protocol;
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
    let limits = limits(local, Wishes::default());
    let target = Target::new(limits, Nanos(shard.now().0));
    let machine = Tcp::new(target, pass::crc32c);
    let slots = usize::from(limits.slots());
    let mut stream = Stream::new(machine, socket, task, STREAM, slots);
    stream.set_answering();
    let accepted = Accepted {
        address: stream.socket().local_addr().ok(),
        ..accepted
    };
    Connection::begin(
        shard,
        task,
        stream,
        accepted,
        Iscsi::new(Protocol::Iscsi),
        local,
    );
}

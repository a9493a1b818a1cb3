//! A listener for connections over RDMA: takes the requests at one address on one shard, and hands
//! each to the shard that serves it. The protocol of the address checks the requests.
//!
//! The listener goes with its device: the device could not be removed otherwise. It comes back with
//! the device.

use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::portal::canonical;
use fabrix_rt::{Completion, Shard, Task, TaskId, Token};
use fabrix_transport::rdma::{Hub, RdmaListener, RdmaRequest};

use crate::connection::Accepted;
use crate::lifecycle::STREAM;
use crate::port::Close;
use crate::shared::{Arrival, Carrier, Shared};
use crate::{Limits, Listen, Notice};

/// Requests have come, or the device goes away.
const NEWS: u32 = 0;
/// Timer: listens again.
const AGAIN: u32 = 1;
/// Time between attempts to listen again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Requests that wait until they are taken.
const BACKLOG: u16 = 128;

/// How a protocol treats requests for connections.
#[derive(Clone, Copy)]
pub(crate) struct RequestRules {
    /// Checks a request, and returns what carries its connection.
    pub(crate) check: fn(RdmaRequest, &Limits) -> Result<Carrier, Refused>,
    /// Private data of the answer to a request for which there is no room.
    pub(crate) no_room: fn() -> Vec<u8>,
}

/// A request that is refused.
pub(crate) struct Refused {
    pub(crate) request: RdmaRequest,
    /// Private data of the answer.
    pub(crate) answer: Vec<u8>,
    /// The reason, for the log.
    pub(crate) why: String,
}

/// One listener.
pub(crate) struct RdmaPort {
    task: TaskId,
    /// Protocol and bound address.
    at: Listen,
    rules: RequestRules,
    /// None: its device is gone.
    listener: Option<RdmaListener>,
    shared: Arc<Shared>,
}

impl RdmaPort {
    /// Listens on this shard. Returns the port's task, and the address that the system chose.
    ///
    /// # Errors
    /// What RDMA lacks on this machine, or that the address is in use or none of an RDMA device.
    pub(crate) fn open(
        shard: &mut Shard,
        at: Listen,
        rules: RequestRules,
        shared: Arc<Shared>,
    ) -> io::Result<(TaskId, Listen)> {
        let hub = Hub::of(shard)?;
        let task = shard.reserve();
        let token = Token { task, slot: NEWS };
        let listener = hub
            .listen(at.portal.address, BACKLOG, token)
            .map_err(|error| in_use(error, at.portal.address.ip()))
            .inspect_err(|_| shard.remove(task))?;
        let bound = at.bound(listener.local_addr().unwrap_or(at.portal.address));
        let port = Self {
            task,
            at: bound,
            rules,
            listener: Some(listener),
            shared,
        };
        shard.install(task, Rc::new(RefCell::new(port)));
        Ok((task, bound))
    }

    fn take_requests(&mut self) {
        while let Some(request) = self.listener.as_mut().and_then(RdmaListener::take) {
            // A request of a target that drains is refused: it is dropped.
            if !self.shared.is_draining() {
                self.admit(request);
            }
        }
    }

    /// Hands a request over if the limits allow it and it is right, or refuses it.
    fn admit(&self, request: RdmaRequest) {
        let Some(peer) = request.peer_addr().map(canonical) else {
            return;
        };
        let Some((unauthenticated_peer, load)) = self.shared.admit(peer) else {
            return reject(request, &(self.rules.no_room)());
        };
        match (self.rules.check)(request, &self.shared.catalog.limits) {
            Ok(carrier) => self.shared.hand_over(Arrival {
                carrier,
                peer,
                listener: self.at,
                unauthenticated_peer,
                load,
            }),
            Err(refused) => {
                let (who, why) = (None, refused.why);
                self.shared.notice(&Notice::Refused { peer, who, why });
                reject(refused.request, &refused.answer);
            }
        }
    }

    /// The device goes away, and the listener with it.
    fn lost(&mut self, shard: &mut Shard, errno: i32) {
        if self.listener.take().is_some() {
            let address = self.at.portal.address;
            self.shared.notice(&Notice::ListenerLost { address, errno });
            self.listen_later(shard);
        }
    }

    fn listen_later(&self, shard: &mut Shard) {
        let at = shard.now() + AGAIN_AFTER;
        let token = Token {
            task: self.task,
            slot: AGAIN,
        };
        shard.set_timer(token, at);
    }
}

impl Task for RdmaPort {
    fn completed(&mut self, shard: &mut Shard, _slot: u32, completion: Completion) {
        match completion.result {
            0.. => self.take_requests(),
            errno => self.lost(shard, -errno),
        }
    }

    /// Listens again, once the device is back.
    fn expired(&mut self, shard: &mut Shard, _slot: u32) {
        if self.shared.is_draining() {
            return;
        }
        let token = Token {
            task: self.task,
            slot: NEWS,
        };
        let again =
            Hub::of(shard).and_then(|hub| hub.listen(self.at.portal.address, BACKLOG, token));
        match again {
            Ok(listener) => {
                self.listener = Some(listener);
                let address = self.at.portal.address;
                self.shared.notice(&Notice::ListenerBack { address });
            }
            Err(_) => self.listen_later(shard),
        }
    }

    fn message(&mut self, shard: &mut Shard, message: Box<dyn Any + Send>) {
        let Ok(close) = message.downcast::<Close>() else {
            return debug_assert!(false, "a port takes Close only");
        };
        self.listener = None;
        shard.remove(self.task);
        drop(close);
    }
}

/// The peer may be gone already.
fn reject(request: RdmaRequest, answer: &[u8]) {
    let _gone = request.reject(answer);
}

/// Makes the queue of a right request, for a task that is reserved. None: the queue could not be
/// made, and the operator is told why.
pub(crate) fn make<Q>(
    shard: &mut Shard,
    shared: &Shared,
    accepted: &Accepted,
    accept: impl FnOnce(&mut Shard, Token) -> io::Result<Q>,
) -> Option<(TaskId, Q)> {
    let task = shard.reserve();
    let token = Token {
        task,
        slot: STREAM.receive,
    };
    accept(shard, token)
        .inspect_err(|error| {
            shard.remove(task);
            not_made(shared, accepted, error);
        })
        .ok()
        .map(|queue| (task, queue))
}

/// A connection of a right request could not be made. Memory that a device knows counts as locked.
fn not_made(shared: &Shared, accepted: &Accepted, error: &io::Error) {
    let hint = match error.kind() {
        io::ErrorKind::OutOfMemory => "; the limit of locked memory (ulimit -l) may be too low",
        _ => "",
    };
    shared.notice(&Notice::Refused {
        peer: accepted.peer,
        who: None,
        why: format!("its RDMA connection cannot be made: {error}{hint}"),
    });
    shared.disconnected();
}

/// The connection manager has one error for a port that is in use and for an address that is none
/// of this machine. A socket tells which.
fn in_use(error: io::Error, address: IpAddr) -> io::Error {
    let is_ours = || UdpSocket::bind((address, 0)).is_ok();
    match error.kind() {
        io::ErrorKind::AddrNotAvailable if is_ours() => io::ErrorKind::AddrInUse.into(),
        _ => error,
    }
}

//! What the driver asks of the network for an operation: whether it goes on, and how it ends.

use std::net::SocketAddr;

use fabrix_rt::errno;

use super::end::Stage;
use super::state::{Event, State};
use super::{EndId, ShardId, Tried};

impl State {
    /// Begins to connect.
    pub(crate) fn connect(&mut self, id: EndId, address: SocketAddr) {
        let latency = self.latency();
        if let Some(end) = self.ends.get_mut(id) {
            end.remote = Some(address);
            end.stage = Stage::Connecting;
        }
        self.plan(self.now + latency, Event::Knock(id));
    }

    /// Whether a connect has ended.
    pub(crate) fn try_connect(&self, id: EndId) -> Tried {
        match self.ends.get(id).map(|end| end.stage) {
            Some(Stage::Connecting) => Tried::Waits,
            Some(Stage::Connected) => Tried::Ended(0),
            Some(Stage::Refused) => Tried::Ended(-errno::ECONNREFUSED),
            _ => Tried::Ended(-errno::ECONNRESET),
        }
    }

    /// Accepts a connection, for `shard`.
    pub(crate) fn try_accept(
        &mut self,
        shard: ShardId,
        address: SocketAddr,
    ) -> Result<EndId, Tried> {
        let Some(listening) = self.listeners.get_mut(&address) else {
            return Err(Tried::Ended(-errno::EINVAL));
        };
        if listening.is_shut_down {
            return Err(Tried::Ended(-errno::EINVAL));
        }
        let id = listening.backlog.pop_front().ok_or(Tried::Waits)?;
        self.belongs_to(id, shard);
        Ok(id)
    }

    /// Tells that a shard carries out the operations of an end from now on.
    pub(crate) fn belongs_to(&mut self, id: EndId, shard: ShardId) {
        if let Some(end) = self.ends.get_mut(id) {
            end.shard = shard;
        }
    }

    /// Receives into `into`.
    pub(crate) fn try_receive(&mut self, id: EndId, into: &mut [u8]) -> Tried {
        let Some(end) = self.ends.get_mut(id) else {
            return Tried::Ended(-errno::EBADF);
        };
        let shorten = self.habits.short_receives.then_some(&mut self.choices);
        let tried = end.receive(into, shorten);
        if let (Tried::Ended(1..), Some(peer)) = (&tried, end.peer) {
            // The window is open again.
            self.wake(peer);
        }
        tried
    }
}

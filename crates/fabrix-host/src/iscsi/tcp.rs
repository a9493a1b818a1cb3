//! TCP as the way to a target: a socket, and the machine that speaks on it. The one file here that
//! names a transport.

use std::net::SocketAddr;

use fabrix_block::Channel;
use fabrix_proto::iscsi::initiator::Initiator;
use fabrix_proto::iscsi::tcp::Tcp;
use fabrix_rt::{Completion, Shard, TaskId};
use fabrix_transport::{Ended, Stream, pass};

use super::connection::Link;
use super::plan::{Found, Plan};
use super::session::Session;
use crate::wire::{OperationKind, Position, Route, Wire};
use crate::{ConnectError, channel, probe};

/// One connection over TCP.
type TcpLink = Wire<Tcp<Initiator>>;

impl Plan {
    /// Connects to `portal`, learns what is there, disconnects.
    ///
    /// # Errors
    /// Why not, as a sentence. It comes within `bringup_timeout`, whatever the target does.
    pub(super) fn probe(&self, portal: SocketAddr) -> Result<Found, ConnectError> {
        let plan = self.at(portal);
        let engine = self.options.engine;
        probe::probe(engine, |task| Session::<TcpLink>::new(task, plan))
    }

    /// A channel to the disk, with a session of its own that begins to connect.
    pub(super) fn open(self, shard: &mut Shard) -> Box<dyn Channel> {
        channel::open(shard, |task| Session::<TcpLink>::new(task, self))
    }
}

impl Link for TcpLink {
    type Stream = Stream<Tcp<Initiator>>;

    fn open(
        shard: &mut Shard,
        task: TaskId,
        position: Position,
        route: Route,
    ) -> std::io::Result<Self> {
        Self::open(shard, task, position, route)
    }

    #[inline(always)]
    fn completed(&mut self, ending: OperationKind, completion: Completion) -> Result<bool, Ended> {
        self.completed(ending, completion)
    }

    fn begin(&mut self, task: TaskId, initiator: Initiator, slots: usize) -> &mut Self::Stream {
        self.begin(task, Tcp::new(initiator, pass::crc32c), slots)
    }

    #[inline(always)]
    fn stream(&self) -> Option<&Self::Stream> {
        self.stream.as_ref()
    }

    #[inline(always)]
    fn stream_mut(&mut self) -> Option<&mut Self::Stream> {
        self.stream.as_mut()
    }

    fn close(&mut self, is_busy: bool) {
        self.close(is_busy);
    }

    fn shut(&mut self) {
        self.shut();
    }

    fn part(&mut self, shard: &mut Shard) {
        self.part(shard);
    }

    fn has_parted(&self) -> bool {
        self.has_parted()
    }

    fn is_quiet(&self) -> bool {
        self.is_quiet()
    }
}

//! The transports of a session. The only file of this folder that chooses one.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_proto::iscsi::initiator::Initiator;
use fabrix_proto::iscsi::tcp::Tcp;
use fabrix_rt::Shard;
use fabrix_transport::ConnectingIser;

use super::connection::IscsiLink;
use super::plan::{Found, Plan};
use super::session::Session;
use crate::multipath::link::{PathChannel, PathLink};
use crate::rdma::RdmaLink;
use crate::tcp::TcpLink;
use crate::{ConnectError, Transport, channel, probe};

impl Plan {
    /// Connects to `portal`, learns what the target has, disconnects.
    ///
    /// # Errors
    /// As [`probe::probe`].
    pub(super) fn probe(&self, portal: SocketAddr) -> Result<Found, ConnectError> {
        let plan = self.at(portal);
        match self.transport {
            Transport::Tcp => plan.probe_over::<TcpLink<Tcp<Initiator>>>(),
            Transport::Rdma => plan.probe_over::<RdmaLink<ConnectingIser>>(),
        }
    }

    fn probe_over<L: IscsiLink>(self) -> Result<Found, ConnectError> {
        let options = Arc::clone(&self.options);
        probe::probe(&options, |task| Session::<L>::from_plan(task, self))
    }

    /// Opens a channel to the disk, with a session of its own that starts to connect. `path` makes
    /// it a path of a pool.
    pub(super) fn open(
        self,
        shard: &mut Shard,
        path: Option<Rc<PathLink>>,
    ) -> Box<dyn PathChannel> {
        match self.transport {
            Transport::Tcp => self.open_over::<TcpLink<Tcp<Initiator>>>(shard, path),
            Transport::Rdma => self.open_over::<RdmaLink<ConnectingIser>>(shard, path),
        }
    }

    fn open_over<L: IscsiLink>(
        self,
        shard: &mut Shard,
        path: Option<Rc<PathLink>>,
    ) -> Box<dyn PathChannel> {
        channel::open(shard, path, |task| Session::<L>::from_plan(task, self))
    }
}

//! The transports of a session. The only file of this folder that chooses one.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use fabrix_proto::nvme::bringup::Facts;
use fabrix_proto::nvme::tcp::host::Host;
use fabrix_rt::Shard;
use fabrix_transport::ConnectingRdma;

use super::plan::Plan;
use super::queue::NvmeLink;
use super::session::Session;
use crate::multipath::link::{PathChannel, PathLink};
use crate::rdma::RdmaLink;
use crate::tcp::TcpLink;
use crate::{ConnectError, Transport, channel, probe};

impl Plan {
    /// Connects to `address`, learns what the controller has, disconnects.
    ///
    /// # Errors
    /// As [`probe::probe`].
    pub(crate) fn probe(&self, address: SocketAddr) -> Result<Arc<Facts>, ConnectError> {
        let plan = Self {
            address,
            ..self.clone()
        };
        match self.transport {
            Transport::Tcp => plan.probe_over::<TcpLink<Host>>(),
            Transport::Rdma => plan.probe_over::<RdmaLink<ConnectingRdma>>(),
        }
    }

    fn probe_over<L: NvmeLink>(self) -> Result<Arc<Facts>, ConnectError> {
        let options = Arc::clone(&self.options);
        probe::probe(&options, |task| Session::<L>::from_plan(task, self))
    }

    /// Opens a channel to the disk, with a session of its own that starts to connect. `path` makes
    /// it a path of a pool.
    pub(crate) fn open(
        &self,
        shard: &mut Shard,
        path: Option<Rc<PathLink>>,
    ) -> Box<dyn PathChannel> {
        match self.transport {
            Transport::Tcp => self.open_over::<TcpLink<Host>>(shard, path),
            Transport::Rdma => self.open_over::<RdmaLink<ConnectingRdma>>(shard, path),
        }
    }

    fn open_over<L: NvmeLink>(
        &self,
        shard: &mut Shard,
        path: Option<Rc<PathLink>>,
    ) -> Box<dyn PathChannel> {
        let plan = self.clone();
        channel::open(shard, path, |task| Session::<L>::from_plan(task, plan))
    }
}

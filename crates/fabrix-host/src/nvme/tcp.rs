//! NVMe/TCP as a link to a controller. The only file of this folder that names a transport.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Channel;
use fabrix_proto::nvme::bringup::Facts;
use fabrix_proto::nvme::tcp::host::{Host, HostLimits};
use fabrix_rt::Shard;
use fabrix_transport::{Stream, pass};

use super::plan::Plan;
use super::session::Session;
use crate::tcp::{HostMachine, TcpLink};
use crate::{ConnectError, Options, channel, probe};

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
        let options = Arc::clone(&self.options);
        probe::probe(&options, |task| {
            Session::<TcpLink<Host>>::from_plan(task, plan)
        })
    }

    /// Opens a channel to the disk, with a session of its own that starts to connect.
    pub(crate) fn open(&self, shard: &mut Shard) -> Box<dyn Channel> {
        let plan = self.clone();
        channel::open(shard, |task| {
            Session::<TcpLink<Host>>::from_plan(task, plan)
        })
    }
}

impl HostMachine for Host {
    type Setup = Arc<Options>;

    fn new(options: Arc<Options>, slots: u16) -> Self {
        let limits = HostLimits {
            max_slots: slots,
            max_r2t: R2TS,
            header_digest: options.header_digest,
            data_digest: options.data_digest,
            fewer_digests: false,
        };
        Self::new(limits, pass::crc32c)
    }

    fn start(stream: &mut Stream<Self>) {
        let (machine, mut out) = stream.speak();
        machine.start(&mut out);
    }

    fn not_a_target(within: Duration) -> String {
        format!(
            "something accepts connections and did not answer ICReq within {within:?}: is it an NVMe/TCP target?"
        )
    }
}

/// R2Ts of one write that the controller may have outstanding.
const R2TS: u32 = 4;

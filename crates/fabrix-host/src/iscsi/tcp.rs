//! iSCSI over TCP as a link to a target. The only file of this folder that names a transport.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Channel;
use fabrix_proto::iscsi::initiator::{Initiator, LoginConfig};
use fabrix_proto::iscsi::tcp::Tcp;
use fabrix_rt::Shard;
use fabrix_transport::{Stream, pass};

use super::plan::{Found, Plan};
use super::session::Session;
use crate::tcp::{HostMachine, TcpLink};
use crate::{ConnectError, channel, probe};

type Link = TcpLink<Tcp<Initiator>>;

impl Plan {
    /// Connects to `portal`, learns what the target has, disconnects.
    ///
    /// # Errors
    /// As [`probe::probe`].
    pub(super) fn probe(&self, portal: SocketAddr) -> Result<Found, ConnectError> {
        let plan = self.at(portal);
        let options = Arc::clone(&self.options);
        probe::probe(&options, |task| Session::<Link>::from_plan(task, plan))
    }

    /// Opens a channel to the disk, with a session of its own that starts to connect.
    pub(super) fn open(self, shard: &mut Shard) -> Box<dyn Channel> {
        channel::open(shard, |task| Session::<Link>::from_plan(task, self))
    }
}

impl HostMachine for Tcp<Initiator> {
    type Setup = LoginConfig;

    fn new(login: LoginConfig, slots: u16) -> Self {
        Self::new(Initiator::new(slots, login), pass::crc32c)
    }

    fn start(stream: &mut Stream<Self>) {
        let (initiator, mut out) = fabrix_proto::iscsi::framing::Carrier::speak(stream);
        initiator.start(&mut out);
    }

    fn not_a_target(within: Duration) -> String {
        format!(
            "something accepts connections and did not let us log in within {within:?}: is it an iSCSI target?"
        )
    }
}

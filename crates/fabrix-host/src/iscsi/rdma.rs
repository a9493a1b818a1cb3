//! iSCSI over RDMA (iSER) as a link to a target.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fabrix_proto::iscsi::initiator::{Initiator, LoginConfig};
use fabrix_rt::{Shard, Token};
use fabrix_transport::rdma::Member;
use fabrix_transport::{ConnectingIser, Ended, IserInitiatorQueue};

use crate::rdma::{Connecting, STEP_MOST};

impl Connecting for ConnectingIser {
    type Setup = LoginConfig;
    type Queue = IserInitiatorQueue<Member>;

    fn begin(
        shard: &mut Shard,
        ends: (SocketAddr, Option<IpAddr>),
        _: usize,
        (login, slots): (LoginConfig, u16),
        token: Token,
    ) -> io::Result<Self> {
        let initiator = Initiator::new(slots, login);
        Self::begin(shard, ends, (initiator, slots), STEP_MOST, token)
    }

    #[inline(always)]
    fn completed(
        &mut self,
        shard: &mut Shard,
        result: i32,
    ) -> Result<Option<IserInitiatorQueue<Member>>, Ended> {
        self.completed(shard, result)
    }

    fn not_a_target(within: Duration) -> String {
        format!(
            "something accepts RDMA connections and did not let us log in within {within:?}: is it an iSER target?"
        )
    }
}

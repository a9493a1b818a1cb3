//! NVMe/RDMA as a link to a controller.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fabrix_rt::{Shard, Token};
use fabrix_transport::rdma::Member;
use fabrix_transport::{ConnectingRdma, Ended, RdmaHostQueue};

use crate::Options;
use crate::rdma::{Connecting, STEP_MOST};

impl Connecting for ConnectingRdma {
    type Setup = Arc<Options>;
    type Queue = RdmaHostQueue<Member>;

    /// Index of the connection in its session: the queue's id.
    fn begin(
        shard: &mut Shard,
        ends: (SocketAddr, Option<IpAddr>),
        index: usize,
        (options, slots): (Arc<Options>, u16),
        token: Token,
    ) -> io::Result<Self> {
        let queue_id = u16::try_from(index).expect("a session has a few queues");
        let step = STEP_MOST.min(options.bringup_timeout);
        Self::begin(shard, ends, (queue_id, slots), step, token)
    }

    #[inline(always)]
    fn completed(
        &mut self,
        shard: &mut Shard,
        result: i32,
    ) -> Result<Option<RdmaHostQueue<Member>>, Ended> {
        self.completed(shard, result)
    }

    fn not_a_target(within: Duration) -> String {
        format!(
            "something accepts RDMA connections and did not answer within {within:?}: is it an NVMe/RDMA target?"
        )
    }
}

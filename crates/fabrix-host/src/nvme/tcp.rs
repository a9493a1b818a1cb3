//! NVMe/TCP as the way to a controller: a socket, the machine that speaks on it, and what both may
//! use. The one file here that names a transport.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Channel;
use fabrix_proto::nvme::bringup::Facts;
use fabrix_proto::nvme::tcp::host::{Host, HostLimits};
use fabrix_rt::{Completion, Shard, TaskId};
use fabrix_transport::{Ended, Stream, pass};

use super::plan::Plan;
use super::queue::Link;
use super::session::Session;
use crate::wire::{OperationKind, Position, Route, Wire};
use crate::{ConnectError, Options, channel, probe};

/// One connection of NVMe/TCP.
pub(crate) struct Tcp {
    wire: Wire<Host>,
    limits: HostLimits,
}

impl Plan {
    /// Connects to `address`, learns what is there, disconnects.
    ///
    /// # Errors
    /// Why not, as a sentence. It comes within `bringup_timeout`, whatever the target does.
    pub(crate) fn probe(&self, address: SocketAddr) -> Result<Arc<Facts>, ConnectError> {
        let plan = Self {
            address,
            ..self.clone()
        };
        let engine = self.options.engine;
        probe::probe(engine, |task| Session::<Tcp>::new(task, plan))
    }

    /// A channel to the disk, with a session of its own that begins to connect.
    pub(crate) fn open(&self, shard: &mut Shard) -> Box<dyn Channel> {
        let plan = self.clone();
        channel::open(shard, |task| Session::<Tcp>::new(task, plan))
    }
}

impl Link for Tcp {
    type Queue = Stream<Host>;

    fn open(
        shard: &mut Shard,
        task: TaskId,
        position: Position,
        route: Route,
        (options, slots): (&Options, u16),
    ) -> std::io::Result<Self> {
        let limits = HostLimits {
            max_slots: slots,
            max_r2t: R2TS,
            header_digest: options.header_digest,
            data_digest: options.data_digest,
            fewer_digests: false,
        };
        let wire = Wire::open(shard, task, position, route)?;
        Ok(Self { wire, limits })
    }

    #[inline(always)]
    fn completed(
        &mut self,
        task: TaskId,
        ending: OperationKind,
        completion: Completion,
    ) -> Result<(), Ended> {
        if self.wire.completed(ending, completion)? {
            let machine = Host::new(self.limits, pass::crc32c);
            let slots = usize::from(self.limits.max_slots);
            let (machine, mut out) = self.wire.begin(task, machine, slots).speak();
            machine.start(&mut out);
        }
        Ok(())
    }

    #[inline(always)]
    fn queue(&self) -> Option<&Stream<Host>> {
        self.wire.stream.as_ref()
    }

    #[inline(always)]
    fn queue_mut(&mut self) -> Option<&mut Stream<Host>> {
        self.wire.stream.as_mut()
    }

    fn close(&mut self, is_busy: bool) {
        self.wire.close(is_busy);
    }

    fn shut(&mut self) {
        self.wire.shut();
    }

    fn part(&mut self, shard: &mut Shard) {
        self.wire.part(shard);
    }

    fn has_parted(&self) -> bool {
        self.wire.has_parted()
    }

    fn is_quiet(&self) -> bool {
        self.wire.is_quiet()
    }

    fn not_a_target(within: Duration) -> String {
        format!(
            "something accepts connections and did not answer ICReq within {within:?}: is it an NVMe/TCP target?"
        )
    }
}

/// R2Ts of one write that the controller may have outstanding.
const R2TS: u32 = 4;

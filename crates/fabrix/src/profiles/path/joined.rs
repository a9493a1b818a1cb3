//! NVMe/TCP without a wire: the machines of host and target joined in memory, before a disk.
//!
//! A read is said by the host's machine, heard and answered by the target's, and its answer heard
//! by the host's, before the disk is asked. No machine ever sees payload, so none is moved; there
//! is no socket, no other thread and nothing to wait for. What a read costs here more than on the
//! disk alone is what the protocol costs.

use std::sync::Arc;

use fabrix_block::{
    Channel, Device, Geometry, Identity, OpenError, Operation, Request, Status, Submit,
};
use fabrix_proto::nvme::spec::{CompletionEntry, Status as NvmeStatus, SubmissionEntry};
use fabrix_proto::nvme::tcp::host::{self, Host, HostLimits, HostTransfer};
use fabrix_proto::nvme::tcp::target::{self, Target, TargetLimits, Transfer};
use fabrix_proto::{Machine, Pass, Sink, Slot, Want};
use fabrix_rt::Shard;

/// A disk behind the protocol, which is read only.
pub(super) struct Joined {
    inner: Arc<dyn Device>,
    geometry: Geometry,
}

impl Joined {
    pub(super) fn new(inner: Arc<dyn Device>) -> Arc<Self> {
        let geometry = Geometry {
            read_only: true,
            ..inner.geometry().clone()
        };
        Arc::new(Self { inner, geometry })
    }
}

impl Device for Joined {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn identity(&self) -> &Identity {
        self.inner.identity()
    }

    fn open(&self, shard: &mut Shard) -> Result<Box<dyn Channel>, OpenError> {
        Ok(Box::new(JoinedChannel {
            inner: self.inner.open(shard)?,
            exchange: Exchange::begin(),
            block_bytes: self.geometry.block_bytes,
        }))
    }
}

struct JoinedChannel {
    inner: Box<dyn Channel>,
    exchange: Exchange,
    block_bytes: u32,
}

impl Channel for JoinedChannel {
    fn submit<'a>(&mut self, shard: &mut Shard, request: Request<'a>) -> Submit<'a> {
        if request.operation.writes() {
            return request.done(Status::ReadOnly);
        }
        let (lba, blocks) = (request.lba, request.blocks);
        let reads = request.operation == Operation::Read;
        if reads && !self.exchange.read(lba, blocks, blocks * self.block_bytes) {
            return request.done(Status::Internal);
        }
        self.inner.submit(shard, request)
    }
}

/// Both machines, and what is under way between them.
struct Exchange {
    host: Host,
    target: Target,
    there: Wire,
    back: Wire,
}

impl Exchange {
    /// Brings the connection up; neither side asks for digests.
    fn begin() -> Self {
        let mut exchange = Self {
            host: Host::new(HostLimits::default(), |_| 0),
            target: Target::new(TargetLimits::default(), |_| 0),
            there: Wire::default(),
            back: Wire::default(),
        };
        exchange.host.start(&mut exchange.there);
        // A connection that does not come up shows with the first read.
        let _ready = exchange.turn();
        exchange.target.set_queue(false, QUEUE_ENTRIES);
        exchange.target.set_flow_control(false);
        exchange
    }

    /// Says one read and hears its answer; false when they did not understand each other.
    fn read(&mut self, lba: u64, blocks: u32, bytes: u32) -> bool {
        let mut entry = SubmissionEntry::read(1, lba, blocks);
        let transfer = HostTransfer::Read { bytes };
        let said = self
            .host
            .command(Slot(0), &mut entry, transfer, &mut self.there);
        said && self.turn() == Some(bytes)
    }

    /// Lets the target hear what the host has said, and the host the answer: how much data came
    /// with success.
    fn turn(&mut self) -> Option<u32> {
        let (there, back) = (&mut self.there, &mut self.back);
        let mut came = None;
        let heard = there.pass(&mut self.target, back, answer)
            && back.pass(&mut self.host, there, |host, event, _| {
                if let host::Event::Completed { data_bytes, .. } = event {
                    came = (host.entry().status() == NvmeStatus::SUCCESS).then_some(data_bytes);
                }
            });
        came.filter(|_| heard)
    }
}

/// The target's owner: all that is asked for is there.
fn answer(machine: &mut Target, event: target::Event, out: &mut Wire) {
    let target::Event::Command { slot, transfer, .. } = event else {
        return;
    };
    let bytes = match transfer {
        Transfer::Send { bytes } => bytes,
        Transfer::None | Transfer::Inline { .. } | Transfer::Fetch { .. } => 0,
    };
    machine.answer(
        slot,
        CompletionEntry::new(NvmeStatus::SUCCESS, 0),
        bytes,
        out,
    );
}

/// Headers on their way; of payload there is nothing but its place.
#[derive(Default)]
struct Wire {
    headers: Vec<u8>,
}

impl Sink for Wire {
    fn bytes(&mut self, bytes: &[u8]) {
        self.headers.extend_from_slice(bytes);
    }

    fn payload(&mut self, _slot: Slot, _offset: u32, _bytes: u32, _pass: Pass) {}
}

impl Wire {
    /// Lets a machine hear everything that is here; `event` gets what it noticed. False: it is
    /// over, or wants more.
    fn pass<M: Machine>(
        &mut self,
        machine: &mut M,
        back: &mut Self,
        mut event: impl FnMut(&mut M, M::Event, &mut Self),
    ) -> bool {
        let mut taken = 0;
        loop {
            let noticed = match machine.want() {
                Want::Header { bytes } => {
                    let Some(header) = self.headers.get(taken..taken + bytes) else {
                        break;
                    };
                    taken += bytes;
                    machine.header(header, back).map(|taken| taken.event)
                }
                Want::Payload { .. } => machine.payload(true, back),
                Want::Closed => return false,
            };
            match noticed {
                Ok(Some(noticed)) => event(machine, noticed, back),
                Ok(None) => {}
                Err(_) => return false,
            }
        }
        let whole = taken == self.headers.len();
        self.headers.clear();
        whole
    }
}

/// As many as a host usually asks for; one is used.
const QUEUE_ENTRIES: u32 = 128;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fabrix_bench::{Config, Job, run};
    use fabrix_block::filter::stats::{Kind, Stats};
    use fabrix_block::{Spec, open_local_as};

    use super::*;

    #[test]
    fn both_machines_agree_on_read_after_read() {
        let mut exchange = Exchange::begin();
        for lba in 0..1000 {
            assert!(exchange.read(lba, 8, 4096), "LBA {lba}");
        }
        assert!(
            !exchange.read(0, 8, 64 << 20),
            "that is more than a target sends"
        );
    }

    #[test]
    fn reads_reach_the_disk_behind_the_protocol() {
        let spec = Spec::parse("ram:8M").expect("a disk's text");
        let counted = Stats::new(open_local_as(&spec, "joined").expect("memory"));
        let disk = Joined::new(Arc::clone(&counted) as Arc<dyn Device>);
        let job = Job {
            number_ios: Some(500),
            ramp: Duration::ZERO,
            ..Job::default()
        };
        let results = run(&[disk], &job, &Config::default(), &mut |_| {}).expect("it runs");
        assert!(results.is_clean(), "{:?}", results.aggregate.errors.first);
        // One before the job begins.
        assert_eq!(counted.counts(Kind::Read).requests, 501);
        assert_eq!(results.aggregate.read.ios, 500);
    }
}

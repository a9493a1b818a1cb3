//! NVMe/TCP without a network: the host machine and the target machine joined in memory in front of
//! a disk.
//!
//! For each read, the command passes from the host machine to the target machine and the answer
//! back, before the disk executes the read. The machines never see payload, so none is moved. There
//! is no socket, no other thread and no waiting. The additional cost of a read is the cost of the
//! protocol.

use std::sync::Arc;

use fabrix_block::{
    Channel, Device, Geometry, Identity, OpenError, Operation, Request, Status, Submit,
};
use fabrix_proto::nvme::queue::{ControllerEvent, HostEvent, HostTransfer, Transfer};
use fabrix_proto::nvme::spec::{CompletionEntry, Status as NvmeStatus, SubmissionEntry};
use fabrix_proto::nvme::tcp::host::{Host, HostLimits};
use fabrix_proto::nvme::tcp::target::{Target, TargetLimits};
use fabrix_proto::{Machine, Pass, Sink, Slot, Want};
use fabrix_rt::Shard;

/// A read-only disk behind the joined machines.
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

/// Both machines, and the headers between them.
struct Exchange {
    host: Host,
    target: Target,
    there: Wire,
    back: Wire,
}

impl Exchange {
    /// Establishes the connection without digests.
    fn begin() -> Self {
        let mut exchange = Self {
            host: Host::new(HostLimits::default(), |_| 0),
            target: Target::new(TargetLimits::default(), |_| 0),
            there: Wire::default(),
            back: Wire::default(),
        };
        exchange.host.start(&mut exchange.there);
        // A failed connection shows at the first read.
        let _ready = exchange.turn();
        exchange.target.set_queue(false, QUEUE_ENTRIES);
        exchange.target.set_flow_control(false);
        exchange
    }

    /// Passes one read and its answer. False: the machines disagree.
    fn read(&mut self, lba: u64, blocks: u32, bytes: u32) -> bool {
        let mut entry = SubmissionEntry::read(1, lba, blocks);
        let transfer = HostTransfer::Read { bytes };
        let said = self
            .host
            .command(Slot(0), &mut entry, transfer, &mut self.there);
        said && self.turn() == Some(bytes)
    }

    /// Passes all headers to the target and the answers to the host. Returns the number of data
    /// bytes of a successful answer.
    fn turn(&mut self) -> Option<u32> {
        let (there, back) = (&mut self.there, &mut self.back);
        let mut came = None;
        let heard = there.pass(&mut self.target, back, answer)
            && back.pass(&mut self.host, there, |host, event, _| {
                if let HostEvent::Completed { data_bytes, .. } = event {
                    came = (host.entry().status() == NvmeStatus::SUCCESS).then_some(data_bytes);
                }
            });
        came.filter(|_| heard)
    }
}

/// Acts as owner of the target machine: accepts everything.
fn answer(machine: &mut Target, event: ControllerEvent, out: &mut Wire) {
    let ControllerEvent::Command {
        claim, transfer, ..
    } = event
    else {
        return;
    };
    let bytes = match transfer {
        Transfer::Send { bytes } => bytes,
        Transfer::None | Transfer::Inline { .. } | Transfer::Fetch { .. } => 0,
    };
    machine.answer(
        claim.slot(),
        CompletionEntry::new(NvmeStatus::SUCCESS, 0),
        bytes,
        out,
    );
}

/// Headers in transit. Payload is represented by its position only.
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
    /// Passes all headers to a machine. `event` receives its events. False: the connection has
    /// ended, or the machine expects more bytes.
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

/// A typical queue size of hosts. Only one entry is used.
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
        // One read before the job starts.
        assert_eq!(counted.counts(Kind::Read).requests, 501);
        assert_eq!(results.aggregate.read.ios, 500);
    }
}

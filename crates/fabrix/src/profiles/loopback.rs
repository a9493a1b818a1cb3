//! A disk served by a target in this process and reached again over loopback: the whole path on one machine.
//!
//! Target on the first processor where there are several; the load has the others. Whose processor time is whose can be
//! told apart here, because both ends are ours.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Device;
use fabrix_block::exclusive::Exclusive;
use fabrix_rt::SpinPolicy;
use fabrix_rt::engine::Engine;
use fabrix_target::{Export, Initiators, Listen, SubsystemConfig, Target, TargetConfig};

use crate::args::{Cores, EngineArgs, RemoteArgs};
use crate::disks::host_options;
use crate::failure::Failure;
use crate::shards::Shards;

const NQN: &str = "nqn.2026-01.io.fabrix:loopback";

/// The target, and the disk as seen through it. Dropping it ends both.
pub(crate) struct Loopback {
    /// Taken when it ends.
    running: Option<(Target, Shards)>,
    device: Arc<dyn Device>,
}

impl Loopback {
    /// Serves a disk on a port that the kernel chooses, and connects to it with the words for remote disks.
    pub(crate) fn serve(
        disk: &Arc<dyn Device>,
        remote: &RemoteArgs,
        engine: Engine,
    ) -> Result<Self, Failure> {
        let cpus = fabrix_rt::topology::cpus();
        let shards = Shards::start(&EngineArgs {
            cores: (cpus.len() > 1).then(|| Cores(vec![cpus[0]])),
            engine,
            spin: SpinPolicy::default(),
        })?;
        let config = TargetConfig {
            subsystem: SubsystemConfig {
                nqn: NQN.to_owned(),
                serial: disk.identity().serial.clone(),
                model: "Fabrix loopback".to_owned(),
                firmware: env!("CARGO_PKG_VERSION").chars().take(8).collect(),
                hosts: None,
                max_io_queues: 64,
                max_queue_entries: 128,
                grows: false,
                max_transfer_bytes: disk.geometry().max_transfer_bytes,
            },
            exports: vec![Export {
                nsid: 1,
                device: Exclusive::wrap(Arc::clone(disk)),
            }],
            iscsi_name: "iqn.2026-01.io.fabrix:loopback".to_owned(),
            listen: vec![Listen::nvme_tcp(SocketAddr::from(([127, 0, 0, 1], 0)))],
            initiators: Initiators::anybody(),
            keeper: None,
            max_connections: 1024,
            max_strangers: 1024,
            notify: Box::new(|_| {}),
        };
        let target = Target::start(config, shards.remotes()).map_err(Failure::io)?;
        let address = fabrix_host::Address {
            host: "127.0.0.1".to_owned(),
            port: target.addresses()[0].port(),
            subsystem: Some(NQN.to_owned()),
            nsid: Some(1),
        };
        let options = fabrix_host::Options {
            engine,
            header_digest: remote.hdr_digest,
            data_digest: remote.data_digest,
            nr_io_queues: remote.nr_io_queues,
            queue_size: remote.queue_size,
            ..host_options(remote.hostnqn.as_deref())?
        };
        let device = Arc::new(fabrix_host::connect(&address, &options)?);
        Ok(Self {
            running: Some((target, shards)),
            device,
        })
    }

    /// The disk through the target.
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        Arc::clone(&self.device)
    }

    /// The processors that are left for the load: all but the target's.
    pub(crate) fn load_cores() -> Vec<usize> {
        fabrix_rt::topology::cpus().into_iter().skip(1).collect()
    }

    /// CPU time that the target has used so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.running
            .as_ref()
            .map_or(Duration::ZERO, |(_, shards)| shards.cpu_time())
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        if let Some((target, shards)) = self.running.take() {
            target.drain();
            shards.stop();
        }
    }
}

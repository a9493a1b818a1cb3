//! A disk served by a target in this process and accessed again over loopback: the complete path on
//! one machine.
//!
//! If there are several cores, the target has the first and the load the others. Both ends belong
//! to this process, so their processor times can be separated.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabrix_block::Device;
use fabrix_rt::SpinPolicy;
use fabrix_rt::engine::Engine;
use fabrix_target::{Export, Gateways, Initiators, Limits, Listen, Target, TargetConfig};

use crate::args::{Cores, EngineArgs, RemoteArgs};
use crate::failure::Failure;
use crate::host_names::{host_options, initiator_name};
use crate::served::catalog;
use crate::shards::Shards;

const NQN: &str = "nqn.2026-01.io.fabrix:loopback";
const IQN: &str = "iqn.2026-01.io.fabrix:loopback";

/// Protocol between both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    NvmeTcp,
    Iscsi,
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NvmeTcp => "NVMe/TCP",
            Self::Iscsi => "iSCSI",
        })
    }
}

/// The target and the disk seen through it. Dropping this value ends both.
pub(crate) struct Loopback {
    /// None after the end.
    running: Option<(Target, Shards)>,
    /// Address of the target over NVMe/TCP.
    address: fabrix_host::Address,
    device: Arc<dyn Device>,
}

impl Loopback {
    /// Serves a disk on a port chosen by the kernel, and connects to it with the options for remote
    /// disks.
    pub(crate) fn serve(
        disk: &Arc<dyn Device>,
        transport: Transport,
        remote: &RemoteArgs,
        engine: Engine,
    ) -> Result<Self, Failure> {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let cpus = fabrix_rt::topology::cpus();
        let shards = Shards::start(&EngineArgs {
            cores: (cpus.len() > 1).then(|| Cores(vec![cpus[0]])),
            engine,
            spin: SpinPolicy::default(),
        })?;
        let listen = vec![match transport {
            Transport::NvmeTcp => Listen::nvme_tcp(anywhere),
            Transport::Iscsi => Listen::iscsi(anywhere),
        }];
        let disks = vec![Export::new(1, Arc::clone(disk))];
        let config = TargetConfig {
            catalog: catalog(
                (NQN, IQN),
                false,
                disks,
                (None, Initiators::anybody()),
                (listen, Gateways::default()),
            ),
            limits: Limits {
                max_io_queues: 64,
                max_queue_entries: 128,
                max_transfer_bytes: disk.geometry().max_transfer_bytes,
            },
            reservation_store: None,
            counts: false,
            max_connections: 1024,
            max_unauthenticated: 1024,
            notify: Box::new(|_| {}),
        };
        let target = Target::start(config, shards.remotes()).map_err(Failure::io)?;
        let listens = match transport {
            Transport::NvmeTcp => target.addresses(),
            Transport::Iscsi => target.portals(),
        };
        let port = listens[0].port();
        let options = fabrix_host::Options {
            engine,
            header_digest: remote.hdr_digest,
            data_digest: remote.data_digest,
            nr_io_queues: remote.nr_io_queues,
            queue_size: remote.queue_size,
            ..host_options(remote.hostnqn.as_deref(), remote.hostid)?
        };
        let address = fabrix_host::Address {
            transport: fabrix_host::Transport::Tcp,
            host: HOST.to_owned(),
            port,
            subsystem: Some(NQN.to_owned()),
            nsid: Some(1),
        };
        let device: Arc<dyn Device> = match transport {
            Transport::NvmeTcp => Arc::new(fabrix_host::connect(&address, &options)?),
            Transport::Iscsi => iscsi(port, remote, &options)?,
        };
        Ok(Self {
            running: Some((target, shards)),
            address,
            device,
        })
    }

    /// The disk seen through the target.
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        Arc::clone(&self.device)
    }

    /// Address of the target over NVMe/TCP.
    pub(crate) fn address(&self) -> &fabrix_host::Address {
        &self.address
    }

    /// Cores for the load: all except the target's.
    pub(crate) fn load_cores() -> Vec<usize> {
        fabrix_rt::topology::cpus().into_iter().skip(1).collect()
    }

    /// CPU time of the target so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        self.running
            .as_ref()
            .map_or(Duration::ZERO, |(_, shards)| shards.cpu_time())
    }
}

fn iscsi(
    port: u16,
    remote: &RemoteArgs,
    options: &fabrix_host::Options,
) -> Result<Arc<dyn Device>, Failure> {
    let address = fabrix_host::iscsi::Address {
        transport: fabrix_host::Transport::Tcp,
        host: HOST.to_owned(),
        port,
        target: Some(IQN.to_owned()),
        lun: None,
    };
    let initiator = fabrix_host::iscsi::Initiator {
        name: initiator_name(remote.initiator_name.as_deref())?,
        ours: None,
        theirs: None,
    };
    Ok(Arc::new(fabrix_host::iscsi::connect(
        &address, &initiator, options,
    )?))
}

const HOST: &str = "127.0.0.1";

impl Drop for Loopback {
    fn drop(&mut self) {
        if let Some((target, shards)) = self.running.take() {
            target.drain();
            shards.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use fabrix_bench::{Config, Job, Rw, run};
    use fabrix_block::filter::stats::{Kind, Stats};
    use fabrix_block::{Spec, open_local_as};

    use super::*;

    #[test]
    fn what_the_benchmark_counts_is_what_the_targets_disk_has_done() {
        for transport in [Transport::NvmeTcp, Transport::Iscsi] {
            let spec = Spec::parse("ram:8M").expect("a disk's text");
            let disk = open_local_as(&spec, "truth").expect("memory");
            let counted = Stats::new(disk);
            let disk = Arc::clone(&counted) as Arc<dyn Device>;
            let stage = Loopback::serve(&disk, transport, &RemoteArgs::default(), Engine::Auto);
            let stage = stage.expect("loopback");
            let job = Job {
                rw: Rw::RandMixed,
                rwmixread: 30,
                number_ios: Some(1500),
                numjobs: 2,
                iodepth: 8,
                runtime: Duration::from_secs(60),
                ramp: Duration::ZERO,
                ..Job::default()
            };
            let before = counted.counts(Kind::Read);
            let results = run(&[stage.device()], &job, &Config::default(), &mut |_| {});
            let all = results.expect("it runs").aggregate;
            let (read, written) = (counted.counts(Kind::Read), counted.counts(Kind::Write));
            // Each job reads one unit before it starts.
            let first = u64::from(job.numjobs);
            assert_eq!(
                all.read.ios + first,
                read.requests - before.requests,
                "{transport}"
            );
            assert_eq!(all.write.ios, written.requests, "{transport}");
            assert_eq!(
                all.read.bytes + first * 4096,
                read.bytes - before.bytes,
                "{transport}"
            );
            assert_eq!(
                (all.write.bytes, all.total.ios),
                (written.bytes, 3000),
                "{transport}"
            );
        }
    }
}

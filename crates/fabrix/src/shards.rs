//! The shards of the data path: number, cores, start and end.

use std::time::Duration;

use fabrix_rt::{Remote, ShardConfig, ShardThread, spawn};

use crate::args::EngineArgs;
use crate::failure::Failure;
use crate::log;

/// Running shards.
pub(crate) struct Shards {
    threads: Vec<ShardThread>,
}

/// Largest number of shards without `--cores`. The default is half of the cores.
const MOST_BY_DEFAULT: usize = 8;

impl Shards {
    /// Starts one shard per core of `--cores`, or unpinned shards.
    pub(crate) fn start(wanted: &EngineArgs) -> Result<Self, Failure> {
        let places: Vec<Option<usize>> = match &wanted.cores {
            Some(cores) => cores.0.iter().copied().map(Some).collect(),
            None => {
                let half = fabrix_rt::topology::cpus().len().div_ceil(2);
                vec![None; half.clamp(1, MOST_BY_DEFAULT)]
            }
        };
        Self::at(places, wanted, false)
    }

    /// Starts one shard, pinned if `--cores` names a core. `exchanges`: the shard supports FUSE
    /// over io_uring.
    pub(crate) fn one(wanted: &EngineArgs, exchanges: bool) -> Result<Self, Failure> {
        let place = match wanted.cores.as_ref().map(|cores| &cores.0[..]) {
            None | Some([]) => None,
            Some([core]) => Some(*core),
            Some(_) => {
                let sentence = "an attached disk has one loop: name one processor with --cores";
                return Err(Failure::usage(sentence));
            }
        };
        Self::at(vec![place], wanted, exchanges)
    }

    fn at(
        places: Vec<Option<usize>>,
        wanted: &EngineArgs,
        exchanges: bool,
    ) -> Result<Self, Failure> {
        let mut threads = Vec::new();
        for (id, place) in places.into_iter().enumerate() {
            let config = ShardConfig {
                id,
                engine: wanted.engine,
                spin: wanted.spin,
                exchanges,
                ..ShardConfig::default()
            };
            let thread = spawn(config, place, move |shard| {
                if let (0, Some(refused)) = (id, shard.refused()) {
                    log::warn(format_args!("using epoll: {refused}"));
                }
            });
            threads
                .push(thread.map_err(|error| {
                    Failure::io(format!("cannot start the data path: {error}"))
                })?);
        }
        Ok(Self { threads })
    }

    /// The remote handles of the shards.
    pub(crate) fn remotes(&self) -> Vec<Remote> {
        self.threads
            .iter()
            .map(|thread| thread.remote.clone())
            .collect()
    }

    /// CPU time of all shards so far.
    pub(crate) fn cpu_time(&self) -> Duration {
        let (tell, told) = std::sync::mpsc::channel();
        let mut asked = 0;
        for thread in &self.threads {
            let tell = tell.clone();
            let ask = move |_: &mut fabrix_rt::Shard| {
                let _gone = tell.send(fabrix_rt::topology::thread_cpu_time());
            };
            asked += usize::from(thread.remote.run(Box::new(ask)).is_ok());
        }
        told.iter().take(asked).sum()
    }

    /// Stops all shards and waits for their end.
    pub(crate) fn stop(self) {
        for thread in &self.threads {
            thread.remote.stop();
        }
        for thread in self.threads {
            // A panicking shard has printed its message.
            let _panicked = thread.join.join();
        }
    }
}

/// Raises the limit of open files to the maximum, because every connection needs one.
pub(crate) fn raise_open_files() {
    if let Ok((now, most)) = fabrix_rt::topology::open_files()
        && now < most
    {
        let _stays_as_it_is = fabrix_rt::topology::set_open_files(most);
    }
}

//! `fabrix bench --hold`: idle connections, to measure their cost.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fabrix_block::Device;
use fabrix_rt::{ShardConfig, spawn};

use super::args::PlainArgs;
use super::interrupts::stop_flag;
use crate::failure::{Failure, Kind};

/// Opens one channel per job and leaves them idle for `time`.
pub(super) fn hold(
    args: &PlainArgs,
    uri: &str,
    device: &Arc<dyn Device>,
    time: Duration,
) -> Result<ExitCode, Failure> {
    let stop = stop_flag()?;
    let device = Arc::clone(device);
    let count = args.numjobs;
    let (tell, told) = std::sync::mpsc::channel();
    let config = ShardConfig {
        engine: args.common.engine.engine,
        spin: args.common.engine.spin,
        ..ShardConfig::default()
    };
    let pinned = args
        .common
        .engine
        .cores
        .as_ref()
        .and_then(|cores| cores.0.first().copied());
    let thread = spawn(config, pinned, move |shard| {
        let opened: Result<Vec<_>, _> = (0..count).map(|_| device.open(shard)).collect();
        // The channels are leaked on purpose: they stay open as long as the shard runs.
        let _gone = tell.send(opened.map(std::mem::forget));
    })
    .map_err(|error| Failure::io(format!("cannot start: {error}")))?;
    if let Ok(Err(error)) = told.recv() {
        return Err(Failure::new(Kind::Connect, format!("{uri}: {error}")));
    }
    let until = std::time::Instant::now() + time;
    while std::time::Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
    thread.remote.stop();
    let _panicked = thread.join.join();
    match stop.load(Ordering::Relaxed) {
        true => Err(Failure::io("interrupted: the connections are closed")),
        false => Ok(ExitCode::SUCCESS),
    }
}

//! Needed threads, without which the process ends: threads of shards, and others.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use super::{lookout, topology};
use crate::{Remote, Shard, ShardConfig, sys};

/// A shard on a thread of its own.
#[derive(Debug)]
pub struct ShardThread {
    /// Sender of messages to the shard.
    pub remote: Remote,
    /// Handle that ends with the thread: after [`Remote::stop`], when the shard is freed.
    pub join: JoinHandle<()>,
}

/// Starts a thread, bound to a CPU if one is given. The thread makes a shard, runs `setup` on it
/// and then its loop. This function returns when `setup` has returned. The thread is a [needed
/// thread](needed_thread).
///
/// Errors: no thread, no such CPU, or the [`StartError`](crate::StartError) of the shard.
pub fn spawn(
    config: ShardConfig,
    pinned: Option<usize>,
    setup: impl FnOnce(&mut Shard) + Send + 'static,
) -> io::Result<ShardThread> {
    let (ready, started) = mpsc::sync_channel(1);
    let name = format!("shard-{}", config.id);
    let join = needed_thread(&name, move || {
        let mut shard = match start(config, pinned) {
            Ok(shard) => shard,
            Err(error) => return drop(ready.send(Err(error))),
        };
        setup(&mut shard);
        if ready.send(Ok(shard.remote())).is_ok() {
            shard.run();
        }
    })?;
    match started.recv() {
        Ok(Ok(remote)) => Ok(ShardThread { remote, join }),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("a shard's setup panicked")),
    }
}

fn start(config: ShardConfig, pinned: Option<usize>) -> io::Result<Shard> {
    if let Some(cpu) = pinned {
        topology::pin(cpu)?;
    }
    Shard::new(config).map_err(io::Error::other)
}

/// Starts a thread that others wait for. If the thread ends before `body` has returned, by a panic
/// or by the kernel, the process says so and exits with 1, so that its peers see their connections
/// close. A second thread waits for the first, without using CPU time. The handle is that of the
/// second thread.
///
/// A kernel that fails in the middle of an io_uring call leaves the thread in that call for ever.
/// On kernels with that fault, `lookout` notices it within seconds and ends the process in the same
/// way.
///
/// Errors: the system has no thread left.
pub fn needed_thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let returned = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&returned);
    let looked_after = name.to_owned();
    let thread = thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            lookout::look_after_this_thread(&looked_after);
            body();
            tell.store(true, Ordering::Release);
        })?;
    let named = name.to_owned();
    thread::Builder::new()
        .name(format!("watch {name}"))
        .stack_size(WATCHER_STACK_BYTES)
        .spawn(move || {
            sys::process::join(thread);
            if !returned.load(Ordering::Acquire) {
                eprintln!("fabrix: {}", died(&named));
                std::process::exit(1);
            }
        })
}

fn died(name: &str) -> String {
    format!(
        "the thread {name} has died, and what it did is done by nobody: the process ends. Start it again. If no panic \
         is reported above, the kernel has ended the thread: `dmesg` says why."
    )
}

/// Stack of the second thread, which waits and may print a sentence.
const WATCHER_STACK_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs the test with this name again in a process of its own, where its thread ends.
    fn check(test: &str, dies: fn()) {
        if std::env::var_os(DIES).is_some() {
            let watcher = needed_thread("victim", dies).expect("a thread");
            watcher.join().expect("the process ends first");
            return;
        }
        let name = format!("platform::spawn::tests::{test}");
        let mut again = Command::new(std::env::current_exe().expect("a test program"));
        again
            .args(["--exact", &name, "--nocapture"])
            .env(DIES, "yes");
        let ended = again.output().expect("it starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("the thread victim has died"), "{said}");
    }

    #[test]
    fn a_needed_thread_that_panics_ends_the_process_with_a_sentence() {
        let test = "a_needed_thread_that_panics_ends_the_process_with_a_sentence";
        check(test, || panic!("on purpose"));
    }

    #[test]
    fn a_needed_thread_that_the_kernel_ends_ends_the_process_with_a_sentence() {
        let test = "a_needed_thread_that_the_kernel_ends_ends_the_process_with_a_sentence";
        check(test, sys::process::vanish);
    }

    #[test]
    fn a_needed_thread_that_returns_ends_nothing_else() {
        let watcher = needed_thread("short", || ()).expect("a thread");
        watcher.join().expect("it only waits");
    }

    const DIES: &str = "FABRIX_TEST_THREAD_DIES";
}

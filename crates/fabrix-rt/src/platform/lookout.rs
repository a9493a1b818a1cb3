//! Detection of threads that hang in io_uring for ever.
//!
//! A kernel with the fault of [`local_peer`](crate::local_peer) may end a thread in the middle of
//! an io_uring call. The thread then waits for a lock of its ring that it holds itself, and never
//! ends. Every thread that joins it waits for ever, and the process cannot close its sockets by
//! ending. Only the kernel's report of where a thread waits (/proc/.../wchan) shows this. So on
//! kernels with that fault one thread reads this report once a second, and ends the process if a
//! thread hangs.

use std::fs;
use std::path::PathBuf;
use std::process::exit;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

use crate::{local_peer, sys};

/// Watches the calling thread from now on, if the kernel has the fault.
pub(crate) fn look_after_this_thread(name: &str) {
    if !local_peer::ends_receivers() {
        return;
    }
    // "PROCESS/task/THREAD", below /proc.
    if let Ok(place) = fs::read_link("/proc/thread-self") {
        let watched = Watched {
            name: name.to_owned(),
            wchan: PathBuf::from("/proc").join(place).join("wchan"),
            hung_before: false,
        };
        lock().push(watched);
        static LOOKOUT: Once = Once::new();
        // Without this thread the process only lacks the detection.
        LOOKOUT.call_once(|| {
            drop(
                thread::Builder::new()
                    .name("lookout".to_owned())
                    .spawn(look),
            )
        });
    }
}

/// A watched thread.
struct Watched {
    name: String,
    /// The file that names the function of the kernel in which the thread waits.
    wchan: PathBuf,
    /// Whether the last look found the thread in [`ENDING`]. A thread that ends normally passes
    /// that function too, but not in two looks.
    hung_before: bool,
}

static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

fn lock() -> std::sync::MutexGuard<'static, Vec<Watched>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn look() {
    loop {
        thread::sleep(EVERY);
        let mut hung = None;
        // The file of an ended thread is gone.
        lock().retain_mut(|watched| {
            let Ok(wchan) = fs::read_to_string(&watched.wchan) else {
                return false;
            };
            let hangs = hangs_in(&wchan);
            if hangs && watched.hung_before {
                hung = Some(watched.name.clone());
            }
            watched.hung_before = hangs;
            true
        });
        if let Some(name) = hung {
            eprintln!("fabrix: {}", sentence(&name));
            sys::process::shut_down_sockets();
            exit(1);
        }
    }
}

fn hangs_in(wchan: &str) -> bool {
    wchan.trim() == ENDING
}

fn sentence(name: &str) -> String {
    format!(
        "the kernel has failed within the thread {name}, which hangs there for ever: `dmesg` says why, and `fabrix \
         doctor` what to do. The process closes its connections and ends. What it served may be served again; files \
         and devices stay locked until this machine has started anew."
    )
}

/// The function of the kernel in which an ending thread gives up its ring.
const ENDING: &str = "io_uring_del_tctx_node";
const EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_hangs_where_it_gives_up_its_ring_and_nowhere_else() {
        assert!(hangs_in("io_uring_del_tctx_node"));
        for other in ["io_cqring_wait", "0", "", "futex_wait_queue"] {
            assert!(!hangs_in(other), "{other}");
        }
    }
}

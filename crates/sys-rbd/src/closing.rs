//! The thread that closes images and clusters: a close waits for the cluster, and the last user of
//! an image may be a shard, which must not wait.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

type Close = Box<dyn FnOnce() + Send>;

static CLOSING: OnceLock<Closing> = OnceLock::new();

/// The closes that have not ended.
struct Closing {
    sender: Sender<Close>,
    open: Mutex<usize>,
    ended: Condvar,
}

/// Closes something on the closing thread. Closes happen in the order of the calls.
pub(crate) fn later(close: impl FnOnce() + Send + 'static) {
    let closing = closing();
    *lock(&closing.open) += 1;
    if let Err(unsent) = closing.sender.send(Box::new(close)) {
        // The thread was never started.
        unsent.0();
        ended();
    }
}

/// Waits until everything that was given up is closed: an image whose process ends before is locked
/// for half a minute. At most so long. False: something is open yet.
pub fn finish(most: Duration) -> bool {
    let Some(closing) = CLOSING.get() else {
        return true;
    };
    let open = lock(&closing.open);
    let waited = closing
        .ended
        .wait_timeout_while(open, most, |open| *open > 0);
    let (open, _) = waited.unwrap_or_else(PoisonError::into_inner);
    *open == 0
}

fn closing() -> &'static Closing {
    CLOSING.get_or_init(|| {
        let (sender, receiver) = channel();
        // Without a thread the receiver is gone, and closes happen at once.
        let _ = thread::Builder::new()
            .name("ceph-close".to_owned())
            .spawn(move || close_all(&receiver));
        Closing {
            sender,
            open: Mutex::new(0),
            ended: Condvar::new(),
        }
    })
}

fn close_all(receiver: &Receiver<Close>) {
    for close in receiver {
        close();
        ended();
    }
}

fn ended() {
    let closing = closing();
    *lock(&closing.open) -= 1;
    closing.ended.notify_all();
}

fn lock(open: &Mutex<usize>) -> std::sync::MutexGuard<'_, usize> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn who_finishes_waits_for_what_is_being_closed_and_not_longer_than_it_says() {
        let (go_on, told) = channel::<()>();
        later(move || {
            let _ended = told.recv();
        });
        assert!(!finish(Duration::from_millis(1)));
        drop(go_on);
        assert!(finish(Duration::from_secs(60)));
    }
}

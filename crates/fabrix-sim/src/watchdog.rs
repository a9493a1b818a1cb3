//! A watchdog: tells which world runs when one does not come to an end. What bounds the turns of a
//! world cannot see a turn that never ends.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Watches worlds, one after the other.
pub(crate) struct Watchdog(Sender<String>);

impl Watchdog {
    /// Starts to watch. When the time since the last call of [`Self::begins`] is longer than
    /// `longest`, `barks` is called with its name, once.
    pub(crate) fn start(longest: Duration, barks: impl FnOnce(&str) + Send + 'static) -> Self {
        let (sender, receiver) = mpsc::channel::<String>();
        thread::spawn(move || {
            let Ok(mut name) = receiver.recv() else {
                return;
            };
            loop {
                match receiver.recv_timeout(longest) {
                    Ok(next) => name = next,
                    Err(RecvTimeoutError::Timeout) => return barks(&name),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Self(sender)
    }

    /// A world begins.
    pub(crate) fn begins(&self, name: &str) {
        // Nobody listens after the bark.
        let _ = self.0.send(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_world_that_does_not_end_is_named() {
        let (sender, receiver) = mpsc::channel();
        let barks = move |name: &str| sender.send(name.to_owned()).expect("it is read");
        let watchdog = Watchdog::start(Duration::from_millis(50), barks);
        watchdog.begins("one");
        watchdog.begins("two");
        assert_eq!(receiver.recv().as_deref(), Ok("two"));
    }
}

//! The connections of an attached disk, as their sessions tell of them: which there are, how they are, how often they
//! had to be made again; and what keeps the disk from being used although it is connected.
//!
//! Told on the shard's thread, seldom; asked by the control socket.

use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabrix_host::PathEvent;
use serde_json::{Value, json};

use super::holder::News;
use crate::disks::Watch;

/// All connections of a disk.
#[derive(Default)]
pub(crate) struct Paths {
    known: Mutex<Vec<Path>>,
    fault: Mutex<Option<String>>,
}

struct Path {
    address: SocketAddr,
    state: State,
    reconnects: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Connected,
    Reconnecting,
    Lost,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Reconnecting => "reconnecting",
            Self::Lost => "lost",
        }
    }
}

impl Paths {
    /// What a session is to tell. Changes of size go to `tell`.
    pub(crate) fn watch(self: &Arc<Self>, tell: Sender<News>) -> Watch {
        let paths = Arc::clone(self);
        // A sender is for one thread at a time.
        let tell = Mutex::new(tell);
        Arc::new(move |address, event| {
            paths.take(address, event);
            if event == PathEvent::Changed {
                let tell = tell.lock().unwrap_or_else(PoisonError::into_inner);
                let _it_is_over = tell.send(News::Changed);
            }
        })
    }

    fn take(&self, address: SocketAddr, event: PathEvent) {
        let mut known = self.known();
        let index = known.iter().position(|path| path.address == address);
        let index = index.unwrap_or_else(|| {
            known.push(Path {
                address,
                // The first connection is no reconnection.
                state: State::Connected,
                reconnects: 0,
            });
            known.len() - 1
        });
        let path = &mut known[index];
        match event {
            PathEvent::Connected => {
                path.reconnects += u64::from(path.state != State::Connected);
                path.state = State::Connected;
                // Who connects looks at the disk anew.
                self.set_fault(None);
            }
            PathEvent::Lost => path.state = State::Reconnecting,
            PathEvent::GivenUp => path.state = State::Lost,
            PathEvent::Changed => {}
        }
    }

    /// How the disk is as a whole: `attached` while every connection is there, and the disk behind it.
    pub(crate) fn state(&self) -> &'static str {
        let known = self.known();
        let is = |state| known.iter().any(|path| path.state == state);
        match (is(State::Lost), is(State::Reconnecting)) {
            (true, _) => State::Lost.word(),
            (false, true) => State::Reconnecting.word(),
            (false, false) if self.fault().is_some() => "unusable",
            (false, false) => "attached",
        }
    }

    /// What has become of the disk over there, if it cannot be used as it is now.
    pub(crate) fn fault(&self) -> Option<String> {
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.clone()
    }

    /// The disk has changed: it can be used as it is now, or why it cannot.
    pub(crate) fn set_fault(&self, fault: Option<String>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// How often a connection was made again, of all together.
    pub(crate) fn reconnects(&self) -> u64 {
        self.known().iter().map(|path| path.reconnects).sum()
    }

    pub(crate) fn json(&self) -> Value {
        let path = |path: &Path| {
            json!({
                "address": path.address.to_string(),
                "state": path.state.word(),
                "reconnects": path.reconnects,
            })
        };
        self.known().iter().map(path).collect()
    }

    fn known(&self) -> MutexGuard<'_, Vec<Path>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_comes_back_is_one_reconnection_however_many_tries_it_took() {
        let paths = Paths::default();
        let address = SocketAddr::from(([127, 0, 0, 1], 4420));
        paths.take(address, PathEvent::Connected);
        assert_eq!((paths.state(), paths.reconnects()), ("attached", 0));
        for _ in 0..3 {
            paths.take(address, PathEvent::Lost);
        }
        assert_eq!(paths.state(), "reconnecting");
        paths.take(address, PathEvent::Connected);
        assert_eq!((paths.state(), paths.reconnects()), ("attached", 1));
        paths.take(address, PathEvent::GivenUp);
        assert_eq!(paths.state(), "lost");
    }

    #[test]
    fn a_disk_that_is_gone_is_unusable_until_somebody_connects_again() {
        let paths = Paths::default();
        let address = SocketAddr::from(([127, 0, 0, 1], 4420));
        paths.take(address, PathEvent::Connected);
        paths.set_fault(Some("no such namespace".to_owned()));
        assert_eq!(paths.state(), "unusable");
        paths.take(address, PathEvent::Lost);
        assert_eq!(paths.state(), "reconnecting");
        paths.take(address, PathEvent::Connected);
        assert_eq!((paths.state(), paths.fault()), ("attached", None));
    }
}

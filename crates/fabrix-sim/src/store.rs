//! A store of reservations: stores one change after the other, each after a time that is a choice.
//! A target that is killed leaves each change stored or not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fabrix_block::{Device, Identity};
use fabrix_target::{Receipt, ReservationStore};

use crate::choices::Choices;
use crate::world;

/// The store of a world.
#[derive(Clone)]
pub(crate) struct SimStore(Arc<Mutex<State>>);

struct State {
    stored: BTreeMap<[u8; 16], Vec<u8>>,
    /// Changes that are being stored.
    pending: BTreeMap<u64, Pending>,
    next: u64,
    longest: Duration,
    /// Some changes cannot be stored.
    fails: bool,
    choices: Choices,
}

struct Pending {
    disk: [u8; 16],
    bytes: Vec<u8>,
    receipt: Receipt,
}

impl SimStore {
    /// An empty store. `longest`: the most time that storing takes.
    pub(crate) fn new(longest: Duration, fails: bool, choices: Choices) -> Self {
        Self(Arc::new(Mutex::new(State {
            stored: BTreeMap::new(),
            pending: BTreeMap::new(),
            next: 0,
            longest,
            fails,
            choices,
        })))
    }

    /// The target is killed.
    pub(crate) fn crash(&self) {
        let mut state = self.state();
        let pending = std::mem::take(&mut state.pending);
        for pending in pending.into_values() {
            if state.choices.once_in(2) {
                state.stored.insert(pending.disk, pending.bytes);
            }
        }
    }

    /// A change is on the medium, or has failed.
    fn finish(&self, number: u64) {
        let mut state = self.state();
        let Some(pending) = state.pending.remove(&number) else {
            return;
        };
        if state.fails && state.choices.once_in(8) {
            return;
        }
        state.stored.insert(pending.disk, pending.bytes);
        drop(state);
        pending.receipt.stored();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic in a store")
    }
}

impl ReservationStore for SimStore {
    fn keeps(&self, _: &dyn Device) -> bool {
        true
    }

    fn load(&self, disk: &Identity) -> Result<Option<Vec<u8>>, String> {
        Ok(self.state().stored.get(&disk.uuid).cloned())
    }

    fn place(&self, _: &Identity) -> String {
        "the store".to_owned()
    }

    fn store(&self, disk: &Identity, bytes: Vec<u8>, receipt: Receipt) {
        let world = world::current().expect("a world on this thread");
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let disk = disk.uuid;
        let longest = u64::try_from(state.longest.as_nanos()).expect("a short time");
        let time = Duration::from_nanos(state.choices.below(longest + 1));
        let pending = Pending {
            disk,
            bytes,
            receipt,
        };
        state.pending.insert(number, pending);
        let store = self.clone();
        world.plan(world.now() + time, move |_| store.finish(number));
    }
}

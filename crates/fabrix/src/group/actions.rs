//! The actions of a group's machine, at the cluster and at the exports of this process.
//!
//! What is done at the exports may take long: many locks, a disk that ends a request late. Such an
//! action has a thread of its own, and this gateway goes on to beat meanwhile.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;

use fabrix_gateways::{Action, BEAT, GatewayNumber, Outcome, Refusal};
use fabrix_rbd::{Error, GroupStore};

use super::Thread;
use crate::failure::Failure;
use crate::log;
use crate::served::Served;

impl Thread {
    /// Does an action that is no wait.
    pub(super) fn carry_out(&mut self, action: &Action) -> Outcome {
        match action {
            Action::Beat(number, beat) if !self.served.is_shut_out() => {
                self.stored(|store| store.beat(*number, beat).map(|()| Outcome::Done))
            }
            Action::Beat(..) => Outcome::Fenced,
            Action::Look(_) | Action::Fence(_) | Action::Write(..) => {
                self.stored(|store| at_store(store, action))
            }
            Action::Take(group) => self.exported(|store, served| {
                let newest = store.await_newest_map();
                newest.map_err(Failure::io)?;
                served.take(*group)
            }),
            Action::Release(group) => self.exported(|_, served| served.release(*group)),
            Action::GiveUp => self.exported(|_, served| served.give_up()),
            Action::Renew => match self.served.renew() {
                Ok(()) => self.stored(|store| store.client().map(Outcome::Renewed)),
                Err(failure) => self.failed(&failure.to_string()),
            },
            Action::Wait(_) | Action::Leave => Outcome::Done,
        }
    }

    fn stored(&mut self, act: impl FnOnce(&GroupStore) -> Result<Outcome, Error>) -> Outcome {
        match act(&self.store) {
            Ok(outcome) => outcome,
            Err(error) => self.failed(&error.to_string()),
        }
    }

    fn exported(
        &mut self,
        act: impl FnOnce(&GroupStore, &Served) -> Result<(), Failure> + Send,
    ) -> Outcome {
        let (store, served) = (Arc::clone(&self.store), Arc::clone(&self.served));
        let (sender, result) = sync_channel(1);
        let result = thread::scope(|scope| {
            // Nobody waits any more only if this thread has panicked.
            scope.spawn(move || drop(sender.send(act(&store, &served))));
            loop {
                match result.recv_timeout(BEAT) {
                    Ok(result) => return result,
                    Err(RecvTimeoutError::Timeout) => self.beat_meanwhile(),
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(Failure::io("the thread of an action has panicked"));
                    }
                }
            }
        });
        match result {
            Ok(()) => Outcome::Done,
            Err(_) if self.served.is_shut_out() => Outcome::Fenced,
            Err(failure) => self.failed(&failure.to_string()),
        }
    }

    /// Beats while an action lasts.
    fn beat_meanwhile(&mut self) {
        let began = self.now();
        if self.served.is_shut_out() {
            return;
        }
        if let Some((number, beat)) = self.gateway.beat()
            && self.store.beat(number, &beat).is_ok()
        {
            self.gateway.was_heard(began);
        }
    }

    fn failed(&mut self, why: &str) -> Outcome {
        self.say_once(format!("gateway group: {why}"));
        Outcome::Failed
    }

    /// The group cannot be led for now.
    pub(super) fn refused(&mut self, refusal: &Refusal) {
        let why = sentence(refusal);
        self.say_once(format!("gateway group: {why}"));
    }
}

/// Does an action that needs the cluster only.
pub(super) fn at_store(store: &GroupStore, action: &Action) -> Result<Outcome, Error> {
    match action {
        Action::Look(numbers) => look(store, numbers),
        Action::Fence(client) => {
            store.shut_out(client)?;
            log::warn(format_args!(
                "gateway group: the client {client} is shut out: its gateway is gone, or has begun anew"
            ));
            Ok(Outcome::Done)
        }
        Action::Write(version, state) => {
            let replaced = store.replace(*version, &state.to_string())?;
            Ok(match replaced {
                true => Outcome::Done,
                false => Outcome::Conflict,
            })
        }
        _ => Ok(Outcome::Failed),
    }
}

fn look(store: &GroupStore, numbers: &[GatewayNumber]) -> Result<Outcome, Error> {
    let mut beats = Vec::new();
    for number in numbers {
        beats.extend(store.beat_of(*number)?.map(|beat| (*number, beat)));
    }
    Ok(Outcome::Looked(store.state()?, beats))
}

/// Why a gateway cannot be in its group.
pub(super) fn sentence(refusal: &Refusal) -> String {
    match refusal {
        Refusal::State(why) => format!("what is stored of it cannot be read: {why}"),
        Refusal::Full => {
            "it is full; a gateway that is gone and serves nothing makes room".to_owned()
        }
        Refusal::OtherDisk(gateway, nsid) => format!(
            "namespace {nsid} is another disk at the gateway {gateway}, or in another ANA group or form: give each \
             gateway the same disks in the same order"
        ),
        Refusal::OtherNames(gateway, names) => format!(
            "the gateway {gateway} has other names ({names}): give each gateway the same --nqn and --iqn"
        ),
    }
}

//! The actions of a group's machine, at the cluster and at the exports of this process.

use fabrix_gateways::{Action, Outcome, Refusal, Slot};
use fabrix_rbd::{Error, GroupStore};

use super::Thread;
use crate::failure::Failure;
use crate::log;

impl Thread {
    /// Does an action that is no wait.
    pub(super) fn carry_out(&mut self, action: &Action) -> Outcome {
        match action {
            Action::Beat(slot, beat) if !self.served.is_shut_out() => {
                self.stored(|store| store.beat(*slot, beat).map(|()| Outcome::Done))
            }
            Action::Beat(..) => Outcome::Fenced,
            Action::Look(_) | Action::Fence(_) | Action::Write(..) => {
                self.stored(|store| at_store(store, action))
            }
            Action::Take(group) => self.exported(|it| {
                let newest = it.store.await_newest_map();
                newest.map_err(Failure::io)?;
                let state = it.gateway.state();
                let gone = state.into_iter().flat_map(|state| state.gone_clients());
                let gone: Vec<String> = gone.map(str::to_owned).collect();
                it.served.take(*group, &gone)
            }),
            Action::Release(group) => self.exported(|it| it.served.release(*group)),
            Action::GiveUp => self.exported(|it| it.served.give_up()),
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

    fn exported(&mut self, act: impl FnOnce(&Self) -> Result<(), Failure>) -> Outcome {
        match act(self) {
            Ok(()) => Outcome::Done,
            Err(_) if self.served.is_shut_out() => Outcome::Fenced,
            Err(failure) => self.failed(&failure.to_string()),
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
        Action::Look(slots) => look(store, slots),
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

fn look(store: &GroupStore, slots: &[Slot]) -> Result<Outcome, Error> {
    let mut beats = Vec::new();
    for slot in slots {
        beats.extend(store.beat_of(*slot)?.map(|beat| (*slot, beat)));
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

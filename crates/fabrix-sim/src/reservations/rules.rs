//! The rules of reservations, written from the standards and not from the product: what a change
//! does to the registrations and the reservation of a disk, and who may read and write.
//!
//! Source: SPC-4, "Persistent reservations"; NVM Express Base Specification 2.x, "Reservations".

use std::collections::BTreeMap;

use fabrix_proto::scsi::reservation::Kind;

use crate::hosts::Protocol;
use crate::peer::{Action, Change, HostId};

/// How a change ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Done,
    Conflict,
    /// A field of the command is wrong in this state.
    Invalid,
}

/// Registrations and reservation of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) keys: BTreeMap<HostId, u64>,
    /// The type of the reservation, and the host that made it. Every registrant holds a reservation
    /// for all registrants: then the host is none.
    pub(crate) held: Option<(usize, Option<HostId>)>,
    pub(crate) persists: bool,
}

impl State {
    /// Whether a host may read, or write.
    pub(crate) fn may(&self, host: HostId, writes: bool) -> bool {
        let Some((kind, holder)) = self.held else {
            return true;
        };
        let registered = self.keys.contains_key(&host);
        let has_rights = match Kind::ALL[kind] {
            Kind::WriteExclusive | Kind::ExclusiveAccess => holder == Some(host),
            _ => registered,
        };
        let only_writes = matches!(
            Kind::ALL[kind],
            Kind::WriteExclusive | Kind::WriteExclusiveRegistrants | Kind::WriteExclusiveAll
        );
        has_rights || (only_writes && !writes)
    }

    /// The keys in order, and the type of the reservation.
    pub(crate) fn report(&self) -> (Vec<u64>, Option<usize>) {
        let mut keys: Vec<_> = self.keys.values().copied().collect();
        keys.sort_unstable();
        (keys, self.held.map(|(kind, _)| kind))
    }

    /// The state after the target has been started again.
    pub(crate) fn after_restart(self) -> Self {
        if self.persists { self } else { Self::default() }
    }

    /// Carries a change out. Result: how it ends, and the hosts whose commands it aborts.
    pub(crate) fn apply(&mut self, change: &Change) -> (Verdict, Vec<HostId>) {
        let &Change { host, key, .. } = change;
        let mine = self.keys.get(&host).copied();
        let has_key = mine == Some(key);
        let verdict = match change.action {
            Action::Register { new, persist } => self.register(change, mine, new, persist),
            Action::Replace { new, persist } if has_key => self.set_key(host, new, persist),
            Action::Ignore { new, persist }
                if mine.is_some() || change.protocol == Protocol::Iscsi =>
            {
                self.set_key(host, new, persist)
            }
            Action::Unregister { persist } if has_key => {
                self.remove(&[host]);
                self.persists = persist;
                Verdict::Done
            }
            _ if !has_key => Verdict::Conflict,
            Action::Acquire(kind) => self.acquire(host, kind),
            Action::Release(kind) => self.release(host, kind),
            Action::Clear => {
                self.keys.clear();
                self.held = None;
                Verdict::Done
            }
            Action::Preempt {
                victim,
                kind,
                abort,
            } => return self.preempt(host, victim, kind, abort),
            _ => Verdict::Conflict,
        };
        (verdict, Vec::new())
    }

    fn register(&mut self, change: &Change, mine: Option<u64>, new: u64, persist: bool) -> Verdict {
        match mine {
            None => self.set_key(change.host, new, persist),
            // An NVMe host may register its key again.
            Some(mine) if mine == new && change.protocol == Protocol::Nvme => {
                self.set_key(change.host, new, persist)
            }
            Some(_) => Verdict::Conflict,
        }
    }

    fn set_key(&mut self, host: HostId, new: u64, persist: bool) -> Verdict {
        self.keys.insert(host, new);
        self.persists = persist;
        Verdict::Done
    }

    fn holds(&self, host: HostId) -> bool {
        self.held
            .is_some_and(|(_, holder)| holder.is_none_or(|holder| holder == host))
    }

    fn take(&mut self, host: HostId, kind: usize) {
        let is_for_all = matches!(
            Kind::ALL[kind],
            Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll
        );
        self.held = Some((kind, (!is_for_all).then_some(host)));
    }

    fn acquire(&mut self, host: HostId, kind: usize) -> Verdict {
        match self.held {
            None => self.take(host, kind),
            Some((held, _)) if held == kind && self.holds(host) => {}
            Some(_) => return Verdict::Conflict,
        }
        Verdict::Done
    }

    fn release(&mut self, host: HostId, kind: usize) -> Verdict {
        match self.held {
            Some((held, _)) if self.holds(host) && held != kind => return Verdict::Invalid,
            Some(_) if self.holds(host) => self.held = None,
            _ => {}
        }
        Verdict::Done
    }

    /// Removes registrations. A reservation ends with its holder, or with the last registrant.
    fn remove(&mut self, hosts: &[HostId]) {
        self.keys.retain(|host, _| !hosts.contains(host));
        let stays = match self.held {
            Some((_, Some(holder))) => self.keys.contains_key(&holder),
            _ => !self.keys.is_empty(),
        };
        self.held.take_if(|_| !stays);
    }

    fn preempt(
        &mut self,
        host: HostId,
        victim: u64,
        kind: usize,
        abort: bool,
    ) -> (Verdict, Vec<HostId>) {
        let is_for_all = matches!(self.held, Some((_, None)));
        if victim == 0 && !is_for_all {
            return (Verdict::Invalid, Vec::new());
        }
        let with_key = |(_, key): &(&HostId, &u64)| victim == 0 || **key == victim;
        let named = self.keys.iter().filter(with_key).map(|(host, _)| *host);
        let named: Vec<_> = named.collect();
        let takes_over = match self.held {
            Some((_, Some(holder))) => named.contains(&holder),
            _ => victim == 0,
        };
        if named.is_empty() && !takes_over {
            return (Verdict::Conflict, Vec::new());
        }
        let others: Vec<_> = named.iter().copied().filter(|it| *it != host).collect();
        if takes_over {
            self.keys.retain(|it, _| !others.contains(it));
            self.take(host, kind);
        } else {
            self.remove(&named);
        }
        (Verdict::Done, if abort { others } else { Vec::new() })
    }
}

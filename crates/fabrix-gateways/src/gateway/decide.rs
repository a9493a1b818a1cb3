//! What a gateway that has joined does about the state that it has read.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, Gateway};
use crate::{GatewayNumber, State};

impl Gateway {
    pub(super) fn decide(
        &mut self,
        (number, life): (GatewayNumber, u64),
        version: Option<u64>,
        state: &State,
    ) -> Action {
        if !self.is_as_written((number, life), state) {
            return self.is_shut_out();
        }
        if let Some(group) = self.to_release(number, state) {
            return Action::Release(group);
        }
        if let Some(client) = self.to_fence(number, state) {
            return Action::Fence(client);
        }
        let next = self.changed(number, state.clone());
        if next != *state {
            return Action::Write(version, next);
        }
        // What was wished for is here, or the state says that it is wanted.
        self.wishes.clear();
        match self.to_take(number, state) {
            Some(group) => Action::Take(group),
            None => Action::Wait(self.next_beat),
        }
    }

    /// Whether nobody has shut this gateway out or taken what it serves.
    fn is_as_written(&self, (number, life): (GatewayNumber, u64), state: &State) -> bool {
        let me = state.members.get(&number);
        let is_me =
            me.is_some_and(|me| !me.fenced && (me.life, &me.client) == (life, &self.client));
        let owns = |group: &u32| state.owners.get(group) == Some(&number);
        is_me && self.serving.iter().all(owns)
    }

    fn is_shut_out(&mut self) -> Action {
        self.lost = true;
        Action::GiveUp
    }

    /// ANA groups of its disks.
    pub(super) fn groups(&self) -> BTreeSet<u32> {
        self.about.disks.values().map(|(_, group)| *group).collect()
    }

    /// An ANA group that another gateway is to get.
    fn to_release(&self, number: GatewayNumber, state: &State) -> Option<u32> {
        let mut serving = self.serving.iter();
        let found = serving.find(|group| self.heir(number, **group, state).is_some());
        found
            .or_else(|| self.serving.first().filter(|_| self.leaving))
            .copied()
    }

    /// The live gateway that is to get an ANA group of this one.
    fn heir(&self, number: GatewayNumber, group: u32, state: &State) -> Option<GatewayNumber> {
        let wanted = state.wanted.get(&group).copied();
        let is_other = |other: &GatewayNumber| *other != number && self.is_live_in(*other, state);
        let wanted = wanted.filter(is_other);
        match self.leaving {
            true => wanted.or_else(|| least_loaded(state, is_other)),
            false => wanted,
        }
    }

    fn is_live_in(&self, other: GatewayNumber, state: &State) -> bool {
        let member = state.members.get(&other);
        member.is_some_and(|member| self.is_live(other, member))
    }

    /// The client of a gateway that is dead.
    fn to_fence(&self, number: GatewayNumber, state: &State) -> Option<String> {
        let mut others = state.members.iter().filter(|(other, _)| **other != number);
        let found = others.find(|(other, member)| {
            !member.fenced && self.peers.is_dead(**other) && !self.fenced.contains(&member.client)
        });
        found.map(|(_, member)| member.client.clone())
    }

    /// The state as it ought to be.
    fn changed(&self, number: GatewayNumber, mut state: State) -> State {
        for member in state.members.values_mut() {
            member.fenced |= self.fenced.contains(&member.client);
        }
        for group in self.groups() {
            let owner = state.owners.get(&group).copied();
            let next = match owner {
                Some(owner) if owner == number => self.next_owner(number, group, &state),
                Some(owner) if self.is_gone(owner, &state) => Some(number),
                None if !self.leaving && self.is_first(number, group, &state) => Some(number),
                _ => continue,
            };
            match next {
                Some(next) => state.owners.insert(group, next),
                None => state.owners.remove(&group),
            };
        }
        let wishes = self.wishes.iter().map(|group| (*group, number));
        state.wanted.extend(wishes);
        state.wanted = still_wanted(&state);
        if self.leaving && !state.owners.values().any(|owner| *owner == number) {
            state.members.remove(&number);
        }
        state
    }

    /// The next owner of an ANA group of this gateway. It keeps what it serves, until that is
    /// released.
    fn next_owner(
        &self,
        number: GatewayNumber,
        group: u32,
        state: &State,
    ) -> Option<GatewayNumber> {
        match self.heir(number, group, state) {
            _ if self.serving.contains(&group) => Some(number),
            Some(heir) => Some(heir),
            None => Some(number).filter(|_| !self.leaving),
        }
    }

    /// Whether nothing of a gateway reaches disks any more.
    fn is_gone(&self, owner: GatewayNumber, state: &State) -> bool {
        !self.leaving && state.members.get(&owner).is_none_or(|owner| owner.fenced)
    }

    /// Whether an ANA group without an owner is for this gateway: no live one has its number.
    fn is_first(&self, number: GatewayNumber, group: u32, state: &State) -> bool {
        let home = GatewayNumber::try_from(group).unwrap_or(0);
        home == number || !self.is_live_in(home, state)
    }

    /// An ANA group that it owns and does not serve yet: the next one after that which could not be
    /// taken.
    fn to_take(&self, number: GatewayNumber, state: &State) -> Option<u32> {
        let is_open = |group: &u32| {
            state.owners.get(group) == Some(&number)
                && !self.serving.contains(group)
                && !self.leaving
        };
        let open: BTreeSet<u32> = self.groups().into_iter().filter(is_open).collect();
        let next = open.range(self.not_taken.saturating_add(1)..).next();
        next.or_else(|| open.first()).copied()
    }
}

/// The gateway with the fewest ANA groups.
fn least_loaded(
    state: &State,
    is_eligible: impl Fn(&GatewayNumber) -> bool,
) -> Option<GatewayNumber> {
    let owned = |number: &GatewayNumber| {
        state
            .owners
            .values()
            .filter(|owner| *owner == number)
            .count()
    };
    let members = state.members.keys().copied();
    members
        .filter(is_eligible)
        .min_by_key(|number| owned(number))
}

/// Wishes of gateways that are not fulfilled yet.
fn still_wanted(state: &State) -> BTreeMap<u32, GatewayNumber> {
    let open = state.wanted.iter().filter(|(group, wanted)| {
        state.owners.get(group) != Some(wanted) && state.members.contains_key(wanted)
    });
    open.map(|(group, wanted)| (*group, *wanted)).collect()
}

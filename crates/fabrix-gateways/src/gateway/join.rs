//! How a gateway joins its group: at its start, and again when it has a new client.
//!
//! A gateway of the same name in the state is an earlier life of this one. Its client is shut out
//! first: it may have requests on their way that nobody waits for any more.

use std::time::Duration;

use super::{Action, Gateway, Refusal};
use crate::state::next_life;
use crate::{GatewayNumber, MEMBERS_MOST, Member, State};

impl Gateway {
    pub(super) fn join(
        &mut self,
        (version, mut state): (Option<u64>, State),
        now: Duration,
    ) -> Result<Action, Refusal> {
        // The answer to its write was lost.
        if let Some(seat) = self.place_of_client(&state) {
            self.sit(Some(seat), now);
            return Ok(self.decide(seat, version, &state));
        }
        self.check(&state)?;
        let number = self.place(&state).ok_or(Refusal::Full)?;
        let earlier = state.members.get(&number);
        if let Some(earlier) = earlier.filter(|earlier| self.may_reach_disks(earlier)) {
            return Ok(Action::Fence(earlier.client.clone()));
        }
        let life = earlier.map_or(1, |earlier| next_life(earlier.life));
        state.members.insert(number, self.member(life));
        Ok(Action::Write(version, state))
    }

    /// Whether requests of an earlier life may still reach disks.
    fn may_reach_disks(&self, earlier: &Member) -> bool {
        !earlier.fenced && !self.fenced.contains(&earlier.client)
    }

    /// Refuses other disks or names than those of the other gateways.
    fn check(&self, state: &State) -> Result<(), Refusal> {
        let mine = self.member(0);
        let others = state.members.values();
        for other in others.filter(|it| !it.fenced && it.name != mine.name) {
            if other.exports != mine.exports {
                return Err(Refusal::OtherNames(
                    other.name.clone(),
                    other.exports.clone(),
                ));
            }
            let mut numbers = other.disks.keys().chain(mine.disks.keys());
            if let Some(nsid) = numbers.find(|nsid| other.disks.get(nsid) != mine.disks.get(nsid)) {
                return Err(Refusal::OtherDisk(other.name.clone(), *nsid));
            }
        }
        Ok(())
    }

    /// The number of an earlier life, else a free one, else that of a gateway that is gone and owns
    /// nothing.
    fn place(&self, state: &State) -> Option<GatewayNumber> {
        if let Some((number, _)) = state.named(&self.about.name) {
            return Some(number);
        }
        let free = (1..=MEMBERS_MOST).find(|number| !state.members.contains_key(number));
        free.or_else(|| {
            let mut members = state.members.iter();
            let owns = |number: &GatewayNumber| state.owners.values().any(|owner| owner == number);
            let gone = members.find(|(number, member)| member.fenced && !owns(number));
            gone.map(|(number, _)| *number)
        })
    }

    fn member(&self, life: u64) -> Member {
        let disks = self.about.disks.iter();
        Member {
            life,
            fenced: false,
            client: self.client.clone(),
            exports: self.about.exports.clone(),
            neighbour: self.about.neighbour.clone(),
            name: self.about.name.clone(),
            listeners: self.about.listeners.clone(),
            disks: disks
                .map(|(nsid, (uuid, _))| (*nsid, uuid.clone()))
                .collect(),
        }
    }
}

//! How a gateway joins its group: at its start, and again when it has a new client.
//!
//! A gateway of the same name in the state is an earlier life of this one. Its client is shut out
//! first: it may have requests on their way that nobody waits for any more.

use super::{Action, Gateway, Refusal};
use crate::{MEMBERS_MOST, Member, Slot, State};

impl Gateway {
    pub(super) fn join(
        &mut self,
        version: Option<u64>,
        mut state: State,
    ) -> Result<Action, Refusal> {
        self.check(&state)?;
        let slot = self.place(&state).ok_or(Refusal::Full)?;
        let earlier = state.members.get(&slot);
        if let Some(earlier) = earlier.filter(|earlier| self.may_reach_disks(earlier)) {
            return Ok(Action::Fence(earlier.client.clone()));
        }
        let mut member = self.member(earlier.map_or(1, |earlier| earlier.life + 1));
        if let Some(earlier) = earlier {
            let known = earlier.former.iter().filter(|client| *client != NONE);
            let former = [&earlier.client].into_iter().chain(known);
            member.former = former.take(FORMER_MOST).cloned().collect();
        }
        state.members.insert(slot, member);
        Ok(Action::Write(version, state))
    }

    /// Whether requests of an earlier life may still reach disks.
    fn may_reach_disks(&self, earlier: &Member) -> bool {
        let is_me = earlier.client == self.client;
        !earlier.fenced && !is_me && !self.fenced.contains(&earlier.client)
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

    /// The slot of an earlier life, else a free one, else that of a gateway that is gone and owns
    /// nothing.
    fn place(&self, state: &State) -> Option<Slot> {
        if let Some((slot, _)) = state.named(&self.about.name) {
            return Some(slot);
        }
        let free = (1..=MEMBERS_MOST).find(|slot| !state.members.contains_key(slot));
        free.or_else(|| {
            let mut members = state.members.iter();
            let owns = |slot: &Slot| state.owners.values().any(|owner| owner == slot);
            let gone = members.find(|(slot, member)| member.fenced && !owns(slot));
            gone.map(|(slot, _)| *slot)
        })
    }

    fn member(&self, life: u64) -> Member {
        let disks = self.about.disks.iter();
        Member {
            life,
            fenced: false,
            client: self.client.clone(),
            former: vec![NONE.to_owned()],
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

/// Lives whose clients are remembered. One of them may have died with locks before the next one had
/// taken these.
const FORMER_MOST: usize = 8;
/// Stands for no client.
const NONE: &str = "-";

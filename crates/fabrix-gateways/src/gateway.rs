//! One gateway of a group as a machine: one action after the other.
//!
//! The order of a take-over is the promise of this module. The old client is shut out, the newest
//! map of the cluster is here, the state says so and names the new owner, and only then
//! [`Action::Take`] opens the disks to hosts.

mod decide;
mod join;
mod pause;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::pause::Pause;
use crate::peers::Peers;
use crate::{BEAT, GatewayNumber, LEASE, Member, State};

/// What a gateway says of itself.
#[derive(Clone, Debug)]
pub struct About {
    /// See [`Member::name`].
    pub name: String,
    /// See [`Member::neighbour`].
    pub neighbour: String,
    /// See [`Member::exports`].
    pub exports: String,
    /// See [`Member::listeners`].
    pub listeners: Vec<String>,
    /// Word and ANA group of its disks, by namespace id. See [`Member::disks`].
    pub disks: BTreeMap<u32, (String, u32)>,
}

/// What a gateway has to do next. Its user does it and reports the [`Outcome`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Store a beat for a gateway of the group.
    Beat(GatewayNumber, String),
    /// Read the state, and the beats of these gateways.
    Look(Vec<GatewayNumber>),
    /// Shut a client out, and wait until this machine has the map of the cluster that says so.
    Fence(String),
    /// Replace the state, if its version is this one. None: if there is none.
    Write(Option<u64>, State),
    /// Wait until this machine has the newest map of the cluster: another gateway may have shut a
    /// client out. Then lock the disks of an ANA group, read their reservations, and let hosts use
    /// them.
    Take(u32),
    /// Let hosts use the disks of an ANA group no more, wait for their requests, and unlock.
    Release(u32),
    /// Let hosts use no disk any more, at once, and end their connections, also if they use none
    /// now: what comes late over a connection of this life must not reach disks in the next one.
    GiveUp,
    /// Forget the client of the disks, and open them by a new one.
    Renew,
    /// Nothing before this time, unless something happens.
    Wait(Duration),
    /// Nothing any more: the gateway has left the group.
    Leave,
}

/// What became of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// The state with its version, if there is one, and the beats that were found.
    Looked(Option<(u64, String)>, Vec<(GatewayNumber, String)>),
    /// The state has another version.
    Conflict,
    /// The address of the new client.
    Renewed(String),
    /// The client of the disks was shut out, or has lost a lock.
    Fenced,
    /// It has failed, and may be tried again. A state that was to be written may be the new one.
    Failed,
}

/// Why a gateway cannot join a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The state cannot be read: a sentence.
    State(String),
    /// All places are taken.
    Full,
    /// Another gateway has another disk under a namespace id, or one of us has none: its name, and
    /// the id.
    OtherDisk(String, u32),
    /// Hosts see the disks of another gateway under other names: its name, and those.
    OtherNames(String, String),
}

/// One gateway of a group. Times are since any fixed moment.
#[derive(Debug)]
pub struct Gateway {
    about: About,
    /// Address of the client of the disks.
    client: String,
    /// GatewayNumber and life. None: it has to join.
    seat: Option<(GatewayNumber, u64)>,
    /// The state with its version, as it was read last.
    known: Option<(Option<u64>, State)>,
    /// The state may be another one by now.
    is_old: bool,
    /// Why the stored state cannot be read.
    unreadable: Option<String>,
    peers: Peers,
    /// ANA groups that hosts use here.
    serving: BTreeSet<u32>,
    /// Clients that were shut out, while the state does not say so yet.
    fenced: BTreeSet<String>,
    /// ANA groups for which it has not asked yet.
    wishes: BTreeSet<u32>,
    /// The client of the disks is of no use any more.
    lost: bool,
    /// Hosts may have connections of this life.
    is_open: bool,
    leaving: bool,
    /// When the cluster has last taken a beat.
    heard: Duration,
    next_beat: Duration,
    beats: u64,
    /// When it asks for the ANA group of its number. None: it has asked.
    home_at: Option<Duration>,
    /// Hosts have connections to this gateway.
    has_hosts: bool,
    /// Nothing is decided before: something has failed.
    not_before: Duration,
    /// The ANA group that could not be taken last. The others are tried before it.
    not_taken: u32,
    pause: Pause,
    doing: Option<(Action, Duration)>,
}

impl Gateway {
    /// A gateway that has not joined yet. `client` is the address of the client of its disks.
    #[must_use]
    pub fn new(about: About, client: String, now: Duration) -> Self {
        Self {
            about,
            client,
            seat: None,
            known: None,
            is_old: false,
            unreadable: None,
            peers: Peers::default(),
            serving: BTreeSet::new(),
            fenced: BTreeSet::new(),
            wishes: BTreeSet::new(),
            lost: false,
            is_open: false,
            leaving: false,
            heard: now,
            next_beat: now,
            beats: 0,
            home_at: None,
            has_hosts: false,
            not_before: now,
            not_taken: 0,
            pause: Pause::new(now),
            doing: None,
        }
    }

    /// Its number and life. None: it has not joined, or has to join again.
    #[must_use]
    pub const fn seat(&self) -> Option<(GatewayNumber, u64)> {
        self.seat
    }

    /// ANA groups that hosts use here.
    #[must_use]
    pub const fn serving(&self) -> &BTreeSet<u32> {
        &self.serving
    }

    /// The state as it was read last.
    #[must_use]
    pub fn state(&self) -> Option<&State> {
        self.known.as_ref().map(|(_, state)| state)
    }

    /// Something has changed: the state is read before anything is decided.
    pub fn look_again(&mut self) {
        self.is_old = true;
    }

    /// The process at this address for neighbours has ended.
    pub fn peer_ended(&mut self, neighbour: &str) {
        let members = self.state().into_iter().flat_map(|state| &state.members);
        let at = members.filter(|(_, member)| member.neighbour == neighbour);
        let numbers: Vec<GatewayNumber> = at.map(|(number, _)| *number).collect();
        numbers
            .into_iter()
            .for_each(|number| self.peers.ended(number));
    }

    /// Asks the present owner of an ANA group for it.
    pub fn want(&mut self, group: u32) {
        self.wishes.insert(group);
        self.is_old = true;
    }

    /// Says whether hosts have connections to this gateway. Without, it asks for nothing by itself:
    /// hosts may be unable to reach it.
    pub fn hosts_are_connected(&mut self, are: bool) {
        self.has_hosts = are;
    }

    /// Gives everything to other gateways, and leaves.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// The next action. Its outcome has to be reported before the next call.
    ///
    /// # Errors
    /// It cannot join, or the stored state cannot be read. A gateway that has joined may try again.
    pub fn next(&mut self, now: Duration) -> Result<Action, Refusal> {
        let action = self.choose(now)?;
        self.doing = Some((action.clone(), now));
        Ok(action)
    }

    fn choose(&mut self, now: Duration) -> Result<Action, Refusal> {
        if self.must_give_up(now) {
            return Ok(Action::GiveUp);
        }
        if now < self.not_before {
            return Ok(Action::Wait(self.not_before));
        }
        if self.lost {
            return Ok(self.begin_anew(now));
        }
        if let Some(why) = self.unreadable.take() {
            return Err(Refusal::State(why));
        }
        if now >= self.next_beat
            && let Some((number, beat)) = self.beat()
        {
            return Ok(Action::Beat(number, beat));
        }
        let Some((version, state)) = self.known.clone().filter(|_| !self.is_old) else {
            return Ok(Action::Look(self.others()));
        };
        match self.seat {
            None if self.leaving => Ok(Action::Leave),
            None => self.join((version, state), now),
            Some(seat) => Ok(self.decide(seat, version, &state)),
        }
    }

    /// Whether its client was shut out, or must be taken for it.
    fn is_useless(&self, now: Duration) -> bool {
        let is_cut_off = self.seat.is_some() && now.saturating_sub(self.heard) >= LEASE;
        self.lost || is_cut_off
    }

    /// Whether hosts must not use a disk here any more.
    fn must_give_up(&self, now: Duration) -> bool {
        self.lost && self.is_open || self.is_useless(now) && !self.serving.is_empty()
    }

    /// What a gateway does whose client was shut out.
    fn begin_anew(&self, now: Duration) -> Action {
        let renew_at = self.pause.ends_at();
        match self.leaving {
            // The others see the end of this process, and shut its client out.
            true => Action::Leave,
            false if now < renew_at => Action::Wait(renew_at),
            false => Action::Renew,
        }
    }

    /// The next beat. Its length is always the same, so that a full pool takes it. None: it has not
    /// joined.
    ///
    /// A gateway is not asked for anything else while an action lasts. Beats have to go on
    /// meanwhile: see [`was_heard`](Self::was_heard).
    pub fn beat(&mut self) -> Option<(GatewayNumber, String)> {
        let (number, life) = self.seat?;
        self.beats += 1;
        Some((number, format!("{life:010}.{:020}", self.beats)))
    }

    /// The cluster has taken a beat that was stored from `began` on, while another action lasts.
    pub fn was_heard(&mut self, began: Duration) {
        (self.heard, self.next_beat) = (began, began + BEAT);
    }

    /// The gateways whose beats count, as far as they are known.
    fn others(&self) -> Vec<GatewayNumber> {
        let mine = self.seat.map(|(number, _)| number);
        let members = self.state().into_iter().flat_map(|state| &state.members);
        let live = members.filter(|(number, member)| Some(**number) != mine && !member.fenced);
        live.map(|(number, _)| *number).collect()
    }

    /// Reports what became of the action that was asked for last.
    pub fn ended(&mut self, outcome: Outcome, now: Duration) {
        let Some((action, began)) = self.doing.take() else {
            return;
        };
        match (action, outcome) {
            (action, Outcome::Fenced) => {
                if matches!(action, Action::Take(_)) {
                    self.pause.refused();
                }
                self.lost = true;
            }
            (Action::Beat(..), Outcome::Done) => {
                self.was_heard(began);
                self.is_old = true;
                self.want_home(now);
            }
            (Action::Beat(..), _) => self.next_beat = now + RETRY,
            (Action::Look(_), Outcome::Looked(found, beats)) => self.looked(found, beats, began),
            (Action::Fence(client), Outcome::Done) => {
                self.fenced.insert(client);
            }
            (Action::Write(_, state), Outcome::Done) => self.wrote(&state, now),
            (Action::Write(..), Outcome::Conflict) => self.is_old = true,
            (Action::Write(..), _) => (self.is_old, self.not_before) = (true, now + RETRY),
            (Action::Take(group), Outcome::Done) => {
                self.pause.took();
                self.serving.insert(group);
            }
            (Action::Take(group), _) => (self.not_taken, self.not_before) = (group, now + RETRY),
            (Action::Release(group), Outcome::Done) => {
                self.serving.remove(&group);
            }
            // Requests are at disks that do not end them. Only a fence ends them.
            (Action::Release(_), _) => self.lost = true,
            (Action::GiveUp, _) => {
                self.serving.clear();
                (self.lost, self.is_open) = (true, false);
            }
            (Action::Renew, Outcome::Renewed(client)) => self.renewed(client, now),
            (Action::Wait(_) | Action::Leave, _) => {}
            (_, _) => self.not_before = now + RETRY,
        }
    }

    fn looked(
        &mut self,
        found: Option<(u64, String)>,
        beats: Vec<(GatewayNumber, String)>,
        began: Duration,
    ) {
        let (version, text) = match found {
            Some((version, text)) => (Some(version), text),
            None => (None, State::default().to_string()),
        };
        match State::parse(&text) {
            Ok(state) => {
                let members = state.members.iter();
                let clients = members.map(|(number, member)| (*number, member.client.clone()));
                self.peers
                    .looked(began, &clients.collect(), &beats.into_iter().collect());
                (self.known, self.is_old) = (Some((version, state)), false);
            }
            Err(why) => {
                self.unreadable = Some(why);
                self.not_before = began + BEAT;
            }
        }
    }

    fn wrote(&mut self, state: &State, now: Duration) {
        self.is_old = true;
        self.fenced.clear();
        self.wishes.clear();
        self.sit(self.place_of_client(state), now);
    }

    /// Number and life that a state gives to the present client.
    fn place_of_client(&self, state: &State) -> Option<(GatewayNumber, u64)> {
        let mine = state.named(&self.about.name);
        let mine = mine.filter(|(_, member)| member.client == self.client && !member.fenced);
        mine.map(|(number, member)| (number, member.life))
    }

    fn sit(&mut self, seat: Option<(GatewayNumber, u64)>, now: Duration) {
        if self.seat.is_none() && seat.is_some() {
            (self.heard, self.next_beat) = (now, now);
            self.pause.joined(now);
            self.home_at = Some(now + HOME_AFTER);
        }
        self.is_open |= seat.is_some();
        self.seat = seat;
    }

    /// Asks for the ANA group of its number, once hosts have had the time to connect.
    fn want_home(&mut self, now: Duration) {
        let is_time = self.has_hosts && self.home_at.is_some_and(|at| now >= at);
        let Some((number, _)) = self.seat.filter(|_| is_time) else {
            return;
        };
        self.home_at = None;
        self.wishes
            .extend(Some(number.into()).filter(|home| self.groups().contains(home)));
    }

    fn renewed(&mut self, client: String, now: Duration) {
        self.client = client;
        (self.lost, self.seat, self.is_old) = (false, None, true);
        self.pause.renewed(now, self.heard);
    }

    /// Whether another gateway can serve disks now.
    fn is_live(&self, number: GatewayNumber, member: &Member) -> bool {
        !member.fenced && !self.peers.is_dead(number)
    }
}

/// Time between joining and asking for the ANA group of its number: hosts that have lost this
/// gateway connect again meanwhile (Linux tries every 10 s). Before, they would lose the group.
const HOME_AFTER: Duration = Duration::from_secs(30);
/// Delay before something that has failed is tried again.
const RETRY: Duration = Duration::from_millis(250);

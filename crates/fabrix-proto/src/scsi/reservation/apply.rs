//! State changes of each request. Every request is checked completely before the first change.
//!
//! Source: SPC-4, "Persistent reservations", the subclauses "Registering", "Reserving",
//! "Releasing", "Clearing", "Preempting"; SPC-4, "Exceptions to SPC-2 RESERVE and RELEASE
//! behavior".

use alloc::vec::Vec;

use super::{
    Access, Change, Initiator, Kind, Nexus, Notice, REGISTRANTS_MAX, Refusal, Registrant, Request,
    Reservations,
};

impl Reservations {
    /// Carries out a request of `nexus`.
    ///
    /// # Errors
    /// The reason for the refusal. The state is unchanged then.
    pub fn apply(&mut self, nexus: &Nexus, request: &Request) -> Result<Change, Refusal> {
        if let Some(change) = self.apply_legacy(nexus, request) {
            return change;
        }
        if !self.may(Access::PersistentOut, nexus) {
            return Err(Refusal::Conflict);
        }
        let persisted = self.persist;
        let mut change = match *request {
            Request::Register { .. } => self.register(nexus, request),
            Request::Reserve { key, kind } => self.reserve(nexus, key, kind),
            Request::Release { key, kind } => self.release(nexus, key, kind),
            Request::Clear { key } => self.clear(nexus, key),
            Request::Preempt { .. } => self.preempt(nexus, request),
            Request::Move { .. } => self.relocate(nexus, request),
            Request::Persist(persist) => {
                self.persist = persist;
                Ok(Change::default())
            }
            Request::LegacyReserve | Request::LegacyRelease => Ok(Change::default()),
        }?;
        change.store = persisted || self.persist;
        Ok(change)
    }

    /// Index of the registration of `nexus`, if it has this key.
    fn registered_as(&self, nexus: &Nexus, key: u64) -> Result<usize, Refusal> {
        self.position(nexus)
            .filter(|at| self.registrants[*at].key == key)
            .ok_or(Refusal::Conflict)
    }

    fn position(&self, nexus: &Nexus) -> Option<usize> {
        self.registrants.iter().position(|entry| entry.is(nexus))
    }

    fn count_generation(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    fn register(&mut self, nexus: &Nexus, request: &Request) -> Result<Change, Refusal> {
        let Request::Register {
            key,
            new,
            ignore,
            persist,
            all_ports,
            also,
        } = request
        else {
            return Err(Refusal::Conflict);
        };
        let mine = self.position(nexus);
        let registered = mine.map_or(0, |at| self.registrants[at].key);
        if !ignore && *key != registered {
            return Err(Refusal::Conflict);
        }
        let change = match (mine, *new) {
            (None, 0) => Change::default(),
            (Some(at), 0) => self.unregister(at),
            (Some(at), new) => self.change_key(at, new, also)?,
            (None, new) => self.add(nexus, new, *all_ports, also)?,
        };
        self.persist = *persist;
        self.count_generation();
        Ok(change)
    }

    /// Replaces the key of a registration. SPEC_I_PT is refused here, because it is valid only for
    /// an unregistered nexus. Source: SPC-4, "Registering".
    fn change_key(&mut self, at: usize, key: u64, also: &[Initiator]) -> Result<Change, Refusal> {
        if !also.is_empty() {
            return Err(Refusal::InvalidInitiator);
        }
        self.registrants[at].key = key;
        Ok(Change::default())
    }

    fn add(
        &mut self,
        nexus: &Nexus,
        key: u64,
        all_ports: bool,
        also: &[Initiator],
    ) -> Result<Change, Refusal> {
        let port = (!all_ports).then_some(nexus.port);
        let mut who: Vec<&Initiator> = also.iter().collect();
        who.push(&nexus.initiator);
        who.sort();
        who.dedup();
        who.retain(|initiator| !self.is_known(initiator, port));
        if self.registrants.len() + who.len() > REGISTRANTS_MAX {
            return Err(Refusal::TooManyRegistrants);
        }
        for initiator in who {
            self.insert(initiator.clone(), port, key);
        }
        Ok(Change::default())
    }

    fn is_known(&self, initiator: &Initiator, port: Option<u16>) -> bool {
        self.registrants.iter().any(|entry| {
            entry.initiator == *initiator && (entry.port.is_none() || entry.port == port)
        })
    }

    /// Adds a registration. A registration for all ports replaces those of the same initiator for
    /// single ports, and inherits the reservation from them.
    fn insert(&mut self, initiator: Initiator, port: Option<u16>, key: u64) {
        let mut made_reservation = false;
        if port.is_none() {
            self.registrants.retain(|entry| {
                let replaced = entry.initiator == initiator;
                made_reservation |= replaced && entry.made_reservation;
                !replaced
            });
        }
        self.registrants.push(Registrant {
            initiator,
            port,
            key,
            made_reservation,
        });
    }

    /// Removes a registration. The reservation ends with its holder, or with the last registrant
    /// for an all-registrants type.
    ///
    /// Source: SPC-4, "Unregistering": registrants with rights under the reservation are notified.
    fn unregister(&mut self, at: usize) -> Change {
        let gone = self.registrants.remove(at);
        let Some(kind) = self.kind else {
            return Change::default();
        };
        let ends = match kind.all_registrants() {
            true => self.registrants.is_empty(),
            false => gone.made_reservation,
        };
        if ends {
            self.end_reservation(None)
        } else {
            Change::default()
        }
    }

    /// Ends the reservation. Registrants with rights under it are notified, except `nexus`.
    fn end_reservation(&mut self, nexus: Option<&Nexus>) -> Change {
        let relied = self.kind.is_some_and(Kind::admits_registrants);
        self.kind = None;
        for entry in &mut self.registrants {
            entry.made_reservation = false;
        }
        match relied {
            true => self.tell_others(nexus, Notice::ReservationReleased),
            false => Change::default(),
        }
    }

    fn tell_others(&self, nexus: Option<&Nexus>, notice: Notice) -> Change {
        let others = self
            .registrants
            .iter()
            .filter(|entry| nexus.is_none_or(|nexus| !entry.is(nexus)));
        Change {
            notices: others.map(|entry| (entry.clone(), notice)).collect(),
            ..Change::default()
        }
    }

    /// Makes a reservation. The holder may repeat its reservation. Source: SPC-4, "Reserving".
    fn reserve(&mut self, nexus: &Nexus, key: u64, kind: Kind) -> Result<Change, Refusal> {
        let at = self.registered_as(nexus, key)?;
        match self.kind {
            None => self.take(at, kind),
            Some(held) if held == kind && self.holds(&self.registrants[at]) => {}
            Some(_) => return Err(Refusal::Conflict),
        }
        Ok(Change::default())
    }

    fn take(&mut self, at: usize, kind: Kind) {
        self.kind = Some(kind);
        for (index, entry) in self.registrants.iter_mut().enumerate() {
            entry.made_reservation = index == at;
        }
    }

    /// Ends the reservation of the holder. A release by a registrant without reservation is
    /// accepted and does nothing. Source: SPC-4, "Releasing".
    fn release(&mut self, nexus: &Nexus, key: u64, kind: Kind) -> Result<Change, Refusal> {
        let at = self.registered_as(nexus, key)?;
        match self.kind {
            Some(held) if self.holds(&self.registrants[at]) => {
                if held != kind {
                    return Err(Refusal::InvalidRelease);
                }
                Ok(self.end_reservation(Some(nexus)))
            }
            _ => Ok(Change::default()),
        }
    }

    /// Removes all registrations and the reservation. Source: SPC-4, "Clearing".
    fn clear(&mut self, nexus: &Nexus, key: u64) -> Result<Change, Refusal> {
        self.registered_as(nexus, key)?;
        let change = self.tell_others(Some(nexus), Notice::ReservationPreempted);
        self.registrants.clear();
        self.kind = None;
        self.count_generation();
        Ok(change)
    }

    /// Carries out PREEMPT and PREEMPT AND ABORT.
    ///
    /// Source: SPC-4, "Preempting persistent reservations and registration handling".
    fn preempt(&mut self, nexus: &Nexus, request: &Request) -> Result<Change, Refusal> {
        let Request::Preempt {
            key,
            victim,
            kind,
            abort,
        } = *request
        else {
            return Err(Refusal::Conflict);
        };
        self.registered_as(nexus, key)?;
        let mut change = if self.victim_holds(victim)? {
            self.preempt_reservation(nexus, victim, kind)
        } else {
            self.preempt_registrations(nexus, victim)?
        };
        if abort {
            let removed = |notice: &Notice| *notice == Notice::RegistrationPreempted;
            let gone = change.notices.iter().filter(|(_, notice)| removed(notice));
            change.abort = gone.map(|(entry, _)| entry.clone()).collect();
        }
        self.count_generation();
        Ok(change)
    }

    /// Whether the key names the holder of the reservation. The key zero names all holders of an
    /// all-registrants reservation, and is invalid otherwise.
    fn victim_holds(&self, victim: u64) -> Result<bool, Refusal> {
        let all = self.kind.is_some_and(Kind::all_registrants);
        match (victim, all) {
            (0, true) => Ok(true),
            (0, false) => Err(Refusal::InvalidKey),
            (_, true) => Ok(false),
            (victim, false) => Ok(self.sole_holder().is_some_and(|entry| entry.key == victim)),
        }
    }

    /// Removes the victims and gives `nexus` a new reservation. The other registrants are notified
    /// if the type changes.
    fn preempt_reservation(&mut self, nexus: &Nexus, victim: u64, kind: Kind) -> Change {
        let everybody = victim == 0;
        let mut change = self.remove(nexus, |entry| everybody || entry.key == victim, true);
        let changed = self.kind != Some(kind);
        if let Some(at) = self.position(nexus) {
            self.take(at, kind);
        }
        if changed {
            let others = self.tell_others(Some(nexus), Notice::ReservationReleased);
            change.notices.extend(others.notices);
        }
        change
    }

    fn preempt_registrations(&mut self, nexus: &Nexus, victim: u64) -> Result<Change, Refusal> {
        if !self.registrants.iter().any(|entry| entry.key == victim) {
            return Err(Refusal::Conflict);
        }
        let change = self.remove(nexus, |entry| entry.key == victim, false);
        if self.registrants.is_empty() {
            self.kind = None;
        }
        Ok(change)
    }

    /// Removes and notifies the victims. `nexus` is not notified. It keeps its registration if
    /// `spare` is true.
    fn remove(
        &mut self,
        nexus: &Nexus,
        is_victim: impl Fn(&Registrant) -> bool,
        spare: bool,
    ) -> Change {
        let mut change = Change::default();
        self.registrants.retain(|entry| {
            let mine = entry.is(nexus);
            let goes = is_victim(entry) && !(mine && spare);
            if goes && !mine {
                let told = (entry.clone(), Notice::RegistrationPreempted);
                change.notices.push(told);
            }
            !goes
        });
        change
    }

    /// Carries out REGISTER AND MOVE. Source: SPC-4, "Registering and moving the reservation".
    fn relocate(&mut self, nexus: &Nexus, request: &Request) -> Result<Change, Refusal> {
        let Request::Move {
            key,
            new,
            unregister,
            persist,
            to,
        } = request
        else {
            return Err(Refusal::Conflict);
        };
        let from = self.registered_as(nexus, *key)?;
        let sole = self.sole_holder().is_some_and(|entry| entry.is(nexus));
        if !sole {
            return Err(Refusal::Conflict);
        }
        if *new == 0 {
            return Err(Refusal::InvalidKey);
        }
        if self.registrants[from].is(to) {
            return Err(Refusal::InvalidInitiator);
        }
        self.add_or_rekey(to, *new)?;
        self.hand_over(nexus, to, *unregister);
        self.persist = *persist;
        self.count_generation();
        Ok(Change::default())
    }

    fn add_or_rekey(&mut self, to: &Nexus, key: u64) -> Result<(), Refusal> {
        match self.position(to) {
            Some(at) => self.registrants[at].key = key,
            None => drop(self.add(to, key, false, &[])?),
        }
        Ok(())
    }

    fn hand_over(&mut self, from: &Nexus, to: &Nexus, unregister: bool) {
        let Some(kind) = self.kind else {
            return;
        };
        if let Some(at) = self.position(to) {
            self.take(at, kind);
        }
        if unregister {
            self.registrants.retain(|entry| !entry.is(from));
        }
    }

    /// Carries out RESERVE and RELEASE of SPC-2. Persistent registrations exclude them. Exception,
    /// announced by CRH: a nexus with write access under a persistent reservation gets GOOD, and
    /// nothing changes.
    fn apply_legacy(
        &mut self,
        nexus: &Nexus,
        request: &Request,
    ) -> Option<Result<Change, Refusal>> {
        let reserve = match request {
            Request::LegacyReserve => true,
            Request::LegacyRelease => false,
            _ => return None,
        };
        let standing = self.standing(nexus);
        let excepted = self.kind.is_some() && !standing.conflicts(Access::Write);
        if excepted {
            return Some(Ok(Change::default()));
        }
        if !self.registrants.is_empty() {
            return Some(Err(Refusal::Conflict));
        }
        Some(self.reserve_legacy(nexus, reserve))
    }

    /// Sets or ends the SPC-2 reservation. RELEASE by another nexus is accepted and does nothing.
    fn reserve_legacy(&mut self, nexus: &Nexus, reserve: bool) -> Result<Change, Refusal> {
        let theirs = self.legacy.as_ref().is_some_and(|holder| holder != nexus);
        match (reserve, theirs) {
            (true, true) => return Err(Refusal::Conflict),
            (true, false) => self.legacy = Some(nexus.clone()),
            (false, true) => {}
            (false, false) => self.legacy = None,
        }
        Ok(Change::default())
    }
}

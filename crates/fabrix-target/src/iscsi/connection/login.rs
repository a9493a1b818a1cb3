//! Who logs in on a connection, what it must prove, and which targets it is told of.
//!
//! A part of `connection`. The proof itself is `proto`'s, who may is `access`'s.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::iscsi::login::{Admission, Grant};
use fabrix_proto::iscsi::pdu::LoginStatus;
use fabrix_proto::iscsi::target::{Scope, TargetLimits};
use fabrix_proto::portal::{Portal, canonical};
use fabrix_rt::Shard;

use super::{Connection, ENTER};
use crate::Notice;
use crate::iscsi::session::Session;
use crate::iscsi::sessions::Entering;
use crate::iscsi::units::{PORTAL_GROUP_TAG, Units};
use crate::life::Phase;
use crate::local::Told;
use crate::registry::Place;

impl Connection {
    /// Somebody wants to log in.
    pub(super) fn authorize(&mut self, shard: &mut Shard) {
        let leading = self.stream.machine().leading();
        self.claim = leading.map(|leading| leading.initiator.clone());
        let admission = self.admission();
        let (machine, mut out) = self.stream.speak();
        if let Some(event) = machine.admit(admission, &mut out) {
            self.event(shard, event);
        }
    }

    /// Whether who wants to log in may, and what it must prove.
    fn admission(&self) -> Admission {
        let leading = self.stream.machine().leading();
        let Some(leading) = leading.filter(|_| self.life.phase == Phase::Open) else {
            return Admission::Refuse(LoginStatus::UNAVAILABLE);
        };
        let Some(units) = self.local.view(&leading.initiator) else {
            return Admission::Refuse(LoginStatus::FORBIDDEN);
        };
        let wanted = leading.target.as_deref();
        if wanted.is_some_and(|name| name != units.target.name.to_ascii_lowercase()) {
            return Admission::Refuse(LoginStatus::NOT_FOUND);
        }
        match self.local.demand() {
            Ok(auth) => Admission::Admit(Grant {
                portal_group_tag: PORTAL_GROUP_TAG,
                auth,
            }),
            Err(why) => {
                let peer = self.peer;
                let who = self.claim.as_deref().map(str::to_owned);
                let refused = Notice::Refused { peer, who, why };
                self.local.shared.notice(&refused);
                Admission::Refuse(LoginStatus::TARGET_ERROR)
            }
        }
    }

    /// Who wants to log in has proved what it must: its session begins, after an older one of the
    /// same has ended.
    pub(super) fn enter(&mut self, shard: &mut Shard) {
        let Some(leading) = self.stream.machine().leading() else {
            return;
        };
        let place = self.local.place(self.life.task);
        let number = if self.life.phase != Phase::Open {
            Err(LoginStatus::UNAVAILABLE)
        } else {
            match self.local.shared.sessions.enter(leading, place) {
                Entering::Entered(tsih) => {
                    self.tsih = Some(tsih);
                    Ok(tsih)
                }
                Entering::Full => Err(LoginStatus::OUT_OF_RESOURCES),
                Entering::Occupied(older) => return self.replace(shard, &older),
            }
        };
        let (machine, mut out) = self.stream.speak();
        if let Some(event) = machine.enter(number, &mut out) {
            self.event(shard, event);
        }
    }

    /// Tells the session that stands in the way to end, and comes back. A mailbox that is full is
    /// told the next time.
    fn replace(&mut self, shard: &mut Shard, older: &Place) {
        let _told_again = older
            .shard
            .send(older.task, Box::new(Told::Close(REPLACED)));
        let at = shard.now() + ENTER_AFTER;
        self.life.set_timer(shard, ENTER, at);
    }

    pub(super) fn logged_in(&mut self, shard: &mut Shard) {
        let Some(session) = self.stream.machine().session() else {
            return;
        };
        self.stranger = None;
        let (leading, tsih) = (&session.leading, session.tsih);
        self.local.shared.notice(&Notice::LoggedIn {
            initiator: leading.initiator.to_string(),
            session: tsih.get(),
            peer: self.peer,
        });
        let Some(units) = self.local.view(&leading.initiator) else {
            // The list has changed since it was asked; the order to look again has not come yet.
            self.life.ends_because(NO_LONGER_ALLOWED);
            return self.end(shard);
        };
        if !leading.discovery {
            let slots = usize::from(TargetLimits::default().slots());
            let place = self.local.place(self.life.task);
            self.session = Some(Box::new(Session::new(place, leading, units, slots)));
        }
    }

    /// SendTargets: one target, at all addresses where it can be reached, the one that was asked at
    /// first.
    pub(super) fn name_targets(&mut self, scope: &Scope) {
        let units = self.view();
        let name = units.as_ref().map(|units| units.target.name.as_str());
        let name = name.filter(|name| match scope {
            Scope::All | Scope::Session => true,
            Scope::Named(wanted) => **wanted == *name.to_ascii_lowercase(),
        });
        let here = self.stream.socket().local_addr().ok();
        let told =
            |portal: Portal| here.map_or(Some(portal.address), |here| portal.seen_from(here));
        let mut portals: Vec<SocketAddr> =
            self.local.portals().into_iter().filter_map(told).collect();
        let asked_at = here.map(canonical).map(|here| (here.ip(), here.port()));
        portals.sort_by_key(|portal| Some((portal.ip(), portal.port())) != asked_at);
        let texts: Vec<_> = portals
            .iter()
            .map(|portal| format!("{portal},{PORTAL_GROUP_TAG}"))
            .collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let named = name.map(|name| (name, &texts[..]));
        let (machine, mut out) = self.stream.speak();
        machine.answer_targets(named, &mut out);
    }

    /// What the initiator of this connection sees; nothing if it may not be here, or has not said
    /// who it is.
    pub(super) fn view(&self) -> Option<Arc<Units>> {
        let leading = self.stream.machine().leading()?;
        self.local.view(&leading.initiator)
    }
}

/// How soon a login looks again whether the session that it replaces has ended; the login's
/// deadline bounds it.
const ENTER_AFTER: Duration = Duration::from_millis(5);
/// Why the older of two sessions of the same name ends.
const REPLACED: &str = "it has logged in anew, which replaces this session";
/// Why a session ends whose initiator the list of those allowed no longer names.
pub(super) const NO_LONGER_ALLOWED: &str =
    "the list of allowed initiators does not name it any more";

//! The login on a connection, and SendTargets.
//!
//! A part of `connection`. `proto` has the exchange of CHAP, `access` the access rules.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabrix_proto::iscsi::login::{Admission, Grant};
use fabrix_proto::iscsi::pdu::LoginStatus;
use fabrix_proto::iscsi::target::{Scope, TargetLimits};
use fabrix_proto::portal::{Portal, canonical};
use fabrix_rt::Shard;

use super::{Connection, Iscsi};
use crate::Notice;
use crate::catalog::Snapshot;
use crate::connection::Protocol as _;
use crate::iscsi::context::SessionCarrier;
use crate::iscsi::session::Session;
use crate::iscsi::sessions::Entering;
use crate::iscsi::targets::IscsiTarget;
use crate::lifecycle::{PROTOCOL_TIMER, Stage};
use crate::registry::{ConnectionAddress, ConnectionOrder};

impl<C: SessionCarrier> Connection<C, Iscsi> {
    /// Answers a login that names its initiator.
    pub(super) fn authorize(&mut self, shard: &mut Shard) {
        let leading = self.stream.endpoint().leading();
        self.protocol.initiator = leading.map(|leading| leading.initiator.clone());
        let admission = self.admission();
        let (target, mut out) = self.stream.speak();
        let event = target.admit(admission, &mut out);
        drop(out);
        if let Some(event) = event {
            Iscsi::event(self, shard, event);
        }
    }

    /// Whether the initiator may log in, and the proof that it has to give.
    fn admission(&self) -> Admission {
        let leading = self.stream.endpoint().leading();
        let Some(leading) = leading.filter(|_| self.lifecycle.stage == Stage::Open) else {
            return Admission::Refuse(LoginStatus::UNAVAILABLE);
        };
        let catalog = self.local.served();
        // A listener is open a moment before its catalog is served.
        let Some(portal_group_tag) = catalog.portal_groups.number(&self.accepted.listener) else {
            return Admission::Refuse(LoginStatus::UNAVAILABLE);
        };
        let target = match catalog.iscsi_targets.admit(leading) {
            Ok(target) => target,
            Err(status) => return Admission::Refuse(status),
        };
        match self.local.demand(target.initiators.chap.as_ref()) {
            Ok(auth) => Admission::Admit(Grant {
                portal_group_tag,
                auth,
            }),
            Err(why) => {
                let peer = self.accepted.peer;
                let who = self.protocol.initiator.as_deref().map(str::to_owned);
                let refused = Notice::Refused { peer, who, why };
                self.notice(&refused);
                Admission::Refuse(LoginStatus::TARGET_ERROR)
            }
        }
    }

    /// Begins the session of an initiator that has given its proof, after an older session of the
    /// same identity has ended.
    pub(super) fn enter(&mut self, shard: &mut Shard) {
        let Some(leading) = self.stream.endpoint().leading() else {
            return;
        };
        let place = self.local.place(self.lifecycle.task);
        let number = if self.lifecycle.stage != Stage::Open {
            Err(LoginStatus::UNAVAILABLE)
        } else {
            let listener = self.accepted.listener.ana_listener();
            match (self.local.shared.sessions).enter((leading, listener), place) {
                Entering::Entered(tsih) => {
                    self.protocol.tsih = Some(tsih);
                    Ok(tsih)
                }
                Entering::Full => Err(LoginStatus::OUT_OF_RESOURCES),
                Entering::Occupied(older) => return self.replace(shard, &older),
            }
        };
        let (target, mut out) = self.stream.speak();
        let event = target.enter(number, &mut out);
        drop(out);
        if let Some(event) = event {
            Iscsi::event(self, shard, event);
        }
    }

    /// Sends the older session an order to end, and sets the timer of the next attempt. A full
    /// mailbox gets the order then.
    fn replace(&mut self, shard: &mut Shard, older: &ConnectionAddress) {
        let _sent_again = older
            .shard
            .send(older.task, Box::new(ConnectionOrder::Close(REPLACED)));
        let at = shard.now() + ENTER_AFTER;
        self.lifecycle.set_timer(shard, PROTOCOL_TIMER, at);
    }

    pub(super) fn logged_in(&mut self, shard: &mut Shard) {
        let Some(session) = self.stream.endpoint().session() else {
            return;
        };
        self.accepted.unauthenticated_peer = None;
        let (leading, tsih) = (&session.leading, session.tsih);
        self.notice(&Notice::LoggedIn {
            initiator: leading.initiator.to_string(),
            session: tsih.get(),
            peer: self.accepted.peer,
        });
        let catalog = self.local.served();
        let Ok(target) = catalog.iscsi_targets.admit(leading) else {
            // The catalog has changed during the login. The order to take it over is on its way.
            self.lifecycle
                .ends_because(catalog.iscsi_targets.why_not(leading));
            return self.end(shard);
        };
        if leading.discovery {
            self.accepted.load = None;
        } else {
            let slots = usize::from(TargetLimits::default().slots());
            let place = self.local.place(self.lifecycle.task);
            let listener = catalog.portal_groups.number(&self.accepted.listener);
            self.protocol.session = Some(Box::new(Session::new(
                place,
                (leading, listener.unwrap_or(1)),
                Arc::clone(&target.units),
                slots,
            )));
        }
    }

    /// Answers SendTargets: the targets that the session may see, each at all addresses where it
    /// can be reached over the protocol of this connection. The address of this connection comes
    /// first.
    pub(super) fn name_targets(&mut self, scope: &Scope) {
        let catalog = self.local.served();
        let leading = self.stream.endpoint().leading();
        let shown = leading
            .into_iter()
            .flat_map(|leading| catalog.iscsi_targets.shown(leading));
        let own = leading.and_then(|leading| leading.target.as_deref());
        let asked = shown.map(IscsiTarget::name).filter(|name| match scope {
            Scope::All => true,
            Scope::Session => own == Some(name),
            Scope::Named(target) => **target == **name,
        });
        let names: Vec<_> = asked.collect();
        let texts = self.portal_texts(&catalog);
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let named = names.into_iter().map(|name| (name, &texts[..]));
        let (target, mut out) = self.stream.speak();
        target.answer_targets(named, &mut out);
    }

    /// The portals of this connection's protocol, each with its target portal group tag.
    fn portal_texts(&self, catalog: &Snapshot) -> Vec<String> {
        let here = self.accepted.address;
        let told =
            |portal: Portal| here.map_or(Some(portal.address), |here| portal.seen_from(here));
        let listens = catalog.desired.listen.iter();
        let ours = listens.filter(|listen| listen.protocol == self.protocol.over);
        let portals = ours.filter_map(|listen| {
            let tag = catalog.portal_groups.number(listen)?;
            Some((told(listen.portal)?, tag))
        });
        let mut portals: Vec<(SocketAddr, u16)> = portals.collect();
        let asked_at = here.map(canonical).map(|here| (here.ip(), here.port()));
        portals.sort_by_key(|(portal, _)| Some((portal.ip(), portal.port())) != asked_at);
        let texts = portals
            .iter()
            .map(|(portal, tag)| format!("{portal},{tag}"));
        texts.collect()
    }

    /// Gives the session the catalog that its shard serves now. A session that is not admitted any
    /// more ends, and so does one that knows another disk under a number.
    pub(super) fn serve(&mut self, shard: &mut Shard) {
        let Some(leading) = self.stream.endpoint().leading() else {
            return;
        };
        let catalog = self.local.served();
        match (
            catalog.iscsi_targets.admit(leading),
            &mut self.protocol.session,
        ) {
            (Err(_), _) => {
                self.lifecycle
                    .ends_because(catalog.iscsi_targets.why_not(leading));
                self.end(shard);
            }
            (Ok(target), Some(session)) => {
                if let Err(why) = session.serve(Arc::clone(&target.units)) {
                    self.lifecycle.ends_because(why);
                    self.end(shard);
                }
            }
            (Ok(_), None) => {}
        }
    }
}

/// Delay before a login checks again whether the session that it replaces has ended. The login's
/// deadline bounds the attempts.
const ENTER_AFTER: Duration = Duration::from_millis(5);
/// Why the older of two sessions of the same name ends.
const REPLACED: &str = "it has logged in anew, which replaces this session";

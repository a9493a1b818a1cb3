//! The sessions of all iSCSI targets. The iSCSI connections of all shards share this list, and
//! nothing else about each other.
//!
//! An entry has names, numbers and the address of its connection. The list is locked when a session
//! begins or ends, never for an I/O. A session of the same initiator and ISID at the same portal
//! group of the same target replaces an older one, which has to end first.
//!
//! Source: RFC 7143, section 6.3.5 "Session Reinstatement, Closure, and Timeout".

use std::num::NonZeroU16;
use std::sync::Mutex;

use fabrix_proto::iscsi::login::Leading;
use fabrix_proto::nvme::ana::AnaListener;

use crate::lock::lock;
use crate::registry::ConnectionAddress;

/// All sessions, of all iSCSI targets.
pub(crate) struct Sessions {
    inner: Mutex<Inner>,
}

struct Inner {
    list: Vec<Entry>,
    next_tsih: NonZeroU16,
}

struct Entry {
    initiator: Box<str>,
    target: Option<Box<str>>,
    isid: [u8; 6],
    /// The listener, which is the portal group.
    listener: AnaListener,
    tsih: NonZeroU16,
    place: ConnectionAddress,
}

/// The result of adding a session.
pub(super) enum Entering {
    /// The session is in the list, under this number.
    Entered(NonZeroU16),
    /// An older session has to end first.
    Occupied(ConnectionAddress),
    /// All numbers are in use.
    Full,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        let (list, next_tsih) = (Vec::new(), NonZeroU16::MIN);
        Self {
            inner: Mutex::new(Inner { list, next_tsih }),
        }
    }

    /// Number of sessions.
    pub(crate) fn len(&self) -> usize {
        lock(&self.inner).list.len()
    }

    /// Adds a session, unless an older one with the same identity has not ended. Discovery sessions
    /// replace none.
    pub(super) fn enter(
        &self,
        (leading, listener): (&Leading, AnaListener),
        place: ConnectionAddress,
    ) -> Entering {
        let mut inner = lock(&self.inner);
        let older = |entry: &&Entry| {
            let named = (&entry.initiator, &entry.target, entry.isid);
            named == (&leading.initiator, &leading.target, leading.isid)
                && entry.listener == listener
        };
        if let Some(older) = inner.list.iter().find(older)
            && !leading.discovery
        {
            return Entering::Occupied(older.place.clone());
        }
        let Some(tsih) = inner.free_tsih() else {
            return Entering::Full;
        };
        let initiator = if leading.discovery {
            // No login has this name, so the entry blocks none.
            Box::default()
        } else {
            leading.initiator.clone()
        };
        inner.list.push(Entry {
            initiator,
            target: leading.target.clone(),
            isid: leading.isid,
            listener,
            tsih,
            place,
        });
        Entering::Entered(tsih)
    }

    /// Addresses of all other sessions of the same target.
    pub(super) fn others(&self, mine: &ConnectionAddress) -> Vec<ConnectionAddress> {
        let inner = lock(&self.inner);
        let mine = inner.list.iter().find(|entry| entry.place.is(mine));
        let others = inner.list.iter().filter(|entry| {
            mine.is_some_and(|mine| entry.target == mine.target && !entry.place.is(&mine.place))
        });
        others.map(|entry| entry.place.clone()).collect()
    }

    /// Removes a session that has ended.
    pub(super) fn leave(&self, tsih: NonZeroU16) {
        lock(&self.inner).list.retain(|entry| entry.tsih != tsih);
    }
}

impl Inner {
    fn free_tsih(&mut self) -> Option<NonZeroU16> {
        for _ in 0..u16::MAX {
            let tsih = self.next_tsih;
            self.next_tsih = tsih.checked_add(1).unwrap_or(NonZeroU16::MIN);
            if self.list.iter().all(|entry| entry.tsih != tsih) {
                return Some(tsih);
            }
        }
        None
    }
}

//! Asynchronous events: held requests, pending events, and changed namespaces.
//!
//! Each kind of event is reported once, and then masked until the host has read its log page. An
//! event that occurs while masked is reported once afterwards. All state is bounded: 4 requests, 3
//! kinds of events, 1024 changed namespaces, 64 notifications.
//! Source: NVM Express Base Specification 2.x, "Asynchronous Event Request command".

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Kind;
use crate::Slot;
use crate::nvme::identify::{EVENT_ANA, EVENT_DISCOVERY_LOG, EVENT_NAMESPACE_ATTRIBUTE};
use crate::nvme::log_page::{CHANGED_MAX, LogId, NotificationPage};
use crate::nvme::spec::Status;
use crate::scsi::reservation::Notice;

/// Maximum number of requests that a controller holds (AERL + 1).
pub const ASYNC_EVENTS_MAX: usize = 4;

/// Bits 7:0 of the configuration: critical warnings of the health log. The controller never reports
/// any.
const HEALTH_WARNINGS: u32 = 0xFF;

/// Dword 0 of the event: notice (type 2), namespace attribute changed (00h), log page 04h.
const NAMESPACE_CHANGED: u32 = 0x0004_0002;
/// Dword 0 of the event: notice (type 2), Asymmetric Namespace Access change (03h), log page 0Ch.
const ANA_CHANGED: u32 = 0x000C_0302;
/// Dword 0 of the event: notice (type 2), discovery log page changed (F0h), log page 70h.
const DISCOVERY_CHANGED: u32 = 0x0070_F002;
/// Dword 0 of the event: I/O command set (type 6), reservation log page available (00h), log page
/// 80h.
const RESERVATION_NOTICE: u32 = 0x0080_0006;
/// Maximum number of unread reservation notifications. Further ones replace the oldest. The gap in
/// their numbers shows the loss to the host.
const NOTIFICATIONS_MAX: usize = 64;

/// State of one kind of event.
#[derive(Debug)]
struct Event {
    enable_bit: u32,
    page: LogId,
    dword0: u32,
    pending: bool,
    masked: bool,
}

impl Event {
    const fn new(enable_bit: u32, page: LogId, dword0: u32) -> Self {
        Self {
            enable_bit,
            page,
            dword0,
            pending: false,
            masked: false,
        }
    }

    const fn waits(&self) -> bool {
        self.pending && !self.masked
    }

    /// Makes the event pending if the host has enabled it. Otherwise the event is dropped: a host
    /// that enables it later reads the page anyway.
    const fn post(&mut self, configuration: u32) {
        self.pending = configuration & self.enable_bit != 0;
    }

    const fn clear(&mut self) {
        (self.pending, self.masked) = (false, false);
    }
}

#[derive(Debug)]
pub(super) struct Events {
    event: Event,
    /// The event of the ANA log page. A discovery controller has none: its enable bit is zero.
    ana: Event,
    /// Event without an enable bit. Unwanted notices are masked per namespace, before they arrive
    /// here.
    reservation: Event,
    notifications: VecDeque<NotificationPage>,
    notification_count: u64,
    configuration: u32,
    held: [Option<(Slot, u16)>; ASYNC_EVENTS_MAX],
    changed: Vec<u32>,
    too_many_changed: bool,
}

impl Events {
    pub(super) const fn new(kind: Kind) -> Self {
        let (enable_bit, page, dword0) = match kind {
            Kind::Io => (
                EVENT_NAMESPACE_ATTRIBUTE,
                LogId::CHANGED_NAMESPACES,
                NAMESPACE_CHANGED,
            ),
            Kind::Discovery => (EVENT_DISCOVERY_LOG, LogId::DISCOVERY, DISCOVERY_CHANGED),
        };
        let ana_bit = match kind {
            Kind::Io => EVENT_ANA,
            Kind::Discovery => 0,
        };
        Self {
            event: Event::new(enable_bit, page, dword0),
            ana: Event::new(ana_bit, LogId::ANA, ANA_CHANGED),
            reservation: Event::new(0, LogId::RESERVATION, RESERVATION_NOTICE),
            notifications: VecDeque::new(),
            notification_count: 0,
            configuration: 0,
            held: [None; ASYNC_EVENTS_MAX],
            changed: Vec::new(),
            too_many_changed: false,
        }
    }

    /// Notices that a host can enable (OAES).
    pub(super) const fn supported(&self) -> u32 {
        self.event.enable_bit | self.ana.enable_bit
    }

    pub(super) const fn configuration(&self) -> u32 {
        self.configuration
    }

    pub(super) const fn configure(&mut self, value: u32) -> Result<(), Status> {
        if value & !(self.supported() | HEALTH_WARNINGS) != 0 {
            return Err(Status::INVALID_FIELD);
        }
        self.configuration = value;
        self.event.pending &= value & self.event.enable_bit != 0;
        self.ana.pending &= value & self.ana.enable_bit != 0;
        Ok(())
    }

    /// Holds a request.
    pub(super) fn hold(&mut self, slot: Slot, command_id: u16) -> Result<(), Status> {
        let free = self.held.iter_mut().find(|place| place.is_none());
        *free.ok_or(Status::ASYNC_EVENT_LIMIT_EXCEEDED)? = Some((slot, command_id));
        Ok(())
    }

    /// Removes and returns the request with this command id.
    pub(super) fn take(&mut self, command_id: u16) -> Option<Slot> {
        let index = self
            .held
            .iter()
            .position(|held| held.is_some_and(|(_, id)| id == command_id))?;
        self.remove(index)
    }

    /// Removes and returns the oldest request.
    pub(super) fn release(&mut self) -> Option<Slot> {
        self.remove(0)
    }

    /// Removes a request. The later ones move up, so that the first is always the oldest.
    fn remove(&mut self, index: usize) -> Option<Slot> {
        let (slot, _) = self.held[index].take()?;
        self.held[index..].rotate_left(1);
        Some(slot)
    }

    pub(super) fn namespace_changed(&mut self, nsid: u32) {
        if self.event.page != LogId::CHANGED_NAMESPACES {
            return;
        }
        if let Err(place) = self.changed.binary_search(&nsid) {
            if self.changed.len() < CHANGED_MAX {
                self.changed.insert(place, nsid);
            } else {
                self.too_many_changed = true;
            }
        }
        self.event.post(self.configuration);
    }

    pub(super) const fn ana_changed(&mut self) {
        self.ana.post(self.configuration);
    }

    pub(super) fn discovery_changed(&mut self) {
        if self.event.page == LogId::DISCOVERY {
            self.event.post(self.configuration);
        }
    }

    /// Adds a notification about a reservation change of another host that concerns this host.
    pub(super) fn reservation_notice(&mut self, nsid: u32, notice: Notice) {
        self.notification_count = self.notification_count.wrapping_add(1).max(1);
        if self.notifications.len() == NOTIFICATIONS_MAX {
            self.notifications.pop_front();
        }
        let page = NotificationPage::new(self.notification_count, notice, nsid);
        self.notifications.push_back(page);
        self.reservation.pending = true;
    }

    /// Oldest unread reservation notification, with the number of further ones. An empty page if
    /// there is none.
    pub(super) fn notification(&self) -> NotificationPage {
        let more = self.notifications.len().saturating_sub(1);
        let oldest = self.notifications.front().copied();
        oldest.map_or_else(NotificationPage::empty, |page| page.followed_by(more))
    }

    pub(super) fn poll(&mut self) -> Option<(Slot, u32)> {
        let kinds = [&self.event, &self.ana, &self.reservation];
        let waiting = kinds.iter().position(|event| event.waits())?;
        let slot = self.release()?;
        let event = match waiting {
            0 => &mut self.event,
            1 => &mut self.ana,
            _ => &mut self.reservation,
        };
        (event.pending, event.masked) = (false, true);
        Some((slot, event.dword0))
    }

    /// Namespaces changed since the last read. `None`: more than [`CHANGED_MAX`].
    pub(super) fn changed(&self) -> Option<&[u32]> {
        if self.too_many_changed {
            None
        } else {
            Some(&self.changed)
        }
    }

    /// Clears the event of `page`. The host has read the page without RAE.
    pub(super) fn page_read(&mut self, page: LogId) {
        if page == LogId::RESERVATION {
            self.notifications.pop_front();
            // The page tells the host whether further notifications follow, so no event is needed
            // for them.
            self.reservation.clear();
        }
        if page == LogId::ANA {
            // The host has just read the present states.
            self.ana.clear();
        }
        if page != self.event.page {
            return;
        }
        self.event.masked = false;
        if page == LogId::CHANGED_NAMESPACES {
            // The list that the host has just read includes all changes since the event was
            // reported.
            self.event.pending = false;
            self.changed.clear();
            self.too_many_changed = false;
        }
    }

    /// Resets everything except the requests. The caller releases them one by one.
    pub(super) fn reset(&mut self) {
        self.configuration = 0;
        self.event.clear();
        self.ana.clear();
        self.reservation.clear();
        self.notifications.clear();
        self.changed.clear();
        self.too_many_changed = false;
    }
}

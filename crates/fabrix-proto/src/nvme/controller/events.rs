//! Asynchronous events: the requests that wait, the events that wait for them, and the changed
//! namespaces.
//!
//! Each kind of event is told once and then masked until the host has read its log page; what
//! happens meanwhile is told once more. Everything is bounded: four requests, two kinds, 1024
//! changed namespaces, 64 notifications.
//! Source: NVM Express Base Specification 2.x, "Asynchronous Event Request command".

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Kind;
use crate::Slot;
use crate::nvme::identify::{EVENT_DISCOVERY_LOG, EVENT_NAMESPACE_ATTRIBUTE};
use crate::nvme::log_page::{CHANGED_MAX, LogId, NotificationPage};
use crate::nvme::spec::Status;
use crate::scsi::reservation::Notice;

/// Requests that one controller holds (AERL + 1).
pub const ASYNC_EVENTS_MAX: usize = 4;

/// Bits 7:0 of the configuration: critical warnings of the health log, which never come.
const HEALTH_WARNINGS: u32 = 0xFF;

/// Dword 0: a notice (type 2), namespace attribute changed (00h), log page 04h.
const NAMESPACE_CHANGED: u32 = 0x0004_0002;
/// Dword 0: a notice (type 2), discovery log page changed (F0h), log page 70h.
const DISCOVERY_CHANGED: u32 = 0x0070_F002;
/// Dword 0: an event of the I/O command set (type 6), reservation log page available (00h), log
/// page 80h.
const RESERVATION_NOTICE: u32 = 0x0080_0006;
/// Reservation notifications that wait to be read; of more, the oldest are lost, which their count
/// shows.
const NOTIFICATIONS_MAX: usize = 64;

/// One kind of event.
#[derive(Debug)]
struct Event {
    enable_bit: u32,
    page: LogId,
    dword0: u32,
    pending: bool,
    masked: bool,
}

#[derive(Debug)]
pub(super) struct Events {
    event: Event,
    /// Nobody enables it: notices that are not wanted are masked by namespace, before they come
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
        Self {
            event: Event {
                enable_bit,
                page,
                dword0,
                pending: false,
                masked: false,
            },
            reservation: Event {
                enable_bit: 0,
                page: LogId::RESERVATION,
                dword0: RESERVATION_NOTICE,
                pending: false,
                masked: false,
            },
            notifications: VecDeque::new(),
            notification_count: 0,
            configuration: 0,
            held: [None; ASYNC_EVENTS_MAX],
            changed: Vec::new(),
            too_many_changed: false,
        }
    }

    /// The notices that can be enabled (OAES).
    pub(super) const fn supported(&self) -> u32 {
        self.event.enable_bit
    }

    pub(super) const fn configuration(&self) -> u32 {
        self.configuration
    }

    pub(super) const fn configure(&mut self, value: u32) -> Result<(), Status> {
        if value & !(self.event.enable_bit | HEALTH_WARNINGS) != 0 {
            return Err(Status::INVALID_FIELD);
        }
        self.configuration = value;
        self.event.pending &= value & self.event.enable_bit != 0;
        Ok(())
    }

    /// Keeps a request.
    pub(super) fn hold(&mut self, slot: Slot, command_id: u16) -> Result<(), Status> {
        let free = self.held.iter_mut().find(|place| place.is_none());
        *free.ok_or(Status::ASYNC_EVENT_LIMIT_EXCEEDED)? = Some((slot, command_id));
        Ok(())
    }

    /// Takes back the request with this command id.
    pub(super) fn take(&mut self, command_id: u16) -> Option<Slot> {
        let index = self
            .held
            .iter()
            .position(|held| held.is_some_and(|(_, id)| id == command_id))?;
        self.remove(index)
    }

    /// Takes back the oldest request.
    pub(super) fn release(&mut self) -> Option<Slot> {
        self.remove(0)
    }

    /// Removes a request; those behind it move up, so that the first is always the oldest.
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
        self.post();
    }

    pub(super) fn discovery_changed(&mut self) {
        if self.event.page == LogId::DISCOVERY {
            self.post();
        }
    }

    /// Another host changed a reservation that this one had to do with.
    pub(super) fn reservation_notice(&mut self, nsid: u32, notice: Notice) {
        self.notification_count = self.notification_count.wrapping_add(1).max(1);
        if self.notifications.len() == NOTIFICATIONS_MAX {
            self.notifications.pop_front();
        }
        let page = NotificationPage::new(self.notification_count, notice, nsid);
        self.notifications.push_back(page);
        self.reservation.pending = true;
    }

    /// The oldest reservation notification that was not read, and how many more there are; an empty
    /// page if there is none.
    pub(super) fn notification(&self) -> NotificationPage {
        let more = self.notifications.len().saturating_sub(1);
        let oldest = self.notifications.front().copied();
        oldest.map_or_else(NotificationPage::empty, |page| page.followed_by(more))
    }

    /// An event nobody has enabled is not kept: the host that enables it reads the page anyway.
    const fn post(&mut self) {
        self.event.pending = self.configuration & self.event.enable_bit != 0;
    }

    pub(super) fn poll(&mut self) -> Option<(Slot, u32)> {
        let waits = |event: &Event| event.pending && !event.masked;
        if !waits(&self.event) && !waits(&self.reservation) {
            return None;
        }
        let slot = self.release()?;
        let event = if waits(&self.event) {
            &mut self.event
        } else {
            &mut self.reservation
        };
        (event.pending, event.masked) = (false, true);
        Some((slot, event.dword0))
    }

    /// The changed namespaces since they were last read; `None` when they were too many.
    pub(super) fn changed(&self) -> Option<&[u32]> {
        if self.too_many_changed {
            None
        } else {
            Some(&self.changed)
        }
    }

    /// The host has read `page` and did not ask to retain its event.
    pub(super) fn page_read(&mut self, page: LogId) {
        if page == LogId::RESERVATION {
            self.notifications.pop_front();
            self.reservation.masked = false;
            // Who has not read the last knows from the page that there are more.
            self.reservation.pending = false;
        }
        if page != self.event.page {
            return;
        }
        self.event.masked = false;
        if page == LogId::CHANGED_NAMESPACES {
            // What happened since the event was told has just been read with the list.
            self.event.pending = false;
            self.changed.clear();
            self.too_many_changed = false;
        }
    }

    /// Forgets everything but the requests, which are released one by one.
    pub(super) fn reset(&mut self) {
        self.configuration = 0;
        self.event.pending = false;
        self.event.masked = false;
        self.reservation.pending = false;
        self.reservation.masked = false;
        self.notifications.clear();
        self.changed.clear();
        self.too_many_changed = false;
    }
}

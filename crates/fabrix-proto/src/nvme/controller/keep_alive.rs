//! The keep-alive timer: a timeout in milliseconds and the last sign of life. It has no clock; it
//! is asked.
//!
//! Every command counts as a sign of life (traffic-based keep-alive, CTRATT bit 6): those of the
//! admin queue when they come, those of I/O queues when the timer is asked, because they may come
//! to other threads. A discovery controller whose host asked for no timer has one of two minutes.
//! Source: NVM Express Base Specification 2.x, "Keep Alive".

use super::Kind;
use crate::Nanos;

/// The timer's granularity (KAS) in units of 100 ms.
pub(super) const GRANULARITY_UNITS: u16 = 10;

/// The timer's granularity: timeouts are rounded up to multiples of it.
pub const GRANULARITY_MS: u32 = GRANULARITY_UNITS as u32 * 100;

/// How long a discovery controller without a timer waits for the next command.
pub const DISCOVERY_TIMEOUT_MS: u32 = 120_000;

#[derive(Debug)]
pub(super) struct KeepAlive {
    kind: Kind,
    /// What the host asked for, rounded; zero is no timer.
    timeout_ms: u32,
    renewed: Nanos,
}

impl KeepAlive {
    pub(super) fn new(kind: Kind, timeout_ms: u32, now: Nanos) -> Self {
        let mut timer = Self {
            kind,
            timeout_ms: 0,
            renewed: now,
        };
        timer.set(timeout_ms, now);
        timer
    }

    /// Sets the timeout, rounded up; zero turns the timer off.
    pub(super) fn set(&mut self, timeout_ms: u32, now: Nanos) {
        let rounded = timeout_ms.checked_next_multiple_of(GRANULARITY_MS);
        self.timeout_ms = rounded.unwrap_or(u32::MAX / GRANULARITY_MS * GRANULARITY_MS);
        self.renewed = now;
    }

    /// The timeout in force; zero when the host asked for none.
    pub(super) const fn timeout_ms(&self) -> u32 {
        self.timeout_ms
    }

    pub(super) const fn is_asked_for(&self) -> bool {
        self.timeout_ms != 0
    }

    /// A command came.
    pub(super) const fn renew(&mut self, now: Nanos) {
        self.renewed = now;
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        let timeout_ms = match (self.timeout_ms, self.kind) {
            (0, Kind::Io) => return None,
            (0, Kind::Discovery) => DISCOVERY_TIMEOUT_MS,
            (asked, _) => asked,
        };
        Some(self.renewed.plus_ms(timeout_ms.into()))
    }

    pub(super) fn is_expired(&self, now: Nanos) -> bool {
        self.deadline().is_some_and(|deadline| now >= deadline)
    }
}

//! Keep-alive timer: a timeout in milliseconds, and the time of the last command. The timer has no
//! clock of its own.
//!
//! Every command renews the timer (traffic-based keep-alive, CTRATT bit 6). Admin commands renew it
//! when they arrive. I/O commands renew it when the timer is checked, because other threads may
//! process them. A discovery controller has a timer of two minutes if its host requests none.
//! Source: NVM Express Base Specification 2.x, "Keep Alive".

use super::Kind;
use crate::Nanos;

/// Granularity of the timer (KAS) in units of 100 ms.
pub(super) const GRANULARITY_UNITS: u16 = 10;

/// Granularity of the timer. Timeouts are rounded up to multiples of it.
pub const GRANULARITY_MS: u32 = GRANULARITY_UNITS as u32 * 100;

/// Timeout of a discovery controller whose host requests none.
pub const DISCOVERY_TIMEOUT_MS: u32 = 120_000;

#[derive(Debug)]
pub(super) struct KeepAlive {
    kind: Kind,
    /// Requested timeout, rounded up. Zero: no timer.
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

    /// Sets the timeout, rounded up. Zero turns the timer off.
    pub(super) fn set(&mut self, timeout_ms: u32, now: Nanos) {
        let rounded = timeout_ms.checked_next_multiple_of(GRANULARITY_MS);
        self.timeout_ms = rounded.unwrap_or(u32::MAX / GRANULARITY_MS * GRANULARITY_MS);
        self.renewed = now;
    }

    /// Timeout in force. Zero if the host requested none.
    pub(super) const fn timeout_ms(&self) -> u32 {
        self.timeout_ms
    }

    pub(super) const fn is_asked_for(&self) -> bool {
        self.timeout_ms != 0
    }

    /// Renews the timer after a command.
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

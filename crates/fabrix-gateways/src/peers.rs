//! Which other gateways are alive, as far as their beats show.
//!
//! A gateway that is alive changes its beat once in [`BEAT`]. It is given up when its beat stays
//! the same for [`LEASE`], counted in looks: the time between two looks counts as one and a half
//! beats at most. So neither a gateway that was stopped itself, nor one that could not reach the
//! cluster for a while, takes the others for dead when it goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Slot;

/// Time between two beats of a gateway.
pub const BEAT: Duration = Duration::from_secs(1);
/// How long a gateway may be silent. A gateway that cannot reach the cluster for that long gives
/// its disks up.
pub const LEASE: Duration = Duration::from_secs(4);

/// Most that one look adds to the silence of a gateway.
const LOOK_MOST: Duration = Duration::from_millis(1500);

/// What is known of the other gateways.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    seen: BTreeMap<Slot, Seen>,
    last_look: Duration,
}

#[derive(Debug)]
struct Seen {
    beat: String,
    silent: Duration,
    /// The process has ended.
    ended: bool,
}

impl Peers {
    /// Notes the beats of a look that began at `now`.
    pub(crate) fn looked(&mut self, now: Duration, beats: Vec<(Slot, String)>) {
        let passed = now.saturating_sub(self.last_look).min(LOOK_MOST);
        self.last_look = now;
        for (slot, beat) in beats {
            match self.seen.get_mut(&slot) {
                Some(seen) if seen.beat == beat => seen.silent += passed,
                _ => {
                    let seen = Seen {
                        beat,
                        silent: Duration::ZERO,
                        ended: false,
                    };
                    self.seen.insert(slot, seen);
                }
            }
        }
    }

    /// Notes that the process of a gateway has ended. A later beat shows another process.
    pub(crate) fn ended(&mut self, slot: Slot) {
        if let Some(seen) = self.seen.get_mut(&slot) {
            seen.ended = true;
        }
    }

    /// Whether a gateway is given up. One whose beat was never seen is not.
    pub(crate) fn is_dead(&self, slot: Slot) -> bool {
        let seen = self.seen.get(&slot);
        seen.is_some_and(|seen| seen.ended || seen.silent >= LEASE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn beat(number: u64) -> Vec<(Slot, String)> {
        vec![(2, number.to_string())]
    }

    #[test]
    fn a_gateway_is_dead_after_a_lease_of_silence() {
        let mut peers = Peers::default();
        (0..4).for_each(|second| peers.looked(at(second), beat(7)));
        assert!(!peers.is_dead(2));
        peers.looked(at(4), beat(7));
        assert!(peers.is_dead(2));
        peers.looked(at(5), beat(8));
        assert!(!peers.is_dead(2));
    }

    #[test]
    fn who_has_slept_takes_nobody_for_dead() {
        let mut peers = Peers::default();
        peers.looked(at(0), beat(7));
        peers.looked(at(600), beat(7));
        assert!(!peers.is_dead(2));
        peers.looked(at(601), beat(8));
        assert!(!peers.is_dead(2));
    }

    #[test]
    fn the_end_of_a_process_counts_until_the_next_one_beats() {
        let mut peers = Peers::default();
        peers.looked(at(0), beat(7));
        peers.ended(2);
        assert!(peers.is_dead(2));
        peers.looked(at(1), beat(7));
        assert!(peers.is_dead(2));
        peers.looked(at(2), beat(0));
        assert!(!peers.is_dead(2));
    }
}

//! Which other gateways are alive, as far as their beats show.
//!
//! A gateway that is alive changes its beat once in [`BEAT`]. It is given up when its beat stays
//! the same for [`LEASE`], counted in looks: the time between two looks counts as one and a half
//! beats at most. So neither a gateway that was stopped itself, nor one that could not reach the
//! cluster for a while, takes the others for dead when it goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::GatewayNumber;

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
    seen: BTreeMap<GatewayNumber, Seen>,
    last_look: Duration,
}

#[derive(Debug, Default)]
struct Seen {
    /// Its client and the beat. A new client has shown none yet.
    last: (String, String),
    silent: Duration,
    /// The process has ended.
    ended: bool,
    /// It has ended after the last look. Its last beat may not have been seen yet.
    is_news: bool,
}

impl Peers {
    /// Notes the beats of a look that began at `now`. `clients` are those of all gateways: each
    /// process and each life has another one. A gateway that has left is forgotten.
    pub(crate) fn looked(
        &mut self,
        now: Duration,
        clients: &BTreeMap<GatewayNumber, String>,
        beats: &BTreeMap<GatewayNumber, String>,
    ) {
        let passed = now.saturating_sub(self.last_look).min(LOOK_MOST);
        self.last_look = now;
        self.seen.retain(|number, _| clients.contains_key(number));
        for (number, client) in clients {
            let beat = beats.get(number).cloned().unwrap_or_default();
            let last = (client.clone(), beat);
            let seen = self.seen.entry(*number).or_default();
            let is_last_beat = seen.is_news && seen.last.0 == last.0;
            if seen.last == last {
                seen.silent += passed;
            } else {
                (seen.last, seen.silent) = (last, Duration::ZERO);
                seen.ended &= is_last_beat;
            }
            seen.is_news = false;
        }
    }

    /// Notes that the process of a gateway seems to have ended. A beat that is stored after the
    /// next look takes that back.
    pub(crate) fn ended(&mut self, number: GatewayNumber) {
        if let Some(seen) = self.seen.get_mut(&number) {
            (seen.ended, seen.is_news) = (true, true);
        }
    }

    /// Whether a gateway is given up. One whose beat was never seen is not.
    pub(crate) fn is_dead(&self, number: GatewayNumber) -> bool {
        let seen = self.seen.get(&number);
        seen.is_some_and(|seen| seen.ended || seen.silent >= LEASE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Peers {
        fn saw(&mut self, seconds: u64, client: u64, beat: u64) {
            let beats = [(2, beat.to_string())].into();
            let clients = [(2, client.to_string())].into();
            self.looked(Duration::from_secs(seconds), &clients, &beats);
        }
    }

    #[test]
    fn a_gateway_is_dead_after_a_lease_of_silence() {
        let mut peers = Peers::default();
        (0..4).for_each(|second| peers.saw(second, 1, 7));
        assert!(!peers.is_dead(2));
        peers.saw(4, 1, 7);
        assert!(peers.is_dead(2));
        peers.saw(5, 1, 8);
        assert!(!peers.is_dead(2));
    }

    #[test]
    fn who_has_slept_takes_nobody_for_dead() {
        let mut peers = Peers::default();
        peers.saw(0, 1, 7);
        peers.saw(600, 1, 7);
        assert!(!peers.is_dead(2));
        peers.saw(601, 1, 8);
        assert!(!peers.is_dead(2));
    }

    #[test]
    fn the_end_of_a_process_counts_until_the_next_one_beats() {
        let mut peers = Peers::default();
        peers.saw(0, 1, 7);
        peers.ended(2);
        assert!(peers.is_dead(2));
        peers.saw(1, 1, 7);
        assert!(peers.is_dead(2));
        peers.saw(2, 1, 8);
        assert!(!peers.is_dead(2));
    }

    #[test]
    fn the_last_beat_of_a_process_that_has_ended_takes_nothing_back() {
        let mut peers = Peers::default();
        peers.saw(0, 1, 7);
        peers.ended(2);
        peers.saw(1, 1, 8);
        assert!(
            peers.is_dead(2),
            "it has beaten between the look and its end"
        );
        peers.saw(2, 1, 9);
        assert!(!peers.is_dead(2));
        peers.ended(2);
        peers.saw(3, 2, 0);
        assert!(!peers.is_dead(2), "it is another process");
    }

    #[test]
    fn who_has_left_is_forgotten() {
        let mut peers = Peers::default();
        peers.saw(0, 1, 7);
        peers.ended(2);
        let (none, beats) = (BTreeMap::new(), BTreeMap::new());
        peers.looked(Duration::from_secs(1), &none, &beats);
        peers.saw(2, 1, 1);
        assert!(!peers.is_dead(2));
    }

    #[test]
    fn a_new_life_is_alive_and_dead_again_if_it_never_beats() {
        let mut peers = Peers::default();
        peers.saw(0, 1, 7);
        peers.ended(2);
        peers.saw(1, 2, 7);
        assert!(!peers.is_dead(2));
        (2..6).for_each(|second| peers.saw(second, 2, 7));
        assert!(peers.is_dead(2));
    }
}

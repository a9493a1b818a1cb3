//! Policies: which path gets the next request. Pure functions of what is known about the paths.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use fabrix_block::spec::{Size, parse_size};
use fabrix_rt::Nanos;

/// How requests are divided among the paths of a disk. Optimized paths always come before others,
/// and paths that cannot be used are never chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// All requests take one path: this one while it can be used, otherwise the first that can.
    Fixed(usize),
    /// So many requests take a path, then as many take the next one.
    RoundRobin(u32),
    /// So many bytes take a path, then as many take the next one.
    Bytes(u64),
    /// The path with the fewest requests in progress.
    #[default]
    QueueDepth,
    /// The path that will be done first: bytes in progress by the measured time of a byte.
    ServiceTime,
    /// The path with the shortest answers. All paths are measured again after some time.
    Latency,
    /// The path whose card is nearest to the processor that sends the requests, by node of memory.
    Numa,
}

/// What a policy knows about a path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct View {
    /// It is connected, and its target says that it leads to the disk.
    pub(super) is_usable: bool,
    /// Its target prefers it.
    pub(super) is_optimized: bool,
    /// Requests in progress, and their bytes.
    pub(super) requests: u32,
    pub(super) bytes: u64,
    /// Mean time of an answer, and mean time that a KiB occupies the path. Zero: not measured.
    pub(super) answer_ns: u64,
    pub(super) kib_ns: u64,
    /// Distance of its card from the processor that sends the requests. Only the policy `numa`
    /// needs it.
    pub(super) distance: u8,
}

/// A policy with its memory.
#[derive(Debug)]
pub(super) struct Selector {
    policy: Policy,
    /// The path that was chosen last.
    current: usize,
    /// Requests or bytes that the current path still gets.
    left: u64,
    /// Latency: requests that measure paths from now on, and when they are due again.
    probes_left: u32,
    probe_at: Nanos,
}

impl Selector {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            policy,
            current: 0,
            left: 0,
            probes_left: 0,
            probe_at: Nanos::default(),
        }
    }

    /// Whether the policy asks how far the cards are.
    pub(super) fn wants_distance(&self) -> bool {
        self.policy == Policy::Numa
    }

    /// The path for a request of so many bytes. None: no path can be used.
    pub(super) fn pick(&mut self, paths: &[View], bytes: u64, now: Nanos) -> Option<usize> {
        let optimized = paths.iter().any(|path| path.is_usable && path.is_optimized);
        let allowed =
            |index: usize| paths[index].is_usable && (paths[index].is_optimized || !optimized);
        // The path behind the current one comes first: equal paths get requests in turn.
        let after = (self.current + 1).min(paths.len());
        let mut in_turn = (after..paths.len())
            .chain(0..after)
            .filter(|index| allowed(*index));
        let picked = match self.policy {
            Policy::Fixed(preferred) => Some(preferred)
                .filter(|index| *index < paths.len() && allowed(*index))
                .or_else(|| (0..paths.len()).find(|index| allowed(*index))),
            Policy::Numa => {
                let all = (0..paths.len()).filter(|index| allowed(*index));
                all.min_by_key(|index| paths[*index].distance)
            }
            Policy::RoundRobin(requests) => self.turns(1, requests.into(), allowed, in_turn.next()),
            Policy::Bytes(most) => self.turns(bytes, most, allowed, in_turn.next()),
            Policy::QueueDepth => in_turn.min_by_key(|index| paths[*index].requests),
            Policy::ServiceTime => in_turn.min_by_key(|index| done_in(&paths[*index], bytes)),
            Policy::Latency => {
                let next = in_turn.next();
                let probed = self.is_probe(paths.len(), now);
                next.filter(|_| probed).or_else(|| {
                    let all = (0..paths.len()).filter(|index| allowed(*index));
                    all.min_by_key(|index| paths[*index].answer_ns)
                })
            }
        }?;
        self.current = picked;
        Some(picked)
    }

    /// The current path until it has had its share, then the next one.
    fn turns(
        &mut self,
        cost: u64,
        share: u64,
        allowed: impl Fn(usize) -> bool,
        next: Option<usize>,
    ) -> Option<usize> {
        let stays = self.left > 0 && allowed(self.current);
        let picked = if stays { self.current } else { next? };
        let left = if stays { self.left } else { share };
        self.left = left.saturating_sub(cost.max(1));
        Some(picked)
    }

    /// Whether a request measures the next path in turn.
    fn is_probe(&mut self, paths: usize, now: Nanos) -> bool {
        if now >= self.probe_at {
            self.probe_at = now + PROBE_EVERY;
            self.probes_left = PROBES * u32::try_from(paths).unwrap_or(1);
        }
        let is_probe = self.probes_left > 0;
        self.probes_left = self.probes_left.saturating_sub(1);
        is_probe
    }
}

fn whole(text: &str) -> Result<u64, String> {
    let number = text.parse();
    number.map_err(|_| format!("`{text}` is not a number"))
}

/// When a path would be done with so many bytes more.
fn done_in(path: &View, bytes: u64) -> u64 {
    let kib = (path.bytes + bytes).div_ceil(1024);
    kib.saturating_mul(path.kib_ns)
}

/// Requests that measure a path, and the time between two such measurements. Source: the defaults
/// of ESXi's latency policy.
const PROBES: u32 = 16;
const PROBE_EVERY: Duration = Duration::from_secs(30);

/// The most that a share may be.
const MOST_REQUESTS: u32 = 1_000_000;
const MOST_BYTES: u64 = 1 << 40;
/// Share of a path where none is given. Source: the defaults of ESXi's policies.
const DEFAULT_REQUESTS: u32 = 1;
const DEFAULT_BYTES: u64 = 10 << 20;

impl FromStr for Policy {
    type Err = String;

    /// `fixed[:N]` (N counts from 0), `round-robin[:N]`, `bytes[:SIZE]`, `queue-depth`,
    /// `service-time`, `latency` or `numa`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (word, number) = match text.split_once(':') {
            Some((word, number)) => (word, Some(number)),
            None => (text, None),
        };
        let read = |number: &str| match word {
            "bytes" => parse_size(number),
            _ => whole(number),
        };
        let number = number.map(read).transpose()?;
        let within = |number: Option<u64>, default: u64, most: u64| {
            let number = number.unwrap_or(default);
            let fits = (1..=most).contains(&number);
            fits.then_some(number)
                .ok_or_else(|| format!("`{text}`: a path's share is 1 to {most}"))
        };
        match (word, number) {
            ("fixed", number) => {
                let index = usize::try_from(number.unwrap_or(0));
                Ok(Self::Fixed(index.map_err(|error| error.to_string())?))
            }
            ("round-robin", number) => {
                let share = within(number, DEFAULT_REQUESTS.into(), MOST_REQUESTS.into())?;
                Ok(Self::RoundRobin(
                    u32::try_from(share).unwrap_or(MOST_REQUESTS),
                ))
            }
            ("bytes", number) => Ok(Self::Bytes(within(number, DEFAULT_BYTES, MOST_BYTES)?)),
            ("queue-depth", None) => Ok(Self::QueueDepth),
            ("service-time", None) => Ok(Self::ServiceTime),
            ("latency", None) => Ok(Self::Latency),
            ("numa", None) => Ok(Self::Numa),
            ("queue-depth" | "service-time" | "latency" | "numa", Some(_)) => {
                Err(format!("the policy `{word}` takes no number"))
            }
            _ => Err(format!(
                "`{text}` is not a policy; write fixed[:N], round-robin[:N], bytes[:SIZE], \
                 queue-depth, service-time, latency or numa"
            )),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(index) => write!(f, "fixed:{index}"),
            Self::RoundRobin(requests) => write!(f, "round-robin:{requests}"),
            Self::Bytes(bytes) => write!(f, "bytes:{}", Size(*bytes)),
            Self::QueueDepth => f.write_str("queue-depth"),
            Self::ServiceTime => f.write_str("service-time"),
            Self::Latency => f.write_str("latency"),
            Self::Numa => f.write_str("numa"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: View = View {
        is_usable: true,
        is_optimized: true,
        requests: 0,
        bytes: 0,
        answer_ns: 0,
        kib_ns: 0,
        distance: 10,
    };
    const DOWN: View = View {
        is_usable: false,
        ..UP
    };
    const SLOW: View = View {
        is_optimized: false,
        ..UP
    };

    /// The paths of requests of 4 KiB, none of which ends.
    fn picks(policy: &str, paths: &[View], count: usize) -> Vec<Option<usize>> {
        let mut selector = Selector::new(policy.parse().expect("a policy"));
        let mut paths = paths.to_vec();
        let mut pick = || {
            let picked = selector.pick(&paths, 4096, Nanos(1))?;
            paths[picked].requests += 1;
            paths[picked].bytes += 4096;
            Some(picked)
        };
        (0..count).map(|_| pick()).collect()
    }

    #[test]
    fn no_policy_takes_a_path_that_cannot_be_used_and_all_prefer_optimized_ones() {
        let all = [
            "fixed",
            "fixed:1",
            "round-robin",
            "round-robin:3",
            "bytes:8192",
        ];
        for policy in all
            .into_iter()
            .chain(["queue-depth", "service-time", "latency", "numa"])
        {
            assert_eq!(
                picks(policy, &[DOWN, UP, SLOW], 4),
                [Some(1); 4],
                "{policy}"
            );
            assert_eq!(
                picks(policy, &[DOWN, DOWN, SLOW], 4),
                [Some(2); 4],
                "{policy}"
            );
            assert_eq!(picks(policy, &[DOWN, DOWN], 1), [None], "{policy}");
        }
    }

    #[test]
    fn each_policy_divides_requests_as_its_name_says() {
        let of = |policy, paths: &[View]| -> Vec<usize> {
            let picked = picks(policy, paths, 6);
            picked
                .into_iter()
                .map(|path| path.expect("a path"))
                .collect()
        };
        let busy = View { requests: 2, ..UP };
        assert_eq!(of("fixed:1", &[UP, UP]), [1; 6]);
        assert_eq!(of("fixed:7", &[UP, UP]), [0; 6]);
        assert_eq!(of("round-robin", &[UP, UP, UP]), [1, 2, 0, 1, 2, 0]);
        assert_eq!(of("round-robin:2", &[UP, UP]), [1, 1, 0, 0, 1, 1]);
        assert_eq!(of("bytes:8192", &[UP, UP]), [1, 1, 0, 0, 1, 1]);
        assert_eq!(of("queue-depth", &[UP, UP]), [1, 0, 1, 0, 1, 0]);
        assert_eq!(of("queue-depth", &[busy, UP]), [1, 1, 0, 1, 0, 1]);
    }

    #[test]
    fn measured_paths_get_what_they_can_carry() {
        let fast = View { kib_ns: 100, ..UP };
        let slow = View { kib_ns: 1000, ..UP };
        let picked = picks("service-time", &[slow, fast], 44);
        let slow_ones = picked.iter().filter(|path| **path == Some(0)).count();
        assert_eq!(slow_ones, 4);

        let near = View {
            answer_ns: 50,
            ..UP
        };
        let far = View {
            answer_ns: 500,
            ..UP
        };
        let picked = picks("latency", &[far, near], 2 * 16 + 10);
        let (probes, rest) = picked.split_at(2 * 16);
        assert_eq!(probes.iter().filter(|path| **path == Some(0)).count(), 16);
        assert_eq!(rest, [Some(1); 10]);
    }

    #[test]
    fn requests_take_the_nearest_card_that_can_be_used() {
        let far = View { distance: 21, ..UP };
        assert_eq!(picks("numa", &[far, UP, UP], 3), [Some(1); 3]);
        assert_eq!(picks("numa", &[far, DOWN, DOWN], 3), [Some(0); 3]);
        assert_eq!(picks("numa", &[far, SLOW], 3), [Some(0); 3]);
    }

    #[test]
    fn a_share_ends_with_its_path() {
        let mut selector = Selector::new(Policy::RoundRobin(1000));
        let now = Nanos(1);
        assert_eq!(selector.pick(&[UP, UP], 512, now), Some(1));
        assert_eq!(selector.pick(&[UP, DOWN], 512, now), Some(0));
        assert_eq!(selector.pick(&[UP, UP], 512, now), Some(0));
    }

    #[test]
    fn policies_read_as_they_are_written() {
        for text in [
            "fixed:2",
            "round-robin:1000",
            "bytes:64k",
            "queue-depth",
            "service-time",
            "latency",
            "numa",
        ] {
            assert_eq!(text.parse::<Policy>().expect("a policy").to_string(), text);
        }
        for wrong in [
            "",
            "rr",
            "round-robin:0",
            "bytes:x",
            "queue-depth:3",
            "fixed:-1",
        ] {
            assert!(wrong.parse::<Policy>().is_err(), "{wrong}");
        }
    }
}

//! Which place the next request goes to, and in which direction.
//!
//! Pure: a sequence named by a seed. Sequential jobs walk the region and start over; a sequential mix has one
//! walk per direction, as in fio. Random jobs draw uniformly over the places of the region.

use crate::job::{Job, Region};
use crate::random::{Random, mix};

/// The next request of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Which place of the region.
    pub unit: u64,
    /// Whether it is written.
    pub write: bool,
}

/// The sequence of one job's requests.
#[derive(Debug)]
pub struct Sequence {
    units: u64,
    random: Option<Random>,
    coin: Random,
    /// A draw of 32 bits below this is a read: 0 never, 2^32 always.
    read_below: u64,
    next: [u64; 2],
}

impl Sequence {
    /// The requests of job `index` over its region.
    pub fn new(job: &Job, index: u32, region: &Region) -> Self {
        // Jobs of one run must not draw the same addresses.
        let seed = mix(job.seed ^ mix(u64::from(index) + 1));
        Self {
            units: region.units,
            random: job.rw.is_random().then(|| Random::new(seed)),
            coin: Random::new(mix(seed)),
            read_below: (u64::from(job.percent_read()) << 32) / 100,
            next: [0, 0],
        }
    }

    /// The next request.
    #[inline]
    pub fn draw(&mut self) -> Access {
        let write = match self.read_below {
            0 => true,
            0x1_0000_0000 => false,
            bound => self.coin.next() >> 32 >= bound,
        };
        let unit = match &mut self.random {
            Some(random) => random.below(self.units),
            None => self.walk(usize::from(write)),
        };
        Access { unit, write }
    }

    /// The place that follows, for a caller that cannot use the one it was given.
    #[inline]
    pub fn after(&self, unit: u64) -> u64 {
        if unit + 1 < self.units { unit + 1 } else { 0 }
    }

    fn walk(&mut self, direction: usize) -> u64 {
        let unit = self.next[direction];
        self.next[direction] = self.after(unit);
        unit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Rw;

    fn sequence(rw: Rw, rwmixread: u32, units: u64) -> Sequence {
        let job = Job {
            rw,
            rwmixread,
            ..Job::default()
        };
        Sequence::new(
            &job,
            0,
            &Region {
                lba: 0,
                units,
                blocks_per_unit: 8,
            },
        )
    }

    #[test]
    fn seventy_percent_writes_come_out_within_one_percent() {
        for rw in [Rw::RandMixed, Rw::Mixed] {
            let mut sequence = sequence(rw, 30, 1000);
            let writes = (0..100_000).filter(|_| sequence.draw().write).count();
            assert!(
                (69_000..=71_000).contains(&writes),
                "{rw}: {writes} writes of 100000"
            );
        }
    }

    #[test]
    fn a_mix_of_none_or_all_is_exact() {
        let (mut none, mut all) = (
            sequence(Rw::RandMixed, 0, 9),
            sequence(Rw::RandMixed, 100, 9),
        );
        assert!((0..10_000).all(|_| none.draw().write && !all.draw().write));
    }

    #[test]
    fn sequential_jobs_walk_in_order_and_start_over() {
        let mut sequence = sequence(Rw::Read, 50, 3);
        let units: Vec<u64> = (0..7).map(|_| sequence.draw().unit).collect();
        assert_eq!(units, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn a_sequential_mix_walks_once_per_direction() {
        let mut sequence = sequence(Rw::Mixed, 50, 1000);
        let mut next = [0, 0];
        for _ in 0..500 {
            let access = sequence.draw();
            assert_eq!(access.unit, next[usize::from(access.write)]);
            next[usize::from(access.write)] += 1;
        }
    }

    #[test]
    fn random_jobs_stay_inside_and_reach_everything_evenly() {
        let mut sequence = sequence(Rw::RandRead, 50, 10);
        let mut hits = [0u32; 10];
        for _ in 0..100_000 {
            hits[usize::try_from(sequence.draw().unit).expect("below 10")] += 1;
        }
        assert!(
            hits.iter().all(|hit| (9_500..=10_500).contains(hit)),
            "{hits:?}"
        );
    }

    #[test]
    fn jobs_of_one_run_draw_different_addresses() {
        let job = Job::default();
        let region = Region {
            lba: 0,
            units: 1 << 40,
            blocks_per_unit: 8,
        };
        let mut first = Sequence::new(&job, 0, &region);
        let mut second = Sequence::new(&job, 1, &region);
        assert!((0..100).all(|_| first.draw() != second.draw()));
    }
}

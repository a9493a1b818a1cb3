//! Chooses the address, length and direction of the next request.
//!
//! The sequence is pure arithmetic and depends only on a seed. Sequential jobs go through the
//! region and start over at its end. A sequential mix has one position per direction, as in fio.
//! Random jobs visit each address once per pass. Reads and writes of the same lengths share a pass.
//! With different lengths each direction has its own, because writes of `bs=4k,16k` start at
//! multiples of 16k. Without the random map jobs draw addresses independently. Zipf's law and the
//! other distributions have no map, as in fio.

mod lengths;
mod map;
mod permutation;
mod scatter;
mod skew;
mod zipf;
mod zones;

use crate::job::{Distribution, Job, Region};
use crate::random::{Random, mix};
use lengths::Lengths;
use map::Map;
use permutation::Permutation;
use scatter::Scatter;
use skew::Skew;
use zipf::Zipf;
use zones::Zones;

/// Direction of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Reads blocks.
    #[default]
    Read,
    /// Writes blocks.
    Write,
    /// Deallocates blocks.
    Trim,
}

impl Direction {
    /// Place in lists of all directions, which is also fio's number.
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The direction's name.
    pub fn word(self) -> &'static str {
        ["read", "write", "trim"][self.index()]
    }
}

/// One request of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// First unit of the request in the region.
    pub unit: u64,
    /// Length in units.
    pub units: u32,
    /// Direction of the request.
    pub direction: Direction,
}

/// The sequence of requests of one job.
#[derive(Debug)]
pub struct Sequence {
    random: Random,
    /// Threshold for reads: a 32-bit draw below it is a read. 0 means never, 2^32 always.
    read_below: u64,
    /// Requests that follow each other at one random address.
    run: Run,
    /// State per direction: reads, then writes.
    sides: [Side; 2],
    /// Whether writes take their addresses from the state of the reads: the job is a random mix
    /// whose reads and writes have the same lengths.
    shares_addresses: bool,
    trims: Trims,
}

/// Trims of a job.
#[derive(Debug)]
enum Trims {
    None,
    /// All requests are trims (`trim`, `randtrim`).
    Only,
    /// A trim precedes each write (`trimwrite`, `randtrimwrite`). The write that follows next.
    First(Option<Access>),
}

/// Requests that follow each other at one random address.
#[derive(Debug)]
struct Run {
    ios: u32,
    is_identical: bool,
    /// Requests left of the current run.
    left: u32,
    /// First unit of the previous request, and the unit behind it.
    last: [u64; 2],
}

impl Run {
    /// The unit of the next request of the run. None: the run is over.
    fn next_unit(&mut self, units: u64, last: u64) -> Option<u64> {
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(self.ios - 1);
        let unit = self.last[usize::from(!self.is_identical)];
        left.map(|_| if unit > last { 0 } else { unit })
            .inspect(|unit| self.keep(*unit, units))
    }

    fn keep(&mut self, unit: u64, units: u64) {
        self.last = [unit, unit + units];
    }
}

/// Rule for the choice of addresses. A place is a possible start of a request.
#[derive(Debug)]
enum Addresses {
    Sequential,
    /// Each place once per pass. All requests have the length of one place.
    Once(Permutation),
    /// Each place once per pass, with requests of several lengths.
    OnceMixed(Map),
    Uniform(Random),
    Zipf(Zipf, Random),
    Skewed(Skew, Random),
    Zoned(Zones, Random),
}

/// State of one direction.
#[derive(Debug)]
struct Side {
    addresses: Addresses,
    lengths: Lengths,
    /// Units of the region.
    units: u64,
    /// Distance of two places in units.
    granule: u32,
    /// Length of the shortest request in units.
    shortest: u32,
    /// Threshold for random addresses: a 32-bit draw below it is random. 2^32 means always.
    random_below: u64,
    /// Unit of the next sequential request. Outside the region: the walk starts over.
    next: u64,
    /// Units from the end of a sequential request to the next one.
    skip: i64,
    /// First unit of a walk that starts over.
    restart: u64,
}

impl Sequence {
    /// The requests of job `index` in its region.
    pub fn new(job: &Job, index: u32, region: &Region) -> Self {
        // The seed depends on the index, so that jobs of one run draw different addresses.
        let seed = mix(job.seed ^ mix(u64::from(index) + 1));
        let percent = job.percent_read();
        Self {
            run: Run {
                ios: job.run_ios,
                is_identical: job.run_is_identical,
                left: 0,
                last: [0; 2],
            },
            random: Random::new(mix(seed)),
            read_below: (u64::from(percent) << 32) / 100,
            sides: [false, true].map(|write| Side::new(job, write, region, seed)),
            shares_addresses: job.rw.is_random()
                && (1..100).contains(&percent)
                && (job.has_one_size() || job.has_equal_sides()),
            trims: match (job.rw.trims(), job.rw.trims_only()) {
                (false, _) => Trims::None,
                (true, true) => Trims::Only,
                (true, false) => Trims::First(None),
            },
        }
    }

    /// Draws the next request.
    #[inline]
    pub fn draw(&mut self) -> Access {
        match self.trims {
            Trims::None => self.draw_data(),
            _ => self.draw_trim(),
        }
    }

    /// Draws the next request of a job with trims.
    fn draw_trim(&mut self) -> Access {
        if let Trims::First(next) = &mut self.trims
            && let Some(write) = next.take()
        {
            return write;
        }
        let access = self.draw_data();
        if let Trims::First(next) = &mut self.trims {
            *next = Some(access);
        }
        Access {
            direction: Direction::Trim,
            ..access
        }
    }

    /// Draws the next read or write.
    #[inline]
    fn draw_data(&mut self) -> Access {
        let write = match self.read_below {
            0 => true,
            0x1_0000_0000 => false,
            bound => self.random.next() >> 32 >= bound,
        };
        self.draw_side(write)
    }

    /// Draws the next request of a direction.
    #[inline]
    pub fn draw_side(&mut self, write: bool) -> Access {
        let direction = if write {
            Direction::Write
        } else {
            Direction::Read
        };
        let units = self.sides[usize::from(write)]
            .lengths
            .draw(&mut self.random);
        let side = &mut self.sides[usize::from(write && !self.shares_addresses)];
        if self.run.ios > 1 {
            let last = side.units - u64::from(units);
            if let Some(unit) = self.run.next_unit(u64::from(units), last) {
                return Access {
                    unit,
                    units,
                    direction,
                };
            }
        }
        let (unit, units) = side.place(units, &mut self.random);
        self.run.keep(unit, u64::from(units));
        Access {
            unit,
            units,
            direction,
        }
    }
}

impl Side {
    fn new(job: &Job, write: bool, region: &Region, seed: u64) -> Self {
        let unit_bytes = job.unit_bytes().max(1);
        let align = job.align_bytes(write);
        let granule = (align / unit_bytes).max(1);
        let shortest = (job.sizes(write).shortest_bytes() / unit_bytes).max(1);
        let places = (region.units / u64::from(granule)).max(1);
        let is_used = job.used_sides().any(|used| used == write);
        let skip = job.skip_bytes / i64::from(unit_bytes);
        // As in fio, a backward walk starts over at its distance from the end of the region.
        let last = region.units.saturating_sub(u64::from(shortest));
        let restart = match skip {
            ..0 => region.units.saturating_sub(skip.unsigned_abs()).min(last),
            _ => 0,
        };
        let addresses = match job.rw.is_random() && is_used {
            true => addresses(job, write, places, seed ^ u64::from(write)),
            false => Addresses::Sequential,
        };
        Self {
            addresses,
            lengths: Lengths::new(job.sizes(write), unit_bytes),
            units: region.units,
            granule,
            shortest,
            random_below: (u64::from(job.percent_random[usize::from(write)]) << 32) / 100,
            next: 0,
            skip,
            restart,
        }
    }

    /// The first unit of a request of `units`, and its length, which may be shorter.
    #[inline]
    fn place(&mut self, units: u32, random: &mut Random) -> (u64, u32) {
        if self.random_below <= u64::from(u32::MAX) {
            return self.mixed_place(units, random);
        }
        self.own_place(units, random)
    }

    /// A request of a job with random and sequential addresses. As in fio, the random map does not
    /// learn of sequential requests.
    fn mixed_place(&mut self, units: u32, random: &mut Random) -> (u64, u32) {
        if random.next() >> 32 >= self.random_below {
            return self.next_in_order(units, random);
        }
        let (unit, units) = self.own_place(units, random);
        self.next = unit + u64::from(units);
        (unit, units)
    }

    /// A request by the rule for addresses.
    #[inline]
    fn own_place(&mut self, units: u32, random: &mut Random) -> (u64, u32) {
        // Last unit where a request of this length may start.
        let last = self.units - u64::from(units);
        let granule = u64::from(self.granule);
        let place = match &mut self.addresses {
            Addresses::Sequential => return self.next_in_order(units, random),
            Addresses::Once(order) => order.draw(),
            Addresses::OnceMixed(map) => {
                let (place, count) = map.draw(units.div_ceil(self.granule));
                return (place * granule, units.min(count * self.granule));
            }
            Addresses::Uniform(random) if granule == 1 => random.below(last + 1),
            Addresses::Uniform(random) => random.below(last / granule + 1),
            Addresses::Zipf(zipf, random) => zipf.draw(random),
            Addresses::Skewed(skew, random) => skew.draw(random),
            Addresses::Zoned(zones, random) => zones.draw(random),
        };
        ((place * granule).min(last), units)
    }

    /// The next request of the sequential order. As in fio, a length that does not fit into the
    /// rest of the region is drawn again.
    #[inline]
    fn next_in_order(&mut self, units: u32, random: &mut Random) -> (u64, u32) {
        let mut units = units;
        if self.units.saturating_sub(self.next) < u64::from(self.shortest) {
            self.next = self.restart;
        }
        while self.units - self.next < u64::from(units) {
            units = self.lengths.draw(random);
        }
        let unit = self.next;
        self.next = (unit + u64::from(units)).wrapping_add_signed(self.skip);
        (unit, units)
    }
}

/// The rule for random addresses of one direction.
fn addresses(job: &Job, write: bool, places: u64, seed: u64) -> Addresses {
    let scatter = |center| Scatter::new(places, job.seed, center);
    let random = Random::new(seed);
    match &job.distribution {
        Distribution::Uniform if !job.random_map => Addresses::Uniform(random),
        Distribution::Uniform => match Lengths::new(job.sizes(write), 1) {
            Lengths::One(_) => Addresses::Once(Permutation::new(places, seed)),
            _ => Addresses::OnceMixed(Map::new(places, seed)),
        },
        Distribution::Zipf { theta, center } => {
            Addresses::Zipf(Zipf::new(places, *theta, scatter(*center)), random)
        }
        Distribution::Pareto { power, center } => {
            Addresses::Skewed(Skew::pareto(places, *power, scatter(*center)), random)
        }
        Distribution::Normal { deviation } => {
            Addresses::Skewed(Skew::normal(places, *deviation, scatter(None)), random)
        }
        Distribution::Zoned(sides) => {
            let place_bytes = u64::from(job.align_bytes(write).max(1));
            let zones = Zones::new(&sides[usize::from(write)], places, place_bytes);
            Addresses::Zoned(zones, random)
        }
    }
}

#[cfg(test)]
mod tests;

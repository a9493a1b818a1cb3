//! How far two processors are from each other: `distance 0 1` prints how many nanoseconds a cache
//! line takes from the first to the second and back.
//!
//! `cargo xtask perf` asks before and after each measurement. A hypervisor moves the processors of
//! a virtual machine, and where they stop sharing a cache, whatever one writes and the other reads
//! takes several times as long.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fabrix_rt::topology;

fn main() -> ExitCode {
    let cpus: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let [here, there] = cpus[..] else {
        eprintln!("distance: give the numbers of two processors, as in `distance 0 1`");
        return ExitCode::from(2);
    };
    match Ball::default().round_trip(here, there) {
        Ok(time) => {
            println!("{}", time.as_nanos());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("distance: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Where it is, alone in its cache line and the one that is fetched with it.
#[derive(Default)]
#[repr(align(128))]
struct Ball(AtomicBool);

impl Ball {
    /// The shortest of some series: what disturbs only makes it longer.
    fn round_trip(&self, here: usize, there: usize) -> Result<Duration, String> {
        let end = Instant::now() + TIME_MOST;
        thread::scope(|scope| {
            let back = scope.spawn(move || {
                topology::pin(there).map_err(|error| error.to_string())?;
                (0..SERIES * TRIPS).try_for_each(|_| self.pass_back(end))
            });
            let shortest = self.play(here, end);
            // Its reason is the reason of both.
            back.join().map_err(|_| "the other thread panicked")??;
            shortest
        })
    }

    fn play(&self, here: usize, end: Instant) -> Result<Duration, String> {
        topology::pin(here).map_err(|error| error.to_string())?;
        let mut shortest = Duration::MAX;
        for _ in 0..SERIES {
            let began = Instant::now();
            for _ in 0..TRIPS {
                self.0.store(true, Ordering::Release);
                self.wait(false, end)?;
            }
            shortest = shortest.min(began.elapsed() / TRIPS);
        }
        Ok(shortest)
    }

    fn pass_back(&self, end: Instant) -> Result<(), String> {
        self.wait(true, end)?;
        self.0.store(false, Ordering::Release);
        Ok(())
    }

    fn wait(&self, until: bool, end: Instant) -> Result<(), String> {
        let mut looks = 0_u32;
        while self.0.load(Ordering::Acquire) != until {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS_PER_CLOCK) && Instant::now() > end {
                return Err("one of the processors has no time".to_owned());
            }
        }
        Ok(())
    }
}

const SERIES: u32 = 10;
const TRIPS: u32 = 300;
const LOOKS_PER_CLOCK: u32 = 10_000;
/// Some hundred times what it takes.
const TIME_MOST: Duration = Duration::from_secs(1);

//! Whether bytes to be sent had better be referred to than copied on this machine ([`Stage`](crate::Stage)).
//!
//! On some processors a core writes lines that another core has just read at a quarter of the speed of lines that have
//! left both caches; on others faster. The first is what an ordinary send does, the second what a stage does. So it is
//! measured: once in a process, when somebody first asks.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use crate::{HugePages, Nanos, Region, topology};

/// Whether a [`Stage`](crate::Stage) saves time where the receiver is on this machine. The first to ask waits some
/// milliseconds, while two processors copy. Where there is only one, or they do not get to it, the answer is no.
pub fn staging_pays() -> bool {
    static PAYS: OnceLock<bool> = OnceLock::new();
    *PAYS.get_or_init(|| {
        measure().is_ok_and(|times| times.is_some_and(|[returned, cold]| pays(returned, cold)))
    })
}

/// Referring has a price of its own: pages that the kernel holds and lets go.
fn pays(returned: Duration, cold: Duration) -> bool {
    returned * 2 > cold * 3
}

/// The median time of a copy into memory that another processor has just read, and into memory that comes back after
/// a long while. None: there is no other processor, or it took too long.
fn measure() -> io::Result<Option<[Duration; 2]>> {
    let cpus = topology::cpus_of_process();
    let [writer, .., reader] = cpus[..] else {
        return Ok(None);
    };
    let memory = Region::new(PIECES * PIECE_BYTES, HugePages::Try)?;
    memory.populate()?;
    let relay = Relay {
        memory,
        written: AtomicUsize::new(0),
        read: AtomicUsize::new(0),
        end: Nanos::now() + TIME_MOST,
    };
    thread::scope(|scope| {
        let thread = || thread::Builder::new().name("measuring".to_owned());
        let reads = thread().spawn_scoped(scope, || relay.read(reader))?;
        let writes = thread().spawn_scoped(scope, || relay.write(writer))?;
        let panicked = |_| io::Error::other("a thread that measures panicked");
        reads.join().map_err(panicked)??;
        writes.join().map_err(panicked)?
    })
}

/// Memory into which one copies piece after piece, and another reads each before the next is written.
struct Relay {
    memory: Arc<Region>,
    written: AtomicUsize,
    read: AtomicUsize,
    /// Nobody waits longer.
    end: Nanos,
}

impl Relay {
    fn write(&self, cpu: usize) -> io::Result<Option<[Duration; 2]>> {
        topology::pin(cpu)?;
        let piece = vec![1; PIECE_BYTES];
        let mut times = Vec::with_capacity(2 * ROUND);
        for turn in 0..2 * ROUND {
            if !self.wait(&self.read, turn) {
                return Ok(None);
            }
            let began = Nanos::now();
            self.memory.write(offset(turn), &piece);
            times.push(Nanos::now() - began);
            self.written.store(turn + 1, Ordering::Release);
        }
        let (returned, cold) = times.split_at_mut(ROUND);
        Ok(Some([returned, cold].map(median)))
    }

    fn read(&self, cpu: usize) -> io::Result<()> {
        topology::pin(cpu)?;
        let mut piece = vec![0; PIECE_BYTES];
        for turn in 0..2 * ROUND {
            if !self.wait(&self.written, turn + 1) {
                break;
            }
            self.memory.read(offset(turn), &mut piece);
            self.read.store(turn + 1, Ordering::Release);
        }
        Ok(())
    }

    /// Waits until so many pieces are through; false: it took too long.
    fn wait(&self, through: &AtomicUsize, pieces: usize) -> bool {
        while through.load(Ordering::Acquire) < pieces {
            if Nanos::now() > self.end {
                return false;
            }
            std::hint::spin_loop();
        }
        true
    }
}

/// Where a piece lies: in the first round two places serve in turn, in the second all.
fn offset(turn: usize) -> usize {
    let places = if turn < ROUND { 2 } else { PIECES };
    turn % places * PIECE_BYTES
}

/// Of a round without its first pieces, which find the memory as it happens to be.
fn median(times: &mut [Duration]) -> Duration {
    let times = &mut times[ROUND - MEASURED..];
    times.sort_unstable();
    times[MEASURED / 2]
}

const PIECE_BYTES: usize = 128 << 10;
/// 4 MiB, more than a core's own cache and less than all cores'.
const PIECES: usize = 32;
const MEASURED: usize = 32;
const ROUND: usize = PIECES + MEASURED;
/// Some ten times what it takes.
const TIME_MOST: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_soon_at_first_and_then_late() {
        assert_eq!(
            [0, 1, 2, 3].map(offset),
            [0, 1, 0, 1].map(|at| at * PIECE_BYTES)
        );
        let late: Vec<_> = (ROUND..ROUND + PIECES).map(offset).collect();
        assert!((0..PIECES).all(|place| late.contains(&(place * PIECE_BYTES))));
    }

    #[test]
    fn what_is_measured_decides_and_a_draw_does_not() {
        let time = Duration::from_micros;
        assert!(pays(time(46), time(10)));
        assert!(!pays(time(12), time(12)));
        assert!(!pays(time(12), time(18)));
    }

    #[test]
    fn two_processors_measure_and_the_answer_stays() {
        if topology::cpus_of_process().len() > 1 {
            assert!(measure().is_ok(), "memory and two threads");
        }
        assert_eq!(staging_pays(), staging_pays());
    }
}

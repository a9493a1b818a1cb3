//! Who writes what of all regions' memory, and who holds what still for a moment.
//!
//! A sum over a disk's pages that travels with them is true only if nobody writes them between the summing and the
//! kernel's copy. Each thread has one lane, with the range it writes and those it holds. A writer first says what it
//! writes and then looks at what others hold; a holder first says what it holds and then looks at what others write.
//! A fence stands between the two steps of each, so of two that meet at least one sees the other: the writer waits,
//! some microseconds, and the holder goes without ([`hold`] gives None). No holder waits for a writer, so nobody waits
//! in a circle, and writers are never kept out for long.
//!
//! Knows addresses only. Nothing here touches the memory, and nothing that does not meet costs more than the fence.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Apart;

/// Writes `range` by `write`, when nobody holds any of it.
pub(crate) fn write(range: &Range<usize>, write: impl FnOnce()) {
    MINE.with(|mine| {
        let _said = mine.lane.writes.say(range);
        fence(Ordering::SeqCst);
        mine.with_others(|others| {
            for other in others {
                other.holds.wait(range);
            }
        });
        write();
    });
}

/// So many ranges can be held together.
pub(crate) const HELD_MOST: usize = 32;

/// Does `work` while nobody of this process writes any of these ranges, [`HELD_MOST`] at most, through a region; None:
/// somebody is writing one of them now.
pub(crate) fn hold<R>(
    ranges: &(impl Iterator<Item = Range<usize>> + Clone),
    work: impl FnOnce() -> R,
) -> Option<R> {
    MINE.with(|mine| {
        let _held = mine.lane.holds.say(ranges.clone());
        fence(Ordering::SeqCst);
        let met = mine.with_others(|others| {
            let mut writes = others.iter().map(|other| &other.writes);
            writes.any(|writes| ranges.clone().any(|range| writes.meets(&range)))
        });
        (!met).then(work)
    })
}

/// What a thread says, each apart: a writer only reads what others hold, which seldom changes.
struct Lane {
    writes: Apart<Said>,
    holds: Apart<Held>,
}

/// The ranges that are held, of which so many count.
struct Held {
    count: AtomicUsize,
    ranges: [Said; HELD_MOST],
}

/// Takes back what was held, also when what is done meanwhile panics.
struct Holding<'a>(&'a Held);

/// A range of addresses; none while its end is 0.
struct Said {
    start: AtomicUsize,
    end: AtomicUsize,
}

/// Takes back what was said, also when what is done meanwhile panics.
struct Saying<'a>(&'a Said);

impl Said {
    const fn nothing() -> Self {
        Self {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
        }
    }

    fn say(&self, range: &Range<usize>) -> Saying<'_> {
        self.set(range);
        Saying(self)
    }

    fn set(&self, range: &Range<usize>) {
        self.start.store(range.start, Ordering::Release);
        self.end.store(range.end, Ordering::Release);
    }

    /// Whether the two have a byte in common. A start and an end that were not said together are of a range that has
    /// ended and of one whose fence is yet to come: who has said that one will look at ours.
    fn meets(&self, range: &Range<usize>) -> bool {
        let end = self.end.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        range.start < end && start < range.end
    }
}

impl Held {
    fn say(&self, ranges: impl Iterator<Item = Range<usize>>) -> Holding<'_> {
        let mut count = 0;
        for range in ranges {
            self.ranges[count].set(&range);
            count += 1;
        }
        self.count.store(count, Ordering::Release);
        Holding(self)
    }

    /// Whether any byte of the range is held. What is seen of two holds that follow each other does no harm: see
    /// [`Said::meets`].
    fn meets(&self, range: &Range<usize>) -> bool {
        let count = self.count.load(Ordering::Acquire);
        let mut held = self.ranges[..count].iter();
        held.any(|held| held.meets(range))
    }

    /// Waits until none of the range is held.
    fn wait(&self, range: &Range<usize>) {
        let mut looks = 0_u32;
        while self.meets(range) {
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                std::thread::yield_now(); // who holds it may want this processor
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl Drop for Saying<'_> {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.count.store(0, Ordering::Release);
    }
}

/// A thread's own lane, and those of all others as they were when it last looked.
struct Mine {
    lane: Arc<Lane>,
    others: RefCell<Others>,
}

struct Others {
    version: usize,
    lanes: Vec<Arc<Lane>>,
}

impl Mine {
    fn new() -> Self {
        let lane = Arc::new(Lane {
            writes: Apart::new(Said::nothing()),
            holds: Apart::new(Held {
                count: AtomicUsize::new(0),
                ranges: [const { Said::nothing() }; HELD_MOST],
            }),
        });
        change(|lanes| lanes.push(Arc::clone(&lane)));
        Self {
            lane,
            others: RefCell::new(Others {
                version: 0,
                lanes: Vec::new(),
            }),
        }
    }

    /// A lane that is not seen here was added after our fence: whoever has it sees what we have said.
    fn with_others<R>(&self, look: impl FnOnce(&[Arc<Lane>]) -> R) -> R {
        let mut others = self.others.borrow_mut();
        if others.version != VERSION.load(Ordering::SeqCst) {
            self.look_again(&mut others);
        }
        look(&others.lanes)
    }

    #[cold]
    fn look_again(&self, others: &mut Others) {
        let lanes = lanes();
        others.version = VERSION.load(Ordering::SeqCst);
        others.lanes.clear();
        let of_others = lanes.iter().filter(|lane| !Arc::ptr_eq(lane, &self.lane));
        others.lanes.extend(of_others.cloned());
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        change(|lanes| lanes.retain(|lane| !Arc::ptr_eq(lane, &self.lane)));
    }
}

/// Changes the list of all lanes, before its new version is seen.
fn change(how: impl FnOnce(&mut Vec<Arc<Lane>>)) {
    let mut lanes = lanes();
    how(&mut lanes);
    VERSION.fetch_add(1, Ordering::SeqCst);
}

fn lanes() -> MutexGuard<'static, Vec<Arc<Lane>>> {
    LANES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Every thread that has written or held anything.
static LANES: Mutex<Vec<Arc<Lane>>> = Mutex::new(Vec::new());
/// Counts the changes of the list.
static VERSION: AtomicUsize = AtomicUsize::new(0);
/// Looks before others get the processor: some microseconds.
const LOOKS: u32 = 256;

thread_local! {
    static MINE: Mine = Mine::new();
}

#[cfg(test)]
mod tests {
    use std::iter;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn nobody_holds_what_is_being_written_and_others_may() {
        let (began, has_begun) = channel();
        let (end, ends) = channel::<()>();
        let writer = thread::spawn(move || {
            write(&(1 << 60..(1 << 60) + 10), || {
                began.send(()).expect("the test waits");
                let _ended = ends.recv();
            });
        });
        has_begun.recv().expect("the writer lives");
        let at =
            |from: usize, to: usize| hold(&iter::once((1 << 60) + from..(1 << 60) + to), || ());
        assert_eq!(at(9, 20), None);
        assert_eq!(at(0, 1), None);
        assert_eq!(at(10, 20), Some(()));
        drop(end);
        writer.join().expect("the writer lives");
        assert_eq!(at(9, 20), Some(()));
    }

    #[test]
    fn a_writer_waits_for_who_holds_and_for_nobody_else() {
        let range = 1 << 61..(1 << 61) + 10;
        let written = AtomicBool::new(false);
        thread::scope(|scope| {
            let (said, has_said) = channel();
            hold(&iter::once(range.clone()), || {
                let (range, written) = (&range, &written);
                scope.spawn(move || {
                    write(&(range.end..range.end + 1), || ());
                    said.send(()).expect("the test waits");
                    write(&(range.end - 1..range.end), || {
                        written.store(true, Ordering::SeqCst);
                    });
                });
                has_said.recv().expect("it did not wait");
                assert!(!written.load(Ordering::SeqCst));
            })
            .expect("nobody has begun to write");
        });
        assert!(written.load(Ordering::SeqCst));
    }

    #[test]
    fn what_panics_holds_nothing_afterwards() {
        let range = 1 << 62..(1 << 62) + 10;
        let panicked =
            std::panic::catch_unwind(|| hold(&iter::once(range.clone()), || panic!("on purpose")));
        assert!(panicked.is_err());
        thread::spawn(move || write(&range, || ()))
            .join()
            .expect("it is not waited for");
    }
}

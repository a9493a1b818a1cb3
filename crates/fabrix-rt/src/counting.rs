//! Counting allocations, for the tests of all crates: "nothing is allocated for an I/O" is a
//! promise to be checked.
//!
//! ```
//! #[global_allocator] static ALLOCATOR: fabrix_rt::counting::CountingAllocator =
//! fabrix_rt::counting::CountingAllocator;
//! ```

pub use crate::sys::counting::CountingAllocator;

/// Rounds that may pass until everything has grown to the size that the traffic asks for.
const ROUNDS: usize = 5;

/// Allocations this thread has made so far, growths included; zero for ever without the allocator
/// above.
pub fn allocations() -> u64 {
    crate::sys::counting::allocations()
}

/// What a round of work allocates for the work itself: the least of a few rounds.
///
/// What is allocated for an I/O is allocated in every round. What follows the traffic, a receive
/// buffer or a table, grows to a size once; in which round that happens is decided by how the
/// kernel cut the traffic into pieces, and no warm-up is long enough on a slow machine.
/// `count` tells the allocations so far, of whichever thread is watched; `round` does the work.
pub fn allocations_of(mut count: impl FnMut() -> u64, mut round: impl FnMut()) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..ROUNDS {
        let before = count();
        round();
        least = least.min(count() - before);
        if least == 0 {
            break;
        }
    }
    least
}

//! Counts of allocations, for tests of the promise that no I/O allocates memory.
//!
//! ```
//! #[global_allocator] static ALLOCATOR: fabrix_rt::counting::CountingAllocator =
//! fabrix_rt::counting::CountingAllocator;
//! ```

pub use crate::sys::counting::{CountingAllocator, allocations};

/// Rounds after which buffers and tables have grown to the size of the traffic.
const ROUNDS: usize = 5;

/// Allocations that every round of work makes: the minimum of a few rounds.
///
/// An allocation per I/O occurs in every round. A receive buffer or a table grows once, in a round
/// that depends on how the kernel cuts the traffic into pieces, so no warm-up is sure to be long
/// enough. `count` returns the allocations of the watched thread so far, and `round` does the work.
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

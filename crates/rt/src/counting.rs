//! Counting allocations, for the tests of all crates: "nothing is allocated for an I/O" is a
//! promise to be checked.
//!
//! ```
//! #[global_allocator] static ALLOCATOR: fabrix_rt::counting::CountingAllocator =
//! fabrix_rt::counting::CountingAllocator;
//! ```

pub use crate::sys::counting::CountingAllocator;

/// Allocations this thread has made so far, growths included; zero for ever without the allocator
/// above.
pub fn allocations() -> u64 {
    crate::sys::counting::allocations()
}

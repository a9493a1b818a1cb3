//! The system's allocator with a counter per thread, for tests that promise to allocate nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts, then asks the system.
#[derive(Debug)]
pub struct CountingAllocator;

/// Allocations this thread has made so far, growths included.
pub(crate) fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

fn count() {
    COUNT.with(|count| count.set(count.get() + 1));
}

// SAFETY: everything is passed on unchanged to the system's allocator, which keeps the contract;
// counting touches a constant-initialised thread-local without destructor, which allocates nothing.
// WHY UNSAFE: the trait is.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps GlobalAlloc's contract.
        // WHY UNSAFE: the trait's methods are.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        // WHY UNSAFE: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        // WHY UNSAFE: as above.
        unsafe { System.realloc(start, layout, bytes) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as above.
        // WHY UNSAFE: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

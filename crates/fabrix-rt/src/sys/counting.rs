//! The system's allocator with a counter per thread, for tests of code that allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// An allocator that counts calls and passes them to the system's allocator.
#[derive(Debug)]
pub struct CountingAllocator;

/// Allocations and reallocations of this thread so far. Always zero without the allocator above.
pub fn allocations() -> u64 {
    COUNT.with(Cell::get)
}

fn count() {
    COUNT.with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes unchanged to the system's allocator, which keeps the contract. The
// counter is a thread-local with a constant initial value and no destructor, so counting allocates
// nothing. WHY UNSAFE: the trait is unsafe.
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

//! Copies that go past the caches.
//!
//! A plain copy first reads every line of its destination, only to overwrite all of it, and pushes other lines out.
//! For memory that is much larger than the caches that is half of the traffic, and for nothing.

use std::ptr::{self, NonNull};

/// Copies `from` to `to` past the caches where the processor can and the place is aligned; plainly otherwise.
///
/// # Safety
/// `to` is valid for writes of `from.len()` bytes, which do not overlap `from`.
// WHY UNSAFE: it writes through a pointer, to memory that no slice of may be formed.
pub(super) unsafe fn copy(from: &[u8], to: NonNull<u8>) {
    let fits = to.as_ptr().addr().is_multiple_of(LINE) && from.len().is_multiple_of(LINE);
    if !cfg!(target_arch = "x86_64") || !fits {
        // SAFETY: promised by the caller.
        // WHY UNSAFE: as for the function.
        return unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: promised by the caller; the alignment was looked at.
    // WHY UNSAFE: as for the function.
    unsafe {
        copy_lines(from, to);
    }
}

/// # Safety
/// As for `copy`, and `to` and the length are multiples of [`LINE`].
// WHY UNSAFE: the processor's instruction takes a pointer.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_lines(from: &[u8], to: NonNull<u8>) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const PARTS: usize = LINE / size_of::<__m128i>();
    let mut to: *mut __m128i = to.as_ptr().cast();
    for line in from.chunks_exact(LINE) {
        let line: *const __m128i = line.as_ptr().cast();
        // SAFETY: `line` has PARTS vectors, and so has what is left of the destination, which is aligned to them.
        // SSE2 is part of x86_64.
        // WHY UNSAFE: the processor's instruction takes a pointer.
        unsafe {
            for part in 0..PARTS {
                _mm_stream_si128(to.add(part), _mm_loadu_si128(line.add(part)));
            }
            to = to.add(PARTS);
        }
    }
    // Such stores are not ordered with others: whoever is told of the copy must see it.
    // SAFETY: SSE is part of x86_64.
    // WHY UNSAFE: older compilers want it said.
    unsafe { _mm_sfence() }
}

/// Writes the lines of a range back to memory and forgets them, where the processor can be told to.
///
/// # Safety
/// `from` is valid for reads of `bytes`.
// WHY UNSAFE: the processor's instruction takes a pointer.
pub(super) unsafe fn evict(from: NonNull<u8>, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..bytes).step_by(LINE) {
        // SAFETY: the line lies in the range; SSE2 is part of x86_64. What it holds does not change.
        // WHY UNSAFE: the processor's instruction takes a pointer.
        unsafe { std::arch::x86_64::_mm_clflush(from.as_ptr().add(line)) }
    }
    let _ = (from, bytes);
}

/// A line of the caches.
const LINE: usize = 64;

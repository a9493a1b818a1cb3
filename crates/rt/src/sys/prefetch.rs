//! A hint to the processor: this line will be read soon. Knows an address; reads and writes nothing there.

/// Asks for the cache line at an address to be brought into the caches, where the processor can be asked. Any address
/// will do: the hint changes nothing and cannot fail.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint about an address, which changes nothing and cannot fault; SSE is part of x86_64.
    // WHY UNSAFE: the processor's instruction takes a pointer.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _no_hint = at;
}

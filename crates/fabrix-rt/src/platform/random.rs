//! Random bytes that nobody can guess: challenges, names, identifiers.
//!
//! They come from the kernel's generator, each time anew; nothing is kept here. What is to be
//! repeatable (tests, workloads) has a generator of its own.

use std::io;

use crate::sys::random;

/// Fills `bytes` with random bytes of the kernel.
///
/// # Errors
/// The kernel has none to give: it is older than Linux 3.17, or a filter forbids the call.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    random::fill(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_draws_differ_and_fill_all_of_it() {
        let (mut one, mut two) = ([0; 300], [0; 300]);
        fill(&mut one).expect("random bytes");
        fill(&mut two).expect("random bytes");
        assert_ne!(one, two);
        assert!(one[270..].iter().any(|byte| *byte != 0));
        fill(&mut []).expect("nothing is easy");
    }
}

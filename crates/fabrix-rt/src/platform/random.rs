//! Random bytes of the kernel for challenges, names and identifiers.
//!
//! Tests and workloads that must be repeatable have generators of their own.

pub use crate::sys::random::fill;

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

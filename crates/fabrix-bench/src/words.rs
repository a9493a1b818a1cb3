//! Wording shared by the sentences of results and errors.

use std::fmt;

/// A count with its noun: `1 thread`, `8 threads`. The plural of the noun must end in s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted<'a>(pub u64, pub &'a str);

impl fmt::Display for Counted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, thing) = self;
        write!(f, "{count} {thing}{}", if *count == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_not_many() {
        let said = [0, 1, 2].map(|count| Counted(count, "thread").to_string());
        assert_eq!(said, ["0 threads", "1 thread", "2 threads"]);
    }
}

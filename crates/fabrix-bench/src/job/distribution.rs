//! The distributions of random addresses by fio's names.

/// Distribution of random addresses over the region (fio's `random_distribution`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All units are equally likely.
    Uniform,
    /// A few units are drawn often: the probability of rank `k` is proportional to `1/k^theta`.
    /// Neighbouring ranks are far apart in the region.
    Zipf {
        /// The exponent.
        theta: f64,
    },
}

/// Allowed range of Zipf's exponent.
const THETA: std::ops::RangeInclusive<f64> = 0.01..=10.0;

impl Distribution {
    /// Parses fio's words: `random` (or `uniform`) and `zipf:THETA`.
    ///
    /// Errors: a sentence that lists the known words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = match text.split_once(':') {
            None if text == "random" || text == "uniform" => Self::Uniform,
            Some(("zipf", theta)) => {
                let theta = theta.parse().map_err(|_| {
                    format!("random_distribution: `{theta}` is not a number; write zipf:1.2")
                })?;
                Self::Zipf { theta }
            }
            _ => {
                return Err(format!(
                    "random_distribution={text} is not known; there are random and zipf:THETA"
                ));
            }
        };
        found.check()?;
        Ok(found)
    }

    /// Checks the exponent. The error is the end of a sentence about the job.
    pub(crate) fn check(self) -> Result<(), String> {
        match self {
            Self::Zipf { theta } if !THETA.contains(&theta) => Err(format!(
                "random_distribution=zipf:{theta}: the exponent is outside {} to {}",
                THETA.start(),
                THETA.end()
            )),
            _ => Ok(()),
        }
    }

    /// The distribution in fio's words.
    pub fn text(self) -> String {
        match self {
            Self::Uniform => "random".into(),
            Self::Zipf { theta } => format!("zipf:{theta}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_distribution_are_fios() {
        assert_eq!(Distribution::parse("random"), Ok(Distribution::Uniform));
        assert_eq!(
            Distribution::parse("zipf:1.2"),
            Ok(Distribution::Zipf { theta: 1.2 })
        );
        for (text, part) in [
            ("zipf", "is not known"),
            ("gauss:1", "there are random and zipf:THETA"),
            ("zipf:x", "`x` is not a number"),
            ("zipf:0", "outside 0.01 to 10"),
            ("zipf:NaN", "outside 0.01 to 10"),
        ] {
            let error = Distribution::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

//! The access patterns by fio's names.

use std::fmt;

use super::JobError;

/// Access pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rw {
    /// `read`: sequential reads.
    Read,
    /// `write`: sequential writes.
    Write,
    /// `randread`: random reads.
    RandRead,
    /// `randwrite`: random writes.
    RandWrite,
    /// `rw` or `readwrite`: sequential reads and writes in the ratio of `rwmixread`.
    Mixed,
    /// `randrw`: random reads and writes in the ratio of `rwmixread`.
    RandMixed,
}

impl Rw {
    /// All patterns with fio's names. Aliases come last.
    const NAMES: [(&'static str, Self); 7] = [
        ("read", Self::Read),
        ("write", Self::Write),
        ("randread", Self::RandRead),
        ("randwrite", Self::RandWrite),
        ("rw", Self::Mixed),
        ("randrw", Self::RandMixed),
        ("readwrite", Self::Mixed),
    ];

    /// The pattern for random or sequential addresses and a percentage of reads.
    pub fn new(random: bool, percent_read: u32) -> Self {
        match (random, percent_read) {
            (false, 0) => Self::Write,
            (false, 100) => Self::Read,
            (false, _) => Self::Mixed,
            (true, 0) => Self::RandWrite,
            (true, 100) => Self::RandRead,
            (true, _) => Self::RandMixed,
        }
    }

    /// Parses fio's name of an access pattern.
    ///
    /// Errors: a sentence that lists the known names.
    pub fn parse(name: &str) -> Result<Self, JobError> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, rw)| *rw).ok_or_else(|| {
            JobError(format!(
                "rw={name} is not known; say read, write, randread, randwrite, rw (or readwrite) or randrw"
            ))
        })
    }

    /// fio's name of the pattern.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, rw)| *rw == self);
        found.expect("every kind stands in NAMES").0
    }

    /// Whether the addresses are random.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandMixed)
    }

    /// Whether the pattern contains reads. `rwmixread` may still reduce them to 0 %.
    pub fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::RandWrite)
    }

    /// Whether the pattern contains writes. `rwmixread` may still reduce them to 0 %.
    pub fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }
}

impl fmt::Display for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_fio_is_understood() {
        for name in ["read", "write", "randread", "randwrite", "rw", "randrw"] {
            assert_eq!(Rw::parse(name).map(Rw::name), Ok(name));
        }
        assert_eq!(Rw::parse("readwrite"), Ok(Rw::Mixed));
        let error = Rw::parse("trim").expect_err("not a kind of ours");
        assert!(error.0.contains("rw=trim is not known"), "{error}");
    }
}

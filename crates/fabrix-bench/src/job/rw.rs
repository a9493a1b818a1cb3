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
    /// `trim`: sequential trims.
    Trim,
    /// `randtrim`: random trims.
    RandTrim,
    /// `trimwrite`: each block is trimmed, then written, in sequential order.
    TrimWrite,
    /// `randtrimwrite`: each block is trimmed, then written, in random order.
    RandTrimWrite,
}

impl Rw {
    /// All patterns with fio's names. Aliases come last.
    const NAMES: [(&'static str, Self); 11] = [
        ("read", Self::Read),
        ("write", Self::Write),
        ("randread", Self::RandRead),
        ("randwrite", Self::RandWrite),
        ("rw", Self::Mixed),
        ("randrw", Self::RandMixed),
        ("trim", Self::Trim),
        ("randtrim", Self::RandTrim),
        ("trimwrite", Self::TrimWrite),
        ("randtrimwrite", Self::RandTrimWrite),
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
                "rw={name} is not known; say read, write, randread, randwrite, rw (or readwrite), randrw, trim, \
                 randtrim, trimwrite or randtrimwrite"
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
        matches!(
            self,
            Self::RandRead
                | Self::RandWrite
                | Self::RandMixed
                | Self::RandTrim
                | Self::RandTrimWrite
        )
    }

    /// Whether the pattern contains reads. `rwmixread` may still reduce them to 0 %.
    pub fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::RandWrite) && !self.trims()
    }

    /// Whether the pattern contains trims.
    pub fn trims(self) -> bool {
        self.trims_only() || matches!(self, Self::TrimWrite | Self::RandTrimWrite)
    }

    /// Whether the pattern contains nothing but trims.
    pub fn trims_only(self) -> bool {
        matches!(self, Self::Trim | Self::RandTrim)
    }

    /// Whether the pattern changes the disk, by writes or by trims. `rwmixread` may still reduce
    /// writes to 0 %.
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
        for name in [
            "read",
            "write",
            "randread",
            "randwrite",
            "rw",
            "randrw",
            "trim",
            "randtrim",
            "trimwrite",
        ] {
            assert_eq!(Rw::parse(name).map(Rw::name), Ok(name));
        }
        assert_eq!(Rw::parse("readwrite"), Ok(Rw::Mixed));
        let error = Rw::parse("trimread").expect_err("fio has none");
        assert!(error.0.contains("rw=trimread is not known"), "{error}");
    }
}

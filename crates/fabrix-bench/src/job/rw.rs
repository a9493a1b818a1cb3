//! The kinds of access, by fio's names.

use std::fmt;

use super::JobError;

/// The kind of access, by fio's names.
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
    /// `rw` or `readwrite`: sequential, mixed as `rwmixread` says.
    Mixed,
    /// `randrw`: random, mixed as `rwmixread` says.
    RandMixed,
}

impl Rw {
    /// All of them with fio's names, aliases last.
    const NAMES: [(&'static str, Self); 7] = [
        ("read", Self::Read),
        ("write", Self::Write),
        ("randread", Self::RandRead),
        ("randwrite", Self::RandWrite),
        ("rw", Self::Mixed),
        ("randrw", Self::RandMixed),
        ("readwrite", Self::Mixed),
    ];

    /// Reads fio's name of an access kind.
    ///
    /// Errors: a sentence that lists the names there are.
    pub fn parse(name: &str) -> Result<Self, JobError> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, rw)| *rw).ok_or_else(|| {
            JobError(format!(
                "rw={name} is not known; say read, write, randread, randwrite, rw (or readwrite) or randrw"
            ))
        })
    }

    /// fio's name for it.
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(_, rw)| *rw == self);
        found.expect("every kind stands in NAMES").0
    }

    /// Whether addresses are drawn rather than walked.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandMixed)
    }

    /// Whether it reads at all; `rwmixread` may still make it 0 %.
    pub fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::RandWrite)
    }

    /// Whether it writes at all; `rwmixread` may still make it 0 %.
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

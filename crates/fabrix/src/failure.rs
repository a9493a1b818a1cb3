//! How the program ends when it fails: one sentence for the person, one number for the script.
//!
//! Knows exit codes; does not know what went wrong beyond its kind.

use std::fmt;
use std::process::ExitCode;

use crate::log;

/// What kind of failure it was, which is what the exit code says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An operation or an I/O failed.
    Io = 1,
    /// The command line asks for something that does not exist or is not allowed.
    Usage = 2,
    /// The other end cannot be reached, or does not let us in.
    Connect = 3,
    /// Data read back is not what was written.
    Verify = 5,
    /// Results are worse than they may be.
    Regression = 6,
}

/// A failure of the whole command.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    sentence: String,
}

impl Failure {
    pub(crate) fn new(kind: Kind, sentence: impl fmt::Display) -> Self {
        Self {
            kind,
            sentence: sentence.to_string(),
        }
    }

    pub(crate) fn usage(sentence: impl fmt::Display) -> Self {
        Self::new(Kind::Usage, sentence)
    }

    pub(crate) fn io(sentence: impl fmt::Display) -> Self {
        Self::new(Kind::Io, sentence)
    }

    /// What kind it is.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Says it on stderr and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        log::error(self);
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

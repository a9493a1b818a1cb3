//! The failure of the program: a sentence for the user and an exit code for scripts.

use std::fmt;
use std::process::ExitCode;

use crate::log;

/// Kind of failure; its number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An operation or an I/O failed.
    Io = 1,
    /// The command line names something missing or forbidden.
    Usage = 2,
    /// The other end cannot be reached or refuses access.
    Connect = 3,
    /// Data read back differs from the written data.
    Verify = 5,
    /// Results are worse than allowed.
    Regression = 6,
}

/// Failure of the whole command.
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

    /// Kind of the failure.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Prints the failure to stderr and returns the exit code.
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

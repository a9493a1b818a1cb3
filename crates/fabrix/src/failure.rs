//! The failure of the program: a sentence for the user and an exit code for scripts.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};

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

    /// The failure of an I/O at a path, as a function of the error.
    pub(crate) fn at<E: fmt::Display>(path: &Path) -> impl Fn(E) -> Self + Copy {
        move |error| Self::io(format!("{}: {error}", path.display()))
    }

    /// The failure for a path that the user has named, as a function of the error.
    pub(crate) fn usage_at<E: fmt::Display>(path: &Path) -> impl Fn(E) -> Self + Copy {
        move |error| Self::usage(format!("{}: {error}", path.display()))
    }

    /// The failure in the form in which another process of ours reports it.
    pub(crate) fn json(&self) -> Value {
        json!({ "error": self.sentence, "exit_code": self.kind as u8 })
    }

    /// Reads the form of [`json`](Self::json). None if `value` reports no failure.
    pub(crate) fn of_json(value: &Value) -> Option<Self> {
        let kind = match value["exit_code"].as_u64() {
            Some(2) => Kind::Usage,
            Some(3) => Kind::Connect,
            _ => Kind::Io,
        };
        Some(Self::new(kind, value["error"].as_str()?))
    }

    /// Kind of the failure.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Prints the failure to stderr and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        log::error(self);
        self.code()
    }

    /// The exit code.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

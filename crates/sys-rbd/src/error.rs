//! Why librados or librbd refuse something, as sentences for the user.

use std::fmt;
use std::io;

/// Why a call was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The libraries are not on this machine. The text is that of the dynamic linker.
    NoLibrary(String),
    /// A library has refused a call.
    Refused {
        /// What was attempted, as the beginning of a sentence: "cannot open the pool rbd".
        what: String,
        /// The number of the error, as Linux counts them (errno). Above zero.
        errno: i32,
    },
}

impl Error {
    /// `result` is that of a call: a negative error number.
    pub(crate) fn refused(what: impl Into<String>, result: i64) -> Self {
        Self::Refused {
            what: what.into(),
            errno: i32::try_from(result.unsigned_abs()).unwrap_or(libc::EIO),
        }
    }

    /// The number of the error. None: there is no library.
    #[must_use]
    pub const fn errno(&self) -> Option<i32> {
        match self {
            Self::NoLibrary(_) => None,
            Self::Refused { errno, .. } => Some(*errno),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary(found) => {
                write!(
                    f,
                    "Ceph's libraries cannot be opened: {found}; install them: {INSTALL}"
                )
            }
            Self::Refused { what, errno } => {
                write!(f, "{what}: {}", io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl std::error::Error for Error {}

/// The commands that install the libraries.
pub const INSTALL: &str = "apt install librbd1 (Debian), or dnf install librbd1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_what_was_attempted_and_why_it_failed() {
        let error = Error::refused("cannot open the pool rbd", -2);
        assert_eq!(error.errno(), Some(libc::ENOENT));
        let text = error.to_string();
        assert!(
            text.starts_with("cannot open the pool rbd: No such file"),
            "{text}"
        );
    }

    #[test]
    fn a_missing_library_is_named_with_its_package() {
        let found = "librbd.so.1: cannot open shared object file".to_owned();
        let text = Error::NoLibrary(found).to_string();
        assert!(
            text.contains("librbd.so.1") && text.contains("apt install librbd1"),
            "{text}"
        );
    }
}

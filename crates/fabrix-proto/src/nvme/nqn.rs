//! NVMe Qualified Names: validation, and safe printing of unchecked names.
//!
//! A [`Nqn`] is safe to compare, store and print. Unchecked names from a peer are printed through
//! [`Printable`], so that no control character of an unauthenticated peer reaches a log.

use alloc::sync::Arc;
use core::fmt::{self, Write as _};

/// Maximum length of a name in bytes, without the terminating NUL.
///
/// Source: NVM Express Base Specification 2.x, "NVMe Qualified Names".
pub const NQN_BYTES_MAX: usize = 223;

/// Length in bytes of a name field on the wire.
pub const NQN_FIELD_BYTES: usize = 256;

/// Name of every discovery subsystem.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// A checked name: 1 to 223 bytes of UTF-8 without control characters.
///
/// [`Nqn::is_qualified`] tells whether the name has the standard's form. Hosts must have a name of
/// that form. Subsystems of other targets need not.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nqn(Arc<str>);

/// Reason why a text is not a valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NqnError {
    /// The name is empty.
    Empty,
    /// The name is longer than 223 bytes.
    TooLong,
    /// The field has no NUL.
    NotTerminated,
    /// The name is not UTF-8, or has a control character.
    NotPrintable,
}

impl NqnError {
    /// The error as a sentence.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Empty => "the NQN is empty",
            Self::TooLong => "the NQN is longer than 223 bytes",
            Self::NotTerminated => "the NQN is not ended by a zero byte",
            Self::NotPrintable => "the NQN is not printable UTF-8",
        }
    }
}

impl fmt::Display for NqnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl core::error::Error for NqnError {}

impl Nqn {
    /// Validates `text`.
    ///
    /// # Errors
    /// The reason why the name is invalid.
    pub fn new(text: &str) -> Result<Self, NqnError> {
        match text.len() {
            0 => return Err(NqnError::Empty),
            1..=NQN_BYTES_MAX => {}
            _ => return Err(NqnError::TooLong),
        }
        if text.chars().any(char::is_control) {
            return Err(NqnError::NotPrintable);
        }
        Ok(Self(text.into()))
    }

    /// Reads a name field. The name ends at the first NUL; the bytes behind it are ignored.
    ///
    /// # Errors
    /// The reason why the name is invalid.
    pub fn from_field(field: &[u8; NQN_FIELD_BYTES]) -> Result<Self, NqnError> {
        let end = field
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(NqnError::NotTerminated)?;
        let text = core::str::from_utf8(&field[..end]).map_err(|_| NqnError::NotPrintable)?;
        Self::new(text)
    }

    /// Name of every discovery subsystem.
    #[must_use]
    pub fn discovery() -> Self {
        Self(DISCOVERY_NQN.into())
    }

    /// Whether this is the discovery subsystem's well-known name.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        &*self.0 == DISCOVERY_NQN
    }

    /// Whether the name has the standard's form: `nqn.yyyy-mm.`, followed by at least one
    /// character.
    ///
    /// Source: NVM Express Base Specification 2.x, "NVMe Qualified Names".
    #[must_use]
    pub fn is_qualified(&self) -> bool {
        let Some((date, rest)) = self
            .0
            .strip_prefix("nqn.")
            .and_then(|name| name.split_once('.'))
        else {
            return false;
        };
        let is_date = date.len() == 7
            && date.bytes().enumerate().all(|(at, byte)| match at {
                4 => byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        is_date && !rest.is_empty()
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as a field for the wire, padded with zeroes.
    #[must_use]
    pub fn to_field(&self) -> [u8; NQN_FIELD_BYTES] {
        let mut field = [0; NQN_FIELD_BYTES];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_printable(f, &self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bytes from a peer. Display shows them up to the first NUL, with all unprintable characters
/// escaped.
#[derive(Clone, Copy)]
pub struct Printable<'a>(pub &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self
            .0
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(self.0.len());
        for chunk in self.0[..end].utf8_chunks() {
            write_printable(f, chunk.valid())?;
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

fn write_printable(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for character in text.chars() {
        match character {
            ' '..='~' => f.write_char(character)?,
            other => write!(f, "{}", other.escape_debug())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    fn field(text: &[u8]) -> [u8; NQN_FIELD_BYTES] {
        let mut field = [0; NQN_FIELD_BYTES];
        field[..text.len()].copy_from_slice(text);
        field
    }

    #[test]
    fn takes_what_stands_before_the_first_nul() {
        let name = Nqn::from_field(&field(b"nqn.2024-01.example:disk\0rest of an old name"));
        assert_eq!(
            name.expect("a valid name").as_str(),
            "nqn.2024-01.example:disk"
        );
    }

    #[test]
    fn refuses_names_that_are_empty_long_endless_or_unprintable() {
        assert_eq!(Nqn::from_field(&[0; 256]), Err(NqnError::Empty));
        assert_eq!(Nqn::from_field(&[b'a'; 256]), Err(NqnError::NotTerminated));
        assert_eq!(
            Nqn::from_field(&field(&[b'a'; 224])),
            Err(NqnError::TooLong)
        );
        assert_eq!(
            Nqn::from_field(&field(b"nqn.\xFFx")),
            Err(NqnError::NotPrintable)
        );
        assert_eq!(
            Nqn::from_field(&field(b"nqn.\x1B[31m")),
            Err(NqnError::NotPrintable)
        );
        assert!(Nqn::from_field(&field(&[b'a'; 223])).is_ok());
    }

    #[test]
    fn a_qualified_name_has_a_date_and_something_behind_it() {
        let qualified = |text| Nqn::new(text).expect("printable").is_qualified();
        assert!(qualified("nqn.2014-08.org.nvmexpress:uuid:1") && qualified(DISCOVERY_NQN));
        for text in [
            "host1",
            "nqn.",
            "nqn.host1",
            "nqn.2014-08",
            "nqn.2014-08.",
            "nqn.201-408.org",
            "nqn.2014x08.org",
            "NQN.2014-08.org",
            "iqn.2014-08.org.example:host",
        ] {
            assert!(!qualified(text), "{text}");
        }
    }

    #[test]
    fn never_prints_what_could_drive_a_terminal() {
        assert_eq!(
            format!("{}", Printable(b"a\x1B[2J\xFFb\0tail")),
            "a\\u{1b}[2J\\xffb"
        );
        let mut bidirectional = String::from("nqn.");
        bidirectional.push('\u{202E}');
        let name = Nqn::new(&bidirectional).expect("a format character is no control character");
        assert_eq!(format!("{name}"), "nqn.\\u{202e}");
    }

    #[test]
    fn goes_to_its_field_and_back() {
        let name = Nqn::discovery();
        assert!(name.is_discovery());
        assert_eq!(Nqn::from_field(&name.to_field()), Ok(name));
    }
}

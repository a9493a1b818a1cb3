//! Violations: a peer has broken a rule of a transport, and the connection ends.
//!
//! A violation does not answer a command. It ends the connection with the code that the standard
//! defines. It has an inline copy of the invalid header, so that reporting needs no allocation, and
//! a sentence for the log. It never has payload.

use core::fmt;

/// Broken rule: the six reasons that NVMe/TCP defines for ending a connection.
///
/// Source: NVMe/TCP Transport Specification 1.x, "Fatal Error Status" of the termination requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Breach {
    /// A field of a PDU header is invalid. The offset of the violation tells which field.
    HeaderField = 1,
    /// A PDU is not allowed in the current state.
    Sequence = 2,
    /// The header digest does not match the header.
    HeaderDigest = 3,
    /// Data lies outside of the requested range.
    DataRange = 4,
    /// The peer exceeds the negotiated number of R2Ts or amount of data.
    Limit = 5,
    /// A parameter is legal but not supported. The offset of the violation tells which one.
    Unsupported = 6,
}

impl Breach {
    /// The fatal error status (FES) that goes on the wire.
    #[must_use]
    pub const fn fes(self) -> u16 {
        self as u16
    }

    /// Breach for a fatal error status from the peer. `None` for an unknown status.
    #[must_use]
    pub const fn from_fes(fes: u16) -> Option<Self> {
        Some(match fes {
            1 => Self::HeaderField,
            2 => Self::Sequence,
            3 => Self::HeaderDigest,
            4 => Self::DataRange,
            5 => Self::Limit,
            6 => Self::Unsupported,
            _ => return None,
        })
    }
}

/// Maximum length in bytes of the invalid header that a termination request may quote.
pub const HEADER_COPY_MAX: usize = 128;

/// A broken rule, the position of the invalid field, and a copy of its header.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    breach: Breach,
    field_offset: u32,
    found: Option<u64>,
    sentence: &'static str,
    header: [u8; HEADER_COPY_MAX],
    header_bytes: u8,
}

impl Violation {
    /// A violation of `breach`; `field_offset` counts bytes from the start of the PDU to the field
    /// at fault (zero where the breach has none), `sentence` says what was wrong and what was
    /// expected.
    #[must_use]
    pub const fn new(breach: Breach, field_offset: u32, sentence: &'static str) -> Self {
        Self {
            breach,
            field_offset,
            found: None,
            sentence,
            header: [0; HEADER_COPY_MAX],
            header_bytes: 0,
        }
    }

    /// The same violation with the value that was found.
    #[must_use]
    pub const fn found(mut self, value: u64) -> Self {
        self.found = Some(value);
        self
    }

    /// The same violation with a copy of the first [`HEADER_COPY_MAX`] bytes of `header`.
    #[must_use]
    pub fn with_header(mut self, header: &[u8]) -> Self {
        let bytes = header.len().min(HEADER_COPY_MAX);
        self.header[..bytes].copy_from_slice(&header[..bytes]);
        self.header_bytes = u8::try_from(bytes).unwrap_or(u8::MAX);
        self
    }

    /// Which rule was broken.
    #[must_use]
    pub const fn breach(&self) -> Breach {
        self.breach
    }

    /// The fatal error status (FES) that goes on the wire.
    #[must_use]
    pub const fn fes(&self) -> u16 {
        self.breach.fes()
    }

    /// The fatal error information (FEI): byte offset of the field at fault for
    /// [`Breach::HeaderField`] and [`Breach::Unsupported`], zero for the others.
    #[must_use]
    pub const fn fei(&self) -> u32 {
        match self.breach {
            Breach::HeaderField | Breach::Unsupported => self.field_offset,
            _ => 0,
        }
    }

    /// Quoted part of the invalid header. Empty if there is none.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_bytes)]
    }

    /// Description for the log.
    #[must_use]
    pub const fn sentence(&self) -> &'static str {
        self.sentence
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence)?;
        if let Some(value) = self.found {
            write!(f, " (found {value}, {value:#x})")?;
        }
        write!(f, " [FES {:#04x}, FEI {}]", self.fes(), self.fei())
    }
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Violation({:?}: {self})", self.breach)
    }
}

impl core::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn quotes_at_most_128_bytes_of_the_header() {
        let violation =
            Violation::new(Breach::HeaderField, 2, "HLEN must be 72").with_header(&[7; 200]);
        assert_eq!(violation.header(), [7; 128]);
        assert_eq!((violation.fes(), violation.fei()), (1, 2));
    }

    #[test]
    fn says_no_field_where_the_breach_has_none() {
        let violation = Violation::new(Breach::Sequence, 9, "ICReq came twice").found(3);
        assert_eq!(violation.fei(), 0);
        assert_eq!(
            format!("{violation}"),
            "ICReq came twice (found 3, 0x3) [FES 0x02, FEI 0]"
        );
    }

    #[test]
    fn every_fatal_error_status_goes_both_ways() {
        for fes in 0..=8 {
            assert_eq!(
                Breach::from_fes(fes).map(Breach::fes),
                (1..=6).contains(&fes).then_some(fes)
            );
        }
    }
}

//! How a peer can break the rules of a transport, and what to say before hanging up.
//!
//! A violation is not an answer to a command: it ends the connection with the code its standard
//! provides. It carries a copy of the offending header inline, so that reporting one allocates
//! nothing, and a sentence for the log. It never carries payload.

use core::fmt;

/// Which rule was broken: the six reasons NVMe/TCP has for ending a connection.
///
/// Source: NVMe/TCP Transport Specification 1.x, "Fatal Error Status" of the termination requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Breach {
    /// A field of a PDU header is wrong; the violation's offset says which.
    HeaderField = 1,
    /// A PDU that may not come now.
    Sequence = 2,
    /// The header digest differs from the header.
    HeaderDigest = 3,
    /// Data outside what was asked for.
    DataRange = 4,
    /// More R2Ts or more data than was negotiated.
    Limit = 5,
    /// A parameter that is legal but not supported here; the violation's offset says which.
    Unsupported = 6,
}

impl Breach {
    /// The fatal error status (FES) that goes on the wire.
    #[must_use]
    pub const fn fes(self) -> u16 {
        self as u16
    }

    /// The breach for a fatal error status that came from the peer, if it is one of ours.
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

/// Most bytes of the offending header that a termination request may quote.
pub const HEADER_COPY_MAX: usize = 128;

/// A broken rule: what, where, and the header it stood in.
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

    /// The same, remembering the value that was found.
    #[must_use]
    pub const fn found(mut self, value: u64) -> Self {
        self.found = Some(value);
        self
    }

    /// The same, quoting `header`: its first [`HEADER_COPY_MAX`] bytes are copied.
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

    /// The quoted part of the offending header; empty when there was none.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_bytes)]
    }

    /// What was wrong, for the log.
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

//! Namespace identification descriptors: a list of identifiers, each with its type and length.

use crate::codec::{Reader, Truncated};

/// One identifier of a namespace from the descriptor list (CNS 03h).
///
/// Source: NVM Express Base Specification 2.x, "Namespace Identification Descriptor".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// IEEE Extended Unique Identifier.
    Eui64([u8; 8]),
    /// Namespace Globally Unique Identifier.
    Nguid([u8; 16]),
    /// Namespace UUID.
    Uuid([u8; 16]),
    /// Command Set Identifier.
    Csi(u8),
}

const NIDT_EUI64: u8 = 1;
const NIDT_NGUID: u8 = 2;
const NIDT_UUID: u8 = 3;
const NIDT_CSI: u8 = 4;
const DESCRIPTOR_HEADER_BYTES: usize = 4;

impl Descriptor {
    /// Writes the descriptor at the start of `page` and returns the rest of `page`. Returns all of
    /// `page` if the descriptor does not fit.
    #[must_use]
    pub fn write<'p>(&self, page: &'p mut [u8]) -> &'p mut [u8] {
        let (kind, id): (u8, &[u8]) = match self {
            Self::Eui64(id) => (NIDT_EUI64, id),
            Self::Nguid(id) => (NIDT_NGUID, id),
            Self::Uuid(id) => (NIDT_UUID, id),
            Self::Csi(id) => (NIDT_CSI, core::slice::from_ref(id)),
        };
        if page.len() < DESCRIPTOR_HEADER_BYTES + id.len() {
            return page;
        }
        let (header, rest) = page.split_at_mut(DESCRIPTOR_HEADER_BYTES);
        let (body, rest) = rest.split_at_mut(id.len());
        header.copy_from_slice(&[kind, u8::try_from(id.len()).unwrap_or(0), 0, 0]);
        body.copy_from_slice(id);
        rest
    }
}

/// Iterator over a descriptor list. Unknown types are skipped. A type of zero ends the list.
#[derive(Clone, Debug)]
pub struct Descriptors<'a> {
    reader: Reader<'a>,
}

impl<'a> Descriptors<'a> {
    /// The descriptors in `page`.
    #[must_use]
    pub const fn new(page: &'a [u8]) -> Self {
        Self {
            reader: Reader::new(page),
        }
    }

    fn read(&mut self) -> Result<Option<Descriptor>, Truncated> {
        while self.reader.remaining() >= DESCRIPTOR_HEADER_BYTES {
            let [kind, id_bytes, ..] = self.reader.array::<DESCRIPTOR_HEADER_BYTES>()?;
            match (kind, id_bytes) {
                (_, 0) => return Ok(None),
                (NIDT_EUI64, 8) => return Ok(Some(Descriptor::Eui64(self.reader.array()?))),
                (NIDT_NGUID, 16) => return Ok(Some(Descriptor::Nguid(self.reader.array()?))),
                (NIDT_UUID, 16) => return Ok(Some(Descriptor::Uuid(self.reader.array()?))),
                (NIDT_CSI, 1) => return Ok(Some(Descriptor::Csi(self.reader.u8()?))),
                (_, other) => {
                    self.reader.take(usize::from(other))?;
                }
            }
        }
        Ok(None)
    }
}

impl Iterator for Descriptors<'_> {
    type Item = Result<Descriptor, Truncated>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

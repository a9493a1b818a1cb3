//! Sense data: the reason for CHECK CONDITION, as a value and as bytes of either format.
//!
//! A [`Sense`] is one current error. Deferred errors do not exist here, because every write is
//! answered after it was carried out. The initiator chooses the format (D_SENSE, DESC), so the
//! value is independent of the format.
//! Source: SPC-4, "Sense data".

use super::additional::AdditionalSense;

/// Maximum length of sense data in bytes: descriptor format with an information and a field pointer
/// descriptor.
///
/// The value is below 126, the most that an iSER initiator accepts besides the length field.
pub const SENSE_BYTES_MAX: usize = 28;

/// SENSE KEY: class of the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SenseKey(pub u8);

impl SenseKey {
    /// NO SENSE.
    pub const NO_SENSE: Self = Self(0x0);
    /// RECOVERED ERROR.
    pub const RECOVERED_ERROR: Self = Self(0x1);
    /// NOT READY.
    pub const NOT_READY: Self = Self(0x2);
    /// MEDIUM ERROR.
    pub const MEDIUM_ERROR: Self = Self(0x3);
    /// HARDWARE ERROR.
    pub const HARDWARE_ERROR: Self = Self(0x4);
    /// ILLEGAL REQUEST.
    pub const ILLEGAL_REQUEST: Self = Self(0x5);
    /// UNIT ATTENTION.
    pub const UNIT_ATTENTION: Self = Self(0x6);
    /// DATA PROTECT.
    pub const DATA_PROTECT: Self = Self(0x7);
    /// COPY ABORTED.
    pub const COPY_ABORTED: Self = Self(0xA);
    /// ABORTED COMMAND.
    pub const ABORTED_COMMAND: Self = Self(0xB);
    /// MISCOMPARE.
    pub const MISCOMPARE: Self = Self(0xE);
}

/// Format of sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenseFormat {
    /// Response code 70h: fixed format, 18 bytes.
    Fixed,
    /// Response code 72h: descriptor format, a header and descriptors.
    Descriptor,
}

/// Field of the request that has an invalid value.
///
/// Source: SPC-4, "Field pointer sense key specific data".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// C/D: true for a field of the CDB, false for a field of the parameter list.
    pub in_cdb: bool,
    /// FIELD POINTER: position of the first byte of the field.
    pub byte: u16,
    /// BPV and BIT POINTER: most significant bit of a field that is smaller than a byte.
    pub bit: Option<u8>,
}

/// A current error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// SENSE KEY.
    pub key: SenseKey,
    /// ASC and ASCQ.
    pub code: AdditionalSense,
    /// INFORMATION: an LBA, or the byte offset of a difference.
    pub information: Option<u64>,
    /// Field with the invalid value.
    pub pointer: Option<FieldPointer>,
}

impl Sense {
    /// NO SENSE: answer to REQUEST SENSE when there is no error.
    pub const NONE: Self = Self::new(SenseKey::NO_SENSE, AdditionalSense::NONE);

    /// An error with key and code, without information and field pointer.
    #[must_use]
    pub const fn new(key: SenseKey, code: AdditionalSense) -> Self {
        Self {
            key,
            code,
            information: None,
            pointer: None,
        }
    }

    /// ILLEGAL REQUEST with `code`.
    #[must_use]
    pub const fn illegal(code: AdditionalSense) -> Self {
        Self::new(SenseKey::ILLEGAL_REQUEST, code)
    }

    /// INVALID FIELD IN CDB, with a pointer to the field at `byte`. `bit` is the most significant
    /// bit of a field that is smaller than a byte.
    #[must_use]
    pub const fn field_in_cdb(byte: u16, bit: Option<u8>) -> Self {
        Self::illegal(AdditionalSense::INVALID_FIELD_IN_CDB).at(true, byte, bit)
    }

    /// INVALID FIELD IN PARAMETER LIST, with a pointer to the field as in
    /// [`field_in_cdb`](Self::field_in_cdb).
    #[must_use]
    pub const fn field_in_parameters(byte: u16, bit: Option<u8>) -> Self {
        Self::illegal(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST).at(false, byte, bit)
    }

    /// MISCOMPARE. `offset` is the first difference, in bytes from the start of the data.
    #[must_use]
    pub const fn miscompare(offset: u64) -> Self {
        Self::new(
            SenseKey::MISCOMPARE,
            AdditionalSense::MISCOMPARE_DURING_VERIFY,
        )
        .with_information(offset)
    }

    /// The same error with an INFORMATION value.
    #[must_use]
    pub const fn with_information(mut self, information: u64) -> Self {
        self.information = Some(information);
        self
    }

    const fn at(mut self, in_cdb: bool, byte: u16, bit: Option<u8>) -> Self {
        self.pointer = Some(FieldPointer { in_cdb, byte, bit });
        self
    }

    /// Writes the sense data in `format`. Returns its length in bytes.
    #[must_use]
    pub fn write(&self, format: SenseFormat, out: &mut [u8; SENSE_BYTES_MAX]) -> usize {
        out.fill(0);
        match format {
            SenseFormat::Fixed => self.write_fixed(out),
            SenseFormat::Descriptor => self.write_descriptors(out),
        }
    }

    /// Writes the fixed format. Its INFORMATION field has four bytes. VALID stays zero if the value
    /// does not fit.
    ///
    /// Source: SPC-4, "Fixed format sense data".
    fn write_fixed(&self, out: &mut [u8; SENSE_BYTES_MAX]) -> usize {
        out[0] = RESPONSE_FIXED;
        if let Some(information) = self.information.and_then(|i| u32::try_from(i).ok()) {
            out[0] |= FIXED_VALID;
            out[3..7].copy_from_slice(&information.to_be_bytes());
        }
        out[2] = self.key.0;
        out[7] = 10; // ADDITIONAL SENSE LENGTH
        out[12] = self.code.asc();
        out[13] = self.code.ascq();
        if let Some(pointer) = self.pointer {
            out[15..18].copy_from_slice(&pointer.bytes());
        }
        FIXED_BYTES
    }

    /// Writes the descriptor format.
    ///
    /// Source: SPC-4, "Descriptor format sense data".
    fn write_descriptors(&self, out: &mut [u8; SENSE_BYTES_MAX]) -> usize {
        out[..4].copy_from_slice(&[
            RESPONSE_DESCRIPTOR,
            self.key.0,
            self.code.asc(),
            self.code.ascq(),
        ]);
        let mut end = 8;
        if let Some(information) = self.information {
            out[end..end + 3].copy_from_slice(&[DESCRIPTOR_INFORMATION, 0x0A, FIXED_VALID]);
            out[end + 4..end + 12].copy_from_slice(&information.to_be_bytes());
            end += 12;
        }
        if let Some(pointer) = self.pointer {
            out[end..end + 2].copy_from_slice(&[DESCRIPTOR_KEY_SPECIFIC, 0x06]);
            out[end + 4..end + 7].copy_from_slice(&pointer.bytes());
            end += 8;
        }
        out[7] = u8::try_from(end - 8).unwrap_or(0);
        end
    }

    /// Parses sense data of either format. `None` if the bytes are too short or have another
    /// response code.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? & 0x7F {
            0x70 | 0x71 => Self::parse_fixed(bytes),
            0x72 | 0x73 => Self::parse_descriptors(bytes),
            _ => None,
        }
    }

    fn parse_fixed(bytes: &[u8]) -> Option<Self> {
        let key = SenseKey(bytes.get(2)? & 0x0F);
        let code = AdditionalSense(match bytes.get(12..14) {
            Some(code) => u16::from_be_bytes([code[0], code[1]]),
            None => 0,
        });
        let mut sense = Self::new(key, code);
        if bytes[0] & FIXED_VALID != 0 {
            let field = bytes.get(3..7)?.first_chunk::<4>()?;
            sense.information = Some(u64::from(u32::from_be_bytes(*field)));
        }
        sense.pointer = bytes.get(15..18).and_then(FieldPointer::parse);
        Some(sense)
    }

    fn parse_descriptors(bytes: &[u8]) -> Option<Self> {
        let code = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
        let mut sense = Self::new(SenseKey(bytes[1] & 0x0F), AdditionalSense(code));
        let mut rest = bytes.get(8..).unwrap_or(&[]);
        while let [kind, length, ..] = *rest {
            let Some(body) = rest.get(2..2 + usize::from(length)) else {
                break;
            };
            sense.take_descriptor(kind, body);
            rest = &rest[2 + usize::from(length)..];
        }
        Some(sense)
    }

    fn take_descriptor(&mut self, kind: u8, body: &[u8]) {
        match kind {
            DESCRIPTOR_INFORMATION => {
                let field = body.get(2..).and_then(|b| b.first_chunk::<8>());
                self.information = field.map(|bytes| u64::from_be_bytes(*bytes));
            }
            DESCRIPTOR_KEY_SPECIFIC => {
                self.pointer = body.get(2..5).and_then(FieldPointer::parse);
            }
            _ => {}
        }
    }
}

impl FieldPointer {
    fn bytes(self) -> [u8; 3] {
        let mut flags = POINTER_SKSV;
        if self.in_cdb {
            flags |= POINTER_IN_CDB;
        }
        if let Some(bit) = self.bit {
            flags |= POINTER_BIT_VALID | bit & 0b111;
        }
        let [high, low] = self.byte.to_be_bytes();
        [flags, high, low]
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let [flags, high, low] = *bytes.first_chunk::<3>()?;
        (flags & POINTER_SKSV != 0).then_some(Self {
            in_cdb: flags & POINTER_IN_CDB != 0,
            byte: u16::from_be_bytes([high, low]),
            bit: (flags & POINTER_BIT_VALID != 0).then_some(flags & 0b111),
        })
    }
}

const FIXED_BYTES: usize = 18;
const RESPONSE_FIXED: u8 = 0x70;
const RESPONSE_DESCRIPTOR: u8 = 0x72;
/// VALID bit, at the same position in the fixed format and in the information descriptor.
const FIXED_VALID: u8 = 0x80;
const DESCRIPTOR_INFORMATION: u8 = 0x00;
const DESCRIPTOR_KEY_SPECIFIC: u8 = 0x02;
const POINTER_SKSV: u8 = 0x80;
const POINTER_IN_CDB: u8 = 0x40;
const POINTER_BIT_VALID: u8 = 0x08;

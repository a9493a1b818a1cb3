//! NVMe/TCP PDUs as bytes, written from the standard's tables and not from Fabrix's code. The tests
//! compare the target's PDUs with this.
//!
//! Source: NVM Express TCP Transport Specification 1.1, section 3.6.

pub const ICREQ: u8 = 0x00;
pub const ICRESP: u8 = 0x01;
pub const H2C_TERM: u8 = 0x02;
pub const C2H_TERM: u8 = 0x03;
pub const CAPSULE: u8 = 0x04;
pub const RESPONSE: u8 = 0x05;
pub const H2C_DATA: u8 = 0x06;
pub const C2H_DATA: u8 = 0x07;
pub const R2T: u8 = 0x09;

pub const HDGST: u8 = 1;
pub const DDGST: u8 = 2;
pub const LAST: u8 = 4;
pub const SUCCESS: u8 = 8;

/// Negotiated digests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    pub header: bool,
    pub data: bool,
}

impl Digests {
    pub const NONE: Self = Self {
        header: false,
        data: false,
    };
    pub const BOTH: Self = Self {
        header: true,
        data: true,
    };

    pub fn byte(self) -> u8 {
        u8::from(self.header) | u8::from(self.data) << 1
    }
}

/// One received PDU.
#[derive(Clone, Debug)]
pub struct Pdu {
    pub kind: u8,
    pub flags: u8,
    pub header: Vec<u8>,
    pub data: Vec<u8>,
}

impl Pdu {
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.header[at], self.header[at + 1]])
    }

    pub fn u32(&self, at: usize) -> u32 {
        let bytes = self.header[at..at + 4].try_into().expect("four");
        u32::from_le_bytes(bytes)
    }
}

/// A PDU to send: the common header, the rest of the header, the data, with the negotiated digests.
pub fn pdu(kind: u8, flags: u8, rest: &[u8], data: &[u8], digests: Digests) -> Vec<u8> {
    let header_bytes = 8 + rest.len();
    let mut flags = flags;
    let mut total = header_bytes;
    if digests.header {
        flags |= HDGST;
        total += 4;
    }
    let mut data_offset = 0;
    if !data.is_empty() {
        data_offset = total;
        total += data.len();
        if digests.data {
            flags |= DDGST;
            total += 4;
        }
    }
    let mut bytes = Vec::with_capacity(total);
    bytes.extend([kind, flags, small(header_bytes), small(data_offset)]);
    bytes.extend(u32::try_from(total).expect("a small PDU").to_le_bytes());
    bytes.extend(rest);
    if digests.header {
        let digest = crc32c(&bytes);
        bytes.extend(digest.to_le_bytes());
    }
    bytes.extend(data);
    if digests.data && !data.is_empty() {
        bytes.extend(crc32c(data).to_le_bytes());
    }
    bytes
}

/// ICReq.
pub fn icreq(digests: Digests) -> Vec<u8> {
    let mut rest = [0; 120];
    rest[3] = digests.byte();
    pdu(ICREQ, 0, &rest, &[], Digests::NONE)
}

/// H2CData.
pub fn h2c_data(
    command_id: u16,
    tag: u16,
    offset: u32,
    data: &[u8],
    flags: u8,
    digests: Digests,
) -> Vec<u8> {
    let mut rest = [0; 16];
    rest[0..2].copy_from_slice(&command_id.to_le_bytes());
    rest[2..4].copy_from_slice(&tag.to_le_bytes());
    rest[4..8].copy_from_slice(&offset.to_le_bytes());
    let length = u32::try_from(data.len()).expect("a small PDU");
    rest[8..12].copy_from_slice(&length.to_le_bytes());
    pdu(H2C_DATA, flags, &rest, data, digests)
}

fn small(value: usize) -> u8 {
    u8::try_from(value).expect("a header's length")
}

/// CRC32C, a byte at a time: polynomial 0x1EDC6F41 reflected, all ones first, inverted last.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc = TABLE[usize::from((crc & 0xff) as u8 ^ byte)] ^ crc >> 8;
    }
    !crc
}

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let (mut index, mut first) = (0, 0);
    while index < 256 {
        let mut value: u32 = first;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 {
                value >> 1 ^ 0x82f6_3b78
            } else {
                value >> 1
            };
            bit += 1;
        }
        table[index] = value;
        (index, first) = (index + 1, first + 1);
    }
    table
};

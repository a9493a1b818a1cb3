//! PDUs of iSCSI, built and taken apart byte by byte.

/// CRC32C, one bit at a time.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                crc >> 1 ^ 0x82F6_3B78
            } else {
                crc >> 1
            }
        })
    })
}

/// Data that differs from place to place.
pub(crate) fn pattern(bytes: u32, seed: u8) -> Vec<u8> {
    (0..bytes)
        .map(|i| (i.wrapping_mul(31) >> 3 ^ i).to_le_bytes()[0] ^ seed)
        .collect()
}

fn pad(bytes: usize) -> usize {
    bytes.wrapping_neg() % 4
}

/// Header digest, data digest.
pub(crate) type Digests = (bool, bool);
pub(crate) const NONE: Digests = (false, false);
pub(crate) const BOTH: Digests = (true, true);

/// A PDU being built, or one that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pdu {
    pub(crate) bhs: [u8; 48],
    pub(crate) ahs: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

impl Pdu {
    pub(crate) fn new(opcode: u8, flags: u8) -> Self {
        let mut bhs = [0; 48];
        (bhs[0], bhs[1]) = (opcode, flags);
        Self {
            bhs,
            ahs: Vec::new(),
            data: Vec::new(),
        }
    }

    pub(crate) fn put(mut self, offset: usize, bytes: &[u8]) -> Self {
        self.bhs[offset..offset + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub(crate) fn put32(self, offset: usize, value: u32) -> Self {
        self.put(offset, &value.to_be_bytes())
    }

    pub(crate) fn itt(self, itt: u32) -> Self {
        self.put32(16, itt)
    }

    pub(crate) fn ttt(self, ttt: u32) -> Self {
        self.put32(20, ttt)
    }

    pub(crate) fn cmd_sn(self, cmd_sn: u32) -> Self {
        self.put32(24, cmd_sn)
    }

    pub(crate) fn data(mut self, data: &[u8]) -> Self {
        let length = u32::try_from(data.len()).expect("short").to_be_bytes();
        self.bhs[5..8].copy_from_slice(&length[1..]);
        self.data = data.to_vec();
        self
    }

    pub(crate) fn ahs(mut self, ahs: &[u8]) -> Self {
        self.bhs[4] = u8::try_from(ahs.len() / 4).expect("short");
        self.ahs = ahs.to_vec();
        self
    }

    pub(crate) fn bytes(&self, digests: Digests) -> Vec<u8> {
        let mut bytes = [&self.bhs[..], &self.ahs].concat();
        if digests.0 {
            bytes.extend(crc32c(&bytes).to_le_bytes());
        }
        let mut data = self.data.clone();
        data.resize(data.len() + pad(data.len()), 0);
        if digests.1 && !data.is_empty() {
            data.extend(crc32c(&data).to_le_bytes());
        }
        [bytes, data].concat()
    }

    pub(crate) fn get32(&self, offset: usize) -> u32 {
        u32::from_be_bytes(self.bhs[offset..offset + 4].try_into().expect("four"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.data.clone())
            .expect("text")
            .replace('\0', " ")
            .trim_end()
            .to_owned()
    }
}

/// Takes the PDUs of a target out of its bytes; digests must be right.
pub(crate) fn split(bytes: &[u8], digests: Digests) -> Vec<Pdu> {
    let (mut rest, mut pdus) = (bytes, Vec::new());
    let mut take = |count: usize| {
        let (taken, left) = rest.split_at(count);
        rest = left;
        (taken.to_vec(), left.is_empty())
    };
    let mut over = bytes.is_empty();
    while !over {
        let (bhs, mut last) = take(48);
        if digests.0 {
            let (digest, end) = take(4);
            assert_eq!(digest, crc32c(&bhs).to_le_bytes(), "header digest");
            last = end;
        }
        let length = usize::from(bhs[5]) << 16 | usize::from(bhs[6]) << 8 | usize::from(bhs[7]);
        let (padded, end) = take(length + pad(length));
        last = if length > 0 { end } else { last };
        assert!(padded[length..].iter().all(|byte| *byte == 0), "padding");
        if digests.1 && length > 0 {
            let (digest, end) = take(4);
            assert_eq!(digest, crc32c(&padded).to_le_bytes(), "data digest");
            last = end;
        }
        pdus.push(Pdu {
            bhs: bhs.try_into().expect("48"),
            ahs: Vec::new(),
            data: padded[..length].to_vec(),
        });
        over = last;
    }
    pdus
}

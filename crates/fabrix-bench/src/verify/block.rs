//! A verified block as fio 3.33 writes it: a header, a checksum, and the data.
//!
//! Layout, little-endian: magic (2 bytes), number of the checksum (2), length of the block (4),
//! seed (8), offset (8), seconds (4), nanoseconds (4), thread (2), number of the write (2), CRC32C
//! of the header (4), checksum of the data, data.
//!
//! fio does not compare seed, time and thread when it reads a file. Our blocks have there what
//! finds more faults: the id of the run, the generation, a CRC32C of the data under any checksum,
//! and a thread number that fio does not use ([`OURS`]).

use std::fmt;

use super::checksum::{CHECKSUM_BYTES_MAX, Checksum, crc32c};
use crate::contents::parse_pattern;

/// Length of the header without the checksum of the data, in bytes.
pub(super) const HEADER_BYTES: usize = 40;
const MAGIC: u16 = 0xacca;
/// Thread number in our blocks. fio has at most 4096 jobs.
const OURS: u16 = 0xfab1;

/// Identity of a written block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Position on the disk in bytes.
    pub offset: u64,
    /// Number of writes to this position in the run.
    pub generation: u32,
    /// Id of the run.
    pub run: u64,
}

/// The correct generations of a unit. Generation 2^32 - 1 is followed by 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Last acknowledged generation.
    pub oldest: u32,
    /// Last attempted generation.
    pub newest: u32,
}

impl Expected {
    fn allows(self, generation: u32) -> bool {
        generation.wrapping_sub(self.oldest) <= self.newest.wrapping_sub(self.oldest)
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            return write!(f, "generation {}", self.newest);
        }
        write!(f, "generation {} to {}", self.oldest, self.newest)
    }
}

/// The content found in a wrong block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// All bytes are zero.
    Zeroes,
    /// The right address with another generation.
    Generation(u32),
    /// An intact block with another offset.
    Elsewhere {
        /// Offset in the block, in bytes.
        offset: u64,
        /// Generation in a block of this program.
        generation: Option<u32>,
    },
    /// An intact block of another run: this run's write was lost.
    OtherRun,
    /// An intact block of this length in bytes.
    Length(u32),
    /// An intact header with another checksum. Its number, if it is not known.
    Checksum(Result<Checksum, u16>),
    /// A block with a header and a wrong checksum.
    Damaged,
    /// Another byte than the pattern has.
    Byte {
        /// Position in the request.
        at: usize,
        /// Byte on the disk.
        found: u8,
        /// Byte of the pattern.
        expected: u8,
    },
    /// Data without a header.
    Garbage,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeroes => write!(f, "zeroes"),
            Self::Generation(generation) => write!(f, "generation {generation} (a stale block)"),
            Self::Elsewhere { offset, generation } => {
                if let Some(generation) = generation {
                    write!(f, "generation {generation} of ")?;
                }
                write!(f, "the block at offset {offset} (a misdirected block)")
            }
            Self::OtherRun => write!(f, "a block of an earlier run (a lost write)"),
            Self::Length(bytes) => write!(
                f,
                "a block of {bytes} bytes (written with another bs= or verify_interval=)"
            ),
            Self::Checksum(Ok(checksum)) => {
                write!(
                    f,
                    "a block that was written with verify={}",
                    checksum.name()
                )
            }
            Self::Checksum(Err(number)) => {
                write!(f, "a block with an unknown checksum (number {number})")
            }
            Self::Damaged => write!(f, "a damaged block (its checksum is wrong)"),
            Self::Byte {
                at,
                found,
                expected,
            } => write!(f, "0x{found:02x} instead of 0x{expected:02x} at byte {at}"),
            Self::Garbage => write!(f, "garbage (no header of a verified block)"),
        }
    }
}

/// Fields of a header.
struct Header {
    number: u16,
    bytes: u32,
    run: u64,
    offset: u64,
    generation: u32,
    data_crc: u32,
    thread: u16,
}

impl Header {
    fn write(&self, block: &mut [u8]) {
        block[..2].copy_from_slice(&MAGIC.to_le_bytes());
        block[2..4].copy_from_slice(&self.number.to_le_bytes());
        block[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        block[8..16].copy_from_slice(&self.run.to_le_bytes());
        block[16..24].copy_from_slice(&self.offset.to_le_bytes());
        block[24..28].copy_from_slice(&self.generation.to_le_bytes());
        block[28..32].copy_from_slice(&self.data_crc.to_le_bytes());
        block[32..34].copy_from_slice(&self.thread.to_le_bytes());
        block[34..36].copy_from_slice(&self.generation.to_le_bytes()[..2]);
        let crc = crc32c(&block[..36]);
        block[36..40].copy_from_slice(&crc.to_le_bytes());
    }

    /// Parses the header of a block. The error is the content found instead.
    fn parse(block: &[u8]) -> Result<Self, Found> {
        let half = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        let word =
            |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let long =
            |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        if half(0) != MAGIC {
            let zeroes = block.iter().all(|byte| *byte == 0);
            return Err(if zeroes {
                Found::Zeroes
            } else {
                Found::Garbage
            });
        }
        if word(36) != crc32c(&block[..36]) {
            return Err(Found::Damaged);
        }
        Ok(Self {
            number: half(2),
            bytes: word(4),
            run: long(8),
            offset: long(16),
            generation: word(24),
            data_crc: word(28),
            thread: half(32),
        })
    }
}

/// Writes header and checksum of a block whose data is already there.
pub fn seal_block(block: &mut [u8], checksum: Checksum, stamp: Stamp) {
    let (header, rest) = block.split_at_mut(HEADER_BYTES);
    let (field, data) = rest.split_at_mut(checksum.bytes());
    checksum.write(data, field);
    let written = Header {
        number: checksum.number(),
        bytes: u32::try_from(HEADER_BYTES + field.len() + data.len())
            .expect("a request has less than 4 GiB"),
        run: stamp.run,
        offset: stamp.offset,
        generation: stamp.generation,
        data_crc: match checksum {
            Checksum::Crc32c => u32::from_le_bytes((&*field).try_into().expect("four bytes")),
            _ => crc32c(data),
        },
        thread: OURS,
    };
    written.write(header);
}

/// Checks a block. With `written`, the block has to be of this run and of one of these generations.
/// Without it, every intact block of this address is right. The error is the content found instead.
pub fn check_block(
    block: &[u8],
    checksum: Checksum,
    offset: u64,
    written: Option<(u64, Expected)>,
) -> Result<(), Found> {
    let header = Header::parse(block)?;
    let ours = header.thread == OURS;
    if header.bytes as usize != block.len() {
        return Err(Found::Length(header.bytes));
    }
    check_data(block, checksum, &header)?;
    if let Some((run, _)) = written
        && (!ours || header.run != run)
    {
        return Err(Found::OtherRun);
    }
    if header.offset != offset {
        return Err(Found::Elsewhere {
            offset: header.offset,
            generation: ours.then_some(header.generation),
        });
    }
    match written {
        Some((_, expected)) if !expected.allows(header.generation) => {
            Err(Found::Generation(header.generation))
        }
        _ => Ok(()),
    }
}

/// Whether `start` begins with the header of a verified block, of fio or of this program.
pub fn is_verified(start: &[u8]) -> bool {
    start.len() >= HEADER_BYTES && Header::parse(start).is_ok()
}

/// Checks the data of a block with a right header.
fn check_data(block: &[u8], checksum: Checksum, header: &Header) -> Result<(), Found> {
    let written = Checksum::of_number(header.number).ok_or(header.number);
    // fio's `meta` and patterns accept any header.
    let any = matches!(checksum, Checksum::Meta | Checksum::Pattern);
    if !any && written != Ok(checksum) {
        return Err(Found::Checksum(written));
    }
    let (field, data) = block[HEADER_BYTES..].split_at(checksum.bytes());
    let mut computed = [0; CHECKSUM_BYTES_MAX];
    let computed = &mut computed[..field.len()];
    checksum.write(data, computed);
    // CRC32C is computed once: the header's CRC is that of the field.
    let right = match (checksum, written) {
        (Checksum::Crc32c, _) => header.thread != OURS || header.data_crc.to_le_bytes() == computed,
        (_, Ok(written)) if header.thread == OURS => {
            header.data_crc == crc32c(&block[HEADER_BYTES + written.bytes()..])
        }
        _ => true,
    };
    if right && computed == field {
        Ok(())
    } else {
        Err(Found::Damaged)
    }
}

/// Contents that repeat a pattern (`verify_pattern`), with the request's offset in places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    bytes: Vec<u8>,
    /// Positions of the request's offset (`%o`), each of eight bytes.
    offsets: Vec<usize>,
}

impl Pattern {
    /// Parses fio's `verify_pattern`: the forms of `buffer_pattern`, and `%o`.
    ///
    /// Errors: a sentence about the wrong part.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (mut bytes, mut offsets) = (Vec::new(), Vec::new());
        for (index, part) in text.trim().split("%o").enumerate() {
            if index > 0 {
                offsets.push(bytes.len());
                bytes.extend([0; 8]);
            }
            if !part.is_empty() {
                bytes.extend(parse_pattern(part)?);
            }
        }
        match bytes.len() {
            0 => Err("the pattern has no byte; write \"text\", 0xdeadface or %o".into()),
            1..=512 => Ok(Self { bytes, offsets }),
            more => Err(format!(
                "the pattern has {more} bytes, and the limit is 512"
            )),
        }
    }

    /// The pattern in hexadecimal form, as fio reads it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut hexadecimal = false;
        let mut at = 0;
        while at < self.bytes.len() {
            if self.offsets.contains(&at) {
                text += "%o";
                (at, hexadecimal) = (at + 8, false);
                continue;
            }
            text += if hexadecimal { "" } else { "0x" };
            text += &format!("{:02x}", self.bytes[at]);
            (at, hexadecimal) = (at + 1, true);
        }
        text
    }

    /// Sets the offset of the request.
    fn set(&mut self, offset: u64) {
        for at in &self.offsets {
            self.bytes[*at..at + 8].copy_from_slice(&offset.to_le_bytes());
        }
    }

    /// Fills the request at `offset`.
    pub(super) fn fill(&mut self, offset: u64, request: &mut [u8]) {
        self.set(offset);
        for part in request.chunks_mut(self.bytes.len()) {
            part.copy_from_slice(&self.bytes[..part.len()]);
        }
    }

    /// Compares a part of the request at `offset`. `from` is the part's position in the request.
    /// The error is the first wrong byte.
    pub(super) fn check(&mut self, offset: u64, from: usize, part: &[u8]) -> Result<(), Found> {
        self.set(offset);
        let expected = self.bytes.iter().cycle().skip(from % self.bytes.len());
        let wrong = part
            .iter()
            .zip(expected)
            .position(|(found, expected)| found != expected);
        wrong.map_or(Ok(()), |at| {
            Err(Found::Byte {
                at: from + at,
                found: part[at],
                expected: self.bytes[(from + at) % self.bytes.len()],
            })
        })
    }
}

#[cfg(test)]
mod tests;

//! The options of a job's verification with fio's names, and their checks.

use super::block::{HEADER_BYTES, Pattern};
use super::checksum::Checksum;

/// Verification of a job's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// What is written and compared (`verify`).
    pub method: Method,
    /// Distance of two headers in bytes (`verify_interval`). 0: one header per request.
    pub interval: u32,
    /// Offset of the header in its block in bytes (`verify_offset`).
    pub offset: u32,
    /// Contents of the blocks (`verify_pattern`). None: random data.
    pub pattern: Option<Pattern>,
    /// Whether written blocks are read back after the load, or after each pass of `loops`
    /// (`do_verify`).
    pub read_back: bool,
    /// Whether the first wrong block ends the job (`verify_fatal`).
    pub fatal: bool,
    /// Number of written requests after which some are read back (`verify_backlog`). 0: none are
    /// before the end.
    pub backlog: u32,
    /// Number of requests that are read back then (`verify_backlog_batch`). 0: all.
    pub backlog_batch: u32,
}

/// What is written and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A header with the block's address, and a checksum.
    Header(Checksum),
    /// The pattern alone, without a header (`verify=pattern`).
    Pattern,
    /// Nothing: blocks are read back and not compared (`verify=null`).
    Null,
}

impl Default for Verify {
    /// fio's defaults, with CRC32C.
    fn default() -> Self {
        Self {
            method: Method::Header(Checksum::Crc32c),
            interval: 0,
            offset: 0,
            pattern: None,
            read_back: true,
            fatal: false,
            backlog: 0,
            backlog_batch: 0,
        }
    }
}

impl Method {
    /// Parses a value of fio's `verify` that is not `none`.
    ///
    /// Errors: a sentence that lists the known words.
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "pattern" => Ok(Self::Pattern),
            "null" => Ok(Self::Null),
            name => Checksum::parse(name).map(Self::Header).ok_or_else(|| {
                format!(
                    "verify={name} is not known; there are crc32c, md5, crc64, crc32, crc16, crc7, sha1, sha256, \
                     sha512, sha3-224, sha3-256, sha3-384, sha3-512, xxhash, meta, pattern and null"
                )
            }),
        }
    }

    /// fio's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Header(checksum) => checksum.name(),
            Self::Pattern => "pattern",
            Self::Null => "null",
        }
    }
}

impl Verify {
    /// Headers in the blocks of a job with requests of `block_bytes`: one for each 4 KiB where that
    /// divides the request, so that a half-written request is described exactly.
    pub fn fine(block_bytes: u32) -> Self {
        let bits = block_bytes
            .trailing_zeros()
            .min(FINE_BYTES.trailing_zeros());
        Self {
            interval: 1 << bits,
            ..Self::default()
        }
    }

    /// Bytes per verified block for requests of `block_bytes`.
    pub fn interval(&self, block_bytes: u32) -> u32 {
        match (self.interval, self.method) {
            (0, _) | (_, Method::Pattern) => block_bytes,
            (interval, _) => interval,
        }
    }

    /// Checks the options for requests of `block_bytes`. The error is the end of a sentence about
    /// the job.
    pub(crate) fn check(&self, block_bytes: u32) -> Result<(), String> {
        let Method::Header(checksum) = self.method else {
            return match (self.method, &self.pattern) {
                (Method::Pattern, None) => {
                    Err("verify=pattern needs a pattern; write verify_pattern=0xdeadbeef".into())
                }
                _ => Ok(()),
            };
        };
        let interval = self.interval(block_bytes);
        if !block_bytes.is_multiple_of(interval) {
            return Err(format!(
                "verify_interval={interval} does not divide bs={block_bytes}"
            ));
        }
        let header = HEADER_BYTES + checksum.bytes();
        if interval as usize <= header {
            return Err(format!(
                "a block of {interval} bytes has no room for the header of verify={}, {header} bytes",
                checksum.name()
            ));
        }
        let offset = self.offset as usize;
        if offset != 0 && !(header..=interval as usize - header).contains(&offset) {
            return Err(format!(
                "verify_offset={offset} leaves no room for the header of verify={}; it is at least {header} and \
                 at most {}",
                checksum.name(),
                interval as usize - header
            ));
        }
        Ok(())
    }
}

/// Longest block with one header of [`Verify::fine`], in bytes: the usual page.
const FINE_BYTES: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_requests_carry_one_header_per_4_kib_and_small_ones_one_each() {
        let sizes = [512, 1024, 4096, 4608, 65536, 6144].map(|bytes| Verify::fine(bytes).interval);
        assert_eq!(sizes, [512, 1024, 4096, 512, 4096, 2048]);
    }

    #[test]
    fn impossible_options_are_refused() {
        let usual = Verify::default();
        assert_eq!(usual.check(4096), Ok(()));
        let refused = |options: Verify, part: &str| {
            let sentence = options.check(4096).expect_err(part);
            assert!(sentence.contains(part), "{sentence}");
        };
        refused(
            Verify {
                method: Method::Pattern,
                ..usual.clone()
            },
            "verify_pattern=",
        );
        refused(
            Verify {
                interval: 3000,
                ..usual.clone()
            },
            "does not divide bs=4096",
        );
        refused(
            Verify {
                interval: 32,
                ..usual.clone()
            },
            "no room for the header of verify=crc32c, 44 bytes",
        );
        refused(
            Verify {
                offset: 40,
                ..usual
            },
            "at least 44 and at most 4052",
        );
        assert!(Method::parse("md6").is_err());
    }
}

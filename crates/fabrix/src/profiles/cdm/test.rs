//! A test of CrystalDiskMark and its name.

use fabrix_block::spec::{Size, parse_size};

/// One row of a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(super) random: bool,
    pub(super) block_bytes: u32,
    pub(super) queues: u32,
    pub(super) threads: u32,
}

pub(super) const fn test(random: bool, kib: u32, queues: u32, threads: u32) -> Test {
    Test {
        random,
        block_bytes: kib << 10,
        queues,
        threads,
    }
}

impl Test {
    /// Parses a test like `SEQ1M-Q8T1` or `RND4KQ32T16`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let upper = text.to_ascii_uppercase();
        let parts = || {
            let (random, rest) = match upper.strip_prefix("SEQ") {
                Some(rest) => (false, rest),
                None => (true, upper.strip_prefix("RND")?),
            };
            let (size, rest) = rest.split_once('Q')?;
            let (queues, threads) = rest.split_once('T')?;
            Some(Self {
                random,
                block_bytes: parse_size(size.trim_end_matches([' ', '-', '_']))
                    .ok()?
                    .try_into()
                    .ok()?,
                queues: queues.parse().ok()?,
                threads: threads.parse().ok()?,
            })
        };
        parts().ok_or_else(|| format!("`{text}` is not a test; write SEQ1M-Q8T1 or RND4K-Q32T16"))
    }

    /// Name like `SEQ1M Q8T1`.
    pub(super) fn name(self) -> String {
        let kind = if self.random { "RND" } else { "SEQ" };
        let size = Size(self.block_bytes.into()).to_string().to_uppercase();
        format!("{kind}{size} Q{}T{}", self.queues, self.threads)
    }
}

//! Arguments of `bench URI` for the contents of writes: fio's options for buffers.

use clap::Args;
use fabrix_bench::contents::{Base, Contents, parse_pattern};

use crate::args::values::parse_bytes;

/// Contents of writes.
#[derive(Args)]
pub(crate) struct ContentsArgs {
    /// Write zeroes [default: random data, a part of it new in every sector of each write]
    #[arg(long, alias = "zero_buffers", conflicts_with_all = ["refill_buffers", "buffer_pattern"])]
    zero_buffers: bool,
    /// Write new random data each time
    #[arg(long, alias = "refill_buffers", conflicts_with = "buffer_pattern")]
    refill_buffers: bool,
    /// Change a part of every sector for each write: 1 or 0 [default: 1, and 0 with zeroes or a
    /// pattern]
    #[arg(long, alias = "scramble_buffers", value_name = "0|1", value_parser = clap::value_parser!(u8).range(0..=1))]
    scramble_buffers: Option<u8>,
    /// Write a repeated pattern: "text", 0xdeadface, a number, or several of these
    #[arg(long, alias = "buffer_pattern", value_name = "PATTERN", value_parser = pattern)]
    #[arg(allow_hyphen_values = true)]
    buffer_pattern: Option<Pattern>,
    /// How much of each write is zeroes or the pattern, so that it compresses
    #[arg(
        long,
        alias = "buffer_compress_percentage",
        value_name = "PERCENT",
        default_value_t = 0
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    buffer_compress_percentage: u32,
    /// Length of the pieces of a write that have both, random data and zeroes; 0: the write's
    #[arg(
        long,
        alias = "buffer_compress_chunk",
        value_name = "SIZE",
        default_value = "512"
    )]
    #[arg(value_parser = parse_bytes)]
    buffer_compress_chunk: u64,
    /// How many of the written blocks repeat the block before, in percent
    #[arg(
        long,
        alias = "dedupe_percentage",
        value_name = "PERCENT",
        default_value_t = 0
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=100))]
    dedupe_percentage: u32,
}

/// Bytes of a pattern. A type of its own, because clap takes a list of bytes for several values.
#[derive(Clone)]
struct Pattern(Vec<u8>);

impl ContentsArgs {
    /// The contents for which the arguments ask.
    pub(crate) fn contents(&self) -> Contents {
        let base = match &self.buffer_pattern {
            Some(Pattern(bytes)) => Base::Pattern(bytes.clone()),
            None if self.zero_buffers => Base::Zeroes,
            None => Base::Random,
        };
        Contents {
            base,
            scramble: self.scramble_buffers.map(|scramble| scramble == 1),
            refill: self.refill_buffers.then_some(true),
            compress_percent: self.buffer_compress_percentage,
            // A chunk ends with its block, so that a longer one has the same effect.
            compress_chunk: u32::try_from(self.buffer_compress_chunk).unwrap_or(u32::MAX),
            dedupe_percent: self.dedupe_percentage,
        }
    }
}

fn pattern(text: &str) -> Result<Pattern, String> {
    parse_pattern(text).map(Pattern)
}

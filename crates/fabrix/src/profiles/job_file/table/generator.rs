//! Keys of the generator: random addresses, and contents of writes.

use fabrix_bench::contents::{Base, parse_pattern};
use fabrix_bench::job::Distribution;

use super::Key;
use crate::profiles::job_file::numbers::{percent, switch, whole, word};

pub(super) const KEYS: &[Key] = &[
    Key::honoured(
        &["random_distribution"],
        |section, value| {
            section.job.distribution = Distribution::parse(value)?;
            Ok(())
        },
        "random, zipf, pareto, normal, zoned, zoned_abs; the last two draw independently too",
    ),
    Key::honoured(
        &["bsrange", "blocksize_range"],
        |section, value| section.set_range(value),
        "",
    ),
    Key::honoured(
        &["ba", "blockalign"],
        |section, value| section.set_align(value),
        "for random addresses; sets `norandommap` if it differs from the shortest request, as in fio",
    ),
    Key::honoured(
        &["percentage_random"],
        |section, value| {
            let mut parts = value.split(',').map(|text| percent(text.trim()));
            let reads = parts.next().unwrap_or(Ok(100))?;
            let writes = parts.next().transpose()?.unwrap_or(reads);
            section.job.percent_random = [reads, writes];
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["norandommap"],
        |section, value| {
            section.job.random_map = !switch(value)?;
            Ok(())
        },
        "addresses are drawn independently, and not each once",
    ),
    Key::honoured(
        &["random_generator"],
        |_, value| {
            let words = ["tausworthe", "lfsr", "tausworthe64"].map(|name| (name, ()));
            word(value, &words)
        },
        "all name our one generator, which visits each block once as they do",
    ),
    Key::honoured(
        &["randseed"],
        |section, value| {
            section.seed = Some(match value.parse::<i64>() {
                Ok(number) if number < 0 => number.cast_unsigned(),
                _ => whole(value, 0, section.kilo)?,
            });
            Ok(())
        },
        "negative numbers count from 2^64 down",
    ),
    Key::honoured(
        &["randrepeat"],
        |section, value| {
            section.repeat = switch(value)?;
            Ok(())
        },
        "0: another seed in each run, which the results name",
    ),
    Key::honoured(
        &["allrandrepeat"],
        |section, value| {
            section.repeat_all = switch(value)?;
            Ok(())
        },
        "1: one seed in all runs, whatever `randrepeat` says",
    ),
    Key::honoured(
        &["zero_buffers"],
        |section, value| {
            let base = &mut section.job.contents.base;
            match (switch(value)?, &*base) {
                (true, Base::Random) => *base = Base::Zeroes,
                (false, Base::Zeroes) => *base = Base::Random,
                _ => {}
            }
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["buffer_pattern"],
        |section, value| {
            let contents = &mut section.job.contents;
            contents.base = Base::Pattern(parse_pattern(value)?);
            contents.scramble = Some(false);
            Ok(())
        },
        "text in double quotes, hexadecimal digits and numbers, not the name of a file; sets `scramble_buffers=0`",
    ),
    Key::honoured(
        &["scramble_buffers"],
        |section, value| {
            section.job.contents.scramble = Some(switch(value)?);
            Ok(())
        },
        "each write changes 8 bytes of each 512; 1 is the default for random contents",
    ),
    Key::honoured(
        &["refill_buffers"],
        |section, value| {
            section.job.contents.refill = Some(switch(value)?);
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["buffer_compress_percentage"],
        |section, value| {
            section.job.contents.compress_percent = percent(value)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["buffer_compress_chunk"],
        |section, value| {
            section.job.contents.compress_chunk = whole(value, 0, section.kilo)?;
            Ok(())
        },
        "512 is the default, 0 the whole block",
    ),
    Key::honoured(
        &["dedupe_percentage"],
        |section, value| {
            section.job.contents.dedupe_percent = percent(value)?;
            Ok(())
        },
        "blocks of the shortest write that repeat the block before",
    ),
];

//! Keys for the verification of blocks, and for failures.

use fabrix_bench::verify::Pattern;

use super::Key;
use crate::profiles::job_file::numbers::{size, switch, whole, word};

pub(super) const KEYS: &[Key] = &[
    Key::honoured(
        &["verify"],
        |section, value| section.set_verify(value),
        "the blocks are fio's (3.33), and either program reads what the other wrote; `rw=read` checks what an earlier \
         job wrote; wrong blocks are counted to the end and give exit code 5",
    ),
    Key::honoured(
        &["do_verify"],
        |section, value| {
            section.verify.read_back = switch(value)?;
            Ok(())
        },
        "0: written blocks are not read back",
    ),
    Key::honoured(
        &["verify_pattern"],
        |section, value| {
            section.verify.pattern = Some(Pattern::parse(value)?);
            Ok(())
        },
        "with `%o`; without `verify` the blocks have a header and the pattern, as in fio",
    ),
    Key::honoured(
        &["verify_interval"],
        |section, value| {
            section.verify.interval = whole_bytes(value, section.kilo)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["verify_offset"],
        |section, value| {
            section.verify.offset = whole_bytes(value, section.kilo)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["verify_fatal"],
        |section, value| {
            section.verify.fatal = switch(value)?;
            Ok(())
        },
        "1: the first wrong block ends the job",
    ),
    Key::honoured(
        &["verify_only"],
        |section, value| {
            section.verify_only = switch(value)?;
            Ok(())
        },
        "the job reads the blocks that it would write",
    ),
    Key::honoured(
        &["verify_backlog"],
        |section, value| {
            section.verify.backlog = whole(value, 0, section.kilo)?;
            Ok(())
        },
        "",
    ),
    Key::honoured(
        &["verify_backlog_batch"],
        |section, value| {
            section.verify.backlog_batch = whole(value, 0, section.kilo)?;
            Ok(())
        },
        "at most `verify_backlog`",
    ),
    Key::honoured(
        &["continue_on_error"],
        |section, value| {
            let words = [
                ("none", [false, false]),
                ("0", [false, false]),
                ("verify", [false, false]),
                ("read", [true, false]),
                ("write", [false, true]),
                ("io", [true, true]),
                ("all", [true, true]),
                ("1", [true, true]),
            ];
            section.job.continue_on_error = word(value, &words)?;
            Ok(())
        },
        "wrong blocks never end a job; `write` is for trims and flushes too; without a connection each request waits \
         10 ms before it is repeated",
    ),
];

/// A length within a request in bytes.
fn whole_bytes(value: &str, kilo: u64) -> Result<u32, String> {
    let bytes = size(value, kilo)?;
    u32::try_from(bytes).map_err(|_| format!("`{value}` is longer than a request"))
}

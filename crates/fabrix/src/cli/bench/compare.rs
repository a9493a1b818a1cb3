//! `fabrix bench compare`: compares two files of results.

use std::path::Path;
use std::process::ExitCode;

use super::args::CompareArgs;
use serde_json::json;

use crate::cli::terminal::show;
use crate::failure::{Failure, Kind};
use crate::report::compare::{Entry, compare, entries};
use crate::report::plain;
use crate::texts;

pub(crate) fn run(args: &CompareArgs) -> Result<ExitCode, Failure> {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let (table, worse) = compare(&before, &after, args.fail_over).map_err(Failure::usage)?;
    let text = || {
        format!(
            "A: {}\nB: {}\n\n{}",
            args.before.display(),
            args.after.display(),
            plain::table(&table)
        )
    };
    let json = || {
        let value = json!({
            "before": args.before,
            "after": args.after,
            "table": table,
            "worse": worse,
        });
        format!("{value:#}")
    };
    show(args.output, text, json)?;
    if worse.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(Kind::Regression, worse.join("; ")))
}

fn read(path: &Path) -> Result<Vec<Entry>, Failure> {
    let text = texts::read(path, LENGTH_MOST).map_err(Failure::usage_at(path))?;
    entries(&text).map_err(Failure::usage_at(path))
}

/// Largest file to be read, in bytes.
const LENGTH_MOST: u64 = 256 << 20;

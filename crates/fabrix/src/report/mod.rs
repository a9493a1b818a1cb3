//! Output of results: pure functions from the benchmark's values to text, JSON, CSV and HTML.
//!
//! These functions do not measure, read clocks or access files. The caller supplies the [`Context`]
//! and stores the output. The JSON of a run has fio's keys, so programs for fio's output can read
//! it.

pub(crate) mod compare;
pub(crate) mod figure;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod log;
pub(crate) mod matrix;
pub(crate) mod normal;
pub(crate) mod page;
pub(crate) mod plain;
pub(crate) mod sheet;
pub(crate) mod terse;
pub(crate) mod text;
pub(crate) mod views;

mod curves;
mod heat;
pub(crate) mod host;
pub(crate) mod number;
mod scale;
mod sides;
mod svg;

#[cfg(test)]
mod gallery;
#[cfg(test)]
pub(crate) mod sample;

use crate::args::given;
use crate::cli::terminal::quoted;
use crate::clock::since_1970;
use crate::secrets::shown;

/// Facts in a report besides the measurements.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    /// Version of the program, for example `0.1.0`.
    pub(crate) version: String,
    /// Start of the run in seconds since 1970-01-01 UTC.
    pub(crate) timestamp: u64,
    /// The command line, in a form that can be executed again.
    pub(crate) command: String,
    /// Facts about the machine: names and values in display order.
    pub(crate) facts: Vec<(String, String)>,
}

/// The current facts about this program and machine.
pub(crate) fn context() -> Context {
    let words = shown(given());
    let words = words.iter().map(|word| quoted(&word.to_string_lossy()));
    let command = words.collect::<Vec<_>>().join(" ");
    Context {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        timestamp: since_1970().as_secs(),
        command,
        facts: host::facts(),
    }
}

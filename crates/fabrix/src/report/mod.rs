//! Results written down: pure functions from the benchmark's values to text, JSON, CSV and HTML.
//!
//! Nothing here measures, reads a clock or touches a file; the caller brings the [`Context`] and
//! stores what it gets. The JSON of a run has fio's keys, so that what reads fio's reads ours.

pub(crate) mod compare;
pub(crate) mod figure;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod log;
pub(crate) mod matrix;
pub(crate) mod page;
pub(crate) mod plain;
pub(crate) mod sheet;
pub(crate) mod text;
pub(crate) mod views;

mod curves;
mod heat;
pub(crate) mod host;
mod number;
mod scale;
mod sides;
mod svg;

#[cfg(test)]
mod gallery;
#[cfg(test)]
pub(crate) mod sample;

use crate::args::given;
use crate::cli::terminal::quoted;
use crate::secrets::shown;

/// What a report says besides the figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Context {
    /// The program's version, for example `0.1.0`.
    pub(crate) version: String,
    /// When the run began: seconds since 1970-01-01 UTC.
    pub(crate) timestamp: u64,
    /// The command that was typed, as it can be typed again.
    pub(crate) command: String,
    /// The machine: names and values, in the order in which they are shown.
    pub(crate) facts: Vec<(String, String)>,
}

/// What can be said of this program and this machine, now.
pub(crate) fn context() -> Context {
    let timestamp = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let words = shown(given());
    let words = words.iter().map(|word| quoted(&word.to_string_lossy()));
    let command = words.collect::<Vec<_>>().join(" ");
    Context {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        timestamp,
        command,
        facts: host::facts(),
    }
}

//! The forms in which results are printed.

use crate::args::values::Format;

/// A form of the results, in the order in which several are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// fio's terse lines.
    Terse,
    /// JSON of fio's shape.
    Json,
    /// The same with all latencies (fio's json+).
    JsonPlus,
    /// The text that fio prints.
    Normal,
    /// Our text.
    Text,
}

impl From<Format> for Form {
    fn from(format: Format) -> Self {
        match format {
            Format::Text => Self::Text,
            Format::Json => Self::Json,
        }
    }
}

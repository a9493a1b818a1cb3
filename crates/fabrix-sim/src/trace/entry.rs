//! Something that happened in a world: a line of JSON, and a sentence.

use std::fmt::{self, Write as _};
use std::ops::Range;

use fabrix_block::Status;
use fabrix_rt::Nanos;

use super::CHECKER;

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub(super) at: Nanos,
    pub(super) who: String,
    pub(super) what: String,
    /// Number of the request at its host.
    pub(super) request: Option<u64>,
    pub(super) blocks: Option<Range<u64>>,
    /// Numbers of writes: those that it writes, expects or reads.
    pub(super) values: Vec<u64>,
    pub(super) status: Option<Status>,
    /// Number of a planned fault.
    pub(super) fault: Option<u64>,
}

impl Entry {
    /// `what` has happened to `who`, or was done by it. Both are ASCII.
    pub(crate) fn new(who: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            who: who.into(),
            what: what.into(),
            ..Self::default()
        }
    }

    /// Adds the number of the request at its host.
    pub(crate) fn request(mut self, number: u64) -> Self {
        self.request = Some(number);
        self
    }

    /// Adds the blocks that it concerns. An empty range: it is a flush, which concerns all of them.
    pub(crate) fn blocks(mut self, blocks: Range<u64>) -> Self {
        self.blocks = Some(blocks);
        self
    }

    /// Adds numbers of writes.
    pub(crate) fn values(mut self, values: &[u64]) -> Self {
        self.values = values.to_vec();
        self
    }

    /// Adds how it ended.
    pub(crate) fn status(mut self, status: Status) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds the number of the planned fault.
    pub(crate) fn fault(mut self, number: u64) -> Self {
        self.fault = Some(number);
        self
    }

    /// A JSON object on one line.
    pub(super) fn json(&self) -> String {
        // What Rust quotes and escapes in ASCII is JSON.
        let mut line = format!(
            "{{\"ns\":{},\"who\":{:?},\"what\":{:?}",
            self.at.0, self.who, self.what
        );
        let mut add = |name: &str, value: &dyn fmt::Debug| {
            let _ = write!(line, ",\"{name}\":{value:?}");
        };
        if let Some(request) = &self.request {
            add("request", request);
        }
        if let Some(blocks) = self.blocks.as_ref().filter(|blocks| !blocks.is_empty()) {
            add("lba", &blocks.start);
            add("blocks", &(blocks.end - blocks.start));
        }
        if !self.values.is_empty() {
            add("values", &self.values);
        }
        if let Some(status) = self.status {
            add("status", &format!("{status:?}"));
        }
        if let Some(number) = self.fault {
            add("fault", &number);
        }
        line + "}"
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.at.0 / 1_000_000_000, self.at.0 % 1_000_000_000);
        write!(f, "{seconds}.{:06} s  ", rest / 1_000)?;
        if let Some(number) = self.fault {
            write!(f, "fault {number}: ")?;
        }
        write!(f, "{} {}", self.who, self.what)?;
        if let Some(number) = self.request {
            write!(f, " ({number})")?;
        }
        match &self.blocks {
            Some(_) if self.who == CHECKER => {}
            Some(blocks) if blocks.end == blocks.start + 1 => {
                write!(f, ", block {}", blocks.start)?
            }
            Some(blocks) if !blocks.is_empty() => {
                write!(f, ", blocks {} to {}", blocks.start, blocks.end - 1)?;
            }
            _ => {}
        }
        if !self.values.is_empty() {
            write!(f, ", values {:?}", self.values)?;
        }
        match self.status {
            Some(status) => write!(f, ": {status:?}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_line_of_json_and_a_sentence() {
        let entry = Entry {
            at: Nanos(2_000_000_000),
            ..Entry::new("host 10.1.0.4", "ends the \"read\"")
        };
        let entry = entry.request(6).blocks(3..5).values(&[7, 0]);
        let entry = entry.status(Status::Ok);
        assert_eq!(
            entry.json(),
            "{\"ns\":2000000000,\"who\":\"host 10.1.0.4\",\"what\":\"ends the \\\"read\\\"\",\
             \"request\":6,\"lba\":3,\"blocks\":2,\"values\":[7, 0],\"status\":\"Ok\"}"
        );
        assert_eq!(
            entry.to_string(),
            "2.000000 s  host 10.1.0.4 ends the \"read\" (6), blocks 3 to 4, values [7, 0]: Ok"
        );
    }

    #[test]
    fn a_flush_names_no_blocks() {
        let entry = Entry::new("disk", "carries out a flush").blocks(0..0);
        assert_eq!(
            entry.json(),
            "{\"ns\":0,\"who\":\"disk\",\"what\":\"carries out a flush\"}"
        );
        assert_eq!(entry.to_string(), "0.000000 s  disk carries out a flush");
    }
}

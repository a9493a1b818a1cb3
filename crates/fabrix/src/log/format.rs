//! Formats of log lines: for people, for the journal, and for programs. Nothing is written here.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use super::{Level, Line};
use crate::report::number::date_and_time;

/// Values of `--log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Time, level and sentence.
    Text,
    /// Priority and sentence: the journal has a time of its own.
    Journald,
    /// One object a line.
    Json,
}

/// Current style of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// A plain sentence for the user at the terminal.
    Plain,
    Log(LogFormat),
}

impl Style {
    /// The requested format, or the one that fits standard error.
    pub(super) fn of(format: Option<LogFormat>) -> Self {
        let fitting = || match is_journal() {
            true => LogFormat::Journald,
            false => LogFormat::Text,
        };
        Self::Log(format.unwrap_or_else(fitting))
    }

    /// Style of sentences before the log starts.
    pub(super) fn before_the_log() -> Self {
        match is_journal() {
            true => Self::Log(LogFormat::Journald),
            false => Self::Plain,
        }
    }

    /// The line as text, with its newline.
    pub(super) fn render(self, line: &Line, time: SystemTime) -> String {
        let message = &line.message;
        match self {
            Self::Plain => format!("fabrix: {message}\n"),
            Self::Log(LogFormat::Text) => {
                let word = line.level.word();
                format!("{} {word:<7} {}\n", rfc3339(time), one_line(message))
            }
            Self::Log(LogFormat::Journald) => {
                format!("<{}>{}\n", line.level.priority(), one_line(message))
            }
            Self::Log(LogFormat::Json) => format!("{}\n", object(line, time)),
        }
    }
}

impl Level {
    fn word(self) -> &'static str {
        self.names().0
    }

    fn priority(self) -> u8 {
        self.names().1
    }

    /// The word, and the syslog priority. Source: sd-daemon(3), and the levels of syslog(3).
    fn names(self) -> (&'static str, u8) {
        match self {
            Self::Error => ("error", 3),
            Self::Warning => ("warning", 4),
            Self::Info => ("info", 6),
        }
    }
}

fn object(line: &Line, time: SystemTime) -> Value {
    let mut all = Map::new();
    all.insert("time".to_owned(), json!(rfc3339(time)));
    all.insert("level".to_owned(), json!(line.level.word()));
    all.insert("message".to_owned(), json!(line.message));
    let known = line.fields.iter().filter(|(_, value)| !value.is_null());
    for (name, value) in known {
        all.insert((*name).to_owned(), value.clone());
    }
    Value::Object(all)
}

/// Escapes control characters, so that a sentence cannot look like another line.
fn one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len());
    for char in message.chars() {
        match char.is_control() {
            true => line.extend(char.escape_default()),
            false => line.push(char),
        }
    }
    line
}

/// A time in UTC with milliseconds.
///
/// Source: RFC 3339, section 5.6 "Internet Date/Time Format".
fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    let [date, time] = date_and_time(since.as_secs());
    format!("{date}T{time}.{:03}Z", since.subsec_millis())
}

/// Whether standard error is the journal's socket. `JOURNAL_STREAM` holds its device and inode.
///
/// Source: systemd.exec(5), "Environment Variables Set or Propagated by the Service Manager".
fn is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let stderr = fs::metadata("/proc/self/fd/2");
    stderr.is_ok_and(|stderr| format!("{}:{}", stderr.dev(), stderr.ino()) == named)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64, ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(seconds * 1000 + ms)
    }

    fn check(style: Style, expected: &str) {
        let line = Line {
            level: Level::Error,
            message: "namespace 1: a read\nfailed".to_owned(),
            fields: vec![("nsid", json!(1))],
        };
        assert_eq!(style.render(&line, at(951_782_400, 42)), expected);
    }

    #[test]
    fn a_line_has_a_time_and_a_level_for_people() {
        let expected = "2000-02-29T00:00:00.042Z error   namespace 1: a read\\nfailed\n";
        check(Style::Log(LogFormat::Text), expected);
    }

    #[test]
    fn a_line_has_a_priority_for_the_journal() {
        let expected = "<3>namespace 1: a read\\nfailed\n";
        check(Style::Log(LogFormat::Journald), expected);
    }

    #[test]
    fn a_line_is_an_object_for_programs() {
        let expected = concat!(
            r#"{"time":"2000-02-29T00:00:00.042Z","level":"error","#,
            r#""message":"namespace 1: a read\nfailed","nsid":1}"#,
            "\n"
        );
        check(Style::Log(LogFormat::Json), expected);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let check = |seconds, expected| assert_eq!(rfc3339(at(seconds, 0)), expected);
        check(0, "1970-01-01T00:00:00.000Z");
        check(68_255_999, "1972-02-29T23:59:59.000Z");
        check(1_735_689_599, "2024-12-31T23:59:59.000Z");
        check(1_795_717_628, "2026-11-26T18:27:08.000Z");
        check(4_107_542_400, "2100-03-01T00:00:00.000Z");
        check(16_725_225_600, "2500-01-01T00:00:00.000Z");
    }
}

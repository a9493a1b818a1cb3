//! The log: lines on standard error with a time and a level, for the operator.
//!
//! Before [`begin`] a sentence goes to the user at the terminal: `fabrix: SENTENCE`. After it, a
//! writer thread writes log lines in one of three formats (`format`). Shards and other threads
//! never wait for the reader of standard error. Frequent events are logged once and then counted
//! (`tallies`).

mod format;
mod tallies;

use std::collections::VecDeque;
use std::fmt;
use std::io::{Write, stderr};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

pub(crate) use self::format::LogFormat;
use self::format::Style;
pub(crate) use self::tallies::Limit;
use self::tallies::Tallies;
use crate::locks::lock;

/// Severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// A failure that users of a disk notice.
    Error,
    /// An unexpected event that was handled.
    Warning,
    /// Information.
    Info,
}

/// A log line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) level: Level,
    /// Complete sentence.
    pub(crate) message: String,
    /// Values in the sentence as named fields, for programs.
    pub(crate) fields: Vec<(&'static str, Value)>,
}

impl Line {
    pub(crate) fn new(level: Level, message: impl fmt::Display) -> Self {
        Self {
            level,
            message: message.to_string(),
            fields: Vec::new(),
        }
    }
}

/// Starts the log: lines now have a time and a level. Without a `format`, the one that fits
/// standard error is used. Call it again after redirecting standard error.
pub(crate) fn begin(format: Option<LogFormat>) {
    let log = LOG.get_or_init(Log::default);
    let mut state = lock(&log.state);
    state.style = Some(Style::of(format));
    if !state.has_writer {
        let writer = thread::Builder::new().name("log".to_owned());
        // Without a writer thread, the calling thread writes.
        state.has_writer = writer.spawn(|| log.write()).is_ok();
    }
}

/// Logs a sentence.
pub(crate) fn say(level: Level, message: impl fmt::Display) {
    tell(Line::new(level, message));
}

/// Logs a failure that users of a disk notice.
pub(crate) fn error(message: impl fmt::Display) {
    say(Level::Error, message);
}

/// Logs an unexpected event that was handled.
pub(crate) fn warn(message: impl fmt::Display) {
    say(Level::Warning, message);
}

/// Logs a line.
pub(crate) fn tell(line: Line) {
    match LOG.get() {
        Some(log) => log.add(line),
        None => print(&Style::before_the_log().render(&line, SystemTime::now())),
    }
}

/// Logs a line that may come often. Lines within `limit` per `key` are logged at once. The others
/// are counted, and the count is logged at the end of the limit's period.
pub(crate) fn tell_often(key: &str, limit: Limit, line: impl FnOnce() -> Line) {
    let Some(log) = LOG.get() else {
        return tell(line());
    };
    let now = Instant::now();
    let admitted = lock(&log.state).tallies.admit(key, limit, now, line);
    // The writer wakes up for this line, and so also learns the end of the period.
    if let Some(line) = admitted {
        log.add(line);
    }
}

/// Logs all remaining lines and counts. The wait for the writer is bounded, so a reader that does
/// not read cannot block the end of the program.
pub(crate) fn finish() {
    let Some(log) = LOG.get() else {
        return;
    };
    let counts = lock(&log.state).tallies.rest();
    counts.into_iter().for_each(|line| log.add(line));
    let state = lock(&log.state);
    let waiting = log
        .changed
        .wait_timeout_while(state, FINISH_TIMEOUT, |state| state.is_busy());
    drop(waiting.unwrap_or_else(PoisonError::into_inner));
}

static LOG: OnceLock<Log> = OnceLock::new();

/// State shared by all threads.
#[derive(Default)]
struct Log {
    state: Mutex<State>,
    /// Signalled for new lines, for new counts, and when all lines are written.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    style: Option<Style>,
    /// Lines with their times.
    lines: VecDeque<(SystemTime, Line)>,
    /// Number of lines dropped because the queue was full.
    lost: u64,
    tallies: Tallies,
    has_writer: bool,
    /// Whether the writer has taken lines and not written all of them.
    is_writing: bool,
}

impl State {
    fn is_busy(&self) -> bool {
        self.has_writer && (self.is_writing || !self.lines.is_empty())
    }

    /// Takes all lines to be written now.
    fn take_batch(&mut self) -> Batch {
        let style = self.style.unwrap_or_else(Style::before_the_log);
        let mut lines = std::mem::take(&mut self.lines);
        if self.lost > 0 {
            let lost = std::mem::take(&mut self.lost);
            let sentence =
                format!("{lost} lines are missing here: standard error is read too slowly");
            let line = Line::new(Level::Warning, sentence);
            lines.push_back((SystemTime::now(), line));
        }
        Batch { style, lines }
    }
}

/// Lines to be written.
struct Batch {
    style: Style,
    lines: VecDeque<(SystemTime, Line)>,
}

impl Batch {
    fn write(&self) {
        let lines = self.lines.iter();
        let lines = lines.map(|(time, line)| self.style.render(line, *time));
        print(&lines.collect::<String>());
    }
}

impl Log {
    fn add(&self, line: Line) {
        let mut state = lock(&self.state);
        if state.lines.len() < LINES_MAX {
            state.lines.push_back((SystemTime::now(), line));
        } else {
            state.lost += 1;
        }
        if state.has_writer {
            self.changed.notify_all();
        } else {
            let batch = state.take_batch();
            drop(state);
            batch.write();
        }
    }

    /// Loop of the writer thread.
    fn write(&self) {
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            let time = SystemTime::now();
            let counts = state.tallies.due(now);
            state
                .lines
                .extend(counts.into_iter().map(|line| (time, line)));
            let batch = state.take_batch();
            if !batch.lines.is_empty() {
                state.is_writing = true;
                drop(state);
                batch.write();
                state = lock(&self.state);
                state.is_writing = false;
                self.changed.notify_all();
                continue;
            }
            let until = state.tallies.next_due();
            state = match until.map(|until| until.saturating_duration_since(now)) {
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

/// Writes to standard error. A failure is ignored: a missing reader must not end the program.
fn print(text: &str) {
    let _nobody_listens = stderr().lock().write_all(text.as_bytes());
}

/// Largest number of lines that wait for the writer.
const LINES_MAX: usize = 1024;
/// Time limit for the last lines at the end of the program.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

//! The log: what an operator should know, as lines on standard error with a time and a level.
//!
//! Until [`begin`] a sentence is for the person at the terminal: `fabrix: SENTENCE`. From then on
//! it is a line of the log, in one of three formats (`format`), and a thread of its own writes it:
//! whoever has something to say, a shard above all, never waits for the reader of standard error.
//! What may happen often is said once and then counted (`tallies`). Knows no subcommand.

mod format;
mod tallies;

use std::collections::VecDeque;
use std::fmt;
use std::io::{Write, stderr};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

pub(crate) use self::format::LogFormat;
use self::format::Style;
pub(crate) use self::tallies::Limit;
use self::tallies::Tallies;

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Something failed that users of a disk notice.
    Error,
    /// Something that should not happen, and that was handled.
    Warning,
    /// News.
    Info,
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) level: Level,
    /// A sentence that names everything.
    pub(crate) message: String,
    /// What the sentence names, for programs.
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

/// From now on lines have a time and a level. Without a `format` they have the one that fits
/// standard error: the journal's if it goes there. Called again after standard error was
/// redirected.
pub(crate) fn begin(format: Option<LogFormat>) {
    let log = LOG.get_or_init(Log::default);
    let mut state = log.lock();
    state.style = Some(Style::of(format));
    if !state.has_writer {
        let writer = thread::Builder::new().name("log".to_owned());
        // Without a thread whoever says something writes it.
        state.has_writer = writer.spawn(|| log.write()).is_ok();
    }
}

/// Says something.
pub(crate) fn say(level: Level, message: impl fmt::Display) {
    tell(Line::new(level, message));
}

/// Says that something failed that users of a disk notice.
pub(crate) fn error(message: impl fmt::Display) {
    say(Level::Error, message);
}

/// Says that something happened that should not, and was handled.
pub(crate) fn warn(message: impl fmt::Display) {
    say(Level::Warning, message);
}

/// Says a line.
pub(crate) fn tell(line: Line) {
    match LOG.get() {
        Some(log) => log.add(line),
        None => print(&Style::before_the_log().render(&line, SystemTime::now())),
    }
}

/// Says a line that may come often. What `key` and `limit` allow is said at once; the rest is
/// counted, and the count is said when the period of the limit is over.
pub(crate) fn tell_often(key: &str, limit: Limit, line: impl FnOnce() -> Line) {
    let Some(log) = LOG.get() else {
        return tell(line());
    };
    let now = Instant::now();
    let admitted = log.lock().tallies.admit(key, limit, now, line);
    // The writer wakes for the line, and with it learns when the period is over.
    if let Some(line) = admitted {
        log.add(line);
    }
}

/// Says what is still to be said, counts included. Waits for the writer, though not for ever: a
/// reader of standard error that does not read must not keep the program from its end.
pub(crate) fn finish() {
    let Some(log) = LOG.get() else {
        return;
    };
    let counts = log.lock().tallies.rest();
    counts.into_iter().for_each(|line| log.add(line));
    let state = log.lock();
    let waiting = log
        .news
        .wait_timeout_while(state, LAST_WORDS, |state| state.is_busy());
    drop(waiting.unwrap_or_else(PoisonError::into_inner));
}

static LOG: OnceLock<Log> = OnceLock::new();

/// What all threads share.
#[derive(Default)]
struct Log {
    state: Mutex<State>,
    /// Lines have come, counting has begun, or all lines have been written.
    news: Condvar,
}

#[derive(Default)]
struct State {
    style: Option<Style>,
    /// Lines with the time at which they were said.
    lines: VecDeque<(SystemTime, Line)>,
    /// Lines for which there was no room.
    lost: u64,
    tallies: Tallies,
    has_writer: bool,
    /// The writer has taken lines and not written all of them.
    is_writing: bool,
}

impl State {
    fn is_busy(&self) -> bool {
        self.has_writer && (self.is_writing || !self.lines.is_empty())
    }

    /// Takes everything that is to be written now.
    fn take(&mut self) -> Taken {
        let style = self.style.unwrap_or_else(Style::before_the_log);
        let mut lines = std::mem::take(&mut self.lines);
        if self.lost > 0 {
            let lost = std::mem::take(&mut self.lost);
            let sentence =
                format!("{lost} lines are missing here: standard error is read too slowly");
            let line = Line::new(Level::Warning, sentence);
            lines.push_back((SystemTime::now(), line));
        }
        Taken { style, lines }
    }
}

/// Lines that are to be written.
struct Taken {
    style: Style,
    lines: VecDeque<(SystemTime, Line)>,
}

impl Taken {
    fn write(&self) {
        let lines = self.lines.iter();
        let lines = lines.map(|(time, line)| self.style.render(line, *time));
        print(&lines.collect::<String>());
    }
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is one step: a thread that panicked has left it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, line: Line) {
        let mut state = self.lock();
        if state.lines.len() < LINES_MAX {
            state.lines.push_back((SystemTime::now(), line));
        } else {
            state.lost += 1;
        }
        if state.has_writer {
            self.news.notify_all();
        } else {
            let taken = state.take();
            drop(state);
            taken.write();
        }
    }

    /// The writer's life.
    fn write(&self) {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let time = SystemTime::now();
            let counts = state.tallies.due(now);
            state
                .lines
                .extend(counts.into_iter().map(|line| (time, line)));
            let taken = state.take();
            if !taken.lines.is_empty() {
                state.is_writing = true;
                drop(state);
                taken.write();
                state = self.lock();
                state.is_writing = false;
                self.news.notify_all();
                continue;
            }
            let until = state.tallies.next_due();
            state = match until.map(|until| until.saturating_duration_since(now)) {
                Some(left) => {
                    let waited = self.news.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.news.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

/// Without anybody to hear it a line is dropped: nothing must end because of that.
fn print(text: &str) {
    let _nobody_listens = stderr().lock().write_all(text.as_bytes());
}

/// Lines that wait for the writer.
const LINES_MAX: usize = 1024;
/// How long the end waits for the writer.
const LAST_WORDS: Duration = Duration::from_secs(1);

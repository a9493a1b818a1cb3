//! Results written down: pure functions from the benchmark's values to text, JSON, CSV and HTML.
//!
//! Nothing here measures, reads a clock or touches a file; the caller brings the [`Context`] and stores what it
//! gets. The JSON of a run has fio's keys, so that what reads fio's reads ours.

pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod matrix;
pub(crate) mod text;

mod number;
mod svg;

#[cfg(test)]
mod sample;

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
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| (name.to_owned(), value)));
    };
    fact("processor", line_after("/proc/cpuinfo", "model name"));
    fact(
        "processors used",
        Some(fabrix_rt::topology::cpus().len().to_string()),
    );
    fact("memory", line_after("/proc/meminfo", "MemTotal"));
    fact(
        "kernel",
        std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .ok()
            .map(|text| text.trim().to_owned()),
    );
    let engine = match fabrix_rt::engine::probe() {
        Ok(_) => "io_uring".to_owned(),
        Err(refused) => format!("epoll ({})", refused.found),
    };
    fact("engine", Some(engine));
    Context {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        timestamp,
        command,
        facts,
    }
}

/// What stands after the colon of the first line that begins with `key`.
fn line_after(path: &str, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_once(':')
        .map(|(_, value)| value.trim().to_owned())
}

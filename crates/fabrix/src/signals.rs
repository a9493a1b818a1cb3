//! Signals that end the program in an orderly way, and signals that a service ignores.

use std::fs;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::cli::terminal::say;
use crate::failure::Failure;

/// The signals that end a command in the foreground: those of the keyboard and of `kill`, and
/// SIGHUP. A command started with `nohup` keeps ignoring SIGHUP.
pub(crate) fn of_a_command() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !ignores(&status, SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// Calls `tell` for each signal that ends a command, until it returns false.
pub(crate) fn end_a_command(tell: impl FnMut(i32) -> bool + Send + 'static) -> Result<(), Failure> {
    hear(of_a_command(), tell)
}

/// Calls `tell` for SIGINT and SIGTERM, which end a service, until it returns false. Other common
/// signals change nothing. SIGHUP would reload a configuration, but there is none. SIGXFSZ is
/// ignored, so that a write beyond the file size limit fails with EFBIG.
pub(crate) fn end_a_service(
    mut tell: impl FnMut(i32) -> bool + Send + 'static,
) -> Result<(), Failure> {
    let signals = vec![SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXFSZ];
    hear(signals, move |signal| match signal {
        SIGINT | SIGTERM => tell(signal),
        SIGHUP => {
            say(
                "SIGHUP changes nothing: there is no configuration to read again; SIGTERM ends this process",
            );
            true
        }
        _ => true,
    })
}

/// Receives signals on a new thread, as long as `hears` returns true.
fn hear(
    signals: Vec<i32>,
    mut hears: impl FnMut(i32) -> bool + Send + 'static,
) -> Result<(), Failure> {
    let mut signals = Signals::new(signals)
        .map_err(|error| Failure::io(format!("cannot wait for signals: {error}")))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if !hears(signal) {
                break;
            }
        }
    });
    Ok(())
}

/// Whether a process ignores a signal. `status` is the text of /proc/PID/status, see
/// proc_pid_status(5).
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_up_that_nohup_has_taken_away_is_ignored() {
        let nohup = "Name:\tfabrix\nSigIgn:\t0000000000001001\n";
        assert!(ignores(nohup, SIGHUP));
        assert!(!ignores(nohup, SIGINT));
        assert!(!ignores(
            "Name:\tfabrix\nSigIgn:\t0000000000001000\n",
            SIGHUP
        ));
        assert!(!ignores("", SIGHUP));
    }
}

//! An attempt at a world: one run, what it brought, and what happened in it. A panic in a world is
//! a fault of the world.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

use crate::report::Report;
use crate::run::{Cut, Run, Source};
use crate::trace::{self, Record};
use crate::worlds::Kind;

/// What a run brought.
#[derive(Debug)]
pub struct Attempt {
    /// What the world reports. After a panic it holds nothing else.
    pub report: Report,
    /// What happened, if it was recorded.
    pub record: Record,
}

thread_local! {
    /// What a panic of the world of this thread said. None: no world runs.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs a world once.
pub fn attempt(kind: &Kind, source: &Source, cut: &Cut, recorded: bool) -> Attempt {
    static HOOK: Once = Once::new();
    HOOK.call_once(hook_panics);
    if recorded {
        trace::start();
    }
    PANIC.set(Some(String::new()));
    let ran = panic::catch_unwind(AssertUnwindSafe(|| (kind.run)(&Run::new(source, cut))));
    let said = PANIC.take().unwrap_or_default();
    Attempt {
        report: ran.unwrap_or_else(|_| Report {
            faults: vec![said],
            ..Report::default()
        }),
        record: trace::take(),
    }
}

/// From now on a panic in a world is kept and not printed: worlds run again and again.
fn hook_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let in_a_world = PANIC.with_borrow_mut(|said| match said {
            Some(said) => {
                *said = words(info);
                true
            }
            None => false,
        });
        if !in_a_world {
            before(info);
        }
    }));
}

fn words(info: &PanicHookInfo<'_>) -> String {
    let said = info.to_string().replacen(":\n", ": ", 1);
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => format!("the world {said}\n{backtrace}"),
        _ => format!("the world {said}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worlds;

    #[test]
    fn a_recorded_run_is_the_same_run() {
        for seed in 0..60 {
            let kind = worlds::find("all", seed).expect("a world");
            let [plain, recorded] = [false, true]
                .map(|recorded| attempt(kind, &Source::Seed(seed), &Cut::default(), recorded));
            assert_eq!(plain.report.digest, recorded.report.digest);
            assert!(plain.record.entries.is_empty() && !recorded.record.entries.is_empty());
        }
    }

    #[test]
    fn a_panic_is_a_fault_and_leaves_the_record() {
        let run = |_: &Run| -> Report {
            trace::note(|| trace::Entry::new("a host", "acts"));
            panic!("no room for {}", 5)
        };
        let kind = Kind { name: "test", run };
        let ran = attempt(&kind, &Source::Seed(1), &Cut::default(), true);
        assert!(ran.report.faults[0].contains("no room for 5"));
        assert_eq!(ran.record.entries.len(), 1);
    }

    #[test]
    fn wireshark_reads_the_capture() {
        let kind = worlds::find("both", 0).expect("a world");
        let ran = attempt(kind, &Source::Seed(7), &Cut::default(), true);
        let path = std::env::temp_dir().join(format!("fabrix-sim-{}.pcap", std::process::id()));
        std::fs::write(&path, ran.record.capture()).expect("a file");
        let mut tshark = std::process::Command::new("tshark");
        tshark.arg("-r").arg(&path);
        let output = tshark
            .args(["-T", "fields", "-e", "frame.protocols"])
            .output();
        std::fs::remove_file(&path).expect("the file");
        let Ok(output) = output else {
            println!("SKIPPED: wireshark_reads_the_capture: tshark is not installed");
            return;
        };
        let text = String::from_utf8(output.stdout).expect("names of protocols");
        let count = |name| text.lines().filter(|line| line.contains(name)).count();
        assert!(count(":nvme-tcp") > 100 && count(":iscsi") > 50, "{text}");
        assert_eq!(count("malformed"), 0);
    }
}

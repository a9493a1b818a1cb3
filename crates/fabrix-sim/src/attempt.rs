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

//! Interrupts of a command that measures: the first one ends the run and keeps its results, the
//! second one ends the program. While nothing is measured yet and a target may be silent, the first
//! one ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::flag::{register, register_conditional_shutdown};

use crate::failure::Failure;
use crate::signals::of_a_command;

/// A flag that the first interrupt sets. The results until then are printed.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    end_program_while(&stop)?;
    for signal in of_a_command() {
        register(signal, Arc::clone(&stop)).map_err(|error| cannot_wait(&error))?;
    }
    Ok(stop)
}

/// Whether an interrupt ends the program at once.
#[derive(Clone, Debug)]
pub(super) struct AtOnce(Arc<AtomicBool>);

impl AtOnce {
    pub(super) fn begin() -> Result<Self, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        end_program_while(&flag)?;
        Ok(Self(flag))
    }

    /// An interrupt ends the program at once while `run` runs.
    pub(super) fn during<T>(&self, run: impl FnOnce() -> T) -> T {
        self.0.store(true, Ordering::SeqCst);
        let result = run();
        self.0.store(false, Ordering::SeqCst);
        result
    }
}

/// An interrupt ends the program with 130 while the flag is set.
fn end_program_while(flag: &Arc<AtomicBool>) -> Result<(), Failure> {
    for signal in of_a_command() {
        register_conditional_shutdown(signal, 130, Arc::clone(flag))
            .map_err(|error| cannot_wait(&error))?;
    }
    Ok(())
}

fn cannot_wait(error: &std::io::Error) -> Failure {
    Failure::io(format!("cannot wait for signals: {error}"))
}

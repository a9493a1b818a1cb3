//! Locks that outlive the panic of a thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. Poisoning is ignored: every change under a lock of this program is one step, or
/// follows after everything that can fail, so a panicked thread leaves a consistent value.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! One way to lock: a panic in another thread must not take the endpoint down with it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also where a thread panicked while it held the lock: every state here is consistent
/// between statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A flag by which one thread takes back work that another is doing.
//!
//! Long calls look at it once per tile, so that they end within microseconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::error::CoreError;

/// Set once, never reset; clones share one flag.
#[derive(Clone, Debug, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// Makes a flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the work back.
    pub fn cancel(&self) {
        // Relaxed: the flag carries no other data.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Says whether the work was taken back.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Ends the work when it was taken back.
    ///
    /// # Errors
    /// [`CoreError::Cancelled`] when the flag is set.
    pub fn check(&self) -> Result<(), CoreError> {
        if self.is_cancelled() {
            Err(CoreError::Cancelled)
        } else {
            Ok(())
        }
    }
}

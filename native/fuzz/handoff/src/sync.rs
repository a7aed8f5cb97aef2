//! As the module of this name in the library, of loom.

use std::time::Duration;

pub(super) use loom::sync::Arc;
pub(super) use loom::sync::atomic::{AtomicU8, Ordering};
pub(super) use loom::thread::{Thread, park};

/// As that of parking_lot: no poison.
pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(super) fn new(value: T) -> Self {
        Mutex(loom::sync::Mutex::new(value))
    }

    pub(super) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("no poison")
    }
}

/// Without a clock: no time is over at once, any other never.
pub(super) fn park_timeout(left: Duration) {
    if left.is_zero() { loom::thread::yield_now() } else { park() }
}

//! Wakes one thread. Rule: a wake is never lost, also one that comes before the wait; two may count
//! as one. All goes through one atomic, so that nothing depends on the order of two.

use super::sync::{AtomicU8, Ordering, Thread, park};

/// What a thread waits for.
pub(super) struct Signal {
    thread: Thread,
    state: AtomicU8,
}

/// No wake came.
const QUIET: u8 = 0;
/// A wake came.
const SET: u8 = 1;
/// The thread is parked, or about to be.
const PARKED: u8 = 2;

impl Signal {
    /// A signal for `thread`, which alone waits for it.
    pub(super) fn new(thread: Thread) -> Self {
        Signal { thread, state: AtomicU8::new(QUIET) }
    }

    /// True when a wake came, which counts as taken then. By the thread that waits.
    pub(super) fn take(&self) -> bool {
        self.state.swap(QUIET, Ordering::AcqRel) == SET
    }

    /// Returns once a wake came.
    pub(super) fn wait(&self) {
        while !self.take() {
            let state = &self.state;
            if state.compare_exchange(QUIET, PARKED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                park();
            }
        }
    }

    pub(super) fn wake(&self) {
        if self.state.swap(SET, Ordering::AcqRel) == PARKED {
            self.thread.unpark();
        }
    }
}

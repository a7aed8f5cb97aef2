//! Runners poll guests.
//!
//! - `thread`: on OS threads of a cache.
//! - `nap`: how the process sleeps that polls in NIF calls.
//! - `seat`, `signal`: how a parked thread gets work, and wakes. With `nap` they take all that threads
//!   share from `sync`, so that a model checker can run them (native/fuzz/handoff).

mod nap;
mod seat;
mod signal;
mod sync;
pub mod thread;

pub use nap::Nap;

use std::sync::OnceLock;

use crate::options::Runner;
use crate::ticker;

/// True when a processor is left beside those that run guests and that of the caller, who polls in a
/// slice, and has just done with a guest of this runner.
pub(crate) fn processor_is_free(runner: Runner) -> bool {
    // The next guest runs where this one did: on a thread, or on the caller's scheduler.
    let threads = thread::busy() + usize::from(runner == Runner::Thread);
    // A sum that is taken while it changes may be below zero.
    threads.saturating_add(ticker::polling()) < processors()
}

fn processors() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

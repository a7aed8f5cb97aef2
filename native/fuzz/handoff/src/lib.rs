//! The hand-off of the runners under loom, which tries every order that threads can run in; without
//! the feature `model`, on the system's threads, for ThreadSanitizer. Rule: the files are those of
//! the library; only `sync`, where they take atomics and threads from, is another under loom.
#![cfg(test)]

#[path = "../../../runtime/src/runner/nap.rs"]
mod nap;
#[path = "../../../runtime/src/runner/seat.rs"]
mod seat;
#[path = "../../../runtime/src/runner/signal.rs"]
mod signal;
#[cfg(not(feature = "model"))]
mod stress;
#[cfg_attr(not(feature = "model"), path = "../../../runtime/src/runner/sync.rs")]
mod sync;
#[cfg(feature = "model")]
mod tests;

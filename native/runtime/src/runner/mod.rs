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

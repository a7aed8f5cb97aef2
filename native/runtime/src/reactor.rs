//! The process-wide tokio runtime: it fires the timers that guests sleep on and nothing else.
//! It never runs a guest: guests are polled by their runners, from threads that tokio does not own.

use crate::error::{Error, Result};
use std::sync::OnceLock;
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};

/// Threads for calls that cannot be made without blocking. Files of a guest are read and written on
/// the polling thread, so that only rare component streams come here.
const BLOCKING_THREADS: usize = 4;

/// The runtime, made at the first use and never taken down.
///
/// Every poll of a guest must happen inside [`enter`]: a component that subscribes to a clock makes
/// its timer while it is polled. (Preview 1 does not need it; see `wasi/poll.rs`.)
///
/// # Errors
/// `internal` when the OS refuses the worker thread or its event queue.
pub fn runtime() -> Result<&'static Handle> {
    static RUNTIME: OnceLock<std::result::Result<Runtime, String>> = OnceLock::new();
    match RUNTIME.get_or_init(build) {
        Ok(runtime) => Ok(runtime.handle()),
        Err(message) => Err(Error::internal(format!("cannot start the timer thread: {message}"))),
    }
}

/// Makes the runtime the current one of this thread until the guard is dropped.
///
/// # Errors
/// As [`runtime`].
pub fn enter() -> Result<EnterGuard<'static>> {
    Ok(runtime()?.enter())
}

fn build() -> std::result::Result<Runtime, String> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("wasmtime-timer")
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
}

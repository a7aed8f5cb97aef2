//! The process-wide tokio runtime: it fires the timers that guests sleep on and nothing else.
//! It never runs a guest: guests are polled by their runners, from threads that tokio does not own.

use crate::error::{Class, Error, Kind, Result};
use crate::guest::panicked;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};

/// Threads for calls that cannot be made without blocking. Files of a guest are read and written on
/// the polling thread, so that only rare component streams come here.
const BLOCKING_THREADS: usize = 4;

/// The runtime, made at the first use and never taken down. A refusal is not kept: the next use asks
/// again.
///
/// Every poll of a guest must happen inside [`enter`]: a component that subscribes to a clock makes
/// its timer while it is polled. (Preview 1 does not need it; see `wasi/poll.rs`.)
///
/// # Errors
/// Class `limit`, kind `thread_limit` while the OS refuses the worker thread or its event queue.
pub fn runtime() -> Result<&'static Handle> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    static MAKING: Mutex<()> = Mutex::new(());
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime.handle());
    }
    let _alone = MAKING.lock();
    match RUNTIME.get() {
        Some(runtime) => Ok(runtime.handle()),
        None => {
            let made = build()?;
            Ok(RUNTIME.get_or_init(|| made).handle())
        }
    }
}

/// Makes the runtime the current one of this thread until the guard is dropped.
///
/// # Errors
/// As [`runtime`].
pub fn enter() -> Result<EnterGuard<'static>> {
    Ok(runtime()?.enter())
}

fn build() -> Result<Runtime> {
    // Without a thread tokio panics; without a file it answers an error.
    match catch_unwind(AssertUnwindSafe(try_build)) {
        Ok(Ok(runtime)) => Ok(runtime),
        Ok(Err(error)) => Err(refused(&error.to_string())),
        Err(panic) => Err(refused(&panicked(panic.as_ref()).message)),
    }
}

fn refused(why: &str) -> Error {
    let message = format!("the OS refuses the thread of timers: {why}");
    Error::new(Class::Limit, Kind::ThreadLimit, message)
}

fn try_build() -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("wasmtime-timer")
        .enable_all()
        .build()
}

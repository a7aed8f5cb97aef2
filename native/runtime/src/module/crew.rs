//! The threads that validate and compile. Rule: they are had before they are needed, as rayon tries
//! but once to make its pool: one that the system refused would be missing until the VM ends.

use std::thread::Builder;

use parking_lot::Mutex;

use crate::error::{Class, Error, Kind, Result};

/// Bytes of a module without anything.
const EMPTY: &[u8] = b"\0asm\x01\0\0\0";

/// Sees that the compiler has its threads.
///
/// # Errors
/// Class `limit`, kind `thread_limit` while the system refuses them.
pub fn muster(engine: &wasmtime::Engine) -> Result<()> {
    static READY: Mutex<bool> = Mutex::new(false);
    let mut ready = READY.lock();
    if !*ready {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        spare_threads(count + 1).map_err(|error| {
            let message = format!("the OS refuses the threads of the compiler: {error}");
            Error::new(Class::Limit, Kind::ThreadLimit, message)
        })?;
        wasmtime::Module::validate(engine, EMPTY).map_err(|e| Error::internal(e.to_string()))?;
        *ready = true;
    }
    Ok(())
}

/// Whether the system gives so many threads at once.
fn spare_threads(count: usize) -> std::io::Result<()> {
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        let closed = gate.lock();
        let wait = || drop(gate.lock());
        let asked = (0..count).try_for_each(|_| Builder::new().spawn_scoped(scope, wait).map(drop));
        drop(closed);
        asked
    })
}

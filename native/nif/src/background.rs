//! One thread for what must not happen on a scheduler: drops that unmap or restore memory, and
//! messages built outside of a process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crossbeam_channel::Sender;
use rustler::Env;
use wasmtime_beam::inject::point;

type Task = Box<dyn FnOnce() + Send>;

static TASKS: OnceLock<Sender<Task>> = OnceLock::new();

/// Starts the thread, when the library is loaded; it stays when that happens again.
pub fn start(_: Env<'_>) -> std::io::Result<()> {
    if TASKS.get().is_some() {
        return Ok(());
    }
    let (sender, tasks) = crossbeam_channel::unbounded::<Task>();
    std::thread::Builder::new().name("wasmtime-background".into()).spawn(move || {
        for task in tasks {
            // A panic of one task must not end the others.
            let _ = catch_unwind(AssertUnwindSafe(task));
        }
    })?;
    let _ = TASKS.set(sender);
    Ok(())
}

/// Drops `value` on the background thread, soon.
pub fn free(value: impl Send + 'static) {
    run(move || {
        point("background");
        drop(value);
    });
}

/// Runs `task` on the background thread, soon.
pub fn run(task: impl FnOnce() + Send + 'static) {
    if let Some(tasks) = TASKS.get() {
        // The receiver lives as long as the VM.
        let _ = tasks.send(Box::new(task));
    }
}

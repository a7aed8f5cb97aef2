//! One thread for what must not happen on a scheduler: drops that unmap or restore memory, and
//! messages built outside of a process. Rule: what takes long comes again at the end of the line.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use crossbeam_channel::Sender;
use rustler::Env;
use wasmtime_beam::guest::{Guest, JobId, Reason};
use wasmtime_beam::inject::point;
use wasmtime_beam::options::Runner;

/// Jobs that are ended before others have their turn: some hundred microseconds.
const JOBS: usize = 64;

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

/// Ends the jobs of a process that is gone.
pub fn end_jobs(guest: Arc<Guest>, mut jobs: BTreeSet<JobId>) {
    run(move || {
        for _ in 0..JOBS {
            // The newest first: none shall begin because one before it ended.
            let Some(job) = jobs.pop_last() else { return };
            match guest.runner() {
                Runner::Thread => {
                    guest.control().cancel(job, Reason::Interrupt);
                }
                Runner::Scheduler => expire_now(&guest, job),
            }
        }
        end_jobs(guest, jobs);
    });
}

/// Ends a job whose client had its turn, may be gone, and polls no more.
pub fn expire(guest: Arc<Guest>, job: JobId) {
    run(move || expire_now(&guest, job));
}

/// As [`expire`], on this thread; what takes long is left to the background.
pub fn expire_now(guest: &Arc<Guest>, job: JobId) {
    if !guest.expire(job) {
        wind_up(guest.clone());
    }
}

/// Answers what a destroyed guest left in its queue, and drops its store.
pub fn wind_up(guest: Arc<Guest>) {
    run(move || {
        if !guest.wind_up() {
            wind_up(guest);
        }
    });
}

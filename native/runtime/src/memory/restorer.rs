//! The thread that restores memories of instances that are gone, where a processor is free for it:
//! who destroys an instance does not wait for that. Rule: what it took is restored, and it never has
//! more than pools have spare slots for.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::held::Held;
use crate::error::{Error, Result};
use crate::inject::point;

/// Memories that it has at most. Every pool has as many slots more than memories, so that what is
/// being restored is in nobody's way.
pub(super) const SPARE: u32 = 4;

static STATE: Mutex<State> =
    Mutex::new(State { queue: VecDeque::new(), taken: 0, is_running: false });

/// Something is queued.
static QUEUED: Condvar = Condvar::new();

struct State {
    queue: VecDeque<Held>,
    /// Memories that it has, the one that it is at included.
    taken: usize,
    is_running: bool,
}

/// Starts the thread; where nobody does, memories are restored by who drops them. Calling again does
/// nothing.
///
/// # Errors
/// `internal` when the OS refuses a thread.
pub fn start() -> Result<()> {
    let mut state = STATE.lock();
    if !state.is_running {
        std::thread::Builder::new()
            .name("wasmtime-restore".into())
            .spawn(work)
            .map_err(|e| Error::internal(format!("cannot start the restoring thread: {e}")))?;
        state.is_running = true;
    }
    Ok(())
}

/// Takes memories to restore them soon; they come back when there is no room for all of them.
pub(super) fn take(memories: Vec<Held>) -> Vec<Held> {
    let mut state = STATE.lock();
    if !state.is_running || state.taken + memories.len() > SPARE as usize {
        return memories;
    }
    state.taken += memories.len();
    // The place in the pool is free once the caller knows that the instance is gone.
    state.queue.extend(memories.into_iter().map(Held::leave_place));
    drop(state);
    QUEUED.notify_one();
    Vec::new()
}

fn work() {
    let mut state = STATE.lock();
    loop {
        let Some(held) = state.queue.pop_front() else {
            QUEUED.wait(&mut state);
            continue;
        };
        MutexGuard::unlocked(&mut state, || restore(held));
        state.taken -= 1;
    }
}

/// A slot is restored, or given up, by being dropped.
fn restore(held: Held) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        point("restorer");
        drop(held);
    }));
}

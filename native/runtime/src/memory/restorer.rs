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
pub(super) const SPARE: u32 = 2;

/// Bytes of the memories that it has at most, as they add to what live instances have.
const MOST_BYTES: usize = 64 << 20;

static STATE: Mutex<State> =
    Mutex::new(State { queue: VecDeque::new(), taken: 0, bytes: 0, is_running: false });

/// Something is queued.
static QUEUED: Condvar = Condvar::new();

struct State {
    queue: VecDeque<Held>,
    /// Memories that it has, the one that it is at included, and their bytes.
    taken: usize,
    bytes: usize,
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
    if !memories.iter().all(Held::has_spare) {
        return memories;
    }
    let mut state = STATE.lock();
    let taken = state.taken + memories.len();
    let bytes = state.bytes + memories.iter().map(Held::extent).sum::<usize>();
    if !state.is_running || taken > SPARE as usize || bytes > MOST_BYTES {
        return memories;
    }
    (state.taken, state.bytes) = (taken, bytes);
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
        let bytes = held.extent();
        MutexGuard::unlocked(&mut state, || restore(held));
        state.taken -= 1;
        state.bytes -= bytes;
    }
}

/// A slot is restored, or given up, by being dropped.
fn restore(held: Held) {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        point("restorer");
        drop(held);
    }));
}

//! Puts off the restoring of memories that a closure drops, so that a large one can be done
//! elsewhere. Rule: whatever happens to a `Pending`, its memories are restored.

use super::held::Held;
use super::restorer;
use std::cell::RefCell;

/// Bytes of memory that may have been written, from which on a reset is left to another thread: less
/// takes a few microseconds, as a wake does.
const WORTH_A_WAKE: usize = 256 << 10;

thread_local! {
    static COLLECTED: RefCell<Option<Vec<Held>>> = const { RefCell::new(None) };
}

/// Memories that are dropped and not yet restored. Dropping it restores them.
#[derive(Debug, Default)]
#[must_use]
pub struct Pending(Vec<Held>);

/// Runs `f`; the memories that it drops on this thread are collected instead of being restored.
pub fn deferring<R>(f: impl FnOnce() -> R) -> (R, Pending) {
    let mut scope = Scope { outer: COLLECTED.replace(Some(Vec::new())), open: true };
    let result = f();
    (result, Pending(scope.restore()))
}

impl Pending {
    /// Restores within `budget` bytes of work: bytes restored in place, and the size of what is
    /// dropped. Answers what is left, for `finish` on a thread that may take its time.
    pub fn finish_within(self, budget: usize) -> Option<Pending> {
        let mut budget = Some(budget);
        let held = self.0.into_iter();
        let left: Vec<Held> = held.filter_map(|held| held.settle_within(&mut budget)).collect();
        if left.is_empty() { None } else { Some(Pending(left)) }
    }

    /// Leaves the memories to a thread that restores them soon: their places in the pool are free at
    /// once. Answers itself when that thread has its hands full, and when restoring them takes less
    /// than waking it.
    pub fn leave(self) -> Option<Pending> {
        if self.0.iter().map(Held::extent).sum::<usize>() < WORTH_A_WAKE {
            return Some(self);
        }
        let left = restorer::take(self.0);
        if left.is_empty() { None } else { Some(Pending(left)) }
    }

    /// Restores everything.
    pub fn finish(self) {
        drop(self);
    }

    /// True when there is nothing to restore.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Restores a memory now, or puts it off when this thread collects.
pub(super) fn settle(held: Held) {
    let mut held = Some(held);
    // A thread that is ending has no collection any more; the memory is then restored below.
    let _ = COLLECTED.try_with(|collected| {
        if let Ok(mut collected) = collected.try_borrow_mut()
            && let Some(collected) = collected.as_mut()
        {
            collected.extend(held.take());
        }
    });
    drop(held);
}

/// Puts back what was open before, also when the closure panics.
struct Scope {
    outer: Option<Vec<Held>>,
    open: bool,
}

impl Scope {
    fn restore(&mut self) -> Vec<Held> {
        self.open = false;
        COLLECTED.replace(self.outer.take()).unwrap_or_default()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.open {
            drop(self.restore());
        }
    }
}

//! How much of its turn a process uses in NIF calls. Rule: no clock is read; ticks are counted, so that
//! on average the time is right however short the calls are.

use std::cell::Cell;

use rustler::Env;
use rustler::schedule::consume_timeslice;
use wasmtime_beam::ticker::{self, TURN};

thread_local! {
    /// Ticks of the turn under way on this scheduler. A process that goes on elsewhere leaves them to
    /// the one that comes next: at most its turn is shorter.
    static USED: Cell<u64> = const { Cell::new(0) };
}

/// The part of a turn that a NIF call uses.
pub struct Slice {
    ticker: ticker::Slice,
    before: u64,
}

impl Slice {
    fn used(&self) -> u64 {
        self.before + self.ticker.ticks()
    }

    /// True once the turn is used up.
    pub fn is_over(&self) -> bool {
        self.used() >= TURN
    }
}

/// Runs `f`, part of a NIF call with `env`. When the turn ends meanwhile, the process is scheduled out
/// after the call.
pub fn in_slice<R>(env: Env<'_>, f: impl FnOnce(&Slice) -> R) -> R {
    counted(env, TURN, f)
}

/// As `in_slice`, where a request ends. A process that would be scheduled out inside of its next request
/// is so before: what a guest has in the caches is lost to the guests of the others, and so is the warm
/// memory, for they must take others.
pub fn in_last_slice<R>(env: Env<'_>, f: impl FnOnce() -> R) -> R {
    counted(env, TURN / 2, |_| f())
}

fn counted<R>(env: Env<'_>, turn: u64, f: impl FnOnce(&Slice) -> R) -> R {
    let slice = Slice { ticker: ticker::Slice::begin(), before: USED.get() };
    let result = f(&slice);
    let used = slice.used();
    if used < turn {
        USED.set(used);
    } else {
        consume_timeslice(env, 100);
        USED.set(0);
    }
    result
}

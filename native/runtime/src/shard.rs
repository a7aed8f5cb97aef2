//! Counters that every thread writes, spread over cache lines so that threads do not pull at one.
//! Rule: each thread adds to its own line; who reads sums them up.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lines of a counter. More threads than this share them.
const LINES: usize = 16;

/// A number of things, whose increments and decrements may come from different threads.
pub struct Counter([Line; LINES]);

/// Two lines of a cache: processors fetch them in pairs.
#[repr(align(128))]
struct Line(AtomicUsize);

impl Counter {
    pub const fn new() -> Self {
        Counter([const { Line(AtomicUsize::new(0)) }; LINES])
    }

    /// The line of this thread.
    pub fn mine(&self) -> &AtomicUsize {
        &self.0[line()].0
    }

    /// The sum: exact when nobody changes it meanwhile. A line alone may be below zero.
    pub fn sum(&self, ordering: Ordering) -> usize {
        self.0.iter().fold(0, |sum, line| sum.wrapping_add(line.0.load(ordering)))
    }
}

fn line() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed) % LINES);
        }
        mine.get()
    })
}

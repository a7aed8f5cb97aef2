//! Numbers of jobs and host calls. Rule: no two are the same in one VM; they tell no order.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers that a thread takes at once, so that threads do not pull at one counter.
const BLOCK: u64 = 1024;

/// A number that no other job or host call of this VM has.
pub fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static MINE: Cell<Range<u64>> = const { Cell::new(0..0) };
    }
    MINE.with(|mine| {
        let mut left = mine.take();
        if left.is_empty() {
            let first = NEXT.fetch_add(BLOCK, Relaxed);
            left = first..first + BLOCK;
        }
        let id = left.start;
        mine.set(id + 1..left.end);
        id
    })
}

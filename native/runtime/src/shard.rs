//! Counters that every thread writes, spread over cache lines so that threads do not pull at one.
//! Rule: a thread that has a line is the only one that writes it, and so does without atomic
//! additions, which cost some ten times as much; who reads sums the lines up.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Threads with a line of their own, as long as they live. The others share one.
const OWN: usize = 127;

/// Counters, at most.
const COUNTERS: usize = 16;

/// All counters of one thread. Processors fetch lines of a cache in pairs.
#[repr(align(128))]
struct Line([AtomicUsize; COUNTERS]);

/// The last one is shared.
static LINES: [Line; OWN + 1] =
    [const { Line([const { AtomicUsize::new(0) }; COUNTERS]) }; OWN + 1];

/// Lines that were given out at least once.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// Those of them whose threads ended, with what these counted.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

thread_local! {
    /// The line of this thread: `usize::MAX` before it counts anything.
    static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Gives it back. Apart, so that a thread that counts need not ask whether this is there.
    static LENT: RefCell<Option<Lent>> = const { RefCell::new(None) };
}

/// A number of things, whose increments and decrements may come from different threads.
pub struct Counter(usize);

impl Counter {
    /// The counter of this number, which nothing else has.
    pub const fn numbered(number: usize) -> Self {
        assert!(number < COUNTERS);
        Counter(number)
    }

    pub fn increment(&self) {
        self.add(1);
    }

    pub fn decrement(&self) {
        self.add(usize::MAX);
    }

    /// Counts until it is dropped, on this thread; seen by whoever wrote something else that the thread
    /// reads afterwards.
    pub fn hold(&self) -> Hold {
        let line = line();
        LINES[line].0[self.0].fetch_add(1, SeqCst);
        Hold { counter: self.0, line, _here: PhantomData }
    }

    fn add(&self, number: usize) {
        self.add_to(line(), number);
    }

    fn add_to(&self, line: usize, number: usize) {
        let count = &LINES[line].0[self.0];
        if line == OWN {
            count.fetch_add(number, Release);
        } else {
            count.store(count.load(Relaxed).wrapping_add(number), Release);
        }
    }

    /// The sum: exact when nobody changes it meanwhile. A line alone may be below zero.
    pub fn sum(&self, ordering: Ordering) -> usize {
        let own = &LINES[..GIVEN.load(SeqCst)];
        let lines = own.iter().chain(&LINES[OWN..]);
        lines.fold(0, |sum, line| sum.wrapping_add(line.0[self.0].load(ordering)))
    }
}

/// One of what a counter counts.
pub struct Hold {
    counter: usize,
    line: usize,
    /// Other threads must not write the line.
    _here: PhantomData<*const ()>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        Counter(self.counter).add_to(self.line, usize::MAX);
    }
}

/// A line of a thread's own.
struct Lent(usize);

impl Drop for Lent {
    fn drop(&mut self) {
        // What the thread counts from here on.
        MINE.set(OWN);
        FREE.lock().push(self.0);
    }
}

/// The line of this thread.
fn line() -> usize {
    match MINE.get() {
        usize::MAX => take(),
        mine => mine,
    }
}

#[cold]
fn take() -> usize {
    let new = || (GIVEN.load(SeqCst) < OWN).then(|| GIVEN.fetch_add(1, SeqCst));
    // A thread that is about to end has no place for a line any more.
    let own = LENT.try_with(|lent| {
        let own = FREE.lock().pop().or_else(new)?;
        lent.replace(Some(Lent(own)));
        Some(own)
    });
    MINE.set(own.ok().flatten().unwrap_or(OWN));
    MINE.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More threads than lines count at once, and what one counted up others count down.
    #[test]
    fn nothing_is_lost() {
        let counter = Counter::numbered(COUNTERS - 1);
        let everywhere = |change: fn(&Counter)| {
            std::thread::scope(|scope| {
                for _ in 0..OWN + 20 {
                    scope.spawn(|| (0..1000).for_each(|_| change(&counter)));
                }
            });
            counter.sum(SeqCst)
        };
        assert_eq!(everywhere(Counter::increment), (OWN + 20) * 1000);
        assert_eq!(everywhere(|counter| drop(counter.hold())), (OWN + 20) * 1000);
        assert_eq!(everywhere(Counter::decrement), 0);

        // Lines of threads that ended serve those that come after them.
        let one = || std::thread::spawn(line).join().unwrap();
        assert!((0..10 * OWN).all(|_| one() < OWN));
    }
}

//! Many rounds on the system's threads. Each hands over something that is written without a lock:
//! a hand-off that orders too little is a race on it.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicBool;
use std::thread::{current, scope, yield_now};
use std::time::{Duration, Instant};

use crate::nap::Nap;
use crate::seat::{Seat, Seats, give};
use crate::signal::Signal;
use crate::sync::{Arc, Mutex, Ordering};

const ROUNDS: usize = 4_000;

/// Of the rounds in which threads wait for the scheduler.
const FEW: usize = 300;

/// A thread leaves its seat after this time.
const SHORT: Duration = Duration::from_micros(200);

/// Written by one thread, read by another after the hand-off.
#[derive(Default)]
struct Plain(UnsafeCell<usize>);

// SAFETY: that no two threads use it at once is what the tests are about.
unsafe impl Sync for Plain {}

impl Plain {
    fn set(&self, value: usize) {
        // SAFETY: the other thread waits meanwhile.
        unsafe { *self.0.get() = value }
    }

    fn get(&self) -> usize {
        // SAFETY: as above.
        unsafe { *self.0.get() }
    }
}

/// Two threads wake each other in turns.
#[test]
fn signals_to_and_fro() {
    let plain = Plain::default();
    let (here, there) = (Arc::new(Signal::new(current())), Mutex::new(None));
    scope(|scope| {
        scope.spawn(|| {
            let mine = Arc::new(Signal::new(current()));
            *there.lock() = Some(mine.clone());
            here.wake();
            for round in 0..ROUNDS {
                mine.wait();
                assert_eq!(plain.get(), round);
                plain.set(round + 1);
                here.wake();
            }
        });
        here.wait();
        let there = there.lock().clone().unwrap();
        for round in 0..ROUNDS {
            plain.set(round);
            there.wake();
            here.wait();
            assert_eq!(plain.get(), round + 1);
        }
    });
}

/// Work that is given is done, by a thread that may be about to leave; no work is lost.
#[test]
fn work_is_handed_over() {
    let seats: Seats<usize> = Mutex::new(Vec::new());
    let (plain, done) = (Plain::default(), AtomicBool::new(false));
    scope(|scope| {
        let worker = scope.spawn(|| {
            let (seat, mut sum) = (Seat::new(current()), 0);
            while !done.load(Ordering::Acquire) {
                let since = Instant::now();
                let left = || SHORT.saturating_sub(since.elapsed());
                if let Some(work) = Seat::wait(&seat, &seats, left) {
                    assert_eq!(plain.get(), work);
                    sum += 1;
                    plain.set(0);
                }
            }
            sum
        });
        let mut given = 0;
        while given < FEW {
            // Only while the worker is in its seat nobody else has the value.
            let top = seats.lock().pop();
            let Some(top) = top else {
                yield_now();
                continue;
            };
            plain.set(given + 1);
            seats.lock().push(top);
            given += usize::from(give(&seats, given + 1).is_none());
        }
        while seats.lock().is_empty() {
            yield_now();
        }
        done.store(true, Ordering::Release);
        assert_eq!(worker.join().unwrap(), given);
    });
}

/// A sleeper with two notifiers sees all that they did.
#[test]
fn a_sleeper_sees_everything() {
    let nap: Nap<Arc<Signal>> = Nap::default();
    let parts = [Plain::default(), Plain::default()];
    let ready = [AtomicBool::new(false), AtomicBool::new(false)];
    scope(|scope| {
        for at in 0..2 {
            let (nap, parts, ready) = (&nap, &parts, &ready);
            scope.spawn(move || {
                for round in 1..=FEW {
                    while ready[at].load(Ordering::Acquire) {
                        yield_now();
                    }
                    parts[at].set(round);
                    ready[at].store(true, Ordering::Release);
                    let message: Option<Arc<Signal>> = nap.notify();
                    if let Some(message) = message {
                        message.wake();
                    }
                }
            });
        }
        let (message, mut seen) = (Arc::new(Signal::new(current())), [0; 2]);
        while seen != [FEW; 2] {
            nap.look();
            let mut news = false;
            for at in (0..2).filter(|at| ready[*at].load(Ordering::Acquire)) {
                assert_eq!(parts[at].get(), seen[at] + 1);
                (seen[at], news) = (seen[at] + 1, true);
                ready[at].store(false, Ordering::Release);
            }
            if !news && !nap.is_woken() && nap.sleep(message.clone()) {
                message.wait();
            }
        }
    });
}

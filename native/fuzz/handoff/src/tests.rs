//! Each test is a handful of threads; a wait that nothing ends is a deadlock, which loom reports.

use std::time::Duration;

use loom::sync::Condvar;
use loom::sync::atomic::AtomicUsize;
use loom::thread::{current, spawn, yield_now};

use crate::nap::Nap;
use crate::seat::{Seat, Seats, give};
use crate::signal::Signal;
use crate::sync::{Arc, Mutex, Ordering};

/// Every order of threads that changes from one to another so often while both could go on: two are
/// enough for all faults that are known of such code, and any number is too much for three threads.
fn bounded(f: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(f);
}

/// A waker, before, during and after the wait: what it did is seen, and the wait ends.
#[test]
fn no_wake_is_lost() {
    loom::model(|| {
        let signal = Arc::new(Signal::new(current()));
        let done = Arc::new(AtomicUsize::new(0));
        let waker = {
            let (signal, done) = (signal.clone(), done.clone());
            spawn(move || {
                done.store(1, Ordering::Relaxed);
                signal.wake();
            })
        };
        signal.wait();
        assert_eq!(done.load(Ordering::Relaxed), 1);
        waker.join().unwrap();
    });
}

/// The same of two wakers, whose wakes may count as one.
#[test]
fn no_wake_of_two_is_lost() {
    bounded(|| {
        let signal = Arc::new(Signal::new(current()));
        let done = Arc::new(AtomicUsize::new(0));
        let wakers = [(); 2].map(|()| {
            let (signal, done) = (signal.clone(), done.clone());
            spawn(move || {
                done.fetch_add(1, Ordering::Relaxed);
                signal.wake();
            })
        });
        while done.load(Ordering::Relaxed) < 2 {
            signal.wait();
        }
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
    });
}

/// A look that takes the wake, as a spinning thread's, leaves the next one to the wait.
#[test]
fn a_look_takes_one_wake() {
    loom::model(|| {
        let signal = Arc::new(Signal::new(current()));
        let (asked, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let waker = {
            let (signal, asked, done) = (signal.clone(), asked.clone(), done.clone());
            spawn(move || {
                done.fetch_add(1, Ordering::Relaxed);
                signal.wake();
                while asked.load(Ordering::Acquire) == 0 {
                    yield_now();
                }
                done.fetch_add(1, Ordering::Relaxed);
                signal.wake();
            })
        };
        if !signal.take() {
            signal.wait();
        }
        assert!(done.load(Ordering::Relaxed) >= 1);
        asked.store(1, Ordering::Release);
        while done.load(Ordering::Relaxed) < 2 {
            signal.wait();
        }
        waker.join().unwrap();
    });
}

const LONG: Duration = Duration::from_secs(1);

fn seats() -> Arc<Seats<u32>> {
    Arc::new(Mutex::new(Vec::new()))
}

/// Work that was given is taken, however near the thread is to its parking.
#[test]
fn given_work_is_taken() {
    loom::model(|| {
        let seats = seats();
        let worker = {
            let seats = seats.clone();
            spawn(move || Seat::wait(&Seat::new(current()), &seats, || LONG))
        };
        while give(&seats, 7).is_some() {
            yield_now();
        }
        assert_eq!(worker.join().unwrap(), Some(7));
        assert!(seats.lock().is_empty());
    });
}

/// A thread whose time is over leaves, or does the work that it was given just before.
#[test]
fn who_leaves_is_given_nothing() {
    loom::model(|| {
        let seats = seats();
        let worker = {
            let seats = seats.clone();
            spawn(move || Seat::wait(&Seat::new(current()), &seats, || Duration::ZERO))
        };
        let given = give(&seats, 7).is_none();
        assert_eq!(worker.join().unwrap(), given.then_some(7));
        assert!(seats.lock().is_empty());
    });
}

/// Of two givers one finds the thread, and the other has its work back.
#[test]
fn one_seat_takes_one_work() {
    bounded(|| {
        let seats = seats();
        let worker = {
            let seats = seats.clone();
            spawn(move || Seat::wait(&Seat::new(current()), &seats, || LONG))
        };
        let other = {
            let seats = seats.clone();
            spawn(move || give(&seats, 1))
        };
        let second = give(&seats, 2);
        let first = other.join().unwrap();
        if first.is_some() && second.is_some() {
            while give(&seats, 3).is_some() {
                yield_now();
            }
        }
        let taken = worker.join().unwrap();
        let expected = match (first, second) {
            (None, Some(2)) => 1,
            (Some(1), None) => 2,
            (Some(1), Some(2)) => 3,
            other => panic!("both were taken: {other:?}"),
        };
        assert_eq!(taken, Some(expected));
    });
}

/// What a process is sent.
struct Mailbox {
    messages: loom::sync::Mutex<usize>,
    arrived: Condvar,
}

/// A sleeper sees everything that happens, gets a message when it sleeps, and no other stays behind.
fn sleeper<const NOTIFIERS: usize>() {
    let nap = Arc::new(Nap::default());
    let done = Arc::new(AtomicUsize::new(0));
    let mailbox =
        Arc::new(Mailbox { messages: loom::sync::Mutex::new(0), arrived: Condvar::new() });
    let notifiers = [(); NOTIFIERS].map(|()| {
        let (nap, done, mailbox) = (nap.clone(), done.clone(), mailbox.clone());
        spawn(move || {
            done.fetch_add(1, Ordering::Relaxed);
            if let Some(()) = nap.notify() {
                *mailbox.messages.lock().unwrap() += 1;
                mailbox.arrived.notify_one();
            }
        })
    });
    loop {
        nap.look();
        if done.load(Ordering::Relaxed) == NOTIFIERS {
            break;
        }
        // As a process that polls: what came meanwhile is looked at first.
        if !nap.is_woken() && nap.sleep(()) {
            let mut messages = mailbox.messages.lock().unwrap();
            while *messages == 0 {
                messages = mailbox.arrived.wait(messages).unwrap();
            }
            *messages -= 1;
        }
    }
    notifiers.into_iter().for_each(|notifier| notifier.join().unwrap());
    assert_eq!(*mailbox.messages.lock().unwrap(), 0);
}

#[test]
fn a_sleeper_gets_one_message() {
    loom::model(sleeper::<1>);
}

#[test]
fn a_sleeper_of_two_gets_one_message() {
    bounded(sleeper::<2>);
}

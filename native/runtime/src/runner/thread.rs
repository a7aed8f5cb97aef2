//! The thread runner: a guest with work gets an OS thread from a cache of parked ones and gives it
//! back when its queue is empty. In steady state no thread is created and none is held by an idle
//! guest.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::seat::{Seat, Seats, give};
use super::signal::Signal;
use crate::counts::{Live, Object};
use crate::error::{Class, Error, Kind, Result};
use crate::guest::{Guest, Step, panicked};
use crate::inject::point;

/// How long a runner spins for a host's answer before it parks: a host function that reads and
/// writes memory takes tens of microseconds, and so does a wake on virtual machines.
const SPIN: Duration = Duration::from_micros(80);

/// How long a thread stays parked without work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// Bytes of stack of a runner; guests run on their fibers' stacks.
const STACK: usize = 1 << 20;

/// Parked threads.
static PARKED: Seats<Arc<Guest>> = Mutex::new(Vec::new());

/// Runners that are at work, parked in a host call or not.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// Polls `guest` on a thread until its queue is empty.
///
/// # Errors
/// Class `limit`, kind `thread_limit` when the OS refuses a thread.
pub fn run(guest: Arc<Guest>) -> Result<()> {
    give(&PARKED, guest).map_or(Ok(()), start)
}

/// Runners that are at work, also those that wait for their host.
pub(super) fn busy() -> usize {
    BUSY.load(Ordering::Relaxed)
}

fn start(guest: Arc<Guest>) -> Result<()> {
    std::thread::Builder::new()
        .name("wasmtime-guest".into())
        .stack_size(STACK)
        .spawn(move || Worker::new().work(guest))
        .map(drop)
        .map_err(|error| {
            let message = format!("the OS refuses another thread: {error}");
            Error::new(Class::Limit, Kind::ThreadLimit, message)
        })
}

/// One thread of the cache.
struct Worker {
    seat: Arc<Seat<Arc<Guest>>>,
    signal: Arc<Signal>,
}

impl Worker {
    fn new() -> Self {
        let thread = std::thread::current();
        Worker { seat: Seat::new(thread.clone()), signal: Arc::new(Signal::new(thread)) }
    }

    fn work(self, first: Arc<Guest>) {
        let mut next = Some(first);
        while let Some(guest) = next {
            self.drive(guest);
            let parked = catch_unwind(AssertUnwindSafe(|| self.park()));
            next = parked.unwrap_or_else(|_| self.recover());
        }
    }

    /// Runs one guest; a panic of ours ends with it.
    fn drive(&self, guest: Arc<Guest>) {
        let _live = Live::new(Object::RunningThread);
        BUSY.fetch_add(1, Ordering::Relaxed);
        let caught = catch_unwind(AssertUnwindSafe(|| drive(&guest, &self.signal)));
        // Its clients are answered by nobody else; what it leaves behind may panic once more.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            caught.unwrap_or_else(|panic| guest.fail(&panicked(panic.as_ref())));
            drop(guest);
        }));
        BUSY.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits among the parked threads; `None` after a long time without work.
    fn park(&self) -> Option<Arc<Guest>> {
        let _live = Live::new(Object::ParkedThread);
        let since = Instant::now();
        Seat::wait(&self.seat, &PARKED, || {
            point("park");
            IDLE.saturating_sub(since.elapsed())
        })
    }

    /// After a panic among the parked threads: a guest that was handed over must not be lost.
    fn recover(&self) -> Option<Arc<Guest>> {
        let _live = Live::new(Object::ParkedThread);
        Seat::go_on(&self.seat, &PARKED, || Duration::ZERO)
    }
}

fn drive(guest: &Arc<Guest>, signal: &Arc<Signal>) {
    point("thread");
    let waker = Waker::from(signal.clone());
    guest.control().set_waker(waker.clone());
    let mut cx = Context::from_waker(&waker);
    loop {
        match guest.poll(&mut cx) {
            Step::Done(job, outcome) => job.finish(outcome),
            Step::Host(call) => {
                guest.tell(call);
                wait(signal);
            }
            Step::Wait => wait(signal),
            Step::Idle | Step::Gone => return,
        }
    }
}

/// Returns once a wake came, also one that came before.
fn wait(signal: &Signal) {
    if !(may_spin() && spin(signal)) {
        signal.wait();
    }
}

fn spin(signal: &Signal) -> bool {
    let since = Instant::now();
    while since.elapsed() < SPIN {
        if signal.take() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        Signal::wake(&self);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        Signal::wake(self);
    }
}

/// Spinning pays only while a core is left for whoever answers.
fn may_spin() -> bool {
    busy() < super::processors()
}

//! The thread runner: a guest with work gets an OS thread from a cache of parked ones and gives it
//! back when its queue is empty. In steady state no thread is created and none is held by an idle
//! guest.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::counts::{Live, Object};
use crate::error::{Class, Error, Kind, Result};
use crate::guest::{Guest, Step};

/// How long a runner spins for a host's answer before it parks: a host function that reads and
/// writes memory takes tens of microseconds, and so does a wake on virtual machines.
const SPIN: Duration = Duration::from_micros(80);

/// How long a thread stays parked without work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// Bytes of stack of a runner; guests run on their fibers' stacks.
const STACK: usize = 1 << 20;

/// Parked threads, the last parked on top: its caches are warmest.
static PARKED: Mutex<Vec<Arc<Worker>>> = Mutex::new(Vec::new());

/// Runners that are at work, parked in a host call or not.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// Polls `guest` on a thread until its queue is empty.
///
/// # Errors
/// Class `limit`, kind `thread_limit` when the OS refuses a thread.
pub fn run(guest: Arc<Guest>) -> Result<()> {
    let parked = PARKED.lock().pop();
    match parked {
        Some(worker) => {
            worker.hand_over(guest);
            Ok(())
        }
        None => start(guest),
    }
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
    thread: Thread,
    next: Mutex<Option<Arc<Guest>>>,
    signal: Arc<Signal>,
}

impl Worker {
    fn new() -> Arc<Self> {
        let thread = std::thread::current();
        let signal = Arc::new(Signal::new(thread.clone()));
        Arc::new(Worker { thread, next: Mutex::new(None), signal })
    }

    fn hand_over(&self, guest: Arc<Guest>) {
        *self.next.lock() = Some(guest);
        self.thread.unpark();
    }

    fn work(self: Arc<Self>, first: Arc<Guest>) {
        let mut next = Some(first);
        while let Some(guest) = next {
            self.drive(guest);
            next = self.park();
        }
    }

    /// Runs one guest; a panic of ours ends with it.
    fn drive(&self, guest: Arc<Guest>) {
        let _live = Live::new(Object::RunningThread);
        BUSY.fetch_add(1, Ordering::Relaxed);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drive(&guest, &self.signal);
        }));
        if caught.is_err() {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(guest)));
        }
        BUSY.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits among the parked threads; `None` after a long time without work.
    fn park(self: &Arc<Self>) -> Option<Arc<Guest>> {
        let _live = Live::new(Object::ParkedThread);
        PARKED.lock().push(self.clone());
        let since = Instant::now();
        loop {
            if let Some(guest) = self.next.lock().take() {
                return Some(guest);
            }
            let left = IDLE.saturating_sub(since.elapsed());
            if left.is_zero() && self.leave() {
                return None;
            }
            std::thread::park_timeout(left);
        }
    }

    /// Leaves the cache; false when a guest was handed over meanwhile.
    fn leave(self: &Arc<Self>) -> bool {
        let mut parked = PARKED.lock();
        let at = parked.iter().position(|worker| Arc::ptr_eq(worker, self));
        at.map(|at| parked.remove(at)).is_some()
    }
}

fn drive(guest: &Arc<Guest>, signal: &Arc<Signal>) {
    let waker = Waker::from(signal.clone());
    guest.control().set_waker(waker.clone());
    let mut cx = Context::from_waker(&waker);
    loop {
        match guest.poll(&mut cx) {
            Step::Done(job, outcome) => job.finish(outcome),
            Step::Host(client, call) => {
                let id = call.id;
                if !client.host_call(call) {
                    guest.control().reply(id, Err(Error::host_down()));
                }
                signal.wait();
            }
            Step::Wait => signal.wait(),
            Step::Idle | Step::Gone => return,
        }
    }
}

/// Wakes one thread.
struct Signal {
    thread: Thread,
    set: AtomicBool,
    parked: AtomicBool,
}

impl Signal {
    fn new(thread: Thread) -> Self {
        Signal { thread, set: AtomicBool::new(false), parked: AtomicBool::new(false) }
    }

    /// Returns once a wake came, also one that came before.
    fn wait(&self) {
        if may_spin() && self.spin() {
            return;
        }
        self.parked.store(true, Ordering::SeqCst);
        while !self.set.swap(false, Ordering::SeqCst) {
            std::thread::park();
        }
        self.parked.store(false, Ordering::SeqCst);
    }

    fn spin(&self) -> bool {
        let since = Instant::now();
        while since.elapsed() < SPIN {
            if self.set.swap(false, Ordering::SeqCst) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set.store(true, Ordering::SeqCst);
        if self.parked.load(Ordering::SeqCst) {
            self.thread.unpark();
        }
    }
}

/// Spinning pays only while a core is left for whoever answers.
fn may_spin() -> bool {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    BUSY.load(Ordering::Relaxed) < cores
}

//! The one thread that watches the clock: deadlines of calls and of host calls, and the epoch bumps
//! that make a cancelled guest notice. It sleeps while there is nothing to watch.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::counts;
use crate::error::{Error, Result};
use crate::guest::{Control, JobId, Reason};
use crate::inject::point;
use crate::shard::{Counter, Hold};

/// While guests are polled in slices, every engine's epoch is bumped at this pace.
const TICK: Duration = Duration::from_micros(500);

/// Ticks in the whole turn of a process, a millisecond.
pub const TURN: u64 = 2;

/// Ticks without a poll after which the ticker sleeps.
const QUIET: u32 = 200;

/// Set by every poll in slices, cleared by every tick.
static POLLED: AtomicBool = AtomicBool::new(false);

/// Polls in slices under way: one may last long when the guest is inside a bulk instruction, and
/// must still find the ticker awake afterwards.
static POLLING: Counter = Counter::numbered(counts::Object::ALL.len());

/// True while the ticker bumps the engines.
static SLICING: AtomicBool = AtomicBool::new(false);

/// Ticks so far.
static TICKS: AtomicU64 = AtomicU64::new(0);

/// A cancelled guest is bumped again at this pace until its run ended: a bump can fall between a
/// guest's look at its flag and its next epoch deadline, and would be lost.
const NAG: Duration = Duration::from_millis(1);

/// Deadlines that are served before the next tick: each may end a job.
const DUE: usize = 64;

type Key = (Instant, u64);

struct Deadline {
    target: Weak<Control>,
    job: JobId,
    reason: Reason,
}

#[derive(Default)]
struct State {
    deadlines: BTreeMap<Key, Deadline>,
    nags: Vec<(Weak<Control>, JobId)>,
    /// When the thread wakes by itself; later deadlines need no signal.
    next_wake: Option<Instant>,
    last: u64,
    /// When the next tick is due, while there are any: after equal times, for each process is to have
    /// as long a turn as the others.
    tick: Option<Instant>,
    /// Ticks since the last poll.
    quiet: u32,
}

#[derive(Default)]
struct Ticker {
    state: Mutex<State>,
    changed: Condvar,
}

static TICKER: OnceLock<Ticker> = OnceLock::new();

/// Starts the thread; to be called once before any guest is made. Calling again does nothing.
///
/// # Errors
/// `internal` when the OS refuses a thread.
pub fn start() -> Result<()> {
    static STARTED: Mutex<bool> = Mutex::new(false);
    let mut started = STARTED.lock();
    if !*started {
        std::thread::Builder::new()
            .name("wasmtime-ticker".into())
            .spawn(|| ticker().run())
            .map_err(|e| Error::internal(format!("cannot start the ticker thread: {e}")))?;
        *started = true;
    }
    Ok(())
}

fn ticker() -> &'static Ticker {
    TICKER.get_or_init(Ticker::default)
}

/// What is done in slices, while it lives: guests yield at every tick, to whoever polls them.
pub struct Slice {
    _polling: Hold,
    since: u64,
}

impl Slice {
    /// Wakes the ticker if it sleeps; else this costs three atomic accesses.
    pub fn begin() -> Self {
        let _polling = POLLING.hold();
        if !POLLED.load(Ordering::Relaxed) {
            POLLED.store(true, Ordering::Relaxed);
        }
        if !SLICING.load(Ordering::SeqCst) && !SLICING.swap(true, Ordering::SeqCst) {
            let ticker = ticker();
            let mut state = ticker.state.lock();
            state.quiet = 0;
            let at = *state.tick.get_or_insert_with(|| Instant::now() + TICK);
            wake_by(ticker, &mut state, at);
        }
        Slice { _polling, since: TICKS.load(Ordering::Relaxed) }
    }

    /// Ticks since the beginning: cheaper than a look at the clock, and right on average however
    /// short the work is.
    pub fn ticks(&self) -> u64 {
        TICKS.load(Ordering::Relaxed) - self.since
    }
}

/// Polls in slices under way.
pub(crate) fn polling() -> usize {
    POLLING.sum(Ordering::Relaxed)
}

/// Every guest looks whether it must yield.
fn tick(state: &mut State, now: Instant) {
    point("tick");
    let Some(at) = state.tick.filter(|at| *at <= now) else { return };
    let polled = POLLED.swap(false, Ordering::Relaxed) || POLLING.sum(Ordering::SeqCst) > 0;
    state.quiet = if polled { 0 } else { state.quiet + 1 };
    if state.quiet >= QUIET {
        SLICING.store(false, Ordering::SeqCst);
        // A poll that began meanwhile saw the ticker awake, and relies on it.
        if POLLING.sum(Ordering::SeqCst) > 0 {
            state.quiet = 0;
            SLICING.store(true, Ordering::SeqCst);
        }
    }
    state.tick = SLICING.load(Ordering::SeqCst).then(|| now.max(at + TICK));
    TICKS.fetch_add(1, Ordering::Relaxed);
    crate::engine::Engine::bump_all();
}

/// A watched deadline; dropping it stops the watch.
pub struct Armed(Key);

impl Drop for Armed {
    fn drop(&mut self) {
        ticker().state.lock().deadlines.remove(&self.0);
    }
}

/// Cancels `job` with `reason` when `after` has passed.
pub fn arm(after: Duration, target: &Arc<Control>, job: JobId, reason: Reason) -> Option<Armed> {
    let at = Instant::now().checked_add(after)?;
    let ticker = ticker();
    let mut state = ticker.state.lock();
    state.last += 1;
    let key = (at, state.last);
    state.deadlines.insert(key, Deadline { target: Arc::downgrade(target), job, reason });
    wake_by(ticker, &mut state, at);
    Some(Armed(key))
}

/// Bumps the epoch of a cancelled guest until its run ended.
pub fn nag(target: &Arc<Control>, job: JobId) {
    let ticker = ticker();
    let mut state = ticker.state.lock();
    state.nags.push((Arc::downgrade(target), job));
    wake_by(ticker, &mut state, Instant::now() + NAG);
}

/// Makes the thread look at the clock no later than `at`.
fn wake_by(ticker: &Ticker, state: &mut State, at: Instant) {
    if state.next_wake.is_none_or(|wake| at < wake) {
        state.next_wake = Some(at);
        ticker.changed.notify_one();
    }
}

impl Ticker {
    /// Nobody else watches the clock: a panic must not end it.
    fn run(&self) -> ! {
        loop {
            let _ = catch_unwind(AssertUnwindSafe(|| self.watch()));
        }
    }

    fn watch(&self) -> ! {
        let mut state = self.state.lock();
        loop {
            match state.next_wake {
                None => self.changed.wait(&mut state),
                Some(wake) => {
                    self.changed.wait_until(&mut state, wake);
                }
            }
            let now = Instant::now();
            if state.next_wake.is_some_and(|wake| wake > now) {
                continue;
            }
            let due = take_due(&mut state, now);
            let nags = std::mem::take(&mut state.nags);
            // Cancelling takes locks of the guest, whose holders may be arming.
            parking_lot::MutexGuard::unlocked(&mut state, || due.into_iter().for_each(fire));
            let mut nags = parking_lot::MutexGuard::unlocked(&mut state, || still_running(nags));
            state.nags.append(&mut nags);
            tick(&mut state, now);
            state.next_wake = next_wake(&state, now);
        }
    }
}

fn take_due(state: &mut State, now: Instant) -> Vec<Deadline> {
    let mut due = Vec::new();
    while due.len() < DUE
        && let Some(first) = state.deadlines.first_entry()
        && first.key().0 <= now
    {
        due.push(first.remove());
    }
    due
}

/// A panic at one deadline is none of the others'.
fn fire(deadline: Deadline) {
    if catch_unwind(AssertUnwindSafe(|| deadline.fire())).is_err() {
        // What it should have done is done all the same, or it would be lost.
        let _ = catch_unwind(AssertUnwindSafe(|| deadline.fire()));
    }
}

impl Deadline {
    fn fire(&self) {
        point("fire");
        let Some(control) = self.target.upgrade() else { return };
        match self.reason {
            Reason::HostTimeout(_) => control.expire_host(self.job),
            reason => drop(control.cancel(self.job, reason)),
        }
    }
}

fn still_running(nags: Vec<(Weak<Control>, JobId)>) -> Vec<(Weak<Control>, JobId)> {
    nags.into_iter().filter(|(target, job)| nag_again(target, *job)).collect()
}

/// After a panic the next round looks once more.
fn nag_again(target: &Weak<Control>, job: JobId) -> bool {
    let bump = || {
        point("nag");
        target.upgrade().is_some_and(|control| control.bump(job))
    };
    catch_unwind(AssertUnwindSafe(bump)).unwrap_or(true)
}

fn next_wake(state: &State, now: Instant) -> Option<Instant> {
    let first = state.deadlines.first_key_value().map(|((at, _), _)| *at);
    let nag = (!state.nags.is_empty()).then_some(now + NAG);
    [first, nag, state.tick].into_iter().flatten().min()
}

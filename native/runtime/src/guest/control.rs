//! The part of a guest that any thread may touch while it runs: the queue, cancellation, the parked
//! host calls, and who may enter the store. It holds no store and no future.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::host_call::Parked;
use super::job::{Client, Job, JobId, Reason};
use super::meter::Meter;
use super::queue::Queue;
use super::serve::too_deep;
use super::state::{Next, State, Submitted, wake};
use crate::error::{Class, Error, Kind, Result};
use crate::options::Runner;
use crate::ticker;

/// Shared by a guest's handle, its store's data, its runner and the ticker.
pub struct Control {
    engine: wasmtime::Engine,
    pub(super) host_timeout: Option<Duration>,
    pub(super) runner: Runner,
    pub(super) meter: Meter,
    /// Set while the running job is cancelled: every poll looks at it, without the lock.
    stop: AtomicBool,
    state: Mutex<State>,
}

/// Calls from within host calls of one guest, at most: each holds a stack.
pub(super) const MAX_NESTED: usize = 64;

impl Control {
    pub fn new(
        engine: wasmtime::Engine,
        host_timeout: Option<Duration>,
        runner: Runner,
    ) -> Arc<Self> {
        Arc::new(Control {
            engine,
            host_timeout,
            runner,
            meter: Meter::default(),
            stop: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Adds a job at the end of the queue; `timeout` runs from this moment on. A refused job is the
    /// caller's to answer.
    pub(super) fn submit(
        self: &Arc<Self>,
        mut job: Job,
        timeout: Option<Duration>,
    ) -> Result<Submitted> {
        let mut state = self.state.lock();
        if state.doomed {
            job.forget();
            return Err(destroyed());
        }
        // Under the lock: a deadline that fires at once must find the job.
        job.deadline =
            timeout.and_then(|after| ticker::arm(after, self, job.id, Reason::Timeout(after)));
        if job.client().waits() && state.is_served_by(job.client()) {
            return self.nest(state, job);
        }
        let id = job.id;
        state.queue.push_back(job);
        if state.attached {
            wake(state);
            return Ok(Submitted::Queued);
        }
        state.attached = true;
        // A thread polls whatever is queued; clients poll in turns.
        state.turn = (self.runner == Runner::Scheduler).then_some(id);
        Ok(Submitted::NeedsRunner)
    }

    /// Hands a job to the parked host call whose host asks for it.
    fn nest(&self, mut state: MutexGuard<'_, State>, mut job: Job) -> Result<Submitted> {
        if state.running.len() > MAX_NESTED {
            job.forget();
            return Err(too_deep());
        }
        if let Some(parked) = state.parked.last_mut() {
            parked.meanwhile().nested.push_back(job);
        }
        wake(state);
        Ok(Submitted::Nested)
    }

    /// No runner could be found: the queue is answered with `error`. True when the guest is doomed:
    /// its end is the caller's then, in the place of the runner.
    pub(super) fn abandon(&self, error: &Error) -> bool {
        let mut state = self.state.lock();
        let doomed = state.doomed;
        state.attached = doomed;
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        let error = if doomed { destroyed() } else { error.clone() };
        queue.into_iter().for_each(|job| job.finish(Err(error.clone())));
        doomed
    }

    /// Ends a job, running or queued, with `reason`. False when it is neither.
    pub fn cancel(self: &Arc<Self>, job: JobId, reason: Reason) -> bool {
        self.cancel_in(self.state.lock(), job, reason)
    }

    fn cancel_in(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        job: JobId,
        reason: Reason,
    ) -> bool {
        if let Some(running) = state.running.iter_mut().find(|running| running.id == job) {
            running.cancelled.get_or_insert(reason);
            // A nested job is polled by whoever polls the one around it, which goes on.
            let outermost = state.running.first().filter(|first| first.id == job);
            let client = outermost.map(|first| first.client.clone());
            self.hurry(state, job);
            client.into_iter().for_each(|client| client.stopped());
            return true;
        }
        let Some(removed) = state.remove(job) else { return false };
        // Under the same lock: nobody may poll for the one that is gone.
        let next = state.pass_turn(job);
        drop(state);
        removed.finish(Err(reason.error()));
        next.into_iter().for_each(|client| client.turn());
        true
    }

    /// A client that had its turn is done: the next in the queue is told that it may poll, and
    /// without one the guest has no runner. True when the guest is doomed and owes its last poll.
    /// (Not only to who had the turn: another may have handed it on, and found the store held.)
    pub fn hand_on(&self, job: JobId) -> bool {
        let mut state = self.state.lock();
        let next = state.pass_turn(job);
        let owes = state.doomed && state.attached;
        drop(state);
        next.into_iter().for_each(|client| client.turn());
        owes
    }

    /// True when it is the turn of the client of `job`, whose waker is the guest's from here on.
    pub fn take_turn(&self, job: JobId, waker: Waker) -> bool {
        let mut state = self.state.lock();
        let turn = state.turn == Some(job);
        if turn {
            state.waker = Some(waker);
        }
        turn
    }

    /// A nested call is the one to wake from here on, until [`Control::give_back`]; nothing when nobody
    /// polls the guest any more.
    pub fn lend(&self, waker: Waker) -> Option<Lent> {
        let mut state = self.state.lock();
        let turn = state.turn;
        state.attached.then(|| Lent { turn, around: state.waker.replace(waker) })
    }

    /// The call around a nested one is the one to wake again, unless the turn is another's.
    pub fn give_back(&self, lent: &Lent) {
        let mut state = self.state.lock();
        if state.attached && state.turn == lent.turn {
            state.waker.clone_from(&lent.around);
        }
    }

    /// True while a running job must stop: its next poll ends it.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(SeqCst)
    }

    /// True while `job` runs.
    pub fn is_running(&self, job: JobId) -> bool {
        self.state.lock().running.iter().any(|running| running.id == job)
    }

    /// True while the client of `job` is the one that polls.
    pub fn has_turn(&self, job: JobId) -> bool {
        self.state.lock().turn == Some(job)
    }

    /// Interrupts what runs, or where nothing does yet the job that is about to begin. False when there
    /// is neither. What queues behind that stays.
    pub fn interrupt(self: &Arc<Self>) -> bool {
        let state = self.state.lock();
        state.current().is_some_and(|job| self.cancel_in(state, job, Reason::Interrupt))
    }

    /// Makes a running guest look at its flags: in wasm code by the epoch, in an await by its waker.
    fn hurry(self: &Arc<Self>, state: MutexGuard<'_, State>, job: JobId) {
        self.stop.store(true, SeqCst);
        wake(state);
        self.engine.increment_epoch();
        ticker::nag(self, job);
    }

    /// Bumps the epoch if `job` still runs; false when it ended.
    pub(crate) fn bump(&self, job: JobId) -> bool {
        let runs = self.is_running(job);
        if runs {
            self.engine.increment_epoch();
        }
        runs
    }

    /// Why a running job must stop, if it must.
    pub(super) fn cancelled(&self, job: JobId) -> Option<Error> {
        if !self.stop.load(SeqCst) {
            return None;
        }
        let state = self.state.lock();
        let at = state.running.iter().position(|running| running.id == job)?;
        let reason = state.running[at].cancelled?;
        Some(reason.error_in(state.parked.get(at).map(|parked| &*parked.import)))
    }

    /// Registers what to wake when something happens to the guest.
    pub fn set_waker(&self, waker: Waker) {
        let before = self.state.lock().waker.replace(waker);
        drop(before);
    }

    /// A runner enters while no run is under way: it gets the next job, and without one it is detached.
    pub(super) fn enter(&self) -> Next {
        let mut state = self.state.lock();
        if state.is_entered() {
            Next::Wait
        } else if state.doomed {
            state.next_refused()
        } else {
            state.next_job()
        }
    }

    /// True when somebody is inside the store, who wakes the runner then.
    pub(super) fn is_entered(&self) -> bool {
        self.state.lock().is_entered()
    }

    /// Somebody other than the runner enters the store: only when the guest is idle, or parked in
    /// a host call.
    pub(super) fn begin_access(&self) -> Result<Access<'_>> {
        let mut state = self.state.lock();
        if state.doomed {
            return Err(destroyed());
        }
        let cancelled = state.running.iter().any(|running| running.cancelled.is_some());
        // A parked guest cannot go on without an answer: a poll of it under way ends at once.
        if !state.running.is_empty() && (!state.is_parked() || cancelled) {
            return Err(Error::new(Class::Call, Kind::Busy, "the instance is running"));
        }
        state.accessing += 1;
        Ok(Access(self))
    }

    /// The running job ended: host calls of it that are still parked are forgotten.
    pub(super) fn ended(&self) {
        let mut state = self.state.lock();
        let ended = state.running.pop();
        state.running.clear();
        // Both lists keep their room for the next run.
        let mut dropped: Vec<Parked> = Vec::new();
        dropped.append(&mut state.parked);
        if self.stop.load(SeqCst) {
            self.stop.store(false, SeqCst);
        }
        drop(state);
        drop((ended, dropped));
    }

    /// A nested job ended, or was dropped with the run around it.
    pub(super) fn ended_nested(&self, job: JobId) {
        let mut state = self.state.lock();
        let gone = state.running.iter().position(|running| running.id == job);
        let gone = gone.map(|at| state.running.drain(at..).collect::<Vec<_>>());
        let stop = state.running.iter().any(|running| running.cancelled.is_some());
        self.stop.store(stop, SeqCst);
        drop(state);
        drop(gone);
    }

    /// The guest is lost: no job starts after this, and what runs is over. Answers what was queued.
    pub(super) fn condemn(&self) -> Queue {
        let mut state = self.state.lock();
        state.doomed = true;
        let queue = std::mem::take(&mut state.queue);
        drop(state);
        self.ended();
        queue
    }

    /// True when the guest is doomed and its last poll is still to be done.
    pub(super) fn owes_its_end(&self) -> bool {
        let state = self.state.lock();
        state.doomed && state.attached
    }

    /// No job starts after this, and a running one is cancelled. True when the caller must take the
    /// store itself; false when the runner will, which answers the queue first.
    pub(super) fn doom(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        state.doomed = true;
        let attached = state.attached;
        let running = state.running.first_mut().map(|running| {
            running.cancelled.get_or_insert(Reason::Destroyed);
            (running.id, running.client.clone())
        });
        match running {
            Some((job, client)) => {
                self.hurry(state, job);
                client.stopped();
            }
            None => wake(state),
        }
        !attached
    }

    /// True when `client` will be told that the store of the doomed guest is gone; false when it is
    /// gone already.
    pub fn mourn(&self, client: Arc<dyn Client>) -> bool {
        let mut state = self.state.lock();
        if state.attached {
            state.mourners.push(client);
        }
        state.attached
    }

    /// Tells everybody who waits for the end of the store.
    pub(super) fn gone(&self) {
        let mourners = {
            let mut state = self.state.lock();
            (state.attached, state.turn, state.waker) = (false, None, None);
            std::mem::take(&mut state.mourners)
        };
        mourners.into_iter().for_each(|client| client.finish(0, Ok(Vec::new())));
    }
}

/// Who was to be woken before a nested call was.
pub struct Lent {
    turn: Option<JobId>,
    around: Option<Waker>,
}

pub(crate) fn destroyed() -> Error {
    Error::new(Class::Call, Kind::Destroyed, "the instance is destroyed")
}

/// Keeps the runner out while it lives.
pub(super) struct Access<'a>(&'a Control);

impl Drop for Access<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.accessing -= 1;
        if state.accessing == 0 && std::mem::take(&mut state.refused) {
            wake(state);
        }
    }
}

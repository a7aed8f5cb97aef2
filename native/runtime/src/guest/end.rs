//! How a guest ends: destroyed, with its clients, or by a panic of ours.
//! Rule: whatever ends it, its store, its place in the pool and everybody who waits are seen to.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Release;
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::MutexGuard;

use super::host_call::HostCall;
use super::job::{Job, JobId, Reason, panicked};
use super::poll::{Body, Guest, Run, Step};
use crate::error::Error;
use crate::inject::point;
use crate::memory::{Pending, deferring};
use crate::options::Runner;
use crate::runner;
use crate::ticker;

/// Between two looks at a guest that somebody else polls.
const HANDS_OFF: Duration = Duration::from_micros(100);

/// Jobs of a doomed guest that are answered in one go: some hundred microseconds on a scheduler.
const AT_ONCE: usize = 64;

/// How far `destroy` came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destroyed {
    /// The store is gone, and its place in the pool is free.
    Done,
    /// The runner does it.
    Later,
}

impl Guest {
    /// Its runner panicked: the store cannot be trusted and goes, and whoever waits gets the error.
    /// Called by the runner only.
    pub fn fail(&self, error: &Error) {
        let old = std::mem::replace(&mut *self.body.lock(), Body::Gone);
        let queue = self.control.condemn();
        self.inbox.destroy();
        match old {
            Body::Running(run) => bury(run).finish(Err(error.clone())),
            old => drop(catch_unwind(AssertUnwindSafe(|| drop(old)))),
        }
        queue.into_iter().for_each(|job| job.finish(Err(error.clone())));
        self.control.gone();
    }

    /// Asks who is to serve a host call. Whatever becomes of that, the guest gets an answer.
    pub fn tell(&self, call: HostCall) {
        let Some((client, import)) = self.control.asked_of(&call) else { return };
        let id = call.id;
        let told = catch_unwind(AssertUnwindSafe(|| {
            point("tell");
            client.host_call(call, &import)
        }));
        match told {
            Ok(true) => {}
            Ok(false) => self.control.host_down(id),
            Err(panic) => self.control.reply(id, Err(panicked(panic.as_ref()))),
        }
    }

    /// Takes a doomed guest down when its runner is not at it: a client that has its turn may be
    /// far away. Does nothing while somebody else holds the store: whoever lets go of it, having
    /// polled or visited, looks here afterwards. False when so many jobs are queued that answering
    /// them takes long: to be called again where that is fine.
    pub fn wind_up(&self) -> bool {
        self.wind(false)
    }

    /// As [`Guest::wind_up`], and false too when dropping the store may take long.
    pub fn try_wind_up(&self) -> bool {
        self.wind(true)
    }

    fn wind(&self, hurries: bool) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..AT_ONCE {
            if !self.control.owes_its_end() || self.body.is_locked() {
                return true;
            }
            if hurries && self.may_take_long() {
                return false;
            }
            match self.poll(&mut cx) {
                Step::Done(job, outcome) => job.finish(outcome),
                Step::Host(..) | Step::Wait | Step::Idle | Step::Gone => return true,
            }
        }
        false
    }

    fn may_take_long(&self) -> bool {
        match self.body.try_lock().as_deref_mut() {
            Some(Body::Idle(cell)) => cell.may_take_long(),
            Some(Body::Running(_) | Body::Gone) | None => false,
        }
    }

    /// Ends the job of a client that had its turn and is gone, and hands the guest on. The answer is
    /// that of [`Guest::try_wind_up`].
    pub fn expire(&self, job: JobId) -> bool {
        let ended = catch_unwind(AssertUnwindSafe(|| self.end(job)));
        ended.unwrap_or_else(|_| {
            // Nobody may wait for what cannot be ended alone.
            self.destroy_at_leisure();
            true
        })
    }

    /// Ends the guest where waiting is fine, restore included.
    pub fn destroy_at_leisure(&self) {
        let later = self.destroy() == Destroyed::Later;
        while later && self.runner() == Runner::Scheduler && !self.wind_up() {}
    }

    fn end(&self, job: JobId) -> bool {
        point("expire");
        self.control.cancel(job, Reason::Interrupt);
        let mut cx = Context::from_waker(Waker::noop());
        while self.control.is_running(job) && self.control.has_turn(job) {
            if self.body.is_locked() {
                // Whoever polls sees that it must stop.
                std::thread::sleep(HANDS_OFF);
                continue;
            }
            let _slice = ticker::Slice::begin();
            match self.poll(&mut cx) {
                Step::Done(job, outcome) => job.finish(outcome),
                // Of the job that is next, which somebody else goes on with.
                Step::Host(call) => self.tell(call),
                Step::Wait => std::thread::yield_now(),
                Step::Idle | Step::Gone => break,
            }
        }
        self.pass_on(job)
    }

    /// The client of `job` is done with its turn. The answer is that of [`Guest::try_wind_up`].
    pub fn pass_on(&self, job: JobId) -> bool {
        !self.control.hand_on(job) || self.try_wind_up()
    }

    /// Ends the guest in any state; waits for whoever is burying it. When the answer is `Later`,
    /// [`Control::mourn`] tells its end.
    pub fn destroy(&self) -> Destroyed {
        if self.doom(u64::MAX) == Some(false) {
            return Destroyed::Later;
        }
        let body = self.body.lock();
        let grave = self.grave.lock();
        self.bury(body, grave, None);
        Destroyed::Done
    }

    /// As [`Guest::destroy`], but `None` when somebody is inside or burying it just then, the store
    /// takes long to drop, or more than `budget` bytes are to be restored or freed: to be asked again where
    /// waiting is fine. Nobody gets another answer before the place in the pool is free.
    pub fn try_destroy(&self, budget: usize) -> Option<Destroyed> {
        if !self.doom(budget as u64)? {
            return Some(Destroyed::Later);
        }
        let mut body = self.body.try_lock()?;
        let long = match &mut *body {
            Body::Idle(cell) => cell.takes_long(),
            Body::Running(_) | Body::Gone => false,
        };
        let grave = self.grave.try_lock().filter(|_| !long)?;
        self.bury(body, grave, Some(budget)).then_some(Destroyed::Done)
    }

    /// No runner could be found: the queue is answered with `error`, and the next job asks for a
    /// runner again. A guest that was destroyed meanwhile goes on this thread.
    pub fn abandon(&self, error: &Error) {
        if self.control.abandon(error) {
            let body = self.body.lock();
            let grave = self.grave.lock();
            self.bury(body, grave, None);
            self.control.gone();
        }
    }

    /// True when the store is the caller's to take; nothing when more than `frees` bytes of input are left
    /// to be freed.
    fn doom(&self, frees: u64) -> Option<bool> {
        let ours = self.control.doom();
        // After that: the guest must not take this for the end of its input.
        self.inbox.destroy_within(frees).then_some(ours)
    }

    /// Drops the store, and restores its memories within `budget` bytes of work: false when some are
    /// left. The grave is locked before the body says that the store is gone, so that whoever comes
    /// later waits here.
    fn bury(
        &self,
        mut body: MutexGuard<'_, Body>,
        mut grave: MutexGuard<'_, Option<Pending>>,
        budget: Option<usize>,
    ) -> bool {
        let old = std::mem::replace(&mut *body, Body::Gone);
        drop(body);
        // Only an idle store is dropped here, and once: nothing lies in its grave yet.
        if !matches!(old, Body::Gone) {
            *grave = Some(self.dropped(old));
        }
        *grave = grave.take().and_then(|pending| match budget {
            Some(budget) => {
                // Where there is a processor for it, nobody waits for this.
                let free = runner::processor_is_free(self.runner());
                let left = if free { pending.leave() } else { Some(pending) };
                left.and_then(|pending| pending.finish_within(budget))
            }
            None => {
                pending.finish();
                None
            }
        });
        self.is_buried.store(grave.is_none(), Release);
        grave.is_none()
    }

    /// What is to be restored of a store that was dropped.
    fn dropped(&self, old: Body) -> Pending {
        // A destructor that panics has dropped the rest on its way; what is not restored is not reused.
        let drop_old = AssertUnwindSafe(|| {
            point("bury");
            drop(old);
        });
        let (_, pending) = deferring(|| catch_unwind(drop_old));
        pending
    }
}

/// The job of an ended run. A future that panicked may panic once more while it is dropped.
pub(super) fn bury(run: Run) -> Job {
    let Run { job, future, .. } = run;
    let _ = catch_unwind(AssertUnwindSafe(|| drop(future)));
    job
}

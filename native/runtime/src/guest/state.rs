//! What `Control` keeps behind its lock.

use std::sync::Arc;
use std::task::Waker;

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::host_call::Parked;
use super::job::{Client, Job, JobId, Reason};
use super::queue::Queue;
use crate::ticker::Armed;

/// What a runner does next.
pub(super) enum Next {
    Job(Job),
    /// A job that the guest does not come to any more.
    Refused(Job),
    /// The store goes.
    Doomed,
    /// Somebody is inside the store: poll again after a wake.
    Wait,
    Idle,
}

/// What a submitted job needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// Nobody runs the guest: the caller must find a runner for it.
    NeedsRunner,
    Queued,
    /// It runs inside the host call that its client serves.
    Nested,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) queue: Queue,
    /// The job under way, and those that host functions of it asked for, innermost last.
    pub(super) running: SmallVec<[Running; 1]>,
    /// A runner has the guest, or is about to get it.
    pub(super) attached: bool,
    /// The job whose client polls the guest, where clients take turns.
    pub(super) turn: Option<JobId>,
    /// A runner was sent away because of an access, and is owed a wake.
    pub(super) refused: bool,
    /// Threads that read or write the store between two polls.
    pub(super) accessing: usize,
    /// No job starts any more, and the store goes as soon as nobody is inside.
    pub(super) doomed: bool,
    /// Told when the store is gone.
    pub(super) mourners: Vec<Arc<dyn Client>>,
    pub(super) waker: Option<Waker>,
    pub(super) parked: Vec<Parked>,
}

pub(super) struct Running {
    pub(super) id: JobId,
    pub(super) client: Arc<dyn Client>,
    pub(super) cancelled: Option<Reason>,
    /// Watches the host calls of this job; armed by the first.
    pub(super) host_deadline: Option<Armed>,
}

impl Running {
    fn new(job: &Job) -> Self {
        let client = job.client().clone();
        Running { id: job.id, client, cancelled: None, host_deadline: None }
    }
}

impl State {
    /// Without a job nobody runs the guest any more.
    pub(super) fn next_job(&mut self) -> Next {
        match self.queue.pop_front() {
            Some(job) => {
                self.begin(&job);
                Next::Job(job)
            }
            None => {
                (self.attached, self.turn, self.waker) = (false, None, None);
                Next::Idle
            }
        }
    }

    /// True when somebody is inside the store, or about to be, who wakes the runner then.
    pub(super) fn is_entered(&mut self) -> bool {
        self.refused = self.accessing > 0;
        self.refused
    }

    /// A doomed guest refuses what is queued, one job at a time; then its store goes.
    pub(super) fn next_refused(&mut self) -> Next {
        self.queue.pop_front().map_or(Next::Doomed, Next::Refused)
    }

    /// A job counts as running from here on.
    pub(super) fn begin(&mut self, job: &Job) {
        self.running.push(Running::new(job));
    }

    /// The outermost job that runs, else the one that begins next.
    pub(super) fn current(&self) -> Option<JobId> {
        let begins = || self.queue.front().filter(|_| !self.doomed).map(|job| job.id);
        self.running.first().map(|running| running.id).or_else(begins)
    }

    /// The turn of `job` is over: whose it is now, to be told. Without anybody the guest has no
    /// runner; a doomed one keeps it for its last poll.
    pub(super) fn pass_turn(&mut self, job: JobId) -> Option<Arc<dyn Client>> {
        if self.turn != Some(job) {
            return None;
        }
        let running = self.running.first().filter(|running| running.id != job);
        let running = running.map(|running| (running.id, running.client.clone()));
        let queued = || self.queue.front().map(|next| (next.id, next.client().clone()));
        let next = running.or_else(queued);
        self.turn = next.as_ref().map(|(id, _)| *id);
        if next.is_none() && !self.doomed {
            (self.attached, self.waker) = (false, None);
        }
        next.map(|(_, client)| client)
    }

    /// True when the innermost job waits for its host.
    pub(super) fn is_parked(&self) -> bool {
        let waits = self.parked.last().is_some_and(|parked| parked.answer.is_none());
        waits && self.parked.len() == self.running.len()
    }

    /// Takes out a job that did not begin.
    pub(super) fn remove(&mut self, job: JobId) -> Option<Job> {
        let State { queue, parked, .. } = self;
        queue.remove(job).or_else(|| {
            // Few at each level: they are those of a process that waits for them.
            let meanwhile = parked.iter_mut().filter_map(|parked| parked.meanwhile.as_mut());
            meanwhile.map(|it| &mut it.nested).find_map(|jobs| {
                let at = jobs.iter().position(|queued| queued.id == job)?;
                jobs.remove(at)
            })
        })
    }
}

/// Wakes the runner after the lock is given back.
pub(super) fn wake(state: MutexGuard<'_, State>) {
    let waker = state.waker.clone();
    drop(state);
    waker.into_iter().for_each(Waker::wake);
}

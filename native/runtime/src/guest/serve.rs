//! Who serves the host calls of a guest, and what that process asks for meanwhile. Rule: whoever the
//! guest waits for never waits for the guest.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::control::{Control, MAX_NESTED};
use super::job::{Client, Job, JobId, Reason};
use super::meter::{Activity, Usage};
use super::state::{State, wake};
use crate::error::{Class, Error, Kind};
use crate::ticker::{self, Armed};

impl Control {
    /// Takes a parked host call over to serve it: who asks from now on as `by` runs inside it. The
    /// answer is who was to serve it; nothing when it was taken, answered or ended before.
    pub fn claim(&self, call: u64, by: u64) -> Option<u64> {
        let mut state = self.state();
        let at = state.parked.iter().position(|parked| parked.id == call)?;
        let running = state.running.get(at).filter(|running| running.cancelled.is_none())?;
        let host = running.client.host();
        let parked = &mut state.parked[at];
        if parked.answer.is_some() || parked.server.is_some() {
            return None;
        }
        parked.server = Some(by);
        Some(host)
    }

    /// The process that serves host calls is gone: what waits for it ends at once.
    pub fn host_gone(&self, host: u64) {
        let mut state = self.state();
        let State { parked, running, .. } = &mut *state;
        for (parked, running) in parked.iter_mut().zip(running) {
            if parked.server.unwrap_or_else(|| running.client.host()) == host {
                parked.answer.get_or_insert_with(|| Err(Box::new(parked.import.host_down())));
            }
        }
        wake(state);
    }

    /// Nobody is there to answer a host call.
    pub fn host_down(&self, call: u64) {
        let import = self.parked_import(call);
        import.into_iter().for_each(|import| self.reply(call, Err(import.host_down())));
    }

    /// True when that process polls the guest.
    pub fn is_polled_by(&self, poller: u64) -> bool {
        self.state().running.first().is_some_and(|first| first.client.poller() == poller)
    }

    /// `asker` is about to wait for its job. While it serves a host call the job cannot wait in the
    /// queue behind that: it runs inside.
    pub fn wait_for(&self, job: JobId, asker: u64) -> Awaited {
        let mut state = self.state();
        if !state.is_inside(asker) {
            return Awaited::Comes;
        }
        if state.running.iter().any(|running| running.id == job) {
            return Awaited::Itself;
        }
        let Some(job) = state.queue.remove(job) else { return Awaited::Comes };
        if state.running.len() > MAX_NESTED {
            drop(state);
            job.finish(Err(too_deep()));
            return Awaited::Comes;
        }
        if let Some(parked) = state.parked.last_mut() {
            parked.meanwhile().nested.push_back(job);
        }
        wake(state);
        Awaited::Inside
    }

    /// What the guest is doing, and how many jobs wait.
    pub fn activity(&self) -> (Activity, usize) {
        let state = self.state();
        let activity = if state.doomed {
            Activity::Destroyed
        } else if state.is_parked() {
            Activity::HostCall
        } else if state.running.is_empty() {
            Activity::Idle
        } else {
            Activity::Running
        };
        (activity, state.queue.len())
    }

    /// What the guest used so far.
    pub fn usage(&self) -> Usage {
        self.meter.read()
    }

    /// Ends `job` after this time, while the answer lives.
    pub fn limit(self: &Arc<Self>, job: JobId, after: Duration) -> Option<Armed> {
        ticker::arm(after, self, job, Reason::Timeout(after))
    }
}

/// What a process that waits for a job of its own is in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The result comes.
    Comes,
    /// As `Comes`, and the job runs inside the host call that the process serves.
    Inside,
    /// The job waits for the process: it would wait for itself.
    Itself,
}

/// Every call inside another holds a stack.
pub(super) fn too_deep() -> Error {
    let message = format!("more than {MAX_NESTED} calls inside host calls of each other");
    Error::new(Class::Trap, Kind::StackOverflow, message)
}

impl State {
    /// True when the guest waits for the very process that asks.
    pub(super) fn is_served_by(&self, client: &Arc<dyn Client>) -> bool {
        self.is_parked() && self.server() == Some(client.asker())
    }

    /// True when that process is in the host function that the guest waits for.
    fn is_inside(&self, server: u64) -> bool {
        // A caller that does nothing else gets a host call only to serve it.
        let told = self.parked.last().is_some_and(|parked| parked.server.is_some())
            || self.running.last().is_some_and(|running| running.client.waits());
        told && self.is_parked() && self.server() == Some(server)
    }

    /// Who serves the innermost host call.
    fn server(&self) -> Option<u64> {
        let host = self.running.last()?.client.host();
        Some(self.parked.last()?.server.unwrap_or(host))
    }

    /// Takes out the queued jobs that the host of the running job waits for: it would never serve
    /// the host call that they queue behind, so they run inside it.
    pub(super) fn adopt(&mut self) -> VecDeque<Job> {
        let Some(running) = self.running.last().filter(|_| !self.queue.is_empty()) else {
            return VecDeque::new();
        };
        if self.running.len() > MAX_NESTED {
            return VecDeque::new();
        }
        let host = running.client.host();
        self.queue.remove_awaited(host)
    }
}

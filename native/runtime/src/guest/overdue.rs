//! Host calls that take too long. Rule: a job has one watch for all its host calls.

use std::sync::Arc;

use super::control::Control;
use super::job::{JobId, Reason};
use super::state::State;
use crate::ticker;

impl Control {
    /// Sees that somebody looks at the host calls of the running job when their time may be over.
    /// One watch serves all of a job's host calls: arming one for each would cost as much as they do.
    pub(super) fn watch_host(self: &Arc<Self>, state: &mut State) {
        let (Some(limit), Some(running)) = (self.host_timeout, state.running.last_mut()) else {
            return;
        };
        if running.host_deadline.is_none() {
            let reason = Reason::HostTimeout(limit);
            running.host_deadline = ticker::arm(limit, self, running.id, reason);
        }
    }

    /// Ends `job` if its host call is overdue, else looks again when it can be.
    pub(crate) fn expire_host(self: &Arc<Self>, job: JobId) {
        let Some(limit) = self.host_timeout else { return };
        let mut state = self.state();
        let Some(at) = state.running.iter().position(|running| running.id == job) else { return };
        let waited = state.parked.get(at).map(|parked| parked.since.elapsed());
        let left = waited.map_or(limit, |waited| limit.saturating_sub(waited));
        if left.is_zero() {
            drop(state);
            self.cancel(job, Reason::HostTimeout(limit));
        } else {
            let reason = Reason::HostTimeout(limit);
            state.running[at].host_deadline = ticker::arm(left, self, job, reason);
        }
    }
}

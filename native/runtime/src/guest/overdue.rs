//! Host calls that take too long. Rule: a job has one watch for all its host calls, and a host call that
//! is answered in time cost no look at the precise clock.

use std::sync::Arc;
use std::time::Duration;

use super::control::Control;
use super::job::{JobId, Reason};
use super::state::State;
use crate::clock;
use crate::ticker;

/// When a host call began. The clock that tells it costs a fifth of the precise one, and may be one of
/// its ticks (some milliseconds) behind.
#[derive(Clone, Copy)]
pub(super) struct Since(Duration);

impl Since {
    pub(super) fn now() -> Self {
        Since(clock::now(COARSE))
    }

    /// Not more than it was, while the system moves the coarse clock on at each of its ticks.
    fn elapsed(self) -> Duration {
        clock::now(libc::CLOCK_MONOTONIC).saturating_sub(self.0 + clock::resolution(COARSE))
    }
}

#[cfg(target_os = "linux")]
const COARSE: libc::clockid_t = libc::CLOCK_MONOTONIC_COARSE;
#[cfg(not(target_os = "linux"))]
const COARSE: libc::clockid_t = libc::CLOCK_MONOTONIC;

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
        let waited = state.parked.get(at).and_then(|parked| parked.since.map(Since::elapsed));
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

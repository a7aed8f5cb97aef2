//! Jobs that a host function has another guest do: they end with the host call that they are for.
//! Rule: nothing of another guest is touched while the state of this one is locked.

use std::sync::Arc;

use super::control::Control;
use super::host_call::Parked;
use super::job::{JobId, Reason};
use super::state::State;

/// A job of another guest. Dropping this ends it.
pub(super) struct Dependent {
    control: Arc<Control>,
    job: JobId,
}

impl Drop for Dependent {
    fn drop(&mut self) {
        self.control.cancel(self.job, Reason::Interrupt);
    }
}

impl Control {
    /// `job` of `other`, which `asker` was just about to wait for, ends with the host call of this guest
    /// that `asker` serves; at once when there is none any more.
    pub fn bind(&self, asker: u64, other: &Arc<Control>, job: JobId) {
        let mut bound = self.take_dependents(asker);
        // The asker waits for one job at a time: of those before, the ones that still run are around it.
        bound.retain(|dependent| dependent.control.is_running(dependent.job));
        bound.push(Dependent { control: other.clone(), job });
        let mut state = self.state();
        if let Some(parked) = state.served_by(asker) {
            std::mem::swap(&mut parked.meanwhile().dependents, &mut bound);
        }
        drop(state);
        drop(bound);
    }

    fn take_dependents(&self, asker: u64) -> Vec<Dependent> {
        let mut state = self.state();
        let meanwhile = state.served_by(asker).and_then(|parked| parked.meanwhile.as_mut());
        meanwhile.map(|it| std::mem::take(&mut it.dependents)).unwrap_or_default()
    }
}

impl State {
    /// The innermost host call that waits for that process.
    fn served_by(&mut self, asker: u64) -> Option<&mut Parked> {
        let State { parked, running, .. } = self;
        let calls = parked.iter_mut().zip(running.iter()).rev();
        let mut waiting = calls.filter(|(parked, running)| {
            let server = parked.server.unwrap_or_else(|| running.client.host());
            server == asker && parked.answer.is_none()
        });
        waiting.next().map(|(parked, _)| parked)
    }
}

//! Who is told of a host call, and its answer.

use std::convert::Infallible;
use std::sync::Arc;

use super::control::Control;
use super::host_call::{HostCall, HostImport, Parked};
use super::job::{Client, Outcome};
use super::state::{State, wake};
use crate::value::Type;

impl Control {
    /// Answers a parked host call and wakes the runner; a late or unknown answer is dropped.
    pub fn reply(&self, call: u64, answer: Outcome) {
        let Ok(()) = self.reply_with(call, true, |_| Ok::<_, Infallible>(answer));
    }

    /// As [`Control::reply`], with what `read` makes of the import, which tells the types. A runner that
    /// polls next needs no wake.
    ///
    /// # Errors
    /// That of `read`: then there is no answer yet.
    pub fn reply_with<E>(
        &self,
        call: u64,
        wakes: bool,
        read: impl FnOnce(&HostImport) -> Result<Outcome, E>,
    ) -> Result<(), E> {
        let mut state = self.state();
        let Some(parked) = state.unanswered(call) else { return Ok(()) };
        if parked.import.signature.results.iter().all(is_word) {
            parked.answer = Some(read(&parked.import)?.map_err(Box::new));
        } else {
            // Terms of any size are looked at, or copied: nobody shall wait for that with the lock.
            let import = parked.import.clone();
            drop(state);
            let answer = read(&import)?;
            state = self.state();
            let Some(parked) = state.unanswered(call) else { return Ok(()) };
            parked.answer = Some(answer.map_err(Box::new));
        }
        if wakes {
            wake(state);
        }
        Ok(())
    }

    /// The import behind a parked host call; nothing when the call is over.
    pub fn parked_import(&self, call: u64) -> Option<Arc<HostImport>> {
        let state = self.state();
        state.parked.iter().find(|parked| parked.id == call).map(|parked| parked.import.clone())
    }

    /// Who is to be told of a host call, and its import; nothing when it is over.
    pub(super) fn asked_of(&self, call: &HostCall) -> Option<(Arc<dyn Client>, Arc<HostImport>)> {
        let state = self.state();
        let parked = state.parked.iter().find(|parked| parked.id == call.id)?;
        let running = state.running.iter().find(|running| running.id == call.job)?;
        Some((running.client.clone(), parked.import.clone()))
    }
}

/// True of a type whose values are read in a moment, whatever was given instead.
fn is_word(ty: &Type) -> bool {
    matches!(ty, Type::I32 | Type::I64)
}

impl State {
    fn unanswered(&mut self, call: u64) -> Option<&mut Parked> {
        self.parked.iter_mut().find(|parked| parked.id == call && parked.answer.is_none())
    }
}

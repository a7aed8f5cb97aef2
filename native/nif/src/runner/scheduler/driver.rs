//! Who polls a call that its asker does not wait for: a process that was made for it, until the asker
//! takes over.

use parking_lot::MutexGuard;
use rustler::{Env, LocalPid};
use wasmtime_beam::guest::Client;

use super::Turn;
use crate::background;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Driver {
    /// Whoever comes.
    Anybody,
    Only(LocalPid),
    /// The call is over, and who polled it knows.
    Nobody,
}

impl Turn {
    /// From here on the death of the process that polls ends the call too.
    pub fn guard(&self, env: Env<'_>, driver: LocalPid) {
        if self.instance().jobs().depend(driver, self.job) {
            self.watch(env, driver);
        }
    }

    /// Nobody can be found to poll the call.
    pub fn abandon(&self) {
        background::expire_now(self.instance().guest(), self.job);
    }

    /// The calling process polls from here on, in the place of the one that was made for it. False when
    /// that one came to the end of the call: its message comes, and nobody would wake who polls.
    pub fn take_over(&self, env: Env<'_>) -> bool {
        let mut driver = self.driver.lock();
        if *driver == Driver::Nobody {
            return false;
        }
        *driver = Driver::Only(env.pid());
        self.drive();
        drop(driver);
        self.instance().jobs().release(self.job);
        if let Some(monitor) = self.monitor.get() {
            self.instance().demonitor(Some(env), monitor);
        }
        // The other one sees that it is not needed any more.
        self.caller.notify();
        true
    }

    /// Keeps other processes from polling, where there may be others.
    pub(super) fn gate(&self) -> Option<MutexGuard<'_, Driver>> {
        (!self.caller.waits()).then(|| self.driver.lock())
    }
}

/// True when another process than the calling one polls, or none does any more.
pub(super) fn is_anothers(gate: &Option<MutexGuard<'_, Driver>>, env: Env<'_>) -> bool {
    match gate.as_deref() {
        None | Some(Driver::Anybody) => false,
        Some(Driver::Only(driver)) => *driver != env.pid(),
        Some(Driver::Nobody) => true,
    }
}

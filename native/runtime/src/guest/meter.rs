//! What a guest used so far, to be read from any thread while it runs. Rule: only whoever is inside
//! the store writes, so that plain stores suffice.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Written by the guest's poller, read by anybody.
#[derive(Debug, Default)]
pub struct Meter {
    memory: AtomicU64,
    peak: AtomicU64,
    calls: AtomicU64,
    host_calls: AtomicU64,
    fuel: AtomicU64,
}

/// A reading of a [`Meter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of all memories.
    pub memory: u64,
    /// The most that it was.
    pub peak: u64,
    /// Calls that began, those inside host calls too.
    pub calls: u64,
    /// Host calls that began.
    pub host_calls: u64,
    /// Fuel that the last call began with.
    pub fuel: u64,
}

impl Meter {
    pub fn read(&self) -> Usage {
        Usage {
            memory: self.memory.load(Relaxed),
            peak: self.peak.load(Relaxed),
            calls: self.calls.load(Relaxed),
            host_calls: self.host_calls.load(Relaxed),
            fuel: self.fuel.load(Relaxed),
        }
    }

    pub(super) fn set_memory(&self, bytes: u64) {
        self.memory.store(bytes, Relaxed);
        if bytes > self.peak.load(Relaxed) {
            self.peak.store(bytes, Relaxed);
        }
    }

    pub(super) fn count_call(&self) {
        self.calls.store(self.calls.load(Relaxed) + 1, Relaxed);
    }

    pub(super) fn count_host_call(&self) {
        self.host_calls.store(self.host_calls.load(Relaxed) + 1, Relaxed);
    }

    pub(super) fn set_fuel(&self, fuel: u64) {
        self.fuel.store(fuel, Relaxed);
    }
}

/// What a guest is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    Idle,
    /// A job is under way.
    Running,
    /// As `Running`, and the guest waits for its host.
    HostCall,
    Destroyed,
}

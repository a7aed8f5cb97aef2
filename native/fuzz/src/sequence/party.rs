//! Who asks in a sequence: records what it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use wasmtime_beam::error::{Class, Kind};
use wasmtime_beam::guest::{Client, HostCall, HostImport, JobId, Outcome};

/// A process that asked for one job.
pub struct Party {
    pub asker: u64,
    pub host: u64,
    pub waits: bool,
    finished: AtomicUsize,
    stopped: AtomicBool,
}

impl Party {
    pub fn new(asker: u64, host: u64, waits: bool) -> Arc<Self> {
        let (finished, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Party { asker, host, waits, finished, stopped })
    }

    /// How many answers came.
    pub fn finished(&self) -> usize {
        self.finished.load(SeqCst)
    }

    /// True once after it was told to stop.
    pub fn take_stopped(&self) -> bool {
        self.stopped.swap(false, SeqCst)
    }
}

impl Client for Party {
    fn host_call(&self, _: HostCall, _: &HostImport) -> bool {
        true
    }

    fn asker(&self) -> u64 {
        self.asker
    }

    fn host(&self) -> u64 {
        self.host
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn finish(&self, _: JobId, outcome: Outcome) {
        if let Err(error) = outcome {
            let ours = error.class == Class::Internal || error.kind == Kind::Panic;
            assert!(!ours, "{error}");
        }
        self.finished.fetch_add(1, SeqCst);
    }

    fn stopped(&self) {
        self.stopped.store(true, SeqCst);
    }
}

//! The jobs of an instance that are under way, and the processes they depend on. Rule: nothing here takes
//! long because there are many, and nothing is dropped while the lock is held.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use rustler::{LocalPid, ResourceArc};
use wasmtime_beam::guest::JobId;
use wasmtime_beam::ticker::Armed;

use super::Call;
use crate::client::number;

#[derive(Default)]
pub struct Jobs(Mutex<Table>);

#[derive(Default)]
struct Table {
    jobs: BTreeMap<JobId, Watched>,
    /// The jobs that end with a process.
    of: BTreeMap<u64, BTreeSet<JobId>>,
}

struct Watched {
    asker: LocalPid,
    /// Polls it in the asker's place.
    driver: Option<LocalPid>,
    /// The deadline of who waits for it.
    limit: Option<Armed>,
    /// What another process polls for it.
    call: Option<ResourceArc<Call>>,
    /// Its message is on its way, or there.
    told: bool,
}

/// What a process that waits for a job must know.
pub struct Asked {
    pub asker: LocalPid,
    pub call: Option<ResourceArc<Call>>,
    pub told: bool,
}

impl Jobs {
    /// The job ends with the process, which polls it: nobody asks for more.
    pub fn bind(&self, pid: LocalPid, job: JobId) {
        self.0.lock().bind(pid, job);
    }

    /// Takes back what `bind` did.
    pub fn unbind(&self, pid: LocalPid, job: JobId) {
        self.0.lock().unbind(pid, job);
    }

    /// `asker` asks for the job, which ends with it, and may await it.
    pub fn remember(&self, asker: LocalPid, job: JobId) {
        let mut table = self.0.lock();
        let watched = Watched { asker, driver: None, limit: None, call: None, told: false };
        table.jobs.insert(job, watched);
        table.bind(asker, job);
    }

    /// The job ends with the process that polls it, too. False when it is over.
    pub fn depend(&self, driver: LocalPid, job: JobId) -> bool {
        let mut table = self.0.lock();
        let known = table.jobs.get_mut(&job).map(|watched| watched.driver = Some(driver)).is_some();
        if known {
            table.bind(driver, job);
        }
        known
    }

    /// The job ends with nobody but who asked for it.
    pub fn release(&self, job: JobId) {
        let mut table = self.0.lock();
        let driver = table.jobs.get_mut(&job).and_then(|watched| watched.driver.take());
        driver.into_iter().for_each(|driver| table.unbind(driver, job));
    }

    /// The job is over, and whoever may wait for it was told.
    pub fn forget(&self, job: JobId) {
        let mut table = self.0.lock();
        let gone = table.jobs.remove(&job);
        if let Some(Watched { asker, driver, .. }) = &gone {
            table.unbind(*asker, job);
            driver.iter().for_each(|driver| table.unbind(*driver, job));
        }
        drop(table);
        drop(gone);
    }

    /// The message of the job is about to be sent.
    pub fn tell(&self, job: JobId) {
        self.with(job, |watched| watched.told = true);
    }

    /// Keeps what polls the job: its asker may have to.
    pub fn hold(&self, job: JobId, call: ResourceArc<Call>) {
        self.with(job, |watched| watched.call = Some(call));
    }

    /// Who asked for a job under way, what polls it, and whether it is over.
    pub fn asked(&self, job: JobId) -> Option<Asked> {
        self.with(job, |watched| Asked {
            asker: watched.asker,
            call: watched.call.clone(),
            told: watched.told,
        })
    }

    /// Keeps the deadline of who waits for the job as long as that lasts.
    pub fn keep_limit(&self, job: JobId, limit: Option<Armed>) {
        let old = self.with(job, |watched| std::mem::replace(&mut watched.limit, limit));
        drop(old);
    }

    /// What depends on a process that died. The jobs stay known until they are over.
    pub fn of(&self, pid: LocalPid) -> BTreeSet<JobId> {
        self.0.lock().of.remove(&number(pid)).unwrap_or_default()
    }

    fn with<R>(&self, job: JobId, f: impl FnOnce(&mut Watched) -> R) -> Option<R> {
        self.0.lock().jobs.get_mut(&job).map(f)
    }
}

impl Table {
    fn bind(&mut self, pid: LocalPid, job: JobId) {
        self.of.entry(number(pid)).or_default().insert(job);
    }

    fn unbind(&mut self, pid: LocalPid, job: JobId) {
        let Some(jobs) = self.of.get_mut(&number(pid)) else { return };
        jobs.remove(&job);
        if jobs.is_empty() {
            self.of.remove(&number(pid));
        }
    }
}

//! What an Erlang reference holds. Destructors run on any scheduler at any moment: they only hand
//! over what takes time.

use std::sync::Arc;

use parking_lot::Mutex;
use rustler::{Env, LocalPid, Monitor, Resource, ResourceArc, Term};
use wasmtime_beam::cache::Lock;
use wasmtime_beam::guest::{Destroyed, Guest, JobId, Reason, Ref};
use wasmtime_beam::memory::Pending;
use wasmtime_beam::options::Runner;
use wasmtime_beam::preinit::Instrumented;
use wasmtime_beam::template::Template;

use crate::background;
use crate::client::Home;
use crate::runner::scheduler::Turn;
use crate::term::options::Processes;

/// A compiled module.
pub struct Module {
    inner: Option<wasmtime_beam::module::Module>,
}

impl Module {
    pub fn new(module: wasmtime_beam::module::Module) -> Self {
        Module { inner: Some(module) }
    }

    pub fn get(&self) -> &wasmtime_beam::module::Module {
        self.inner.as_ref().expect("only drop takes the module out")
    }
}

#[rustler::resource_impl]
impl Resource for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        // The last handle unmaps code and images.
        if let Some(module) = self.inner.take() {
            background::run(move || drop(module));
        }
    }
}

/// A live instance.
pub struct Instance {
    guest: Option<Arc<Guest>>,
    /// Serves host calls, when it is not the calling process.
    host: Option<LocalPid>,
    /// The instance's name, kept when somebody other than a caller is sent messages.
    id: Option<Home>,
    /// Jobs under way and who asked for them.
    jobs: Mutex<Vec<(LocalPid, JobId)>>,
    /// Memory of the destroyed guest that is still to be restored.
    pending: Mutex<Option<Pending>>,
}

impl Instance {
    pub fn new(guest: Arc<Guest>, host: Option<LocalPid>, id: Term<'_>) -> Self {
        let id = host.is_some().then(|| Home::new(id));
        let (jobs, pending) = (Mutex::default(), Mutex::default());
        Instance { guest: Some(guest), host, id, jobs, pending }
    }

    pub fn guest(&self) -> &Arc<Guest> {
        self.guest.as_ref().expect("only drop takes the guest out")
    }

    /// Who serves the host calls of a request by `caller`.
    pub fn host(&self, caller: LocalPid) -> LocalPid {
        self.host.unwrap_or(caller)
    }

    /// The reference in messages to processes that do not wait for a call of their own.
    pub fn id(&self) -> Option<&Home> {
        self.id.as_ref()
    }

    pub fn remember(&self, pid: LocalPid, job: JobId) {
        self.jobs.lock().push((pid, job));
    }

    /// Keeps what a destroy left to restore.
    pub fn keep(&self, pending: Pending) {
        *self.pending.lock() = Some(pending);
    }

    pub fn take_pending(&self) -> Option<Pending> {
        self.pending.lock().take()
    }

    pub fn forget(&self, job: JobId) {
        self.jobs.lock().retain(|(_, known)| *known != job);
    }
}

#[rustler::resource_impl]
impl Resource for Instance {
    const IMPLEMENTS_DOWN: bool = true;

    fn down<'a>(&'a self, _: Env<'a>, pid: LocalPid, _: Monitor) {
        let jobs: Vec<JobId> = {
            let jobs = self.jobs.lock();
            jobs.iter().filter(|(owner, _)| *owner == pid).map(|(_, job)| *job).collect()
        };
        for job in jobs {
            match self.guest().runner() {
                Runner::Thread => drop(self.guest().control().cancel(job, Reason::Interrupt)),
                // Nobody else polls the guest to its end.
                Runner::Scheduler => {
                    let guest = self.guest().clone();
                    background::run(move || guest.expire(job));
                }
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let Some(guest) = self.guest.take() else { return };
        let pending = self.take_pending();
        if guest.is_gone() && !guest.holds_last_module() && pending.is_none() {
            return;
        }
        background::run(move || {
            pending.into_iter().for_each(Pending::finish);
            if let Destroyed::Restore(pending) = guest.destroy() {
                pending.finish();
            }
        });
    }
}

/// A reference into an instance, which it keeps alive.
pub struct Reference {
    // Fields drop in order: the root goes before its store may.
    pub reference: Ref,
    pub instance: ResourceArc<Instance>,
}

impl Reference {
    pub fn new(reference: Ref, instance: &ResourceArc<Instance>) -> ResourceArc<Self> {
        ResourceArc::new(Reference { reference, instance: instance.clone() })
    }
}

#[rustler::resource_impl]
impl Resource for Reference {}

/// A module made ready for its init run.
pub struct Preinit(pub Instrumented);

#[rustler::resource_impl]
impl Resource for Preinit {}

/// A call that its own process polls.
pub struct Call(pub Turn);

#[rustler::resource_impl]
impl Resource for Call {}

/// Instance options of a module, checked and linked once.
pub struct Prepared {
    template: Option<Template>,
    pub processes: Processes,
}

impl Prepared {
    pub fn new(template: Template, processes: Processes) -> Self {
        Prepared { template: Some(template), processes }
    }

    pub fn template(&self) -> &Template {
        self.template.as_ref().expect("only drop takes the template out")
    }
}

#[rustler::resource_impl]
impl Resource for Prepared {}

impl Drop for Prepared {
    fn drop(&mut self) {
        // It may hold the last handle of its module.
        if let Some(template) = self.template.take() {
            background::run(move || drop(template));
        }
    }
}

/// The right to make an entry of a cache; lost with its process.
pub struct Maker(Mutex<Option<Lock>>);

impl Maker {
    pub fn new(lock: Lock) -> Self {
        Maker(Mutex::new(Some(lock)))
    }

    pub fn take(&self) -> Option<Lock> {
        self.0.lock().take()
    }
}

#[rustler::resource_impl]
impl Resource for Maker {}

impl Drop for Maker {
    fn drop(&mut self) {
        // Closing a file may take its time.
        if let Some(lock) = self.take() {
            background::run(move || drop(lock));
        }
    }
}

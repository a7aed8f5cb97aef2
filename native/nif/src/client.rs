//! Tells a process what became of its request: host calls to serve, and the one result.
//! Messages carry the reference that the process made for the request, or the instance's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use rustler::{Encoder, Env, LocalPid, Monitor, ResourceArc, Term};
use wasmtime_beam::guest::{Client, HostCall, HostImport, JobId, Outcome, panicked};
use wasmtime_beam::inject::point;

use crate::atoms;
use crate::post::{self, Home, Message};
use crate::resource::Instance;
use crate::term::{error, value};

/// A request of a process, which is answered by messages.
pub struct Requester {
    inner: Arc<Inner>,
}

struct Inner {
    pid: LocalPid,
    /// Serves the host calls.
    host: LocalPid,
    home: Home,
    instance: ResourceArc<Instance>,
    monitor: OnceLock<Monitor>,
    /// What the result is when the job succeeded without values worth telling.
    reply: Reply,
    /// The process does nothing else until the result comes.
    waits: bool,
}

/// The shape of a successful answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `{ok, Values}`.
    Values,
    /// `ok`.
    Ok,
}

impl Requester {
    /// A request whose process waits for messages with `reference`.
    pub fn new(
        reference: Term<'_>,
        pid: LocalPid,
        host: LocalPid,
        instance: ResourceArc<Instance>,
        reply: Reply,
    ) -> Self {
        let (home, monitor) = (Home::new(reference), OnceLock::new());
        let inner = Inner { pid, host, home, instance, monitor, reply, waits: true };
        Requester { inner: Arc::new(inner) }
    }

    /// A call whose process goes on: `reference` is the instance's.
    pub fn unawaited(reference: Term<'_>, pid: LocalPid, instance: ResourceArc<Instance>) -> Self {
        let (home, monitor, host) = (Home::new(reference), OnceLock::new(), instance.host(pid));
        let reply = Reply::Values;
        let inner = Inner { pid, host, home, instance, monitor, reply, waits: false };
        Requester { inner: Arc::new(inner) }
    }

    pub fn as_client(&self) -> Arc<dyn Client> {
        self.inner.clone()
    }

    /// From here on the death of the process ends the job. False when it is dead already.
    pub fn watch(&self, env: Env<'_>) -> bool {
        let monitor = self.inner.instance.monitor(Some(env), &self.inner.pid);
        monitor.is_some_and(|monitor| self.inner.monitor.set(monitor).is_ok())
    }

    /// The job was refused: nothing depends on the process.
    pub fn unwatch(&self, env: Env<'_>) {
        if let Some(monitor) = self.inner.monitor.get() {
            self.inner.instance.demonitor(Some(env), monitor);
        }
    }
}

impl Client for Inner {
    fn host_call(&self, call: HostCall, import: &HostImport) -> bool {
        let named = self.instance.id().filter(|_| self.host != self.pid);
        named.unwrap_or(&self.home).host_call(&call, import, &self.instance).send(self.host)
    }

    fn asker(&self) -> u64 {
        number(self.pid)
    }

    fn host(&self) -> u64 {
        number(self.host)
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn finish(&self, job: JobId, outcome: Outcome) {
        let message = |outcome| self.home.result(job, self.reply, outcome, &self.instance);
        let built = catch_unwind(AssertUnwindSafe(|| message(outcome)));
        let end = End {
            pid: self.pid,
            job,
            // The process waits: it hears of a panic, too.
            message: built.unwrap_or_else(|panic| message(Err(panicked(panic.as_ref())))),
            instance: self.instance.clone(),
            monitor: self.monitor.get().copied(),
            goes_on: !self.waits,
        };
        post::when_allowed(move || end.deliver());
    }
}

/// A number for a process, as good as its pid.
pub fn number(pid: LocalPid) -> u64 {
    // SAFETY: the struct is one word, in C as in Rust, and any word is a number.
    unsafe { std::mem::transmute::<rustler::sys::ErlNifPid, usize>(*pid.as_c_arg()) as u64 }
}

/// What is left to do when a job ended.
struct End {
    pid: LocalPid,
    job: JobId,
    message: Message,
    instance: ResourceArc<Instance>,
    monitor: Option<Monitor>,
    /// The process went on, and may await it at any moment.
    goes_on: bool,
}

impl End {
    fn deliver(self) {
        if let Some(monitor) = &self.monitor {
            post::demonitor(&self.instance, monitor);
        }
        if self.goes_on {
            // The process may have its message before the job is forgotten.
            self.instance.jobs().tell(self.job);
        }
        // The process may be gone: then nobody waits.
        self.message.send(self.pid);
        // Only then: a job that is not known any more has left its message.
        self.instance.jobs().forget(self.job);
    }
}

impl Reply {
    pub fn encode<'a>(
        self,
        env: Env<'a>,
        outcome: Outcome,
        instance: &ResourceArc<Instance>,
    ) -> Term<'a> {
        point("encode");
        match (outcome, self) {
            (Ok(_), Reply::Ok) => atoms::ok().encode(env),
            (Ok(values), Reply::Values) => value::ok_list(env, &values, instance),
            (Err(failure), _) => error::encode(env, &failure),
        }
    }
}

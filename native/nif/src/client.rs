//! Tells a process what became of its request: host calls to serve, and the one result.
//! Messages carry the reference that the process made for the request.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustler::env::SavedTerm;
use rustler::thread::is_scheduler_thread;
use rustler::{Encoder, Env, LocalPid, Monitor, OwnedEnv, ResourceArc, Term};
use wasmtime_beam::guest::{Client, HostCall, JobId, Outcome};

use crate::resource::Instance;
use crate::term::{error, value};
use crate::{atoms, background};

/// A request of a process.
pub struct Requester {
    inner: Arc<Inner>,
}

struct Inner {
    pid: LocalPid,
    /// Serves the host calls.
    host: LocalPid,
    reference: Mutex<(OwnedEnv, SavedTerm)>,
    instance: ResourceArc<Instance>,
    monitor: OnceLock<Monitor>,
    /// What the result is when the job succeeded without values worth telling.
    reply: Reply,
}

/// The shape of a successful answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `{ok, Values}`.
    Values,
    /// `{ok, []}`; an instance that could not be made is destroyed.
    Instance,
    /// `ok`.
    Ok,
}

impl Requester {
    pub fn new(
        reference: Term<'_>,
        pid: LocalPid,
        host: LocalPid,
        instance: ResourceArc<Instance>,
        reply: Reply,
    ) -> Self {
        let home = OwnedEnv::new();
        let saved = home.save(reference);
        let (reference, monitor) = (Mutex::new((home, saved)), OnceLock::new());
        Requester { inner: Arc::new(Inner { pid, host, reference, instance, monitor, reply }) }
    }

    pub fn as_client(&self) -> Arc<dyn Client> {
        self.inner.clone()
    }

    /// From here on the death of the process ends the job. False when it is dead already.
    pub fn watch(&self, env: Env<'_>) -> bool {
        let monitor = self.inner.instance.monitor(Some(env), &self.inner.pid);
        monitor.is_some_and(|monitor| self.inner.monitor.set(monitor).is_ok())
    }
}

impl Client for Inner {
    fn host_call(&self, call: HostCall) -> bool {
        let mut message = OwnedEnv::new();
        let build = |env| {
            let name = (call.import.module.as_str(), call.import.name.as_str());
            let args: Vec<Term<'_>> = call.args.iter().map(|arg| value::encode(env, *arg)).collect();
            (atoms::wasmtime_host_call(), self.reference(env), call.id, name, args).encode(env)
        };
        message.send_and_clear(&self.host, build).is_ok()
    }

    fn finish(&self, job: JobId, outcome: Outcome) {
        self.instance.forget(job);
        if self.reply == Reply::Instance && outcome.is_err() {
            self.instance.guest().destroy(None);
        }
        let end = End {
            pid: self.pid,
            message: self.result(job, outcome),
            monitored: self.monitor.get().map(|monitor| (self.instance.clone(), *monitor)),
        };
        // A scheduler may send and demonitor only with the environment of its process.
        if is_scheduler_thread() {
            background::run(move || end.deliver());
        } else {
            end.deliver();
        }
    }
}

/// What is left to do when a job ended; not on a scheduler.
struct End {
    pid: LocalPid,
    message: Message,
    monitored: Option<(ResourceArc<Instance>, Monitor)>,
}

impl End {
    fn deliver(self) {
        if let Some((instance, monitor)) = &self.monitored {
            instance.demonitor(None, monitor);
        }
        self.message.send(self.pid);
    }
}

/// A message built in an environment of its own.
struct Message(OwnedEnv, SavedTerm);

impl Message {
    fn send(mut self, pid: LocalPid) {
        let Message(env, saved) = &mut self;
        // The process may be gone: then nobody waits.
        let _ = env.send_and_clear(&pid, |env| saved.load(env));
    }
}

impl Inner {
    fn reference<'a>(&self, env: Env<'a>) -> Term<'a> {
        let reference = self.reference.lock();
        let (home, saved) = &*reference;
        home.run(|home| saved.load(home).in_env(env))
    }

    fn result(&self, job: JobId, outcome: Outcome) -> Message {
        let message = OwnedEnv::new();
        let saved = message.run(|env| {
            let result = match (outcome, self.reply) {
                (Ok(_), Reply::Ok) => atoms::ok().encode(env),
                (Ok(values), Reply::Values | Reply::Instance) => value::ok_list(env, &values),
                (Err(error), _) => error::encode(env, &error),
            };
            message.save((atoms::wasmtime_result(), self.reference(env), job, result).encode(env))
        });
        Message(message, saved)
    }
}

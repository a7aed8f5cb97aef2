//! Tells a process what became of its request: host calls to serve, and the one result.
//! Messages carry the reference that the process made for the request.

use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustler::env::SavedTerm;
use rustler::sys::{ErlNifEnv, enif_send};
use rustler::thread::is_scheduler_thread;
use rustler::{Atom, Encoder, Env, LocalPid, Monitor, OwnedEnv, ResourceArc, Term};
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
    home: Home,
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
        let (home, monitor) = (Home::new(reference), OnceLock::new());
        Requester { inner: Arc::new(Inner { pid, host, home, instance, monitor, reply }) }
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
        let named = self.instance.id().filter(|_| self.host != self.pid);
        named.unwrap_or(&self.home).host_call(&call, &self.instance).send(self.host)
    }

    fn asker(&self) -> u64 {
        number(self.pid)
    }

    fn host(&self) -> u64 {
        number(self.host)
    }

    fn finish(&self, job: JobId, outcome: Outcome) {
        self.instance.forget(job);
        let end = End {
            pid: self.pid,
            message: self.home.result(job, self.reply, outcome, &self.instance),
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

/// A number for a process, as good as its pid.
pub fn number(pid: LocalPid) -> u64 {
    // SAFETY: the struct is one word, in C as in Rust, and any word is a number.
    unsafe { std::mem::transmute::<rustler::sys::ErlNifPid, usize>(*pid.as_c_arg()) as u64 }
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
        // The process may be gone: then nobody waits.
        self.message.send(self.pid);
    }
}

impl Reply {
    pub fn encode<'a>(
        self,
        env: Env<'a>,
        outcome: Outcome,
        instance: &ResourceArc<Instance>,
    ) -> Term<'a> {
        match (outcome, self) {
            (Ok(_), Reply::Ok) => atoms::ok().encode(env),
            (Ok(values), Reply::Values) => value::ok_list(env, &values, instance),
            (Err(failure), _) => error::encode(env, &failure),
        }
    }
}

/// The reference of a request, or the name of an instance: what messages are built with.
pub struct Home(Mutex<(OwnedEnv, SavedTerm)>);

impl Home {
    pub fn new(reference: Term<'_>) -> Self {
        let env = OwnedEnv::new();
        let saved = env.save(reference);
        Home(Mutex::new((env, saved)))
    }

    fn reference<'a>(&self, env: Env<'a>) -> Term<'a> {
        let home = self.0.lock();
        let (home, saved) = &*home;
        home.run(|home| saved.load(home).in_env(env))
    }

    /// Asks to serve a host call.
    pub fn host_call(&self, call: &HostCall, instance: &ResourceArc<Instance>) -> Message {
        Message::build(|env| {
            let name = (call.import.module.as_str(), call.import.name.as_str());
            let args = value::encode_list(env, &call.args, instance);
            (atoms::wasmtime_host_call(), self.reference(env), call.id, name, args).encode(env)
        })
    }

    fn result(
        &self,
        job: JobId,
        reply: Reply,
        outcome: Outcome,
        instance: &ResourceArc<Instance>,
    ) -> Message {
        Message::build(|env| {
            let result = reply.encode(env, outcome, instance);
            (atoms::wasmtime_result(), self.reference(env), job, result).encode(env)
        })
    }

    /// A piece of a stream of the instance that this is the name of.
    pub fn stream(&self, stream: Atom, bytes: impl for<'a> FnOnce(Env<'a>) -> Term<'a>) -> Message {
        Message::build(|env| {
            (atoms::wasmtime_stream(), self.reference(env), stream, bytes(env)).encode(env)
        })
    }

    /// Tells a process that waits to look again.
    pub fn wake(&self) -> Message {
        Message::build(|env| (atoms::wasmtime_wake(), self.reference(env)).encode(env))
    }
}

/// A message built in an environment of its own.
pub struct Message(OwnedEnv, SavedTerm);

impl Message {
    fn build<'a>(term: impl FnOnce(Env<'a>) -> Term<'a>) -> Self {
        let env = OwnedEnv::new();
        let saved = env.run(|inner| env.save(term(inner)));
        Message(env, saved)
    }

    /// False when the process is gone. Not from a scheduler.
    pub fn send(mut self, pid: LocalPid) -> bool {
        let Message(env, saved) = &mut self;
        env.send_and_clear(&pid, |env| saved.load(env)).is_ok()
    }

    /// As `send`, on the scheduler that runs the NIF call of `caller`.
    pub fn send_from(self, caller: NonNull<ErlNifEnv>, pid: LocalPid) -> bool {
        let Message(env, saved) = &self;
        env.run(|inner| {
            let (target, term) = (pid, saved.load(inner));
            // SAFETY: the NIF call is under way on this thread, so that its environment may send; the
            // term lives in `inner`, which is dropped after this without another look at its terms.
            let sent = unsafe {
                enif_send(caller.as_ptr(), target.as_c_arg(), inner.as_c_arg(), term.as_c_arg())
            };
            sent == 1
        })
    }
}

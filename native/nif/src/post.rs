//! Messages to processes, in the order in which they are given. A message is built in an environment
//! of its own and may be sent from any thread. Rule: on a scheduler it goes out in the name of the
//! process whose NIF call this is, so that it overtakes nothing and waits for no other thread; outside
//! of a NIF call the VM lets no scheduler send, and the background thread does it.

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};

use parking_lot::Mutex;
use rustler::env::SavedTerm;
use rustler::sys::{ErlNifEnv, enif_send};
use rustler::thread::is_scheduler_thread;
use rustler::{Atom, Encoder, Env, LocalPid, Monitor, OwnedEnv, ResourceArc, Term};
use wasmtime_beam::guest::{HostCall, HostImport, JobId, Outcome};
use wasmtime_beam::inject::point;

use crate::client::Reply;
use crate::resource::Instance;
use crate::term::value;
use crate::{atoms, background};

thread_local! {
    /// The environment of the NIF call under way on this thread.
    static CALLER: Cell<*mut ErlNifEnv> = const { Cell::new(null_mut()) };
}

/// Runs `f`, part of a NIF call with `env`: what it sends leaves at once.
pub fn inside<R>(env: Env<'_>, f: impl FnOnce() -> R) -> R {
    struct Reset(*mut ErlNifEnv);
    impl Drop for Reset {
        fn drop(&mut self) {
            CALLER.set(self.0);
        }
    }
    let _reset = Reset(CALLER.replace(env.as_c_arg()));
    f()
}

/// Not inlined: a guest's stack may go on on another thread, which has another `CALLER`.
#[inline(never)]
fn caller() -> *mut ErlNifEnv {
    CALLER.get()
}

/// Runs `f` where messages may be sent: here, or on the background thread.
pub fn when_allowed(f: impl FnOnce() + Send + 'static) {
    if is_scheduler_thread() && caller().is_null() { background::run(f) } else { f() }
}

/// Ends a monitor; where messages may be sent.
pub fn demonitor(instance: &ResourceArc<Instance>, monitor: &Monitor) {
    let marker = ();
    // SAFETY: the environment is that of the NIF call around us: `inside` takes it away when that
    // ends. The new lifetime ends here, and no term is made.
    let caller = NonNull::new(caller()).map(|env| unsafe { Env::new(&marker, env.as_ptr()) });
    instance.demonitor(caller, monitor);
}

/// A reference that messages carry: of a wait, or of an instance.
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
    pub fn host_call(
        &self,
        call: &HostCall,
        import: &HostImport,
        instance: &ResourceArc<Instance>,
    ) -> Message {
        point("encode_call");
        Message::build(|env| {
            let name = (import.module.as_str(), import.name.as_str());
            let args = value::encode_list(env, &call.args, instance);
            (atoms::wasmtime_host_call(), self.reference(env), call.id, name, args).encode(env)
        })
    }

    /// The one answer to a request.
    pub fn result(
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
}

/// A message in an environment of its own.
pub struct Message(OwnedEnv, SavedTerm);

impl Message {
    fn build<'a>(term: impl FnOnce(Env<'a>) -> Term<'a>) -> Self {
        let env = OwnedEnv::new();
        let saved = env.run(|inner| env.save(term(inner)));
        Message(env, saved)
    }

    /// Tells a process that waits with `reference` to look again.
    pub fn wake(reference: Term<'_>) -> Self {
        Message::build(|env| (atoms::wasmtime_wake(), reference.in_env(env)).encode(env))
    }

    /// False when the process is known to be gone.
    pub fn send(self, pid: LocalPid) -> bool {
        let caller = caller();
        if caller.is_null() && is_scheduler_thread() {
            background::run(move || {
                self.send_from(null_mut(), pid);
            });
            return true;
        }
        self.send_from(caller, pid)
    }

    fn send_from(self, caller: *mut ErlNifEnv, pid: LocalPid) -> bool {
        let Message(env, saved) = self;
        env.run(|env| {
            let term = saved.load(env).as_c_arg();
            // SAFETY: `caller` is the environment of the NIF call around us, or null on a thread that
            // is no scheduler; `term` lives in `env`, which is freed next whether it was sent or not.
            unsafe { enif_send(caller, pid.as_c_arg(), env.as_c_arg(), term) == 1 }
        })
    }
}

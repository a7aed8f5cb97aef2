//! The scheduler runner: the process that asked polls the guest inside a NIF call, in slices.
//! Between two polls it is in Erlang: it runs a host function, waits for a message, or is scheduled
//! out. Calls of other processes wait for their turn and are then polled by those.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rustler::{Encoder, Env, LocalPid, Monitor, ResourceArc, Term};
use wasmtime_beam::guest::{
    Client, Control, HostCall, Job, JobId, Lent, Outcome, Request, Step, Submitted, next_id,
    panicked,
};
use wasmtime_beam::inject::point;

mod driver;

use self::driver::{Driver, is_anothers};
use super::caller::Caller;
use crate::client::{Reply, Requester, number};
use crate::resource::{Call, Instance};
use crate::slice::in_slice;
use crate::term::{error, value};
use crate::{atoms, background};

/// A call and the process that polls it.
pub struct Turn {
    job: JobId,
    caller: Arc<Caller>,
    monitor: OnceLock<Monitor>,
    /// Set once this call has its turn.
    driving: AtomicBool,
    /// Set once its waker is the guest's, too: before the process sleeps for the first time.
    armed: AtomicBool,
    /// Set once the instance knows that the job ends with the process.
    bound: AtomicBool,
    /// Who polls a call that its asker does not wait for.
    driver: Mutex<Driver>,
    /// Of a nested call, what the one around it lent.
    around: OnceLock<Lent>,
}

/// What a poll ended with.
enum Stepped {
    /// There may be news, or more to poll.
    On,
    /// Nothing more happens before a wake.
    Waits,
    /// The process is to serve a host call.
    Host(HostCall),
    /// The call is over.
    Over(Outcome),
}

/// What a NIF call answers.
enum Polled<'a> {
    /// The result: the call is over.
    Over(Term<'a>),
    /// What the process does next.
    Goes(Term<'a>),
}

/// Starts a request of the calling process and polls it for the first time; `host` serves its host
/// calls, and it ends with the host call of `outer` that the process serves. Answers
/// `{result, Result}`, or `{Call, Step}` when it goes on.
pub fn start<'a>(
    env: Env<'a>,
    instance: &ResourceArc<Instance>,
    request: Request,
    timeout: Option<Duration>,
    host: LocalPid,
    outer: Option<&Instance>,
) -> Term<'a> {
    let id = next_id();
    let caller = Caller::new(id, env.pid(), host, instance);
    let (turn, job) = Turn::new(id, request, caller);
    let submitted = instance.guest().submit(job, timeout);
    if submitted.is_ok() {
        instance.bind(id, env.pid(), outer);
    }
    match submitted {
        Ok(Submitted::NeedsRunner) => {
            turn.driving.store(true, Ordering::Relaxed);
            turn.begin(env)
        }
        Ok(Submitted::Nested) if instance.guest().control().is_polled_by(number(env.pid())) => {
            // This process polls the call around this one, and so this one.
            turn.drive();
            turn.begin(env)
        }
        Ok(Submitted::Queued | Submitted::Nested) => turn.begin(env),
        Err(failure) => error::encode(env, &failure),
    }
}

/// Starts a call of the calling process that another process polls; its messages carry `name`.
/// Answers `{drive, Job, Call}`.
pub fn start_unawaited<'a>(
    env: Env<'a>,
    instance: &ResourceArc<Instance>,
    request: Request,
    timeout: Option<Duration>,
    name: Term<'a>,
) -> Term<'a> {
    let pid = env.pid();
    let asker = Requester::unawaited(name, pid, instance.clone());
    let id = next_id();
    let caller = Caller::in_place_of(id, asker.as_client(), pid, instance);
    let (turn, job) = Turn::new(id, request, caller);
    let call = ResourceArc::new(Call(turn));
    instance.jobs().remember(pid, id);
    instance.jobs().hold(id, call.clone());
    let alive = asker.watch(env);
    if let Err(failure) = instance.guest().submit(job, timeout) {
        asker.unwatch(env);
        instance.jobs().forget(id);
        return error::encode(env, &failure);
    }
    if !alive {
        call.0.caller.expire();
    }
    (atoms::drive(), id, call).encode(env)
}

impl Turn {
    fn new(id: JobId, request: Request, caller: Caller) -> (Self, Job) {
        let caller = Arc::new(caller);
        let job = Job::numbered(id, request, caller.clone());
        let turn = Turn {
            job: id,
            caller,
            monitor: OnceLock::new(),
            driving: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            bound: AtomicBool::new(false),
            driver: Mutex::new(Driver::Anybody),
            around: OnceLock::new(),
        };
        (turn, job)
    }

    fn instance(&self) -> &ResourceArc<Instance> {
        self.caller.instance()
    }

    /// Wakes the process that polls.
    fn waker(&self) -> ManuallyDrop<Waker> {
        // SAFETY: what is not dropped gives no count of the caller back, and lives no longer than `self`,
        // which has one.
        let caller = unsafe { Arc::from_raw(Arc::as_ptr(&self.caller)) };
        ManuallyDrop::new(Waker::from(caller))
    }

    pub fn control(&self) -> &Arc<Control> {
        self.instance().guest().control()
    }

    fn begin(self, env: Env<'_>) -> Term<'_> {
        let polled = if self.is_driving() { self.advance(env) } else { Polled::Goes(rest(env)) };
        let step = match polled {
            Polled::Over(result) => return result,
            Polled::Goes(step) => step,
        };
        // From here on the process is outside of the NIF: its death must end the call.
        let pid = self.caller.pid();
        self.instance().jobs().bind(pid, self.job);
        self.bound.store(true, Ordering::Relaxed);
        let call = ResourceArc::new(Call(self));
        call.0.watch(env, pid);
        (call, step).encode(env)
    }

    fn watch(&self, env: Env<'_>, pid: LocalPid) {
        match self.instance().monitor(Some(env), &pid) {
            Some(monitor) => drop(self.monitor.set(monitor)),
            // It is dead already, and nobody will tell.
            None => {
                self.unbind();
                self.caller.expire();
            }
        }
    }

    /// The job does not end with the process any more.
    fn unbind(&self) {
        if self.bound.load(Ordering::Relaxed) {
            self.instance().jobs().unbind(self.caller.pid(), self.job);
        }
    }

    /// Polls until the guest wants something of the process, the budget is used up, or the call
    /// ended.
    pub fn poll<'a>(&self, env: Env<'a>) -> Term<'a> {
        let mut gate = self.gate();
        if is_anothers(&gate, env) {
            return (atoms::result(), atoms::ok()).encode(env);
        }
        match self.advance(env) {
            Polled::Over(term) => {
                gate.iter_mut().for_each(|driver| **driver = Driver::Nobody);
                term
            }
            Polled::Goes(term) => term,
        }
    }

    /// A panic of ours is the call's result, and its end.
    fn advance<'a>(&self, env: Env<'a>) -> Polled<'a> {
        catch_unwind(AssertUnwindSafe(|| self.go_on(env))).unwrap_or_else(|panic| {
            self.instance().jobs().forget(self.job);
            self.unbind();
            self.give_back();
            // At once: the next call of this process would run inside of what is left.
            background::expire_now(self.instance().guest(), self.job);
            let result = error::encode(env, &panicked(panic.as_ref()));
            Polled::Over((atoms::result(), result).encode(env))
        })
    }

    fn go_on<'a>(&self, env: Env<'a>) -> Polled<'a> {
        in_slice(env, |slice| {
            loop {
                self.caller.look();
                if let Some(polled) = self.news(env) {
                    return polled;
                }
                if slice.is_over() {
                    return Polled::Goes(atoms::again().encode(env));
                }
                if !self.drives() {
                    return Polled::Goes(rest(env));
                }
                match self.step() {
                    Stepped::On => {}
                    Stepped::Over(outcome) => return self.over(env, outcome),
                    // What happened before that woke nobody.
                    Stepped::Waits if self.arm() => {}
                    Stepped::Waits => return Polled::Goes(rest(env)),
                    // One of a job that must stop is not worth making.
                    Stepped::Host(_) if self.is_stopping() => {}
                    Stepped::Host(call) => return self.host_call(env, &call),
                }
            }
        })
    }

    /// True once it was this call's turn to poll.
    pub fn is_driving(&self) -> bool {
        self.driving.load(Ordering::Relaxed)
    }

    /// True when it is this call's turn to poll.
    fn drives(&self) -> bool {
        if !self.is_driving() {
            self.driving.store(self.arm(), Ordering::Relaxed);
        }
        self.is_driving()
    }

    /// From here on the guest wakes this call, if it is its turn; false when it did before.
    fn arm(&self) -> bool {
        let arms = !self.armed.load(Ordering::Relaxed)
            && self.control().take_turn(self.job, Waker::clone(&self.waker()));
        if arms {
            self.armed.store(true, Ordering::Relaxed);
        }
        arms
    }

    /// From here on this nested call is the one to wake.
    fn drive(&self) {
        self.driving.store(true, Ordering::Relaxed);
        self.armed.store(true, Ordering::Relaxed);
        let lent = self.control().lend(Waker::clone(&self.waker()));
        lent.into_iter().for_each(|lent| drop(self.around.set(lent)));
    }

    /// The call around this nested one is the one to wake again.
    fn give_back(&self) {
        self.around.get().into_iter().for_each(|lent| self.control().give_back(lent));
    }

    /// One poll.
    fn step(&self) -> Stepped {
        let guest = self.instance().guest();
        match guest.poll(&mut Context::from_waker(&self.waker())) {
            Step::Done(job, outcome) if job.id() == self.job && self.caller.waits() => {
                job.settle();
                return Stepped::Over(outcome);
            }
            Step::Done(job, outcome) => job.finish(outcome),
            Step::Host(call) if self.caller.is_host(&call) => {
                point("tell");
                return Stepped::Host(call);
            }
            Step::Host(call) => guest.tell(call),
            Step::Wait | Step::Idle | Step::Gone if self.caller.is_woken() => {}
            Step::Wait | Step::Idle | Step::Gone => return Stepped::Waits,
        }
        Stepped::On
    }

    fn is_stopping(&self) -> bool {
        self.control().is_stopping()
    }

    /// The process is about to wait for a message with `reference`: `wait` when it will get one,
    /// `again` when something happened already.
    pub fn sleep<'a>(&self, env: Env<'a>, reference: Term<'a>) -> Term<'a> {
        let gate = self.gate();
        let sleeps = !is_anothers(&gate, env) && self.caller.sleep(env.pid(), reference);
        if sleeps { rest(env) } else { atoms::again().encode(env) }
    }

    /// What the process must know or do.
    fn news<'a>(&self, env: Env<'a>) -> Option<Polled<'a>> {
        let mut news = self.caller.news()?;
        if let Some(outcome) = news.outcome.take() {
            drop(news);
            return Some(self.over(env, outcome));
        }
        // A host call of a job that must stop is not worth making.
        if self.is_stopping() {
            return None;
        }
        let call = news.host_call.take()?;
        drop(news);
        Some(self.host_call(env, &call))
    }

    fn over<'a>(&self, env: Env<'a>, outcome: Outcome) -> Polled<'a> {
        self.end(env);
        let result = Reply::Values.encode(env, outcome, self.instance());
        Polled::Over((atoms::result(), result).encode(env))
    }

    fn host_call<'a>(&self, env: Env<'a>, call: &HostCall) -> Polled<'a> {
        point("encode_call");
        let args = value::encode_list(env, &call.args, self.instance());
        Polled::Goes((atoms::host(), call.id, call.index, args).encode(env))
    }

    fn end(&self, env: Env<'_>) {
        self.unbind();
        self.give_back();
        let guest = self.instance().guest();
        if !guest.pass_on(self.job) {
            background::wind_up(guest.clone());
        }
        if let Some(monitor) = self.monitor.get() {
            self.instance().demonitor(Some(env), monitor);
        }
    }
}

/// The guest waits: the process may sleep.
fn rest(env: Env<'_>) -> Term<'_> {
    atoms::wait().encode(env)
}

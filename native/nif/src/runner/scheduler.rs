//! The scheduler runner: the process that asked polls the guest inside a NIF call, in slices.
//! Between two polls it is in Erlang: it runs a host function, waits for a message, or is scheduled
//! out. Calls of other processes wait for their turn and are then polled by those.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use rustler::schedule::consume_timeslice;
use rustler::{Encoder, Env, LocalPid, Monitor, ResourceArc, Term};
use wasmtime_beam::error::Error;
use wasmtime_beam::guest::{
    Client, Guest, HostCall, Job, JobId, Outcome, Request, Step, Submitted,
};
use wasmtime_beam::ticker::{self, Slice};
use wasmtime_beam::value::Value;

use crate::client::{Home, Reply, number};
use crate::resource::{Call, Instance};
use crate::term::{error, value};
use crate::{atoms, background, outbox};

/// A call and the process that polls it.
pub struct Turn {
    instance: ResourceArc<Instance>,
    job: JobId,
    client: Arc<Caller>,
    monitor: OnceLock<Monitor>,
    /// Set once this call has its turn and its waker is the guest's.
    driving: AtomicBool,
    /// The waker of the call around a nested one.
    around: Mutex<Option<Waker>>,
}

/// What the guest wants of the process, until the process looks.
struct Caller {
    pid: LocalPid,
    guest: Arc<Guest>,
    /// Known once the job is made.
    job: OnceLock<JobId>,
    /// The reference that the process waits for, once it waits.
    home: Mutex<Option<Home>>,
    news: Mutex<News>,
    state: AtomicU8,
}

/// What a NIF call answers.
enum Polled<'a> {
    /// The result: the call is over.
    Over(Term<'a>),
    /// What the process does next.
    Goes(Term<'a>),
}

#[derive(Default)]
struct News {
    outcome: Option<Outcome>,
    host_call: Option<HostCall>,
}

/// The process is in a NIF call, or about to make one.
const AWAKE: u8 = 0;
/// As `AWAKE`, and something happened since.
const WOKEN: u8 = 1;
/// The process waits for a message.
const ASLEEP: u8 = 2;

/// Starts a request of the calling process and polls it for the first time. Answers
/// `{result, Result}`, or `{Call, Step}` when it goes on.
pub fn start<'a>(
    env: Env<'a>,
    instance: &ResourceArc<Instance>,
    request: Request,
    timeout: Option<Duration>,
) -> Term<'a> {
    let client = Arc::new(Caller {
        pid: env.pid(),
        guest: instance.guest().clone(),
        job: OnceLock::new(),
        home: Mutex::new(None),
        news: Mutex::default(),
        state: AtomicU8::new(AWAKE),
    });
    let job = Job::new(request, client.clone());
    let _ = client.job.set(job.id());
    let turn = Turn {
        instance: instance.clone(),
        job: job.id(),
        client,
        monitor: OnceLock::new(),
        driving: AtomicBool::new(false),
        around: Mutex::new(None),
    };
    match instance.guest().submit(job, timeout) {
        Ok(Submitted::NeedsRunner) => turn.begin(env, true),
        Ok(Submitted::Queued) => turn.begin(env, false),
        // This process polls the call around this one, and so this one.
        Ok(Submitted::Nested) => {
            turn.drive();
            turn.begin(env, true)
        }
        Err(failure) => error::encode(env, &failure),
    }
}

impl Turn {
    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    fn begin(self, env: Env<'_>, has_turn: bool) -> Term<'_> {
        let polled = if has_turn { self.advance(env) } else { Polled::Goes(rest(env)) };
        let step = match polled {
            Polled::Over(result) => return result,
            Polled::Goes(step) => step,
        };
        // From here on the process is outside of the NIF: its death must end the call.
        self.instance.remember(self.client.pid, self.job);
        let call = ResourceArc::new(Call(self));
        call.0.watch(env);
        (call, step).encode(env)
    }

    fn watch(&self, env: Env<'_>) {
        match self.instance.monitor(Some(env), &self.client.pid) {
            Some(monitor) => drop(self.monitor.set(monitor)),
            // It is dead already, and nobody will tell.
            None => self.client.expire(),
        }
    }

    /// Polls until the guest wants something of the process, the budget is used up, or the call
    /// ended.
    pub fn poll<'a>(&self, env: Env<'a>) -> Term<'a> {
        match self.advance(env) {
            Polled::Over(term) | Polled::Goes(term) => term,
        }
    }

    fn advance<'a>(&self, env: Env<'a>) -> Polled<'a> {
        let since = ticker::ticks();
        let polled = loop {
            self.client.state.store(AWAKE, Ordering::SeqCst);
            if let Some(polled) = self.news(env) {
                break polled;
            }
            if ticker::ticks() != since {
                break Polled::Goes(atoms::again().encode(env));
            }
            if !self.drives() {
                break Polled::Goes(rest(env));
            }
            if !self.step(env) {
                break Polled::Goes(rest(env));
            }
        };
        // A slice is the whole turn of a process.
        if ticker::ticks() != since {
            consume_timeslice(env, 100);
        }
        polled
    }

    /// Answers a host call; whoever polls is woken, unless that is this call, which polls next.
    pub fn reply(&self, id: u64, answer: Result<Vec<Value>, Error>) {
        let control = self.instance.guest().control();
        if self.driving.load(Ordering::Relaxed) {
            control.reply_awake(id, answer);
        } else {
            control.reply(id, answer);
        }
    }

    /// True when it is this call's turn to poll.
    fn drives(&self) -> bool {
        if self.driving.load(Ordering::Relaxed) {
            return true;
        }
        let waker = Waker::from(self.client.clone());
        let turn = self.instance.guest().control().take_turn(self.job, waker);
        self.driving.store(turn, Ordering::Relaxed);
        turn
    }

    /// From here on this nested call is the one to wake.
    fn drive(&self) {
        let control = self.instance.guest().control();
        let around = control.set_waker(Waker::from(self.client.clone()));
        *self.around.lock() = around;
        self.driving.store(true, Ordering::Relaxed);
    }

    /// One poll. False when nothing more happens before a wake.
    fn step(&self, env: Env<'_>) -> bool {
        let (guest, waker) = (self.instance.guest(), Waker::from(self.client.clone()));
        let _slice = Slice::begin();
        // What the guest streams out is sent meanwhile.
        match outbox::inside(env, || guest.poll(&mut Context::from_waker(&waker))) {
            Step::Done(job, outcome) => job.finish(outcome),
            Step::Host(client, call) => {
                let id = call.id;
                if !client.host_call(call) {
                    guest.control().reply(id, Err(Error::host_down()));
                }
            }
            Step::Wait | Step::Idle | Step::Gone => {
                return self.client.state.load(Ordering::SeqCst) == WOKEN;
            }
        }
        true
    }

    /// The process is about to wait for a message with `reference`: `wait` when it will get one,
    /// `again` when something happened already.
    pub fn sleep<'a>(&self, env: Env<'a>, reference: Term<'a>) -> Term<'a> {
        *self.client.home.lock() = Some(Home::new(reference));
        let state = &self.client.state;
        let asleep = state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst);
        if asleep.is_ok() { rest(env) } else { atoms::again().encode(env) }
    }

    /// What the process must know or do.
    fn news<'a>(&self, env: Env<'a>) -> Option<Polled<'a>> {
        let mut news = self.client.news.lock();
        if let Some(outcome) = news.outcome.take() {
            drop(news);
            self.end(env);
            let result = Reply::Values.encode(env, outcome, &self.instance);
            return Some(Polled::Over((atoms::result(), result).encode(env)));
        }
        // A host call of a job that must stop is not worth making.
        if self.instance.guest().control().is_stopping() {
            return None;
        }
        let call = news.host_call.take()?;
        let args = value::encode_list(env, &call.args, &self.instance);
        let index = call.import.index as u64;
        Some(Polled::Goes((atoms::host(), call.id, index, args).encode(env)))
    }

    fn end(&self, env: Env<'_>) {
        self.instance.forget(self.job);
        if let Some(around) = self.around.lock().take() {
            self.instance.guest().control().restore_waker(around);
        }
        self.instance.guest().pass_on(self.job);
        if let Some(monitor) = self.monitor.get() {
            self.instance.demonitor(Some(env), monitor);
        }
    }
}

/// The guest waits: the process may sleep.
fn rest(env: Env<'_>) -> Term<'_> {
    atoms::wait().encode(env)
}

impl Client for Caller {
    fn host_call(&self, call: HostCall) -> bool {
        self.news.lock().host_call = Some(call);
        self.notify();
        true
    }

    fn asker(&self) -> u64 {
        number(self.pid)
    }

    fn finish(&self, _: JobId, outcome: Outcome) {
        let mut news = self.news.lock();
        (news.outcome, news.host_call) = (Some(outcome), None);
        drop(news);
        self.notify();
    }

    fn turn(&self) {
        self.notify();
    }

    fn stopped(&self) {
        self.expire();
    }
}

impl Caller {
    /// Ends the job from the background: the process may be in a host function, or gone.
    fn expire(&self) {
        let Some(job) = self.job.get().copied() else { return };
        let guest = self.guest.clone();
        background::run(move || guest.expire(job));
    }

    /// Something happened: the process looks before it sleeps, or is sent a message.
    fn notify(&self) {
        if self.state.swap(WOKEN, Ordering::SeqCst) != ASLEEP {
            return;
        }
        let Some(message) = self.home.lock().as_ref().map(Home::wake) else { return };
        outbox::deliver(message, self.pid);
    }
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

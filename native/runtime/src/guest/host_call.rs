//! A host call is an await inside the guest: it publishes what it wants and waits for the answer.
//! While it waits, other threads may enter the store through it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Instant;

use wasmtime::{AsContextMut, Caller, StoreContextMut, Val};

use super::control::Control;
use super::dependent::Dependent;
use super::execute;
use super::job::{Job, JobId, Request};
use super::number::next_id;
use super::refs::{Misfit, enter, leave_all};
use super::state::wake;
use super::store::Data;
use crate::error::{Class, Error, Kind};
use crate::value::{Signature, Type, Value};

/// An import that the host serves.
#[derive(Debug, PartialEq, Eq)]
pub struct HostImport {
    pub module: String,
    pub name: String,
    pub signature: Signature,
    /// Position among the sorted names that the host serves.
    pub index: usize,
}

/// As messages name it.
impl fmt::Display for HostImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the host function {}.{}", self.module, self.name)
    }
}

impl HostImport {
    /// Nobody is there to answer.
    pub(super) fn host_down(&self) -> Error {
        let message = format!("the process that serves {self} is gone");
        Error::new(Class::Host, Kind::HostDown, message)
    }
}

/// A host call to serve.
#[derive(Clone, Debug)]
pub struct HostCall {
    pub id: u64,
    pub import: Arc<HostImport>,
    pub args: Vec<Value>,
}

/// A host call that waits for its answer.
pub(super) struct Parked {
    pub(super) id: u64,
    /// Taken by the runner when it tells the host.
    pub(super) args: Option<Vec<Value>>,
    pub(super) answer: Option<Result<Vec<Value>, Error>>,
    pub(super) import: Arc<HostImport>,
    pub(super) since: Instant,
    /// Who serves it, once somebody took it; before, that is the client's host.
    pub(super) server: Option<u64>,
    /// Jobs that the host asks for meanwhile; they run inside this call.
    pub(super) nested: VecDeque<Job>,
    /// Jobs of other guests that are there for this call only.
    pub(super) dependents: Vec<Dependent>,
}

/// What another thread does with the store of a parked guest.
pub(super) type Visit<'a> = dyn FnMut(StoreContextMut<'_, Data>) + 'a;

thread_local! {
    /// The visit under way on this thread, for the parked host call that is polled next.
    static VISIT: Cell<Option<*mut Visit<'static>>> = const { Cell::new(None) };
}

/// Polls `parked` once so that the host call it waits in runs `visit`. True when it did.
pub(super) fn visit(visit: &mut Visit<'_>, poll: impl FnOnce()) -> bool {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            VISIT.set(None);
        }
    }
    // SAFETY: only the lifetime changes; the pointer is taken out again before this returns,
    // even by a panic, and it is used on this thread only, inside `poll`.
    let visit = unsafe { std::mem::transmute::<&mut Visit<'_>, *mut Visit<'static>>(visit) };
    VISIT.set(Some(visit));
    let _reset = Reset;
    poll();
    VISIT.get().is_none()
}

/// True inside `visit`: the guest must not be moved on.
pub(super) fn visiting() -> bool {
    VISIT.get().is_some()
}

/// The body of every host import: asks the host and writes its answer into `results`.
pub(crate) async fn call(
    mut caller: Caller<'_, Data>,
    import: Arc<HostImport>,
    params: &[Val],
    results: &mut [Val],
) -> wasmtime::Result<()> {
    let control = caller.data().control.clone();
    let args = leave_all(&mut caller, params)?;
    let waiting = Waiting::begin(&control, import.clone(), args);
    let answer = waiting.answer(&mut caller).await?;
    drop(waiting);
    // The host's time is not the guest's slice.
    caller.as_context_mut().set_epoch_deadline(1);
    fill(&mut caller, &import, &answer, results)
}

/// A parked entry that goes when its await does.
struct Waiting<'a> {
    control: &'a Arc<Control>,
    id: u64,
    /// Set when nothing of it is parked any more.
    over: AtomicBool,
}

impl<'a> Waiting<'a> {
    fn begin(control: &'a Arc<Control>, import: Arc<HostImport>, args: Vec<Value>) -> Self {
        let id = next_id();
        let (args, since) = (Some(args), Instant::now());
        control.meter.count_host_call();
        let mut state = control.state();
        let nested = state.adopt();
        let adopted = !nested.is_empty();
        let (answer, server, dependents) = (None, None, Vec::new());
        state.parked.push(Parked { id, args, answer, import, since, server, nested, dependents });
        control.watch_host(&mut state);
        if adopted {
            wake(state);
        }
        Waiting { control, id, over: AtomicBool::new(false) }
    }

    /// Waits for the answer; runs what the host asks for meanwhile.
    async fn answer(&self, caller: &mut Caller<'_, Data>) -> Result<Vec<Value>, Error> {
        // Nobody can have answered what nobody was told of.
        let mut told = false;
        loop {
            match (Arrival { waiting: self, caller, told }).await {
                Event::Answer(answer) => return answer,
                // Boxed: the future of every host call would grow by it.
                Event::Nested(job) => Box::pin(nested(self.control, caller, job)).await,
            }
            told = true;
        }
    }

    /// The answer, which ends the wait, or a job that was asked for before it.
    fn take(&self) -> Option<Event> {
        let mut state = self.control.state();
        let at = state.parked.iter().position(|parked| parked.id == self.id)?;
        if state.parked[at].answer.is_some() && state.parked[at].nested.is_empty() {
            // From here on the guest runs: nobody may take it for a parked one.
            self.over.store(true, Relaxed);
            let over = state.parked.remove(at);
            // Other guests hear of the end of the call.
            drop(state);
            return over.answer.map(Event::Answer);
        }
        let nested = state.parked[at].nested.pop_front()?;
        state.begin(&nested);
        Some(Event::Nested(nested))
    }
}

/// What ends a wait.
enum Event {
    Answer(Result<Vec<Value>, Error>),
    Nested(Job),
}

/// Runs a job inside the host call that asked for it.
async fn nested(control: &Arc<Control>, caller: &mut Caller<'_, Data>, mut job: Job) {
    struct Ended<'a>(&'a Control, JobId);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.ended_nested(self.1);
        }
    }
    let ended = Ended(control, job.id);
    let request = std::mem::replace(&mut job.request, Request::Instantiate);
    let outcome = execute::nested(control, job.id, caller.as_context_mut(), request).await;
    drop(ended);
    job.finish(outcome);
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.over.load(Relaxed) {
            return;
        }
        let mut state = self.control.state();
        let at = state.parked.iter().position(|parked| parked.id == self.id);
        let gone = at.map(|at| state.parked.remove(at));
        drop(state);
        drop(gone);
    }
}

struct Arrival<'a, 'c> {
    waiting: &'a Waiting<'a>,
    caller: &'a mut Caller<'c, Data>,
    told: bool,
}

impl Future for Arrival<'_, '_> {
    type Output = Event;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(visit) = VISIT.take() {
            // SAFETY: `visit` put the pointer there on this thread and outlives this poll.
            unsafe { (*visit)(this.caller.as_context_mut()) };
            return Poll::Pending;
        }
        // The control's waker is the runner's: the context's may be a visitor's.
        if !std::mem::replace(&mut this.told, true) {
            return Poll::Pending;
        }
        this.waiting.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Writes the host's answer, which must fit the import's results.
fn fill(
    caller: &mut Caller<'_, Data>,
    import: &HostImport,
    answer: &[Value],
    results: &mut [Val],
) -> wasmtime::Result<()> {
    let expected = &import.signature.results;
    if expected.len() != answer.len() {
        let (want, got) = (expected.len(), answer.len());
        return Err(wrong(import, format!("{got} results instead of {want}")).into());
    }
    for (at, (ty, value)) in expected.iter().zip(answer).enumerate() {
        let entered = enter(caller.as_context_mut(), value, ty);
        results[at] = entered.map_err(|misfit| misfits(import, at + 1, value, ty, misfit))?;
    }
    Ok(())
}

fn misfits(import: &HostImport, at: usize, value: &Value, ty: &Type, misfit: Misfit) -> Error {
    let got = value.what();
    match misfit {
        Misfit::Type => wrong(import, format!("{got} instead of {ty} as result {at}")),
        Misfit::Guest => wrong(import, format!("{got} of another instance as result {at}")),
    }
}

fn wrong(import: &HostImport, what: String) -> Error {
    Error::new(Class::Host, Kind::HostError, format!("{import} returned {what}"))
}

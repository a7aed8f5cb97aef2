//! A host call is an await inside the guest: it publishes what it wants and waits for the answer.
//! While it waits, other threads may enter the store through it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use wasmtime::{AsContextMut, Caller, StoreContextMut, Val};

use super::control::Control;
use super::dependent::Dependent;
use super::execute;
use super::job::{Job, JobId, Request};
use super::number::next_id;
use super::overdue::Since;
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
    /// The job that makes it.
    pub job: JobId,
    /// [`HostImport::index`].
    pub index: usize,
    pub args: Vec<Value>,
}

/// A host call that waits for its answer.
pub(super) struct Parked {
    pub(super) id: u64,
    pub(super) answer: Option<Result<Vec<Value>, Box<Error>>>,
    pub(super) import: Arc<HostImport>,
    /// When it began, where its time is limited.
    pub(super) since: Option<Since>,
    /// Who serves it, once somebody took it; before, that is the client's host.
    pub(super) server: Option<u64>,
    /// What it waits for meanwhile, and most host calls do not.
    pub(super) meanwhile: Option<Box<Meanwhile>>,
}

/// What a host does before it answers.
#[derive(Default)]
pub(super) struct Meanwhile {
    /// Jobs that it asks for; they run inside the host call.
    pub(super) nested: VecDeque<Job>,
    /// Jobs of other guests that are there for the host call only.
    pub(super) dependents: Vec<Dependent>,
}

impl Parked {
    pub(super) fn meanwhile(&mut self) -> &mut Meanwhile {
        self.meanwhile.get_or_insert_default()
    }
}

/// What another thread does with the store of a parked guest.
pub(super) type Visit<'a> = dyn FnMut(StoreContextMut<'_, Data>) + 'a;

thread_local! {
    /// The visit under way on this thread, for the parked host call that is polled next.
    static VISIT: Cell<Option<*mut Visit<'static>>> = const { Cell::new(None) };

    /// The host call that the poll under way on this thread ends with: nobody was told of it yet.
    static ASKED: Cell<Option<HostCall>> = const { Cell::new(None) };
}

/// What `poll` of a guest answers, and the host call that it ended with.
pub(super) fn asking<R>(poll: impl FnOnce() -> R) -> (R, Option<HostCall>) {
    ASKED.with(|asked| {
        // A poll that panicked may have left one.
        drop(asked.take());
        (poll(), asked.take())
    })
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
    let args = leave_all(&mut caller, params)?;
    let mut waiting = Waiting::begin(caller, import, args);
    let (answer, import) = waiting.answer().await;
    // The host's time is not the guest's slice.
    waiting.caller.as_context_mut().set_epoch_deadline(1);
    let answer = answer.map_err(|error| *error)?;
    fill(&mut waiting.caller, &import, &answer, results)
}

/// A parked entry that goes when its await does.
struct Waiting<'c> {
    caller: Caller<'c, Data>,
    id: u64,
    /// Set when nothing of it is parked any more.
    over: bool,
}

impl<'c> Waiting<'c> {
    fn begin(caller: Caller<'c, Data>, import: Arc<HostImport>, args: Vec<Value>) -> Self {
        let id = next_id();
        let control = &caller.data().control;
        control.meter.count_host_call();
        let since = control.host_timeout.map(|_| Since::now());
        let index = import.index;
        let mut state = control.state();
        let job = state.running.last().map_or(0, |running| running.id);
        let nested = state.adopt();
        let adopted = !nested.is_empty();
        let meanwhile = adopted.then(|| Box::new(Meanwhile { nested, ..Meanwhile::default() }));
        let (answer, server) = (None, None);
        state.parked.push(Parked { id, answer, import, since, server, meanwhile });
        control.watch_host(&mut state);
        if adopted {
            wake(state);
        } else {
            drop(state);
        }
        ASKED.with(|asked| asked.set(Some(HostCall { id, job, index, args })));
        Waiting { caller, id, over: false }
    }

    /// Waits for the answer; runs what the host asks for meanwhile.
    async fn answer(&mut self) -> (Result<Vec<Value>, Box<Error>>, Arc<HostImport>) {
        // Nobody can have answered what nobody was told of.
        let mut told = false;
        loop {
            match (Arrival { waiting: self, told }).await {
                Event::Answer(answer, import) => return (answer, import),
                // Boxed: the future of every host call would grow by it.
                Event::Nested(job) => Box::pin(nested(&mut self.caller, job)).await,
            }
            told = true;
        }
    }

    /// The answer, which ends the wait, or a job that was asked for before it. Neither while somebody
    /// is about to enter the store of the parked guest, who wakes the runner then.
    fn take(&mut self) -> Option<Event> {
        let mut state = self.caller.data().control.state();
        if state.is_entered() {
            return None;
        }
        let at = state.parked.iter().position(|parked| parked.id == self.id)?;
        let nested = state.parked[at].meanwhile.as_mut().and_then(|it| it.nested.pop_front());
        if let Some(nested) = nested {
            state.begin(&nested);
            return Some(Event::Nested(nested));
        }
        let answer = state.parked[at].answer.take()?;
        // From here on the guest runs: nobody may take it for a parked one.
        let Parked { import, meanwhile, .. } = state.parked.remove(at);
        drop(state);
        self.over = true;
        // Other guests hear of the end of the call.
        drop(meanwhile);
        Some(Event::Answer(answer, import))
    }
}

/// What ends a wait.
enum Event {
    Answer(Result<Vec<Value>, Box<Error>>, Arc<HostImport>),
    Nested(Job),
}

/// Runs a job inside the host call that asked for it.
async fn nested(caller: &mut Caller<'_, Data>, mut job: Job) {
    struct Ended<'a>(&'a Control, JobId);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.ended_nested(self.1);
        }
    }
    let control = caller.data().control.clone();
    let ended = Ended(&control, job.id);
    let request = std::mem::replace(&mut job.request, Request::Instantiate);
    let outcome = execute::nested(&control, job.id, caller.as_context_mut(), request).await;
    drop(ended);
    job.finish(outcome);
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut state = self.caller.data().control.state();
        let at = state.parked.iter().position(|parked| parked.id == self.id);
        let gone = at.map(|at| state.parked.remove(at));
        drop(state);
        drop(gone);
    }
}

struct Arrival<'a, 'c> {
    waiting: &'a mut Waiting<'c>,
    told: bool,
}

impl Future for Arrival<'_, '_> {
    type Output = Event;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(visit) = VISIT.take() {
            // SAFETY: `visit` put the pointer there on this thread and outlives this poll.
            unsafe { (*visit)(this.waiting.caller.as_context_mut()) };
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

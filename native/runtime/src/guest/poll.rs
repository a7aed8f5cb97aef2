//! The guest itself: who holds the store, and how a run is moved on.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use wasmtime::AsContextMut;

use super::chain::{needs, places};
use super::control::{Access, Control, destroyed};
use super::end::bury;
use super::execute::{execute, stoppable};
use super::host_call::{HostCall, asking, visit};
use super::job::{Job, JobId, Outcome, Request, panicked};
use super::state::{Next, Submitted};
use super::store::{Data, StoreCell};
use super::view::View;
use crate::counts::{Live, Object};
use crate::error::{Error, Result};
use crate::inject::point;
use crate::linker::Linked;
use crate::memory::{Lease, Pending, Permit};
use crate::module::Module;
use crate::options::{InstanceOptions, Runner};
use crate::stream::{Ends, Inbox, Outlet};
use crate::template::Template;
use crate::wasi::Captured;

/// A live instance, or what is left of one. Everything about it is safe from any thread.
pub struct Guest {
    pub(super) control: Arc<Control>,
    pub(super) linked: Arc<Linked>,
    pub(super) module: Module,
    output: Option<Captured>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) body: Mutex<Body>,
    /// Memories of the store that is gone, still to be restored. Held while the store is dropped;
    /// locked after the body.
    pub(super) grave: Mutex<Option<Pending>>,
    /// Set once `destroy` left nothing, so that who lets go of the guest takes no lock to see that.
    pub(super) is_buried: AtomicBool,
    _live: Live,
}

pub(super) enum Body {
    Idle(Box<StoreCell>),
    Running(Run),
    Gone,
}

pub(super) struct Run {
    pub(super) job: Job,
    /// Memories for the store, offered in the first poll of an instantiation.
    lease: Option<Box<Lease>>,
    /// The place in the pool that came with them, until the instance is there.
    permit: Option<Box<Permit>>,
    pub(super) future: Pin<Box<dyn Future<Output = (Box<StoreCell>, Outcome)> + Send>>,
}

/// What a poll ended with.
pub enum Step {
    /// A job ended.
    Done(Job, Outcome),
    /// The guest waits for the host to answer this call.
    Host(HostCall),
    /// Poll again when the waker fires.
    Wait,
    /// Nothing is queued, and the runner is detached.
    Idle,
    /// The store is gone, and the runner is detached.
    Gone,
}

impl Guest {
    /// A guest whose first job must be `Request::Instantiate`.
    ///
    /// # Errors
    /// `link`, `pool` and option errors; nothing is left behind.
    pub fn new(module: &Module, options: &InstanceOptions) -> Result<Arc<Self>> {
        Guest::of(&Template::new(module, options)?)
    }

    /// As [`Guest::new`], with everything looked up before.
    ///
    /// # Errors
    /// `pool`, and files of WASI's options that are gone.
    pub fn of(template: &Template) -> Result<Arc<Self>> {
        Guest::with_outlet(template, None)
    }

    /// As [`Guest::of`], with what takes its streams (see [`Template::is_streaming`]).
    ///
    /// # Errors
    /// As [`Guest::of`].
    pub fn with_outlet(template: &Template, outlet: Option<Arc<dyn Outlet>>) -> Result<Arc<Self>> {
        let guest = Guest::clearing(usize::MAX, template, outlet)?;
        guest.ok_or_else(|| Error::internal("there are more bytes than addresses"))
    }

    /// As [`Guest::with_outlet`]; `None` when more than `clears` bytes that other modules left in the
    /// pool's slots would have to be cleared first, which takes about 50 microseconds a MiB.
    ///
    /// # Errors
    /// As [`Guest::of`].
    pub fn clearing(
        clears: usize,
        template: &Template,
        outlet: Option<Arc<dyn Outlet>>,
    ) -> Result<Option<Arc<Self>>> {
        let Template { module, linked, limits, host_timeout, runner, .. } = template;
        let growth = needs(module, linked).must_fit(limits)?;
        let Some(places) = places(module, linked, clears)? else { return Ok(None) };
        let (lease, shares, permit) = places;
        let ends = Ends::new(template.inbox_limit, outlet);
        let wasi = template.instantiate_wasi(&ends)?;
        let output = wasi.as_ref().map(|wasi| wasi.captured().clone());
        let engine = module.engine().wasmtime().clone();
        let control = Control::new(engine, *host_timeout, *runner);
        let inbox = ends.inbox.clone();
        let mut cell =
            StoreCell::new(module.engine(), Data::new(control.clone(), wasi, limits.clone(), ends));
        (cell.lease, cell.shares, cell.permit) = (lease, shares, permit);
        cell.store.data_mut().reserve(growth);
        Ok(Some(Arc::new(Guest {
            control,
            linked: linked.clone(),
            module: module.clone(),
            output,
            inbox,
            body: Mutex::new(Body::Idle(Box::new(cell))),
            grave: Mutex::default(),
            is_buried: AtomicBool::new(false),
            _live: Live::new(Object::Guest),
        })))
    }

    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// Who polls it.
    pub fn runner(&self) -> Runner {
        self.control.runner
    }

    pub fn module(&self) -> &Module {
        &self.module
    }

    /// The captured output of the guest, if it has WASI.
    pub fn output(&self) -> Option<&Captured> {
        self.output.as_ref()
    }

    /// What the guest is sent.
    pub fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// True when the store is gone, and nothing of it is left to be restored.
    pub fn is_gone(&self) -> bool {
        if self.is_buried.load(Acquire) {
            return true;
        }
        let gone = self.body.try_lock().is_some_and(|body| matches!(*body, Body::Gone));
        gone && self.grave.try_lock().is_some_and(|grave| grave.is_none())
    }

    /// Queues a job; `timeout` runs from this moment on.
    ///
    /// # Errors
    /// `destroyed`.
    pub fn submit(&self, job: Job, timeout: Option<Duration>) -> Result<Submitted> {
        self.control.submit(job, timeout)
    }

    /// Moves the guest on until it waits or a job ended. Called by its runner only.
    pub fn poll(&self, cx: &mut Context<'_>) -> Step {
        let mut body = match self.body.try_lock() {
            Some(body) => body,
            // A visitor: waiting for it would hold a scheduler.
            None if self.control.is_entered() => return Step::Wait,
            None => self.body.lock(),
        };
        let stepped = catch_unwind(AssertUnwindSafe(|| self.step(&mut body, cx)));
        drop(body);
        match stepped {
            Ok(Step::Gone) => self.control.gone(),
            Ok(step) => return step,
            Err(panic) => self.fail(&panicked(panic.as_ref())),
        }
        Step::Gone
    }

    fn step(&self, body: &mut Body, cx: &mut Context<'_>) -> Step {
        point("step");
        // A run under way goes on; who visits a parked guest keeps it from that.
        if matches!(body, Body::Running(_)) {
            return self.advance(body, cx);
        }
        match self.control.enter() {
            Next::Job(job) => self.begin(body, job),
            Next::Refused(job) => return Step::Done(job, Err(destroyed())),
            Next::Doomed => *body = Body::Gone,
            Next::Wait => return Step::Wait,
            Next::Idle => return Step::Idle,
        }
        self.advance(body, cx)
    }

    fn begin(&self, body: &mut Body, mut job: Job) {
        let Body::Idle(mut cell) = std::mem::replace(body, Body::Gone) else { return };
        let lease = cell.lease.take().map(Box::new);
        let request = std::mem::replace(&mut job.request, Request::Instantiate);
        let linked = matches!(request, Request::Instantiate).then(|| self.linked.clone());
        let future = Box::pin(run(cell, linked, self.control.clone(), job.id, request));
        *body = Body::Running(Run { job, lease, permit: None, future });
    }

    fn advance(&self, body: &mut Body, cx: &mut Context<'_>) -> Step {
        let Body::Running(run) = body else { return Step::Gone };
        let (polled, asked) = asking(|| self.poll_run(run, cx));
        let (next, outcome) = match polled {
            Poll::Pending => return asked.map_or(Step::Wait, Step::Host),
            Poll::Ready((mut cell, outcome)) => {
                cell.permit = run.permit.take().map(|it| *it).or(cell.permit.take());
                (self.settled(cell), outcome)
            }
        };
        let old = std::mem::replace(body, next);
        self.control.ended();
        match old {
            Body::Running(run) => Step::Done(bury(run), outcome),
            Body::Idle(_) | Body::Gone => Step::Gone,
        }
    }

    /// Without an instance nothing can follow: the store is gone before anybody is told.
    fn settled(&self, cell: Box<StoreCell>) -> Body {
        if cell.is_made() {
            return Body::Idle(cell);
        }
        drop(cell);
        self.control.doom();
        Body::Gone
    }

    fn poll_run(&self, run: &mut Run, cx: &mut Context<'_>) -> Poll<(Box<StoreCell>, Outcome)> {
        point("poll");
        let Some(lease) = run.lease.take() else { return run.future.as_mut().poll(cx) };
        let (polled, permit) = lease.offer(|| run.future.as_mut().poll(cx));
        let unclaimed = permit.unclaimed();
        run.permit = Some(Box::new(permit));
        match polled {
            Poll::Ready((cell, Ok(_))) if unclaimed > 0 => Poll::Ready((cell, Err(unmapped()))),
            Poll::Pending if unclaimed > 0 => panic!("an instance came about without its images"),
            polled => polled,
        }
    }

    /// Enters the store of an idle guest, or of one parked in a host call.
    ///
    /// # Errors
    /// `busy` while the guest runs, `destroyed`, and what `f` answers.
    pub fn access<R>(&self, f: impl FnOnce(View<'_>) -> Result<R>) -> Result<R> {
        let inside = self.control.begin_access()?;
        let answer = enter(&mut self.body.lock(), f);
        self.end_visit(inside);
        answer
    }

    /// As [`Guest::access`], but `None` when somebody else is inside just then.
    pub fn try_access<R>(&self, f: impl FnOnce(View<'_>) -> Result<R>) -> Option<Result<R>> {
        let inside = match self.control.begin_access() {
            Ok(inside) => inside,
            Err(error) => return Some(Err(error)),
        };
        let answer = self.body.try_lock().map(|mut body| enter(&mut body, f));
        self.end_visit(inside);
        answer
    }

    /// A visitor is out of the store. A runner's thread that was kept out is woken; where clients
    /// poll, the one that was kept out may have gone meanwhile.
    fn end_visit(&self, inside: Access<'_>) {
        drop(inside);
        if self.control.runner == Runner::Scheduler {
            while !self.wind_up() {}
        }
    }
}

/// One job from its start to its end. The store comes back whatever happens to the request.
async fn run(
    mut cell: Box<StoreCell>,
    linked: Option<Arc<Linked>>,
    control: Arc<Control>,
    job: JobId,
    request: Request,
) -> (Box<StoreCell>, Outcome) {
    let outcome = stoppable(&control, job, pin!(execute(&mut cell, linked, request))).await;
    (cell, outcome)
}

fn enter<R>(body: &mut Body, f: impl FnOnce(View<'_>) -> Result<R>) -> Result<R> {
    point("access");
    match body {
        Body::Idle(cell) => f(View::new(cell.store.as_context_mut())),
        Body::Running(run) => visit_run(run, f),
        Body::Gone => Err(destroyed()),
    }
}

fn visit_run<R>(run: &mut Run, f: impl FnOnce(View<'_>) -> Result<R>) -> Result<R> {
    let (mut f, mut answer) = (Some(f), None);
    let mut enter = |store: wasmtime::StoreContextMut<'_, super::Data>| {
        answer = f.take().map(|f| f(View::new(store)));
    };
    // The parked host call ignores this waker: the runner's stays in the control.
    let mut cx = Context::from_waker(Waker::noop());
    visit(&mut enter, || {
        let _ = run.future.as_mut().poll(&mut cx);
    });
    answer.unwrap_or_else(|| Err(Error::internal("a parked guest did not let a visitor in")))
}

/// An instance whose memories came from elsewhere lacks its initial content.
pub(super) fn unmapped() -> Error {
    Error::internal("the instance did not take the memories that were made for it")
}

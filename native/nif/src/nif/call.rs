//! Calls: asked here, answered by messages.

use std::time::Duration;

use rustler::{Encoder, Env, ListIterator, LocalPid, NifResult, ResourceArc, Term};
use wasmtime_beam::error::{Quoted, Result};
use wasmtime_beam::guest::{Awaited, Job, JobId, Reason, Request, Submitted};
use wasmtime_beam::options::Runner;
use wasmtime_beam::runner::thread;

use super::{answer, checked, done, guarded, host};
use crate::atoms;
use crate::client::{Reply, Requester, number};
use crate::resource::{Call, Instance};
use crate::runner::scheduler;
use crate::term::name::Name;
use crate::term::{error, options, value};

#[rustler::nif]
fn call_start<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    Name(name): Name<'a>,
    values: ListIterator<'a>,
    opts: Term<'a>,
    reference: Term<'a>,
) -> NifResult<Term<'a>> {
    checked(env, || {
        let options = options::call(opts)?;
        Ok(match request(&instance, name, values, options.fuel) {
            Ok(call) => start(env, &instance, call, options.timeout, reference),
            Err(failure) => error::encode(env, &failure),
        })
    })
}

/// As `call_start` without a limit, for a host call of `outer` that the process serves: the call ends when
/// that does.
#[rustler::nif]
fn call_inside<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    name: &str,
    values: ListIterator<'a>,
    reference: Term<'a>,
    outer: ResourceArc<Instance>,
) -> Term<'a> {
    guarded(env, || match request(&instance, name, values, None) {
        Ok(call) => start_inside(env, &instance, call, None, reference, Some(&outer)),
        Err(failure) => error::encode(env, &failure),
    })
}

/// Asks for `request`: `ok` when messages follow, a step when the process polls itself.
pub fn start<'a>(
    env: Env<'a>,
    instance: &ResourceArc<Instance>,
    request: Request,
    timeout: Option<Duration>,
    reference: Term<'a>,
) -> Term<'a> {
    start_inside(env, instance, request, timeout, reference, None)
}

fn start_inside<'a>(
    env: Env<'a>,
    instance: &ResourceArc<Instance>,
    request: Request,
    timeout: Option<Duration>,
    reference: Term<'a>,
    outer: Option<&Instance>,
) -> Term<'a> {
    let (pid, reply) = (env.pid(), Reply::Values);
    let host = match request {
        // Nobody else has the instance yet, so that nobody else could serve its host calls.
        Request::Instantiate => pid,
        _ => instance.host(pid),
    };
    match instance.guest().runner() {
        Runner::Thread => {
            let requester = Requester::new(reference, pid, host, instance.clone(), reply);
            let job = enqueue(env, instance, request, timeout, requester);
            done(env, job.map(|job| instance.bind(job, pid, outer)))
        }
        Runner::Scheduler => scheduler::start(env, instance, request, timeout, host, outer),
    }
}

/// Starts a call that the process does not wait for: `{ok, Job}` when the result comes as a message
/// with `id`, the instance's name; `{drive, Job, Call}` when a process must poll it.
#[rustler::nif]
fn call_async<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    Name(name): Name<'a>,
    values: ListIterator<'a>,
    opts: Term<'a>,
    id: Term<'a>,
) -> NifResult<Term<'a>> {
    checked(env, || {
        let options = options::call(opts)?;
        Ok(match request(&instance, name, values, options.fuel) {
            Ok(call) => start_unawaited(env, &instance, call, options.timeout, id),
            Err(failure) => error::encode(env, &failure),
        })
    })
}

fn start_unawaited<'a>(
    env: Env<'a>,
    instance: &ResourceArc<Instance>,
    request: Request,
    timeout: Option<Duration>,
    id: Term<'a>,
) -> Term<'a> {
    match instance.guest().runner() {
        Runner::Thread => {
            let requester = Requester::unawaited(id, env.pid(), instance.clone());
            answer(env, enqueue(env, instance, request, timeout, requester))
        }
        Runner::Scheduler => scheduler::start_unawaited(env, instance, request, timeout, id),
    }
}

/// `driver` polls the call: its death ends it.
#[rustler::nif]
fn call_guard<'a>(env: Env<'a>, call: ResourceArc<Call>, driver: LocalPid) -> Term<'a> {
    guarded(env, || {
        call.0.guard(env, driver);
        atoms::ok().encode(env)
    })
}

/// No process polls the call: it ends, and its message comes.
#[rustler::nif]
fn call_abandon<'a>(env: Env<'a>, call: ResourceArc<Call>) -> Term<'a> {
    guarded(env, || {
        call.0.abandon();
        atoms::ok().encode(env)
    })
}

/// The calling process is about to wait for a job of its own, for `limit` ms at most: `wait` when a
/// message comes, `{drive, Call}` when it must poll meanwhile, `other` when the job is another
/// process's, `itself` when the job waits for this process, `none` when no such job is under way, `told`
/// when its message is being sent: it comes at once, or came.
#[rustler::nif]
fn call_await<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    job: u64,
    limit: Term<'a>,
) -> NifResult<Term<'a>> {
    checked(env, || {
        let limit = options::milliseconds(limit)?;
        let (pid, control) = (env.pid(), instance.guest().control());
        let call = match instance.jobs().asked(job) {
            None => return Ok(atoms::none().encode(env)),
            Some(asked) if asked.asker != pid => return Ok(atoms::other().encode(env)),
            Some(asked) if asked.told => return Ok(atoms::told().encode(env)),
            Some(asked) => asked.call,
        };
        let awaited = control.wait_for(job, number(pid));
        if awaited == Awaited::Itself {
            return Ok(atoms::itself().encode(env));
        }
        if let Some(after) = limit {
            instance.jobs().keep_limit(job, control.limit(job, after));
        }
        Ok(match call {
            Some(call)
                if awaited == Awaited::Inside
                    && control.is_polled_by(number(pid))
                    && call.0.take_over(env) =>
            {
                (atoms::drive(), call).encode(env)
            }
            _ => atoms::wait().encode(env),
        })
    })
}

/// The next step of a call that the process polls itself.
#[rustler::nif]
fn call_poll<'a>(env: Env<'a>, call: ResourceArc<Call>) -> Term<'a> {
    guarded(env, || call.0.poll(env))
}

/// Says that the process is about to wait for the guest.
#[rustler::nif]
fn call_sleep<'a>(env: Env<'a>, call: ResourceArc<Call>, reference: Term<'a>) -> Term<'a> {
    guarded(env, || call.0.sleep(env, reference))
}

/// Answers the call's host call and goes on.
#[rustler::nif]
fn call_resume<'a>(
    env: Env<'a>,
    call: ResourceArc<Call>,
    id: u64,
    answer: Term<'a>,
) -> NifResult<Term<'a>> {
    // A call that polls next needs no wake.
    host::reply(call.0.control(), id, answer, !call.0.is_driving())?;
    Ok(guarded(env, || call.0.poll(env)))
}

fn request(
    instance: &Instance,
    name: &str,
    values: ListIterator<'_>,
    fuel: Option<u64>,
) -> Result<Request> {
    let function = instance.guest().module().function(name)?;
    let what = format_args!("the function {}", Quoted(name));
    let args = value::decode_list(values, &function.signature.params, &what)?;
    Ok(Request::Call { function: function.clone(), args, fuel })
}

/// Queues a request of the calling process and finds a runner for it.
fn enqueue(
    env: Env<'_>,
    instance: &ResourceArc<Instance>,
    request: Request,
    timeout: Option<Duration>,
    requester: Requester,
) -> Result<JobId> {
    let guest = instance.guest();
    let job = Job::new(request, requester.as_client());
    let id = job.id();
    instance.jobs().remember(env.pid(), id);
    let alive = requester.watch(env);
    let submitted = guest.submit(job, timeout);
    if !alive {
        // Its death came first, and nobody will tell.
        guest.control().cancel(id, Reason::Interrupt);
    }
    match submitted {
        Ok(Submitted::NeedsRunner) => {
            // Without a runner the job is answered like any other, by its message.
            if let Err(error) = thread::run(guest.clone()) {
                guest.abandon(&error);
            }
            Ok(id)
        }
        Ok(Submitted::Queued | Submitted::Nested) => Ok(id),
        Err(error) => {
            requester.unwatch(env);
            instance.jobs().forget(id);
            Err(error)
        }
    }
}

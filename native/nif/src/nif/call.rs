//! Calls: asked here, answered by messages.

use std::time::Duration;

use rustler::{Env, ListIterator, NifResult, ResourceArc, Term};
use wasmtime_beam::error::{Class, Error, Kind, Result};
use wasmtime_beam::guest::{Job, Reason, Request, Submitted};
use wasmtime_beam::options::Runner;
use wasmtime_beam::runner::thread;

use super::{done, guarded, host};
use crate::client::{Reply, Requester};
use crate::resource::{Call, Instance};
use crate::runner::scheduler;
use crate::term::{error, options, value};

#[rustler::nif]
fn call_start<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    name: &str,
    values: ListIterator<'a>,
    opts: Term<'a>,
    reference: Term<'a>,
) -> NifResult<Term<'a>> {
    let options = options::call(opts)?;
    Ok(guarded(env, || match request(&instance, name, values, options.fuel) {
        Ok(call) => start(env, &instance, call, options.timeout, reference),
        Err(failure) => error::encode(env, &failure),
    }))
}

/// Asks for `request`: `ok` when messages follow, a step when the process polls itself.
pub fn start<'a>(
    env: Env<'a>,
    instance: &ResourceArc<Instance>,
    request: Request,
    timeout: Option<Duration>,
    reference: Term<'a>,
) -> Term<'a> {
    match instance.guest().runner() {
        Runner::Thread => done(env, enqueue(env, instance, request, timeout, reference)),
        Runner::Scheduler => scheduler::start(env, instance, request, timeout),
    }
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
    let control = call.0.instance().guest().control();
    if let Some(answer) = host::read(control, id, answer)? {
        call.0.reply(id, answer);
    }
    Ok(guarded(env, || call.0.poll(env)))
}

fn request(
    instance: &Instance,
    name: &str,
    values: ListIterator<'_>,
    fuel: Option<u64>,
) -> Result<Request> {
    let signature = instance.guest().module().function(name).ok_or_else(|| {
        Error::new(Class::Call, Kind::UnknownExport, format!("no exported function {name:?}"))
    })?;
    let args =
        value::decode_list(values, &signature.params, &format_args!("the function {name:?}"))?;
    Ok(Request::Call { export: name.to_owned(), args, fuel })
}

/// Queues a request of the calling process and finds a runner for it.
fn enqueue(
    env: Env<'_>,
    instance: &ResourceArc<Instance>,
    request: Request,
    timeout: Option<Duration>,
    reference: Term<'_>,
) -> Result<()> {
    let (pid, guest) = (env.pid(), instance.guest());
    let host = instance.host(pid);
    let requester = Requester::new(reference, pid, host, instance.clone(), Reply::Values);
    let job = Job::new(request, requester.as_client());
    let id = job.id();
    instance.remember(pid, id);
    let alive = requester.watch(env);
    let submitted = guest.submit(job, timeout);
    if !alive {
        // Its death came first, and nobody will tell.
        guest.control().cancel(id, Reason::Interrupt);
    }
    match submitted {
        Ok(Submitted::NeedsRunner) => {
            // Without a runner the job is answered like any other, by its message.
            thread::run(guest.clone()).or_else(|error| {
                guest.control().abandon(&error);
                Ok(())
            })
        }
        Ok(Submitted::Queued | Submitted::Nested) => Ok(()),
        Err(error) => {
            instance.forget(id);
            Err(error)
        }
    }
}

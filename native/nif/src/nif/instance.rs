//! Instances: made, interrupted, destroyed.

use std::sync::Arc;

use rustler::{Atom, Encoder, Env, LocalPid, NifResult, ResourceArc, Term};
use wasmtime_beam::Result;
use wasmtime_beam::guest::{Client, Destroyed, Guest, Request};
use wasmtime_beam::options::Runner;
use wasmtime_beam::template::Template;

use super::call;
use super::module::binary;
use super::{answer, guarded};
use crate::atoms;
use crate::client::{Reply, Requester};
use crate::resource::{Instance, Module, Prepared};
use crate::term::{error, options};

/// Bytes that a destroy may restore on a normal scheduler: about a tenth of a millisecond.
const INLINE_RESTORE: usize = 1 << 20;

#[rustler::nif]
fn instance_new<'a>(
    env: Env<'a>,
    module: ResourceArc<Module>,
    opts: Term<'a>,
    reference: Term<'a>,
) -> NifResult<Term<'a>> {
    if module.get().facts().heavy {
        return Ok(atoms::dirty().encode(env));
    }
    new(env, &module, opts, reference)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn instance_new_dirty<'a>(
    env: Env<'a>,
    module: ResourceArc<Module>,
    opts: Term<'a>,
    reference: Term<'a>,
) -> NifResult<Term<'a>> {
    new(env, &module, opts, reference)
}

fn new<'a>(
    env: Env<'a>,
    module: &Module,
    opts: Term<'a>,
    reference: Term<'a>,
) -> NifResult<Term<'a>> {
    let (options, host) = options::instance(opts)?;
    let host = (host != env.pid()).then_some(host);
    let guest = || Guest::new(module.get(), &options);
    Ok(guarded(env, || make(env, guest(), host, reference)))
}

/// Checks and links options once. A host other than the calling process serves every instance.
#[rustler::nif(schedule = "DirtyIo")]
fn instance_prepare<'a>(
    env: Env<'a>,
    module: ResourceArc<Module>,
    opts: Term<'a>,
) -> NifResult<Term<'a>> {
    let (options, host) = options::instance(opts)?;
    let host = (host != env.pid()).then_some(host);
    Ok(guarded(env, || {
        let template = Template::new(module.get(), &options);
        answer(env, template.map(|t| ResourceArc::new(Prepared::new(t, host))))
    }))
}

#[rustler::nif]
fn instance_from<'a>(
    env: Env<'a>,
    prepared: ResourceArc<Prepared>,
    reference: Term<'a>,
) -> Term<'a> {
    if prepared.template().module().facts().heavy {
        return atoms::dirty().encode(env);
    }
    from(env, &prepared, reference)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn instance_from_dirty<'a>(
    env: Env<'a>,
    prepared: ResourceArc<Prepared>,
    reference: Term<'a>,
) -> Term<'a> {
    from(env, &prepared, reference)
}

fn from<'a>(env: Env<'a>, prepared: &Prepared, reference: Term<'a>) -> Term<'a> {
    guarded(env, || {
        let guest = Guest::of(prepared.template());
        make(env, guest, prepared.host, reference)
    })
}

fn make<'a>(
    env: Env<'a>,
    guest: Result<Arc<Guest>>,
    host: Option<LocalPid>,
    reference: Term<'a>,
) -> Term<'a> {
    match guest {
        Ok(guest) => start(env, Instance::new(guest, host), reference),
        Err(failure) => error::encode(env, &failure),
    }
}

fn start<'a>(env: Env<'a>, instance: Instance, reference: Term<'a>) -> Term<'a> {
    if instance.guest().module().facts().has_start {
        let instance = ResourceArc::new(instance);
        let step = call::start(env, &instance, Request::Instantiate, None, reference);
        return (atoms::wait(), instance, step).encode(env);
    }
    let made = instance.guest().instantiate();
    answer(env, made.map(|()| ResourceArc::new(instance)))
}

#[rustler::nif]
fn instance_interrupt(instance: ResourceArc<Instance>) -> Atom {
    if instance.guest().control().interrupt() { atoms::ok() } else { atoms::not_running() }
}

#[rustler::nif]
fn instance_destroy<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    reference: Term<'a>,
) -> Term<'a> {
    guarded(env, || match instance.guest().destroy(Some(mourner(env, &instance, reference))) {
        Destroyed::Done => atoms::ok().encode(env),
        Destroyed::Later => {
            if instance.guest().runner() == Runner::Scheduler {
                instance.guest().wind_up();
            }
            atoms::wait().encode(env)
        }
        Destroyed::Restore(pending) => match pending.finish_within(INLINE_RESTORE) {
            None => atoms::ok().encode(env),
            Some(pending) => {
                instance.keep(pending);
                atoms::dirty().encode(env)
            }
        },
    })
}

/// Restores what `instance_destroy` left because it takes long.
#[rustler::nif(schedule = "DirtyCpu")]
fn instance_destroy_dirty<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    _reference: Term<'a>,
) -> Term<'a> {
    guarded(env, || {
        instance.take_pending().into_iter().for_each(|pending| pending.finish());
        atoms::ok().encode(env)
    })
}

fn mourner<'a>(
    env: Env<'a>,
    instance: &ResourceArc<Instance>,
    reference: Term<'a>,
) -> Arc<dyn Client> {
    let pid = env.pid();
    Requester::new(reference, pid, pid, instance.clone(), Reply::Ok).as_client()
}

#[rustler::nif]
fn output_read<'a>(env: Env<'a>, instance: ResourceArc<Instance>) -> Term<'a> {
    let taken = instance.guest().output().map(|output| output.take()).unwrap_or_default();
    let output = (binary(env, &taken.stdout), binary(env, &taken.stderr), taken.dropped);
    (atoms::ok(), output).encode(env)
}

//! Instances: made, interrupted, destroyed.

use std::sync::Arc;

use rustler::{Atom, Encoder, Env, NifResult, ResourceArc, Term};
use wasmtime_beam::guest::{Activity, Destroyed, Guest, Request};
use wasmtime_beam::links::Link;
use wasmtime_beam::options::Runner;
use wasmtime_beam::stream::Outlet;
use wasmtime_beam::template::Template;

use super::call;
use super::module::{binary, types};
use super::{answer, checked, guarded, inside, timed};
use crate::atoms;
use crate::client::{Reply, Requester};
use crate::outbox::Outbox;
use crate::resource::{Instance, Module, Prepared};
use crate::slice::{in_last_slice, in_slice};
use crate::term::map::from_pairs;
use crate::term::name::Name;
use crate::term::options::Processes;
use crate::term::{error, options};

/// Bytes that a destroy may restore, or free, on a normal scheduler: about a tenth of a millisecond.
const INLINE_RESTORE: usize = 1 << 20;

/// Bytes of another module that are cleared out of a slot on a normal scheduler: about a quarter of a
/// millisecond.
const INLINE_CLEAR: usize = 4 << 20;

/// Bytes of output that are copied on a normal scheduler, as of a memory.
const INLINE_OUTPUT: usize = 256 << 10;

#[rustler::nif]
fn instance_new<'a>(
    env: Env<'a>,
    module: ResourceArc<Module>,
    opts: Term<'a>,
    id: Term<'a>,
) -> NifResult<Term<'a>> {
    if module.get().facts().heavy {
        return Ok(atoms::dirty().encode(env));
    }
    new(env, &module, opts, &[], id, INLINE_CLEAR)
}

/// As `instance_new`, and with links, for which there is much to look up and to make.
#[rustler::nif(schedule = "DirtyCpu")]
fn instance_new_dirty<'a>(
    env: Env<'a>,
    module: ResourceArc<Module>,
    opts: Term<'a>,
    id: Term<'a>,
) -> NifResult<Term<'a>> {
    new(env, &module, opts, &options::links(opts)?, id, usize::MAX)
}

/// As `instance_new_dirty`, where files are opened.
#[rustler::nif(schedule = "DirtyIo")]
fn instance_new_io<'a>(
    env: Env<'a>,
    module: ResourceArc<Module>,
    opts: Term<'a>,
    id: Term<'a>,
) -> NifResult<Term<'a>> {
    new(env, &module, opts, &options::links(opts)?, id, usize::MAX)
}

fn new<'a>(
    env: Env<'a>,
    module: &Module,
    opts: Term<'a>,
    links: &[Link],
    id: Term<'a>,
    clears: usize,
) -> NifResult<Term<'a>> {
    in_slice(env, |_| {
        checked(env, || {
            let (options, processes) = options::instance(opts)?;
            Ok(match Template::for_one(module.get(), &options, links) {
                Ok(template) => make(env, &template, processes, id, clears),
                Err(failure) => error::encode(env, &failure),
            })
        })
    })
}

/// Checks and links options once, limits against what the module begins with. A host that they name
/// serves every instance.
#[rustler::nif(schedule = "DirtyIo")]
fn instance_prepare<'a>(
    env: Env<'a>,
    module: ResourceArc<Module>,
    opts: Term<'a>,
) -> NifResult<Term<'a>> {
    checked(env, || {
        let (options, processes) = options::instance(opts)?;
        let links = options::links(opts)?;
        let template = Template::linked(module.get(), &options, &links);
        let template = template.and_then(|template| template.must_fit().map(|()| template));
        Ok(answer(env, template.map(|t| ResourceArc::new(Prepared::new(t, processes)))))
    })
}

#[rustler::nif]
fn instance_from<'a>(env: Env<'a>, prepared: ResourceArc<Prepared>, id: Term<'a>) -> Term<'a> {
    if prepared.template().is_heavy() {
        return atoms::dirty().encode(env);
    }
    from(env, &prepared, id, INLINE_CLEAR)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn instance_from_dirty<'a>(
    env: Env<'a>,
    prepared: ResourceArc<Prepared>,
    id: Term<'a>,
) -> Term<'a> {
    from(env, &prepared, id, usize::MAX)
}

/// As `instance_from_dirty`, where files are opened.
#[rustler::nif(schedule = "DirtyIo")]
fn instance_from_io<'a>(env: Env<'a>, prepared: ResourceArc<Prepared>, id: Term<'a>) -> Term<'a> {
    from(env, &prepared, id, usize::MAX)
}

fn from<'a>(env: Env<'a>, prepared: &Prepared, id: Term<'a>, clears: usize) -> Term<'a> {
    timed(env, || make(env, prepared.template(), prepared.processes, id, clears))
}

/// `dirty` when more than `clears` bytes of another module are in the way.
fn make<'a>(
    env: Env<'a>,
    template: &Template,
    processes: Processes,
    id: Term<'a>,
    clears: usize,
) -> Term<'a> {
    let receiver = processes.stream.unwrap_or_else(|| env.pid());
    let outlet = || Arc::new(Outbox::new(receiver, id)) as Arc<dyn Outlet>;
    match Guest::clearing(clears, template, template.is_streaming().then(outlet)) {
        Ok(Some(guest)) => finish(env, ResourceArc::new(Instance::new(guest, processes.host, id))),
        Ok(None) => atoms::dirty().encode(env),
        Err(failure) => error::encode(env, &failure),
    }
}

/// `{start, Instance}` when a start section is to run: `instance_start` is next.
fn finish<'a>(env: Env<'a>, instance: ResourceArc<Instance>) -> Term<'a> {
    Instance::watch_host(&instance, env);
    if instance.guest().has_start() {
        return (atoms::start(), instance).encode(env);
    }
    let made = instance.guest().instantiate();
    answer(env, made.map(|()| instance))
}

/// Makes an instance whose module has a start section, within `timeout` ms; answers like `call_start`.
#[rustler::nif]
fn instance_start<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    timeout: Term<'a>,
    reference: Term<'a>,
) -> NifResult<Term<'a>> {
    checked(env, || {
        let timeout = options::milliseconds(timeout)?;
        Ok(call::start(env, &instance, Request::Instantiate, timeout, reference))
    })
}

#[rustler::nif]
fn instance_interrupt(env: Env<'_>, instance: ResourceArc<Instance>) -> Term<'_> {
    guarded(env, || {
        let interrupted = instance.guest().control().interrupt();
        let answer = if interrupted { atoms::ok() } else { atoms::not_running() };
        answer.encode(env)
    })
}

/// `wait` when the guest runs: `instance_mourn` is next; `dirty` when it takes long.
#[rustler::nif]
fn instance_destroy<'a>(env: Env<'a>, instance: ResourceArc<Instance>) -> Term<'a> {
    let destroy = || {
        let step = match instance.guest().try_destroy(INLINE_RESTORE) {
            Some(destroyed) => ended(&instance, destroyed, false),
            None => atoms::dirty(),
        };
        step.encode(env)
    };
    in_last_slice(env, || guarded(env, destroy))
}

/// Does what `instance_destroy` left because it takes long, and waits for others who do.
#[rustler::nif(schedule = "DirtyCpu")]
fn instance_destroy_dirty<'a>(env: Env<'a>, instance: ResourceArc<Instance>) -> Term<'a> {
    guarded(env, || ended(&instance, instance.guest().destroy(), true).encode(env))
}

/// `dirty` when there is much to do, and this must not take long.
fn ended(instance: &Instance, destroyed: Destroyed, is_dirty: bool) -> Atom {
    match destroyed {
        Destroyed::Done => atoms::ok(),
        Destroyed::Later => {
            let guest = instance.guest();
            let winds_up = guest.runner() == Runner::Scheduler;
            if winds_up && !is_dirty && !guest.try_wind_up() {
                return atoms::dirty();
            }
            while winds_up && is_dirty && !guest.wind_up() {}
            atoms::wait()
        }
    }
}

/// `ok` when the store is gone; `wait` when a message says so later.
#[rustler::nif]
fn instance_mourn<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    reference: Term<'a>,
) -> Term<'a> {
    let pid = env.pid();
    let mourner = Requester::new(reference, pid, pid, instance.clone(), Reply::Ok).as_client();
    let waits = instance.guest().control().mourn(mourner);
    if waits { atoms::wait().encode(env) } else { atoms::ok().encode(env) }
}

/// The fuel that is left; `dirty` when somebody is inside just then.
#[rustler::nif]
fn instance_fuel<'a>(env: Env<'a>, instance: ResourceArc<Instance>) -> Term<'a> {
    guarded(env, || inside(env, &instance, |view| view.fuel(), |fuel| fuel.encode(env)))
}

/// `{Params, Results}` of an exported function, or `undefined`.
#[rustler::nif]
fn instance_function<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    Name(name): Name<'a>,
) -> Term<'a> {
    match instance.guest().module().function(name) {
        Ok(function) => types(&function.signature).encode(env),
        Err(_) => atoms::undefined().encode(env),
    }
}

/// What the instance is doing and used so far; nothing here waits.
#[rustler::nif]
fn instance_info<'a>(env: Env<'a>, instance: ResourceArc<Instance>) -> Term<'a> {
    guarded(env, || {
        let control = instance.guest().control();
        let ((activity, queued), usage) = (control.activity(), control.usage());
        let memory = if activity == Activity::Destroyed { 0 } else { usage.memory };
        from_pairs(
            env,
            &[
                (atoms::state().encode(env), state(activity).encode(env)),
                (atoms::runner().encode(env), runner(&instance).encode(env)),
                (atoms::memory_bytes().encode(env), memory.encode(env)),
                (atoms::memory_peak().encode(env), usage.peak.encode(env)),
                (atoms::calls().encode(env), usage.calls.encode(env)),
                (atoms::host_calls().encode(env), usage.host_calls.encode(env)),
                (atoms::queued().encode(env), (queued as u64).encode(env)),
                (atoms::fuel().encode(env), fuel_left(env, &instance, usage.fuel)),
            ],
        )
    })
}

fn state(activity: Activity) -> Atom {
    match activity {
        Activity::Idle => atoms::idle(),
        Activity::Running => atoms::running(),
        Activity::HostCall => atoms::host_call(),
        Activity::Destroyed => atoms::destroyed(),
    }
}

fn runner(instance: &Instance) -> Atom {
    match instance.guest().runner() {
        Runner::Thread => atoms::thread(),
        Runner::Scheduler => atoms::scheduler(),
    }
}

/// What is left; while somebody is inside the guest, `began`.
fn fuel_left<'a>(env: Env<'a>, instance: &Instance, began: u64) -> Term<'a> {
    if !instance.guest().module().engine().options().fuel {
        return atoms::undefined().encode(env);
    }
    match instance.guest().try_access(|view| view.fuel()) {
        Some(Ok(left)) => left.encode(env),
        _ => began.encode(env),
    }
}

/// `dirty` when there is much to copy.
#[rustler::nif]
fn output_read<'a>(env: Env<'a>, instance: ResourceArc<Instance>) -> Term<'a> {
    if instance.guest().output().is_some_and(|output| output.held() > INLINE_OUTPUT) {
        return atoms::dirty().encode(env);
    }
    taken(env, &instance)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn output_read_dirty<'a>(env: Env<'a>, instance: ResourceArc<Instance>) -> Term<'a> {
    taken(env, &instance)
}

fn taken<'a>(env: Env<'a>, instance: &Instance) -> Term<'a> {
    let taken = instance.guest().output().map(|output| output.take()).unwrap_or_default();
    let output = (binary(env, &taken.stdout), binary(env, &taken.stderr), taken.dropped);
    (atoms::ok(), output).encode(env)
}

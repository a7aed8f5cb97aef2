//! The functions of wasmtime_nif.erl: `<noun>_<verb>`, one file per noun.

mod cache;
mod call;
mod global;
mod host;
#[cfg(feature = "inject-panics")]
mod inject;
mod instance;
mod memory;
mod module;
mod object;
mod preinit;
mod reference;
mod runtime;
mod stream;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustler::{Encoder, Env, NifResult, Term};
use wasmtime_beam::Result;
use wasmtime_beam::guest::{View, panicked};

use crate::atoms;
use crate::post;
use crate::resource::Instance;
use crate::slice::in_slice;
use crate::term::error;

/// Where a function runs: a normal scheduler does not wait for somebody who is inside the guest.
#[derive(Clone, Copy)]
enum Where {
    Scheduler,
    Dirty,
}

impl Where {
    /// `None` asks to come again on a dirty scheduler.
    fn access<R>(
        self,
        instance: &Instance,
        f: impl FnOnce(View<'_>) -> Result<R>,
    ) -> Option<Result<R>> {
        match self {
            Where::Scheduler => instance.guest().try_access(f),
            Where::Dirty => Some(instance.guest().access(f)),
        }
    }
}

/// `{ok, Value}` of what `f` found inside the guest, the error, or `dirty` when somebody else is
/// inside just then.
fn inside<'a, R>(
    env: Env<'a>,
    instance: &Instance,
    f: impl FnOnce(View<'_>) -> Result<R>,
    encode: impl FnOnce(R) -> Term<'a>,
) -> Term<'a> {
    match instance.guest().try_access(f) {
        Some(Ok(found)) => (atoms::ok(), encode(found)).encode(env),
        Some(Err(failure)) => error::encode(env, &failure),
        None => atoms::dirty().encode(env),
    }
}

/// As `inside`, with nothing found.
fn done_inside<'a>(
    env: Env<'a>,
    instance: &Instance,
    f: impl FnOnce(View<'_>) -> Result<()>,
) -> Term<'a> {
    match instance.guest().try_access(f) {
        Some(result) => done(env, result),
        None => atoms::dirty().encode(env),
    }
}

/// `{ok, Value}` or the error.
fn answer<'a>(env: Env<'a>, result: Result<impl Encoder>) -> Term<'a> {
    match result {
        Ok(value) => (atoms::ok(), value).encode(env),
        Err(failure) => error::encode(env, &failure),
    }
}

/// `ok` or the error.
fn done<'a>(env: Env<'a>, result: Result<()>) -> Term<'a> {
    match result {
        Ok(()) => atoms::ok().encode(env),
        Err(failure) => error::encode(env, &failure),
    }
}

/// The term of `f`, or the error of a panic in it: a bug of ours must not look like the user's.
/// Messages that are sent meanwhile leave at once.
fn guarded<'a>(env: Env<'a>, f: impl FnOnce() -> Term<'a>) -> Term<'a> {
    caught(env, f).unwrap_or_else(|error| error)
}

/// As `guarded`, where terms are decoded that may be none of ours.
fn checked<'a>(env: Env<'a>, f: impl FnOnce() -> NifResult<Term<'a>>) -> NifResult<Term<'a>> {
    caught(env, f).unwrap_or_else(Ok)
}

fn caught<R>(env: Env<'_>, f: impl FnOnce() -> R) -> std::result::Result<R, Term<'_>> {
    let work = AssertUnwindSafe(|| post::inside(env, f));
    catch_unwind(work).map_err(|panic| error::encode(env, &panicked(panic.as_ref())))
}

/// As `guarded`, and counted as time of the process. For work of tens of microseconds that a process
/// may do in a loop.
fn timed<'a>(env: Env<'a>, f: impl FnOnce() -> Term<'a>) -> Term<'a> {
    in_slice(env, |_| guarded(env, f))
}

//! Answers to host calls.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustler::{Atom, Binary, Env, Error as NifError, ListIterator, NifResult, ResourceArc, Term};
use wasmtime_beam::error::{Class, Error, Kind, Result};
use wasmtime_beam::guest::{Control, HostImport, panicked};
use wasmtime_beam::inject::point;
use wasmtime_beam::value::Value;

use crate::atoms;
use crate::post;
use crate::resource::Instance;
use crate::term::value;

#[rustler::nif]
fn host_reply<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    call: u64,
    answer: Term<'a>,
) -> NifResult<Atom> {
    post::inside(env, || reply(instance.guest().control(), call, answer, true))?;
    Instance::served(&instance, env, call);
    Ok(atoms::ok())
}

/// Takes a host call over: false when it was taken, answered or ended before.
#[rustler::nif]
fn host_claim(env: Env<'_>, instance: ResourceArc<Instance>, call: u64) -> bool {
    Instance::claim(&instance, env, call)
}

/// True while a host call waits for its answer.
#[rustler::nif]
fn host_pending(instance: ResourceArc<Instance>, call: u64) -> bool {
    instance.guest().control().parked_import(call).is_some()
}

/// Answers a parked host call; a late or unknown answer is dropped. A runner that polls next needs no
/// wake.
///
/// # Errors
/// `badarg` when `answer` is none.
pub fn reply(control: &Control, call: u64, answer: Term<'_>, wakes: bool) -> NifResult<()> {
    let (tag, content): (Atom, Term<'_>) = answer.decode()?;
    let read = |import: &HostImport| {
        point("answer");
        self::answer(import, tag, content)
    };
    // The guest waits for an answer, whatever that is.
    let replied = catch_unwind(AssertUnwindSafe(|| control.reply_with(call, wakes, read)));
    replied.unwrap_or_else(|panic| {
        control.reply(call, Err(panicked(panic.as_ref())));
        Ok(())
    })
}

/// The values of `{ok, Values}`, or why the host function failed.
fn answer(import: &HostImport, tag: Atom, content: Term<'_>) -> NifResult<Result<Vec<Value>>> {
    if tag == atoms::error() {
        let text: Binary<'_> = content.decode()?;
        let text = String::from_utf8_lossy(text.as_slice());
        return Ok(Err(host_error(format!("{import} {text}"))));
    }
    let list = || content.decode::<ListIterator<'_>>().map_err(|_| NifError::BadArg);
    let types = &import.signature.results;
    let values = value::decode_list(list()?, types, &format_args!("the results of {import}"));
    let error = match values {
        Ok(values) => return Ok(Ok(values)),
        Err(error) => error,
    };
    Ok(Err(host_error(match error.kind {
        Kind::Badarity => {
            let (got, want) = (value::count(list()?, types.len()), types.len());
            format!("{import} returned {got} results instead of {want}")
        }
        _ => error.message,
    })))
}

fn host_error(message: String) -> Error {
    Error::new(Class::Host, Kind::HostError, message)
}

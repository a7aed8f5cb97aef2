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
    let control = instance.guest().control();
    if let Some(answer) = read(control, call, answer)? {
        post::inside(env, || control.reply(call, answer));
    }
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

/// The answer to a parked host call; `None` for a late or unknown one.
pub fn read(
    control: &Control,
    call: u64,
    answer: Term<'_>,
) -> NifResult<Option<Result<Vec<Value>>>> {
    let read = || {
        point("answer");
        let (tag, content): (Atom, Term<'_>) = answer.decode()?;
        control.parked_import(call).map(|import| self::answer(&import, tag, content)).transpose()
    };
    // The guest waits for an answer, whatever that is.
    let read = catch_unwind(AssertUnwindSafe(read));
    read.unwrap_or_else(|panic| Ok(Some(Err(panicked(panic.as_ref())))))
}

/// The values of `{ok, Values}`, or why the host function failed.
fn answer(import: &HostImport, tag: Atom, content: Term<'_>) -> NifResult<Result<Vec<Value>>> {
    if tag == atoms::error() {
        let text: Binary<'_> = content.decode()?;
        let text = String::from_utf8_lossy(text.as_slice());
        return Ok(Err(host_error(format!("{import} {text}"))));
    }
    let values: ListIterator<'_> = content.decode().map_err(|_| NifError::BadArg)?;
    let types = &import.signature.results;
    let (values, more) = value::first(values, types.len());
    let (got, want) = (values.len() + more, types.len());
    if got != want {
        let got = value::Count { got, want };
        return Ok(Err(host_error(format!("{import} returned {got} results instead of {want}"))));
    }
    let values = value::decode_terms(&values, types, &format_args!("the results of {import}"));
    Ok(values.map_err(|error| host_error(error.message)))
}

fn host_error(message: String) -> Error {
    Error::new(Class::Host, Kind::HostError, message)
}

//! The guest's linear memory. Reads and writes of many bytes run on dirty schedulers.

use rustler::{
    Atom, Binary, Encoder, Env, Error as NifError, NifResult, OwnedBinary, ResourceArc, Term,
};
use wasmtime_beam::Result;
use wasmtime_beam::guest::View;

use super::{Where, answer, done, guarded};
use crate::atoms;
use crate::resource::Instance;
use crate::term::name::Name;

#[rustler::nif]
fn memory_read<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    name: Term<'a>,
    offset: u64,
    len: u64,
) -> NifResult<Term<'a>> {
    read(env, &instance, name, offset, len, Where::Scheduler)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn memory_read_dirty<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    name: Term<'a>,
    offset: u64,
    len: u64,
) -> NifResult<Term<'a>> {
    read(env, &instance, name, offset, len, Where::Dirty)
}

#[rustler::nif]
fn memory_write<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    name: Term<'a>,
    offset: u64,
    data: Binary<'a>,
) -> NifResult<Term<'a>> {
    write(env, &instance, name, offset, data, Where::Scheduler)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn memory_write_dirty<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    name: Term<'a>,
    offset: u64,
    data: Binary<'a>,
) -> NifResult<Term<'a>> {
    write(env, &instance, name, offset, data, Where::Dirty)
}

#[rustler::nif]
fn memory_size<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    name: Term<'a>,
) -> NifResult<Term<'a>> {
    size(env, &instance, name, Where::Scheduler)
}

#[rustler::nif(schedule = "DirtyCpu")]
fn memory_size_dirty<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    name: Term<'a>,
) -> NifResult<Term<'a>> {
    size(env, &instance, name, Where::Dirty)
}

fn size<'a>(env: Env<'a>, instance: &Instance, name: Term<'a>, at: Where) -> NifResult<Term<'a>> {
    let name = memory_name(name)?;
    Ok(guarded(env, || match at.access(instance, |mut view| view.size(name)) {
        Some(size) => answer(env, size.map(|size| (size.pages, size.bytes as u64))),
        None => atoms::dirty().encode(env),
    }))
}

fn read<'a>(
    env: Env<'a>,
    instance: &Instance,
    name: Term<'a>,
    offset: u64,
    len: u64,
    at: Where,
) -> NifResult<Term<'a>> {
    let name = memory_name(name)?;
    Ok(guarded(env, || match at.access(instance, |view| copy_out(view, name, offset, len)) {
        Some(bytes) => answer(env, bytes.map(|bytes| bytes.release(env))),
        None => atoms::dirty().encode(env),
    }))
}

fn copy_out(mut view: View<'_>, name: Option<&str>, offset: u64, len: u64) -> Result<OwnedBinary> {
    // Nothing is allocated for a length that cannot be served.
    let len = view.must_hold(name, offset, len)?;
    let mut bytes = OwnedBinary::new(len);
    view.read(name, offset, bytes.as_mut_slice())?;
    Ok(bytes)
}

fn write<'a>(
    env: Env<'a>,
    instance: &Instance,
    name: Term<'a>,
    offset: u64,
    data: Binary<'a>,
    at: Where,
) -> NifResult<Term<'a>> {
    let name = memory_name(name)?;
    let copy = |mut view: View<'_>| view.write(name, offset, &data);
    Ok(guarded(env, || match at.access(instance, copy) {
        Some(written) => done(env, written),
        None => atoms::dirty().encode(env),
    }))
}

/// `undefined` is the default memory.
fn memory_name(term: Term<'_>) -> NifResult<Option<&str>> {
    match term.decode::<Atom>() {
        Ok(atom) if atom == atoms::undefined() => Ok(None),
        Ok(_) => Err(NifError::BadArg),
        Err(_) => term.decode::<Name<'_>>().map(|name| Some(name.0)),
    }
}

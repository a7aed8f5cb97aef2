//! Exported tables.

use rustler::{Encoder, Env, ResourceArc, Term};
use wasmtime_beam::error::{Class, Result};
use wasmtime_beam::value::Value;

use super::{answer, done_inside, guarded, inside};
use crate::resource::Instance;
use crate::term::name::Name;
use crate::term::{error, value};

#[rustler::nif]
fn table_size<'a>(env: Env<'a>, instance: ResourceArc<Instance>, Name(name): Name<'a>) -> Term<'a> {
    guarded(env, || inside(env, &instance, |mut view| view.table_size(name), |n| n.encode(env)))
}

#[rustler::nif]
fn table_get<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    Name(name): Name<'a>,
    index: u64,
) -> Term<'a> {
    guarded(env, || {
        let encode = |v: Value| value::encode(env, &v, &instance);
        inside(env, &instance, |mut view| view.table_get(name, index), encode)
    })
}

#[rustler::nif]
fn table_set<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    Name(name): Name<'a>,
    index: u64,
    term: Term<'a>,
) -> Term<'a> {
    guarded(env, || match element(&instance, name, term) {
        Ok(value) => done_inside(env, &instance, |mut view| view.table_set(name, index, &value)),
        Err(failure) => error::encode(env, &failure),
    })
}

/// Takes time for each element.
#[rustler::nif(schedule = "DirtyCpu")]
fn table_grow<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    Name(name): Name<'a>,
    count: u64,
    term: Term<'a>,
) -> Term<'a> {
    guarded(env, || {
        let value = element(&instance, name, term);
        let guest = instance.guest();
        let grow = |value| guest.access(|mut view| view.table_grow(name, count, &value));
        answer(env, value.and_then(grow))
    })
}

fn element(instance: &Instance, name: &str, term: Term<'_>) -> Result<Value> {
    let ty = instance.guest().module().table(name)?;
    value::decode_one(term, &ty, Class::Table, "the value")
}

//! Exported globals.

use rustler::{Env, ResourceArc, Term};
use wasmtime_beam::error::Class;

use super::{done_inside, guarded, inside};
use crate::resource::Instance;
use crate::term::name::Name;
use crate::term::{error, value};

/// `dirty`, here and below: somebody else is inside the guest, and `access_wait` is next.
#[rustler::nif]
fn global_get<'a>(env: Env<'a>, instance: ResourceArc<Instance>, Name(name): Name<'a>) -> Term<'a> {
    guarded(env, || {
        inside(
            env,
            &instance,
            |mut view| view.global_get(name),
            |v| value::encode(env, &v, &instance),
        )
    })
}

#[rustler::nif]
fn global_set<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    Name(name): Name<'a>,
    term: Term<'a>,
) -> Term<'a> {
    guarded(env, || {
        let ty = match instance.guest().module().global(name) {
            Ok(ty) => ty,
            Err(failure) => return error::encode(env, &failure),
        };
        match value::decode_one(term, &ty.ty, Class::Global, "the value") {
            Ok(value) => done_inside(env, &instance, |mut view| view.global_set(name, &ty, &value)),
            Err(failure) => error::encode(env, &failure),
        }
    })
}

//! What the library is and what is alive in it.

use rustler::{Encoder, Env, Term};
use wasmtime_beam::HAS_COMPILER;
use wasmtime_beam::counts::{Object, live};
use wasmtime_beam::error::{Class, Kind};
use wasmtime_beam::memory;

use crate::atoms;
use crate::term::error::atom;
use crate::term::map::from_pairs;

#[rustler::nif]
fn features(env: Env<'_>) -> Term<'_> {
    let flags = [
        (atoms::compiler(), HAS_COMPILER),
        (atoms::wat(), HAS_COMPILER),
        (atoms::wasi(), true),
        (atoms::components(), false),
        (atoms::pagemap_scan(), memory::pagemap_scan_available()),
    ];
    let pairs: Vec<_> = flags.iter().map(|(k, v)| (k.encode(env), v.encode(env))).collect();
    from_pairs(env, &pairs)
}

#[rustler::nif]
fn version() -> &'static str {
    wasmtime_beam::WASMTIME_VERSION
}

#[rustler::nif(name = "live")]
fn live_objects(env: Env<'_>) -> Term<'_> {
    let pairs: Vec<_> = Object::ALL
        .iter()
        .map(|object| (atom(env, object.as_str()), (live(*object) as u64).encode(env)))
        .collect();
    from_pairs(env, &pairs)
}

#[rustler::nif]
fn classes_and_kinds(env: Env<'_>) -> Vec<Term<'_>> {
    let classes = Class::ALL.iter().map(|class| (atoms::class(), atom(env, class.as_str())));
    let kinds = Kind::ALL.iter().map(|kind| (atoms::kind(), atom(env, kind.as_str())));
    classes.chain(kinds).map(|pair| pair.encode(env)).collect()
}

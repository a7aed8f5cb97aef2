//! References: calls through them, terms of Erlang inside the guest, and what they are.

use std::sync::Arc;

use rustler::{Encoder, Env, ListIterator, NifResult, ResourceArc, Term};
use wasmtime_beam::error::{Class, Error, Kind, Result};
use wasmtime_beam::guest::{Datum, Ref, RefKind, Request};
use wasmtime_beam::value::Signature;

use super::call::start;
use super::{answer, checked, done, guarded};
use crate::atoms;
use crate::resource::{Instance, Reference};
use crate::term::error::atom;
use crate::term::map::from_pairs;
use crate::term::stored::Stored;
use crate::term::{error, options, value};

/// Calls the function that a reference refers to; answers like `call_start`.
#[rustler::nif]
fn call_ref_start<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    func: Term<'a>,
    values: ListIterator<'a>,
    opts: Term<'a>,
    reference: Term<'a>,
) -> NifResult<Term<'a>> {
    checked(env, || {
        let options = options::call(opts)?;
        Ok(match request(func, values, options.fuel) {
            Ok(call) => start(env, &instance, call, options.timeout, reference),
            Err(failure) => error::encode(env, &failure),
        })
    })
}

fn request(func: Term<'_>, values: ListIterator<'_>, fuel: Option<u64>) -> Result<Request> {
    let func = func.decode::<ResourceArc<Reference>>().map_err(|_| no_function("that is none"))?;
    let func = func.reference.clone();
    let signature =
        func.signature().ok_or_else(|| no_function(&format!("of kind {}", kind(&func))))?;
    let args = value::decode_list(values, &signature.params, "the referenced function")?;
    Ok(Request::CallRef { func, args, fuel })
}

fn no_function(what: &str) -> Error {
    let message = format!("a reference to a function is needed, not one {what}");
    Error::new(Class::Call, Kind::Badarg, message)
}

fn kind(reference: &Ref) -> &'static str {
    reference.kind().as_str()
}

/// A reference to a term. Allocating may collect garbage, which takes as long as it takes.
#[rustler::nif(schedule = "DirtyCpu")]
fn extern_new<'a>(env: Env<'a>, instance: ResourceArc<Instance>, term: Term<'a>) -> Term<'a> {
    guarded(env, || {
        let datum: Datum = Arc::new(Stored::new(term));
        let made = instance.guest().access(|mut view| view.make_extern(datum));
        answer(env, made.map(|reference| Reference::new(reference, &instance)))
    })
}

/// The term behind a reference; `dirty` when it is large.
#[rustler::nif]
fn extern_data<'a>(env: Env<'a>, reference: ResourceArc<Reference>) -> Term<'a> {
    guarded(env, || match stored(&reference.reference) {
        Ok(stored) if !stored.is_small() => atoms::dirty().encode(env),
        stored => answer(env, stored.map(|stored| stored.load(env))),
    })
}

#[rustler::nif(schedule = "DirtyCpu")]
fn extern_data_dirty<'a>(env: Env<'a>, reference: ResourceArc<Reference>) -> Term<'a> {
    guarded(env, || answer(env, stored(&reference.reference).map(|stored| stored.load(env))))
}

fn stored(reference: &Ref) -> Result<&Stored> {
    let stored = reference.datum().and_then(|datum| datum.downcast_ref::<Stored>());
    stored.ok_or_else(|| {
        let message = format!("this {} holds no Erlang term", kind(reference));
        Error::new(Class::Ref, Kind::Badarg, message)
    })
}

/// What a reference is, without a look at its store.
#[rustler::nif]
fn ref_info<'a>(env: Env<'a>, reference: ResourceArc<Reference>) -> Term<'a> {
    guarded(env, || info(env, &reference.reference))
}

fn info<'a>(env: Env<'a>, reference: &Ref) -> Term<'a> {
    let mut pairs = vec![(atoms::kind().encode(env), atom(env, kind(reference)))];
    if let Some(Signature { params, results }) = reference.signature() {
        pairs.push((atoms::params().encode(env), texts(env, &params)));
        pairs.push((atoms::results().encode(env), texts(env, &results)));
    }
    if reference.kind() == RefKind::Struct {
        pairs.push((atoms::fields().encode(env), texts(env, &reference.fields())));
    }
    if let Ok(element) = reference.element() {
        pairs.push((atoms::element().encode(env), element.to_string().encode(env)));
    }
    from_pairs(env, &pairs)
}

fn texts<'a>(env: Env<'a>, types: &[impl ToString]) -> Term<'a> {
    let texts: Vec<String> = types.iter().map(ToString::to_string).collect();
    texts.encode(env)
}

/// Collects the garbage of the guest's heap.
#[rustler::nif(schedule = "DirtyCpu")]
fn heap_collect<'a>(env: Env<'a>, instance: ResourceArc<Instance>) -> Term<'a> {
    guarded(env, || done(env, instance.guest().access(|mut view| view.collect())))
}

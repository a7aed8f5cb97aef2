//! Structs and arrays. Making one may collect garbage, which takes as long as it takes: dirty.

use rustler::{Binary, Encoder, Env, Error as NifError, NifResult, ResourceArc, Term};
use wasmtime_beam::error::{Class, Error, Result};
use wasmtime_beam::guest::{Elements, Guest, Ref, TypeName, View};
use wasmtime_beam::value::{Type, Value, element_type, field_types};

use super::{answer, done_inside, guarded, inside};
use crate::atoms;
use crate::resource::{Instance, Reference};
use crate::term::name::Name;
use crate::term::{error, type_name, value};

#[rustler::nif]
fn struct_get<'a>(env: Env<'a>, of: ResourceArc<Reference>, at: u64) -> Term<'a> {
    guarded(env, || match of.reference.field(at) {
        Ok(_) => {
            let encode = |v: Value| value::encode(env, &v, &of.instance);
            let get = |mut view: View<'_>| view.struct_get(&of.reference, at as usize);
            inside(env, &of.instance, get, encode)
        }
        Err(failure) => error::encode(env, &failure),
    })
}

#[rustler::nif]
fn struct_set<'a>(env: Env<'a>, of: ResourceArc<Reference>, at: u64, term: Term<'a>) -> Term<'a> {
    let field = || -> Result<(Type, Value)> {
        let field = of.reference.field(at)?;
        field.must_be_mutable(&format!("field {at} of the struct"))?;
        let value = value::decode_one(term, &field.ty, Class::Ref, "the value")?;
        Ok((field.ty, value))
    };
    guarded(env, || match field() {
        Ok((ty, value)) => done_inside(env, &of.instance, |mut view| {
            view.struct_set(&of.reference, at as usize, &ty, &value)
        }),
        Err(failure) => error::encode(env, &failure),
    })
}

#[rustler::nif]
fn array_len<'a>(env: Env<'a>, of: ResourceArc<Reference>) -> Term<'a> {
    guarded(env, || {
        inside(env, &of.instance, |mut view| view.array_len(&of.reference), |len| len.encode(env))
    })
}

#[rustler::nif]
fn array_get<'a>(env: Env<'a>, of: ResourceArc<Reference>, index: u64) -> Term<'a> {
    guarded(env, || {
        let encode = |v: Value| value::encode(env, &v, &of.instance);
        inside(env, &of.instance, |mut view| view.array_get(&of.reference, index), encode)
    })
}

#[rustler::nif]
fn array_set<'a>(env: Env<'a>, of: ResourceArc<Reference>, index: u64, term: Term<'a>) -> Term<'a> {
    let element = || -> Result<(Type, Value)> {
        let element = of.reference.element()?;
        element.must_be_mutable("the array")?;
        let value = value::decode_one(term, &element.ty, Class::Ref, "the value")?;
        Ok((element.ty, value))
    };
    guarded(env, || match element() {
        Ok((ty, value)) => done_inside(env, &of.instance, |mut view| {
            view.array_set(&of.reference, index, &ty, &value)
        }),
        Err(failure) => error::encode(env, &failure),
    })
}

#[rustler::nif(schedule = "DirtyCpu")]
fn struct_new<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    ty: Term<'a>,
    fields: Vec<Term<'a>>,
) -> NifResult<Term<'a>> {
    let name = type_name::decode(ty)?;
    let guest = instance.guest();
    Ok(guarded(env, || new(env, &instance, make_struct(guest, &name, &fields))))
}

fn make_struct(guest: &Guest, name: &TypeName, fields: &[Term<'_>]) -> Result<Ref> {
    let ty = name.structure(guest)?;
    let values = value::decode_terms(fields, &field_types(&ty), "the struct").map_err(of_ref)?;
    guest.access(|mut view| view.struct_new(&ty, &values))
}

/// Elements are a list, `{Count, Value}`, or the bytes of an array of i8.
#[rustler::nif(schedule = "DirtyCpu")]
fn array_new<'a>(
    env: Env<'a>,
    instance: ResourceArc<Instance>,
    ty: Term<'a>,
    elements: Term<'a>,
) -> NifResult<Term<'a>> {
    let name = type_name::decode(ty)?;
    if !(elements.is_list() || elements.is_binary() || elements.is_tuple()) {
        return Err(NifError::BadArg);
    }
    let guest = instance.guest();
    Ok(guarded(env, || new(env, &instance, make_array(guest, &name, elements))))
}

fn make_array(guest: &Guest, name: &TypeName, elements: Term<'_>) -> Result<Ref> {
    let ty = name.array(guest)?;
    let elements = decode_elements(elements, &element_type(&ty))?;
    guest.access(|mut view| view.array_new(&ty, &elements))
}

fn decode_elements(term: Term<'_>, of: &Type) -> Result<Elements> {
    if let Ok(bytes) = term.decode::<Binary<'_>>() {
        return Ok(Elements::Bytes(bytes.as_slice().to_vec()));
    }
    if let Ok((count, value)) = term.decode::<(u32, Term<'_>)>() {
        let value = value::decode_one(value, of, Class::Ref, "the value")?;
        return Ok(Elements::Fill(value, count));
    }
    let terms: Vec<Term<'_>> = term.decode().map_err(|_| Error::internal("no list of elements"))?;
    value::decode_each(&terms, of, "the array").map(Elements::List).map_err(of_ref)
}

/// A reference to an exported function.
#[rustler::nif]
fn func_ref<'a>(env: Env<'a>, instance: ResourceArc<Instance>, Name(name): Name<'a>) -> Term<'a> {
    guarded(env, || {
        let encode = |reference| Reference::new(reference, &instance).encode(env);
        inside(env, &instance, |mut view| view.function(name), encode)
    })
}

fn new<'a>(env: Env<'a>, instance: &ResourceArc<Instance>, made: Result<Ref>) -> Term<'a> {
    answer(env, made.map(|reference| Reference::new(reference, instance)))
}

fn of_ref(error: Error) -> Error {
    Error { class: Class::Ref, ..error }
}

/// Waits until nobody else is inside the guest of an instance or a reference.
#[rustler::nif(schedule = "DirtyIo")]
fn access_wait(of: Term<'_>) -> NifResult<rustler::Atom> {
    let wait = |instance: &Instance| drop(instance.guest().access(|_| Ok(())));
    match of.decode::<ResourceArc<Reference>>() {
        Ok(of) => wait(&of.instance),
        Err(_) => {
            let instance: ResourceArc<Instance> = of.decode()?;
            wait(&instance);
        }
    }
    Ok(atoms::ok())
}

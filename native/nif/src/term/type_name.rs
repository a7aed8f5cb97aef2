//! Names of types of objects, checked in `wasmtime_ref.erl`: a reference, or where the module uses
//! the type.

use rustler::{Atom, Error, NifResult, ResourceArc, Term};
use wasmtime_beam::guest::{FuncName, TypeName};

use crate::atoms;
use crate::resource::Reference;
use crate::term::name::Name;

/// The name of a type.
pub fn decode(term: Term<'_>) -> NifResult<TypeName> {
    if let Ok(of) = term.decode::<ResourceArc<Reference>>() {
        return Ok(TypeName::Of(of.reference.clone()));
    }
    if let Ok((tag, of, at)) = term.decode::<(Atom, Term<'_>, usize)>() {
        return match tag {
            t if t == atoms::param() => Ok(TypeName::Param(function(of)?, at)),
            t if t == atoms::result() => Ok(TypeName::Result(function(of)?, at)),
            t if t == atoms::field() => Ok(TypeName::Field(Box::new(decode(of)?), at)),
            _ => Err(Error::BadArg),
        };
    }
    let (tag, of): (Atom, Term<'_>) = term.decode()?;
    match tag {
        t if t == atoms::global() => Ok(TypeName::Global(name(of)?)),
        t if t == atoms::table() => Ok(TypeName::Table(name(of)?)),
        t if t == atoms::element() => Ok(TypeName::Element(Box::new(decode(of)?))),
        _ => Err(Error::BadArg),
    }
}

/// An export's name, or `{Module, Name}` of an import.
fn function(term: Term<'_>) -> NifResult<FuncName> {
    match term.decode::<(Term<'_>, Term<'_>)>() {
        Ok((from, import)) => Ok(FuncName::Import(name(from)?, name(import)?)),
        Err(_) => name(term).map(FuncName::Export),
    }
}

fn name(term: Term<'_>) -> NifResult<String> {
    term.decode::<Name<'_>>().map(|name| name.0.to_owned())
}

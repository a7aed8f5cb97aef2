//! Answers to host calls.

use rustler::{Atom, Binary, Error as NifError, ListIterator, NifResult, ResourceArc, Term};
use wasmtime_beam::error::{Class, Error, Kind, Result};
use wasmtime_beam::guest::{Control, HostImport};
use wasmtime_beam::value::Value;

use crate::atoms;
use crate::resource::Instance;
use crate::term::value;

#[rustler::nif]
fn host_reply(instance: ResourceArc<Instance>, call: u64, answer: Term<'_>) -> NifResult<Atom> {
    let control = instance.guest().control();
    if let Some(answer) = read(control, call, answer)? {
        control.reply(call, answer);
    }
    Ok(atoms::ok())
}

/// The answer to a parked host call; `None` for a late or unknown one.
pub fn read(
    control: &Control,
    call: u64,
    answer: Term<'_>,
) -> NifResult<Option<Result<Vec<Value>>>> {
    let (tag, content): (Atom, Term<'_>) = answer.decode()?;
    control.parked_import(call).map(|import| self::answer(&import, tag, content)).transpose()
}

/// The values of `{ok, Values}`, or why the host function failed.
fn answer(import: &HostImport, tag: Atom, content: Term<'_>) -> NifResult<Result<Vec<Value>>> {
    let name = format_args!("the host function {}.{}", import.module, import.name);
    if tag == atoms::error() {
        let text: Binary<'_> = content.decode()?;
        let text = String::from_utf8_lossy(text.as_slice());
        return Ok(Err(host_error(format!("{name} {text}"))));
    }
    let values: ListIterator<'_> = content.decode().map_err(|_| NifError::BadArg)?;
    let values = value::decode_list(values, &import.signature.results, &name);
    Ok(values.map_err(|error| host_error(error.message)))
}

fn host_error(message: String) -> Error {
    Error::new(Class::Host, Kind::HostError, message)
}

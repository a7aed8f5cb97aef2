//! WebAssembly values, both ways.

use rustler::{Binary, Encoder, Env, ListIterator, NewBinary, ResourceArc, Term, TermType};
use wasmtime_beam::error::{Class, Error, Kind, Result};
use wasmtime_beam::value::{Type, Value};

use crate::atoms;
use crate::resource::{Instance, Reference};

/// `{ok, Values}`.
pub fn ok_list<'a>(env: Env<'a>, values: &[Value], instance: &ResourceArc<Instance>) -> Term<'a> {
    (atoms::ok(), encode_list(env, values, instance)).encode(env)
}

/// The list of values of an instance.
pub fn encode_list<'a>(
    env: Env<'a>,
    values: &[Value],
    instance: &ResourceArc<Instance>,
) -> Term<'a> {
    let terms: Vec<Term<'a>> = values.iter().map(|value| encode(env, value, instance)).collect();
    terms.encode(env)
}

/// The term of a value of an instance: integers signed, floats as floats unless they are none that
/// Erlang has, references as resources that keep the instance alive.
pub fn encode<'a>(env: Env<'a>, value: &Value, instance: &ResourceArc<Instance>) -> Term<'a> {
    match value {
        Value::I32(v) => v.encode(env),
        Value::I64(v) => v.encode(env),
        Value::F32(bits) => match f32::from_bits(*bits) {
            v if v.is_nan() && bits & !(1 << 31) != CANONICAL32 => (atoms::f32(), bits).encode(env),
            v => float(env, f64::from(v)),
        },
        Value::F64(bits) => match f64::from_bits(*bits) {
            v if v.is_nan() && bits & !(1 << 63) != CANONICAL64 => (atoms::f64(), bits).encode(env),
            v => float(env, v),
        },
        Value::Null => atoms::null().encode(env),
        Value::I31(v) => (atoms::i31(), v).encode(env),
        Value::Ref(reference) => Reference::new(reference.clone(), instance).encode(env),
        Value::V128(v) => {
            let mut binary = NewBinary::new(env, 16);
            binary.as_mut_slice().copy_from_slice(&v.to_le_bytes());
            binary.into()
        }
    }
}

fn float<'a>(env: Env<'a>, v: f64) -> Term<'a> {
    if v.is_nan() {
        atoms::nan().encode(env)
    } else if v.is_infinite() {
        let atom = if v > 0.0 { atoms::infinity() } else { atoms::neg_infinity() };
        atom.encode(env)
    } else {
        v.encode(env)
    }
}

/// The NaN that Erlang's `nan` stands for, of either sign; others are given as their bits.
const CANONICAL32: u32 = 0x7fc0_0000;
const CANONICAL64: u64 = 0x7ff8_0000_0000_0000;

/// Decodes a list of values by their types. `what` names the list's owner in errors.
///
/// # Errors
/// `badarity` for a wrong count, `badarg` naming the position for a wrong value.
pub fn decode_list(list: ListIterator<'_>, types: &[Type], what: &str) -> Result<Vec<Value>> {
    let terms: Vec<Term<'_>> = list.collect();
    if terms.len() != types.len() {
        let (want, got) = (types.len(), terms.len());
        let message = format!("{what} takes {want} values, {got} were given");
        return Err(Error::new(Class::Call, Kind::Badarity, message));
    }
    let values = terms.iter().zip(types).enumerate();
    values
        .map(|(at, (term, ty))| {
            decode(*term, ty).ok_or_else(|| {
                let at = at + 1;
                let message = format!("value {at} of {what} is not of type {ty}");
                Error::new(Class::Call, Kind::Badarg, message)
            })
        })
        .collect()
}

/// The value of a term, when it is one of `ty`.
pub fn decode(term: Term<'_>, ty: &Type) -> Option<Value> {
    match ty {
        Type::I32 => {
            integer(term, i64::from(i32::MIN), u64::from(u32::MAX)).map(|v| Value::I32(v as i32))
        }
        Type::I64 => integer(term, i64::MIN, u64::MAX).map(Value::I64),
        Type::F32 => f32_bits(term).map(Value::F32),
        Type::F64 => f64_bits(term).map(Value::F64),
        Type::V128 => {
            let binary: Binary<'_> = term.decode().ok()?;
            let bytes: [u8; 16] = binary.as_slice().try_into().ok()?;
            Some(Value::V128(u128::from_le_bytes(bytes)))
        }
        Type::I8 => {
            integer(term, i64::from(i8::MIN), u64::from(u8::MAX)).map(|v| Value::I32(v as i32))
        }
        Type::I16 => {
            integer(term, i64::from(i16::MIN), u64::from(u16::MAX)).map(|v| Value::I32(v as i32))
        }
        Type::Ref(_) => reference(term).filter(|value| value.may_be(ty)),
    }
}

/// `null`, `{i31, N}` or a reference.
fn reference(term: Term<'_>) -> Option<Value> {
    if let Ok(found) = term.decode::<ResourceArc<Reference>>() {
        return Some(Value::Ref(found.reference.clone()));
    }
    if let Ok(atom) = term.decode::<rustler::Atom>() {
        return (atom == atoms::null()).then_some(Value::Null);
    }
    let (tag, number): (rustler::Atom, Term<'_>) = term.decode().ok()?;
    let number = integer(number, I31_MIN, I31_MAX).filter(|_| tag == atoms::i31())?;
    // The upper half are negative numbers.
    Some(Value::I31((number as i32) << 1 >> 1))
}

/// As for i32, signed and unsigned numbers are taken; signed ones are given.
const I31_MIN: i64 = -(1 << 30);
const I31_MAX: u64 = (1 << 31) - 1;

/// An integer from `min` to `max`, wrapped to 64 bits.
fn integer(term: Term<'_>, min: i64, max: u64) -> Option<i64> {
    match term.decode::<i64>() {
        Ok(v) if v < 0 => (v >= min).then_some(v),
        Ok(v) => (v as u64 <= max).then_some(v),
        Err(_) => term.decode::<u64>().ok().filter(|v| *v <= max).map(|v| v as i64),
    }
}

/// A finite float, an integer that fits, `nan`, `infinity`, `neg_infinity` or `{f64, Bits}`.
fn f64_bits(term: Term<'_>) -> Option<u64> {
    if let Some(bits) = exact::<u64>(term, atoms::f64()) {
        return Some(bits);
    }
    number(term).map(f64::to_bits)
}

/// As `f64_bits`, with `{f32, Bits}`; a finite number beyond the range of f32 is refused.
fn f32_bits(term: Term<'_>) -> Option<u32> {
    if let Some(bits) = exact::<u32>(term, atoms::f32()) {
        return Some(bits);
    }
    let wide = number(term)?;
    let narrow = wide as f32;
    (narrow.is_finite() || !wide.is_finite()).then(|| narrow.to_bits())
}

fn exact<'a, T: rustler::Decoder<'a>>(term: Term<'a>, tag: rustler::Atom) -> Option<T> {
    let (found, bits): (rustler::Atom, T) = term.decode().ok()?;
    (found == tag).then_some(bits)
}

fn number(term: Term<'_>) -> Option<f64> {
    match term.get_type() {
        TermType::Float => term.decode().ok(),
        TermType::Integer => integer_as_float(term),
        TermType::Atom => {
            let atom: rustler::Atom = term.decode().ok()?;
            [
                (atoms::nan(), f64::NAN),
                (atoms::infinity(), f64::INFINITY),
                (atoms::neg_infinity(), f64::NEG_INFINITY),
            ]
            .into_iter()
            .find_map(|(name, v)| (name == atom).then_some(v))
        }
        _ => None,
    }
}

/// Integers of 64 bits become the nearest float.
fn integer_as_float(term: Term<'_>) -> Option<f64> {
    let signed = term.decode::<i64>().map(|v| v as f64).ok();
    signed.or_else(|| term.decode::<u64>().map(|v| v as f64).ok())
}

//! WebAssembly values, both ways.

use std::fmt;

use rustler::{Binary, Encoder, Env, ListIterator, NewBinary, ResourceArc, Term, TermType};
use wasmtime_beam::error::{Class, Error, Kind, Result};
use wasmtime_beam::inject::point;
use wasmtime_beam::integer::Integer;
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
    let prepend = |list: Term<'a>, value| list.list_prepend(encode(env, value, instance));
    values.iter().rev().fold(Term::list_new_empty(env), prepend)
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
/// Class `call`: `badarity` for a wrong count, `badarg` naming the position for a wrong value.
/// `what` is only written for them.
pub fn decode_list(
    list: ListIterator<'_>,
    types: &[Type],
    what: &(impl fmt::Display + ?Sized),
) -> Result<Vec<Value>> {
    decode_all(list, types, what)
}

/// How long a list is that should have had `want` terms, counted no further than messages tell.
pub fn count(list: ListIterator<'_>, want: usize) -> Count {
    Count { got: list.take(want + SURPLUS).count(), want }
}

/// Terms beyond the last one wanted that are counted: some tens of microseconds.
const SURPLUS: usize = 10_000;

/// How messages tell a count: one that ended early is none.
pub struct Count {
    got: usize,
    want: usize,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_more = if self.got >= self.want + SURPLUS { " or more" } else { "" };
        write!(f, "{}{or_more}", self.got)
    }
}

/// As `decode_list`, of terms that are counted already.
pub fn decode_terms(
    terms: &[Term<'_>],
    types: &[Type],
    what: &(impl fmt::Display + ?Sized),
) -> Result<Vec<Value>> {
    decode_all(terms.iter().copied(), types, what)
}

/// A wrong count is told before a wrong value.
fn decode_all<'a>(
    mut terms: impl Iterator<Item = Term<'a>>,
    types: &[Type],
    what: &(impl fmt::Display + ?Sized),
) -> Result<Vec<Value>> {
    point("decode");
    let mut values = Vec::with_capacity(types.len());
    let mut given = 0;
    let mut take = |ty| {
        let value = decode(terms.next().inspect(|_| given += 1)?, ty)?;
        values.push(value);
        Some(())
    };
    let wrong = types.iter().position(|ty| take(ty).is_none());
    arity(given + terms.take(SURPLUS).count(), types.len(), what)?;
    match wrong {
        None => Ok(values),
        Some(at) => Err(misfit(at, &types[at], what)),
    }
}

fn arity(got: usize, want: usize, what: &(impl fmt::Display + ?Sized)) -> Result<()> {
    if got == want {
        return Ok(());
    }
    let message = format!("{what} takes {want} values, {} were given", Count { got, want });
    Err(Error::new(Class::Call, Kind::Badarity, message))
}

/// Decodes values that are all of type `ty`.
///
/// # Errors
/// As [`decode_list`].
pub fn decode_each(
    terms: &[Term<'_>],
    ty: &Type,
    what: &(impl fmt::Display + ?Sized),
) -> Result<Vec<Value>> {
    terms.iter().enumerate().map(|(at, term)| nth(at, *term, ty, what)).collect()
}

fn nth(at: usize, term: Term<'_>, ty: &Type, what: &(impl fmt::Display + ?Sized)) -> Result<Value> {
    decode(term, ty).ok_or_else(|| misfit(at, ty, what))
}

fn misfit(at: usize, ty: &Type, what: &(impl fmt::Display + ?Sized)) -> Error {
    let message = format!("value {} of {what} is not of type {ty}", at + 1);
    Error::new(Class::Call, Kind::Badarg, message)
}

/// Decodes one value, which errors of `class` name as `what`.
pub fn decode_one(term: Term<'_>, ty: &Type, class: Class, what: &str) -> Result<Value> {
    decode(term, ty)
        .ok_or_else(|| Error::new(class, Kind::Badarg, format!("{what} is not of type {ty}")))
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
    match number(term)? {
        Number::Float(v) => Some(v.to_bits()),
        Number::Integer(v) => v.f64().is_finite().then(|| v.f64().to_bits()),
    }
}

/// As `f64_bits`, with `{f32, Bits}`; a finite number beyond the range of f32 is refused.
fn f32_bits(term: Term<'_>) -> Option<u32> {
    if let Some(bits) = exact::<u32>(term, atoms::f32()) {
        return Some(bits);
    }
    let (narrow, must_be_finite) = match number(term)? {
        Number::Float(v) => (v as f32, v.is_finite()),
        Number::Integer(v) => (v.f32(), true),
    };
    (narrow.is_finite() || !must_be_finite).then(|| narrow.to_bits())
}

fn exact<'a, T: rustler::Decoder<'a>>(term: Term<'a>, tag: rustler::Atom) -> Option<T> {
    let (found, bits): (rustler::Atom, T) = term.decode().ok()?;
    (found == tag).then_some(bits)
}

enum Number {
    Float(f64),
    Integer(Integer),
}

fn number(term: Term<'_>) -> Option<Number> {
    match term.get_type() {
        TermType::Float => term.decode().ok().map(Number::Float),
        TermType::Integer => big(term).map(Number::Integer),
        TermType::Atom => {
            let atom: rustler::Atom = term.decode().ok()?;
            [
                (atoms::nan(), f64::NAN),
                (atoms::infinity(), f64::INFINITY),
                (atoms::neg_infinity(), f64::NEG_INFINITY),
            ]
            .into_iter()
            .find_map(|(name, v)| (name == atom).then_some(Number::Float(v)))
        }
        _ => None,
    }
}

/// An integer of any size that may be a float.
fn big(term: Term<'_>) -> Option<Integer> {
    if let Ok(v) = term.decode::<i64>() {
        return Some(Integer::of_i64(v));
    }
    // There is no other way to a big integer than its external format.
    let external = term.to_binary();
    match external.as_slice() {
        [131, 110, _, sign, bytes @ ..] if bytes.len() <= FLOAT_BYTES => {
            Some(Integer::of_bytes(*sign != 0, bytes))
        }
        _ => None,
    }
}

/// Bytes of an integer's magnitude that no float is beyond: 2^1024.
const FLOAT_BYTES: usize = 128;

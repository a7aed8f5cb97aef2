//! Values that cross the border of a guest, by calls, globals and tables: they come back as they went
//! in, or are refused by name. Integers of any size become the floats that they are nearest to.

use std::sync::{Arc, OnceLock};

use wasmtime_beam::counts::{Object, live};
use wasmtime_beam::error::{Class, Error, Kind, Result};
use wasmtime_beam::guest::Ref;
use wasmtime_beam::integer::Integer;
use wasmtime_beam::module::{Module, parse_wat};
use wasmtime_beam::value::{Type, Value};

use crate::input::Choices;
use crate::ours::{Ours, options};

/// Types of values, each with an export that gives back what it was given, and a global.
const TYPES: [(&str, &str); 15] = [
    ("i32", "i32.const 0"),
    ("i64", "i64.const 0"),
    ("f32", "f32.const 0"),
    ("f64", "f64.const 0"),
    ("v128", "v128.const i64x2 0 0"),
    ("externref", "ref.null extern"),
    ("funcref", "ref.null func"),
    ("anyref", "ref.null any"),
    ("eqref", "ref.null eq"),
    ("i31ref", "ref.null i31"),
    ("structref", "ref.null struct"),
    ("arrayref", "ref.null array"),
    ("(ref null $s)", "ref.null $s"),
    ("(ref func)", "ref.func $f"),
    ("(ref i31)", "ref.i31 (i32.const 3)"),
];

/// Bytes of an integer's magnitude: up to a few beyond what floats reach.
const MAX_BYTES: usize = 130;

pub fn run(data: &[u8]) {
    let mut choices = Choices::new(data);
    integer(choices.chance(2), choices.some(MAX_BYTES));
    let before = counts();
    let guests = [Ours::new(module()), Ours::new(module())].map(|made| made.expect("an instance"));
    let pools = guests.each_ref().map(references);
    for _ in 0..40 {
        if choices.is_empty() {
            break;
        }
        let (at, name) = (choices.below(TYPES.len()), choices.below(3));
        let value = value(&pools, &mut choices);
        cross(&guests[0], at, name, &value, &pools[1]);
    }
    guests.into_iter().for_each(Ours::destroy);
    drop(pools);
    assert_eq!(counts(), before);
}

fn counts() -> [usize; 3] {
    [live(Object::Guest), live(Object::Store), live(Object::Reference)]
}

fn module() -> &'static Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    MODULE.get_or_init(|| {
        let mut text = String::from(
            r#"(module (type $s (struct (field (mut i32)))) (type $a (array (mut i8)))
                 (func $f (export "f") (result funcref) (ref.func $f))
                 (func (export "s") (result (ref $s)) (struct.new $s (i32.const 7)))
                 (func (export "a") (result (ref $a)) (array.new_default $a (i32.const 3)))
                 (func (export "x") (param externref) (result anyref) (any.convert_extern (local.get 0)))
                 (table (export "t_externref") 3 externref) (table (export "t_funcref") 3 funcref)
                 (table (export "t_anyref") 3 anyref) "#,
        );
        for (at, (ty, zero)) in TYPES.iter().enumerate() {
            text += &format!(
                "(func (export \"c{at}\") (param {ty}) (result {ty}) (local.get 0))
                 (global (export \"g{at}\") (mut {ty}) ({zero}))"
            );
        }
        let wasm = parse_wat((text + ")").as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        Module::compile(&wasm, &options(false)).unwrap_or_else(|error| panic!("{error}"))
    })
}

/// References of a guest, of every sort.
fn references(guest: &Ours) -> Vec<Ref> {
    let term: wasmtime_beam::guest::Datum = Arc::new(5u32);
    let mut all = vec![guest.access(|view| view.make_extern(term))];
    let external = Value::Ref(all[0].clone());
    for (name, args) in [("f", vec![]), ("s", vec![]), ("a", vec![]), ("x", vec![external])] {
        match guest.values(name, &args).as_deref() {
            Ok([Value::Ref(reference)]) => all.push(reference.clone()),
            other => panic!("{name} gave {other:?}"),
        }
    }
    all
}

fn value(pools: &[Vec<Ref>; 2], choices: &mut Choices<'_>) -> Value {
    let bits = choices.bits();
    match choices.below(9) {
        0 => Value::I32(bits as i32),
        1 => Value::I64(bits as i64),
        2 => Value::F32(bits as u32),
        3 => Value::F64(bits),
        4 => Value::V128(u128::from(bits) << 64 | u128::from(choices.bits())),
        5 => Value::Null,
        6 => Value::I31(bits as i32),
        sort => {
            let pool = &pools[usize::from(sort == 8)];
            Value::Ref(pool[choices.below(pool.len())].clone())
        }
    }
}

/// Sends a value in and takes it out again, by a call, a global or a table.
fn cross(guest: &Ours, at: usize, way: usize, value: &Value, others: &[Ref]) {
    let ty = &module().function(&format!("c{at}")).expect("an export").signature.params[0];
    let (class, back) = match way {
        0 => (Class::Call, guest.values(&format!("c{at}"), std::slice::from_ref(value)).map(first)),
        1 => (Class::Global, through_global(guest, &format!("g{at}"), value)),
        _ => match TYPES[at].0 {
            name @ ("externref" | "funcref" | "anyref") => {
                (Class::Table, through_table(guest, &format!("t_{name}"), value))
            }
            _ => return,
        },
    };
    let foreign = matches!(value, Value::Ref(reference) if others.contains(reference));
    match back {
        Ok(back) => {
            assert!(value.may_be(ty) && !foreign, "{value:?} was taken for a {ty}");
            assert!(is_same(value, &back), "{value:?} came back as {back:?}");
        }
        Err(error) => refused(&error, class, value, ty, foreign),
    }
}

fn first(values: Vec<Value>) -> Value {
    values.into_iter().next().expect("a value")
}

fn through_global(guest: &Ours, name: &str, value: &Value) -> Result<Value> {
    let ty = module().global(name)?;
    guest.access(|view| {
        let set = view.global_set(name, &ty, value);
        Ok(set.and_then(|()| view.global_get(name)))
    })
}

fn through_table(guest: &Ours, name: &str, value: &Value) -> Result<Value> {
    guest.access(|view| {
        let set = view.table_set(name, 1, value);
        Ok(set.and_then(|()| view.table_get(name, 1)))
    })
}

/// What went in, as far as it can be told: of an i31 its 31 bits, of a reference what it refers to.
fn is_same(value: &Value, back: &Value) -> bool {
    match (value, back) {
        (Value::I31(sent), Value::I31(got)) => sent << 1 >> 1 == *got,
        (Value::Ref(sent), Value::Ref(got)) => {
            let datum = |reference: &Ref| reference.datum().map(Arc::as_ptr);
            sent.kind() == got.kind()
                && datum(sent).map(<*const _>::addr) == datum(got).map(<*const _>::addr)
        }
        (sent, got) => sent == got,
    }
}

fn refused(error: &Error, class: Class, value: &Value, ty: &Type, foreign: bool) {
    match error.kind {
        Kind::WrongInstance => assert!(foreign && error.class == Class::Call, "{error}"),
        Kind::Badarg => {
            // A reference that may be of the type by its sort alone may still be of another.
            let precise = matches!(value, Value::Ref(_));
            assert!(error.class == class && (!value.may_be(ty) || precise), "{error}");
        }
        // Numbers of another type are the decoder's to refuse, which goes by the types.
        kind => assert!(kind == Kind::Internal && !value.may_be(ty), "{error}"),
    }
}

/// An integer of any size becomes the nearest float, as its decimal digits do.
fn integer(negative: bool, bytes: &[u8]) {
    let integer = Integer::of_bytes(negative, bytes);
    let digits = digits(bytes);
    let text = if negative { format!("-{digits}") } else { digits };
    let (f64, f32): (f64, f32) = (text.parse().expect("f64"), text.parse().expect("f32"));
    assert_eq!(integer.f64().to_bits(), f64.to_bits(), "{text}");
    assert_eq!(integer.f32().to_bits(), f32.to_bits(), "{text}");
    if let Ok(small) = text.parse::<i64>() {
        assert_eq!(Integer::of_i64(small).f64(), small as f64);
    }
}

/// The decimal digits of a magnitude, whose lowest byte comes first.
fn digits(bytes: &[u8]) -> String {
    let (mut left, mut digits) = (bytes.to_vec(), Vec::new());
    while left.iter().any(|byte| *byte != 0) {
        let mut rest = 0;
        for byte in left.iter_mut().rev() {
            let value = rest << 8 | u32::from(*byte);
            (*byte, rest) = ((value / 10) as u8, value % 10);
        }
        digits.push(char::from(b'0' + rest as u8));
    }
    if digits.is_empty() { "0".into() } else { digits.into_iter().rev().collect() }
}

//! The host that both sides have: what it answers follows from what it is asked.

use wasmtime_beam::value::{Type, Value};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The answer of the import `name`.
pub fn answer(name: &str, args: &[Value], results: &[Type]) -> Vec<Value> {
    let asked = format!("{name}{args:?}");
    let number = |at| xxh3_64_with_seed(asked.as_bytes(), at as u64);
    results.iter().enumerate().map(|(at, ty)| value(ty, number(at))).collect()
}

/// A value of this type with these bits; null for references.
pub fn value(ty: &Type, bits: u64) -> Value {
    match ty {
        Type::I8 | Type::I16 | Type::I32 => Value::I32(bits as i32),
        Type::I64 => Value::I64(bits as i64),
        Type::F32 => Value::F32(bits as u32),
        Type::F64 => Value::F64(bits),
        Type::V128 => Value::V128(u128::from(bits) << 64 | u128::from(!bits)),
        Type::Ref(_) => Value::Null,
    }
}

/// Values as both sides can tell them: of a reference only what it is.
pub fn told(values: &[Value]) -> Vec<String> {
    let tell = |value: &Value| match value {
        Value::Ref(reference) => reference.kind().as_str().to_owned(),
        number => format!("{number:?}"),
    };
    values.iter().map(tell).collect()
}

//! WebAssembly values as neutral data: what crosses the border between a guest and its user.

use wasmtime::{FuncType, Val, ValType};

/// A value of a parameter or a result. Floats are bits, so that NaN payloads survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    I32(i32),
    I64(i64),
    F32(u32),
    F64(u64),
    V128(u128),
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    I32,
    I64,
    F32,
    F64,
    V128,
    /// A reference; no value of it can be passed yet.
    Ref,
}

impl Type {
    pub fn of(ty: &ValType) -> Self {
        match ty {
            ValType::I32 => Type::I32,
            ValType::I64 => Type::I64,
            ValType::F32 => Type::F32,
            ValType::F64 => Type::F64,
            ValType::V128 => Type::V128,
            ValType::Ref(_) => Type::Ref,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Type::I32 => "i32",
            Type::I64 => "i64",
            Type::F32 => "f32",
            Type::F64 => "f64",
            Type::V128 => "v128",
            Type::Ref => "reference",
        }
    }

    /// A value of this type to be overwritten; `None` for references.
    pub fn zero(self) -> Option<Val> {
        Some(match self {
            Type::I32 => Val::I32(0),
            Type::I64 => Val::I64(0),
            Type::F32 => Val::F32(0),
            Type::F64 => Val::F64(0),
            Type::V128 => Val::V128(0u128.into()),
            Type::Ref => return None,
        })
    }
}

/// Parameters and results of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub params: Vec<Type>,
    pub results: Vec<Type>,
}

impl Signature {
    pub fn of(ty: &FuncType) -> Self {
        Signature {
            params: ty.params().map(|t| Type::of(&t)).collect(),
            results: ty.results().map(|t| Type::of(&t)).collect(),
        }
    }
}

impl Value {
    pub fn ty(self) -> Type {
        match self {
            Value::I32(_) => Type::I32,
            Value::I64(_) => Type::I64,
            Value::F32(_) => Type::F32,
            Value::F64(_) => Type::F64,
            Value::V128(_) => Type::V128,
        }
    }
}

impl From<Value> for Val {
    fn from(value: Value) -> Val {
        match value {
            Value::I32(v) => Val::I32(v),
            Value::I64(v) => Val::I64(v),
            Value::F32(v) => Val::F32(v),
            Value::F64(v) => Val::F64(v),
            Value::V128(v) => Val::V128(v.into()),
        }
    }
}

/// The neutral form of a Wasmtime value; `None` for references.
pub fn from_val(val: &Val) -> Option<Value> {
    Some(match val {
        Val::I32(v) => Value::I32(*v),
        Val::I64(v) => Value::I64(*v),
        Val::F32(v) => Value::F32(*v),
        Val::F64(v) => Value::F64(*v),
        Val::V128(v) => Value::V128(v.as_u128()),
        _ => return None,
    })
}

//! WebAssembly values as neutral data: what crosses the border between a guest and its user.
//! A reference is opaque here: only its guest's store can look into it.

use std::fmt;

use wasmtime::{
    ArrayType, FieldType, FuncType, HeapType, RefType, StorageType, StructType, Val, ValType,
};

use crate::error::{Class, Error, Kind, Result};
use crate::guest::Ref;

/// A value of a parameter or a result. Floats are bits, so that NaN payloads survive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    I32(i32),
    I64(i64),
    F32(u32),
    F64(u64),
    V128(u128),
    /// The null reference of any type.
    Null,
    /// A reference that is a number of 31 bits, from -2^30 to 2^30 - 1.
    I31(i32),
    Ref(Ref),
}

/// The type of a value, or of a field of an object.
#[derive(Clone, Debug)]
pub enum Type {
    /// Packed: only in fields and elements, where its values are `I32`.
    I8,
    /// As `I8`, of 16 bits.
    I16,
    I32,
    I64,
    F32,
    F64,
    V128,
    Ref(RefType),
}

impl Type {
    pub fn of(ty: &ValType) -> Self {
        match ty {
            ValType::I32 => Type::I32,
            ValType::I64 => Type::I64,
            ValType::F32 => Type::F32,
            ValType::F64 => Type::F64,
            ValType::V128 => Type::V128,
            ValType::Ref(ty) => Type::Ref(ty.clone()),
        }
    }

    /// The type of a field or an element.
    pub fn of_storage(ty: &StorageType) -> Self {
        match ty {
            StorageType::I8 => Type::I8,
            StorageType::I16 => Type::I16,
            StorageType::ValType(ty) => Type::of(ty),
        }
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Type::Ref(a), Type::Ref(b)) => RefType::eq(a, b),
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

impl Eq for Type {}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::I8 => f.write_str("i8"),
            Type::I16 => f.write_str("i16"),
            Type::I32 => f.write_str("i32"),
            Type::I64 => f.write_str("i64"),
            Type::F32 => f.write_str("f32"),
            Type::F64 => f.write_str("f64"),
            Type::V128 => f.write_str("v128"),
            Type::Ref(ty) => {
                let null = if ty.is_nullable() { "null " } else { "" };
                write!(f, "(ref {null}{})", heap(ty.heap_type()))
            }
        }
    }
}

/// A heap type in a few words: a type of the module has no name that survives compilation, and may
/// contain itself.
fn heap(ty: &HeapType) -> String {
    match ty {
        HeapType::ConcreteFunc(_) => "a type of func".into(),
        HeapType::ConcreteArray(_) => "a type of array".into(),
        HeapType::ConcreteStruct(_) => "a type of struct".into(),
        HeapType::ConcreteExn(_) => "a type of exn".into(),
        HeapType::ConcreteCont(_) => "a type of cont".into(),
        other => other.to_string(),
    }
}

/// A field of a struct, or the element of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub ty: Type,
    pub mutable: bool,
}

impl Field {
    pub fn of(ty: &FieldType) -> Self {
        let mutable = ty.mutability().is_var();
        Field { ty: Type::of_storage(ty.element_type()), mutable }
    }
}

impl Field {
    /// It is there to be changed; `what` names it.
    ///
    /// # Errors
    /// Class `ref`, kind `immutable`.
    pub fn must_be_mutable(&self, what: &str) -> Result<()> {
        if self.mutable {
            return Ok(());
        }
        Err(Error::new(Class::Ref, Kind::Immutable, format!("{what} is immutable")))
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mutable { write!(f, "(mut {})", self.ty) } else { self.ty.fmt(f) }
    }
}

/// The types of a struct's fields.
pub fn field_types(ty: &StructType) -> Vec<Type> {
    ty.fields().map(|field| Type::of_storage(field.element_type())).collect()
}

/// The type of an array's elements.
pub fn element_type(ty: &ArrayType) -> Type {
    Type::of_storage(&ty.element_type())
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
    /// The neutral form of a number; `None` for references.
    pub fn of_number(val: &Val) -> Option<Self> {
        Some(match val {
            Val::I32(v) => Value::I32(*v),
            Val::I64(v) => Value::I64(*v),
            Val::F32(v) => Value::F32(*v),
            Val::F64(v) => Value::F64(*v),
            Val::V128(v) => Value::V128(v.as_u128()),
            _ => return None,
        })
    }

    /// The inverse of [`Value::of_number`].
    pub fn to_number(&self) -> Option<Val> {
        Some(match self {
            Value::I32(v) => Val::I32(*v),
            Value::I64(v) => Val::I64(*v),
            Value::F32(v) => Val::F32(*v),
            Value::F64(v) => Val::F64(*v),
            Value::V128(v) => Val::V128((*v).into()),
            Value::Null | Value::I31(_) | Value::Ref(_) => return None,
        })
    }

    /// What it is, for messages.
    pub fn what(&self) -> &'static str {
        match self {
            Value::I32(_) => "i32",
            Value::I64(_) => "i64",
            Value::F32(_) => "f32",
            Value::F64(_) => "f64",
            Value::V128(_) => "v128",
            Value::Null => "null",
            Value::I31(_) => "i31",
            Value::Ref(reference) => reference.kind().as_str(),
        }
    }
}

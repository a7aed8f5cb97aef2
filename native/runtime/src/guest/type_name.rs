//! How a user names the type of an object: by where the module uses it, or by an object of it.
//! Types of a module have no names of their own once it is compiled.

use wasmtime::{ArrayType, ExternType, FuncType, HeapType, StorageType, StructType, ValType};

use super::poll::Guest;
use super::refs::{Ref, wrong_instance};
use crate::error::{Class, Error, Kind, Quoted, Result};

/// Where a type is found.
#[derive(Clone, Debug)]
pub enum TypeName {
    /// The type of this object.
    Of(Ref),
    /// Of a parameter of a function, counted from 1.
    Param(FuncName, usize),
    /// Of a result.
    Result(FuncName, usize),
    /// Of an exported global.
    Global(String),
    /// Of the elements of an exported table.
    Table(String),
    /// Of a field of a struct type, counted from 0.
    Field(Box<TypeName>, usize),
    /// Of the elements of an array type.
    Element(Box<TypeName>),
}

/// A function of a module.
#[derive(Clone, Debug)]
pub enum FuncName {
    Export(String),
    Import(String, String),
}

impl TypeName {
    /// The struct type of this name in the module of `guest`.
    ///
    /// # Errors
    /// Class `ref`, kind `badarg`; class `call`, kind `wrong_instance`.
    pub fn structure(&self, guest: &Guest) -> Result<StructType> {
        match self.find(guest)? {
            HeapType::ConcreteStruct(ty) => Ok(ty),
            other => Err(bad(format!("the type named is {}, no type of struct", what(&other)))),
        }
    }

    /// The array type of this name in the module of `guest`.
    ///
    /// # Errors
    /// As [`TypeName::structure`].
    pub fn array(&self, guest: &Guest) -> Result<ArrayType> {
        match self.find(guest)? {
            HeapType::ConcreteArray(ty) => Ok(ty),
            other => Err(bad(format!("the type named is {}, no type of array", what(&other)))),
        }
    }

    fn find(&self, guest: &Guest) -> Result<HeapType> {
        match self {
            TypeName::Of(object) if !object.is_of(guest.control()) => {
                Err(wrong_instance("the object that names the type"))
            }
            TypeName::Of(object) => Ok(object.heap_type()),
            TypeName::Param(name, at) => {
                let ty = name.ty(guest)?;
                let ty = at.checked_sub(1).and_then(|at| ty.param(at));
                reference(ty, || format!("parameter {at} of {name}"))
            }
            TypeName::Result(name, at) => {
                let ty = name.ty(guest)?;
                let ty = at.checked_sub(1).and_then(|at| ty.result(at));
                reference(ty, || format!("result {at} of {name}"))
            }
            TypeName::Global(name) => {
                let ty = guest.module().export_type(name);
                let ty = ty.and_then(|ty| ty.global().map(|ty| ty.content().clone()));
                reference(ty, || format!("the exported global {}", Quoted(name)))
            }
            TypeName::Table(name) => {
                let ty = guest.module().export_type(name);
                let ty = ty.and_then(|ty| ty.table().map(|ty| ty.element().clone()));
                reference(ty.map(ValType::Ref), || format!("the exported table {}", Quoted(name)))
            }
            TypeName::Field(of, at) => {
                let field = of.structure(guest)?.field(*at);
                let ty = field.map(|field| field.element_type().clone());
                stored(ty, || format!("field {at}"))
            }
            TypeName::Element(of) => {
                stored(Some(of.array(guest)?.element_type()), || "the element".into())
            }
        }
    }
}

impl FuncName {
    fn ty(&self, guest: &Guest) -> Result<FuncType> {
        let ty = match self {
            FuncName::Export(name) => guest.module().export_type(name),
            FuncName::Import(module, name) => guest.module().import_type(module, name),
        };
        match ty {
            Some(ExternType::Func(ty)) => Ok(ty),
            _ => Err(missing(&self.to_string())),
        }
    }
}

impl std::fmt::Display for FuncName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FuncName::Export(name) => write!(f, "the exported function {}", Quoted(name)),
            FuncName::Import(module, name) => {
                write!(f, "the imported function {}.{}", Quoted(module), Quoted(name))
            }
        }
    }
}

fn stored(ty: Option<StorageType>, name: impl Fn() -> String) -> Result<HeapType> {
    reference(ty.and_then(|ty| ty.as_val_type().cloned()), name)
}

fn reference(ty: Option<ValType>, name: impl Fn() -> String) -> Result<HeapType> {
    match ty {
        Some(ValType::Ref(ty)) => Ok(ty.heap_type().clone()),
        Some(other) => Err(bad(format!("{} is of type {other}, no reference", name()))),
        None => Err(missing(&name())),
    }
}

fn missing(name: &str) -> Error {
    bad(format!("there is no {}", name.trim_start_matches("the ")))
}

fn what(ty: &HeapType) -> &'static str {
    match ty {
        HeapType::ConcreteStruct(_) => "a type of struct",
        HeapType::ConcreteArray(_) => "a type of array",
        HeapType::ConcreteFunc(_) => "a type of function",
        _ => "one that has no objects of its own",
    }
}

fn bad(message: String) -> Error {
    Error::new(Class::Ref, Kind::Badarg, message)
}

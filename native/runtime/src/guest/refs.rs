//! References to what lives in a guest's store: functions, objects of its heap, terms of the host.
//! A reference roots its object, belongs to one guest, and may be dropped anywhere at any moment: that
//! sets a flag which the store heeds the next time it makes a root or collects garbage.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use wasmtime::{
    AnyRef, ArrayType, AsContext, AsContextMut, ExnRef, ExternRef, Func, FuncType, HeapType, I31,
    OwnedRooted, RefType, Rooted, StructType, Val,
};

use super::control::Control;
use super::store::Data;
use super::view::not_a;
use crate::counts::{Live, Object as Counted};
use crate::error::{Class, Error, Kind};
use crate::value::{Field, Signature, Type, Value};

/// What an `externref` of the host holds.
pub type Datum = Arc<dyn Any + Send + Sync>;

/// A reference of a guest. Cloning is cheap, and roots nothing more.
#[derive(Clone)]
pub struct Ref(Arc<Inner>);

struct Inner {
    object: Object,
    owner: Arc<Control>,
    _live: Live,
}

enum Object {
    Func(Func, FuncType),
    Struct(OwnedRooted<AnyRef>, StructType),
    Array(OwnedRooted<AnyRef>, ArrayType),
    /// An `externref` that was made an `anyref`.
    Any(OwnedRooted<AnyRef>, Option<Datum>),
    Extern(OwnedRooted<ExternRef>, Option<Datum>),
    /// An i31 that was made an `externref`: it needs no root.
    ExternI31(I31),
    Exn(OwnedRooted<ExnRef>),
}

/// What a reference refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefKind {
    Func,
    Extern,
    Struct,
    Array,
    Any,
    Exn,
}

impl RefKind {
    /// The name a user sees (an atom in Erlang).
    pub const fn as_str(self) -> &'static str {
        match self {
            RefKind::Func => "funcref",
            RefKind::Extern => "externref",
            RefKind::Struct => "struct",
            RefKind::Array => "array",
            RefKind::Any => "anyref",
            RefKind::Exn => "exnref",
        }
    }
}

/// Why a value cannot enter a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// It is of another type.
    Type,
    /// It belongs to another guest.
    Guest,
}

impl Ref {
    fn new(object: Object, owner: &Arc<Control>) -> Self {
        let _live = Live::new(Counted::Reference);
        Ref(Arc::new(Inner { object, owner: owner.clone(), _live }))
    }

    pub fn kind(&self) -> RefKind {
        match &self.0.object {
            Object::Func(..) => RefKind::Func,
            Object::Struct(..) => RefKind::Struct,
            Object::Array(..) => RefKind::Array,
            Object::Any(..) => RefKind::Any,
            Object::Extern(..) | Object::ExternI31(_) => RefKind::Extern,
            Object::Exn(_) => RefKind::Exn,
        }
    }

    /// What the host put into an `externref`, also one that was made an `anyref`; `None` for any other
    /// reference.
    pub fn datum(&self) -> Option<&Datum> {
        match &self.0.object {
            Object::Extern(_, datum) | Object::Any(_, datum) => datum.as_ref(),
            _ => None,
        }
    }

    /// The type of a function.
    pub fn signature(&self) -> Option<Signature> {
        match &self.0.object {
            Object::Func(_, ty) => Some(Signature::of(ty)),
            _ => None,
        }
    }

    /// The fields of a struct, in their order.
    pub fn fields(&self) -> Vec<Field> {
        match &self.0.object {
            Object::Struct(_, ty) => ty.fields().map(|field| Field::of(&field)).collect(),
            _ => Vec::new(),
        }
    }

    /// What an array consists of.
    ///
    /// # Errors
    /// Class `ref`, kind `badarg`: it is no array.
    pub fn element(&self) -> Result<Field, Error> {
        match &self.0.object {
            Object::Array(_, ty) => Ok(Field::of(&ty.field_type())),
            _ => Err(not_a("array", self)),
        }
    }

    /// Field `at` of a struct, to be read.
    ///
    /// # Errors
    /// Class `ref`: `badarg`, `out_of_bounds`.
    pub fn field(&self, at: u64) -> Result<Field, Error> {
        let Object::Struct(_, ty) = &self.0.object else { return Err(not_a("struct", self)) };
        let field = usize::try_from(at).ok().and_then(|at| ty.field(at));
        field.map(|field| Field::of(&field)).ok_or_else(|| {
            let message = format!("field {at} is beyond the struct's {}", ty.fields().len());
            Error::new(Class::Ref, Kind::OutOfBounds, message)
        })
    }

    /// The type of the object, as precise as it is known.
    pub(super) fn heap_type(&self) -> HeapType {
        match &self.0.object {
            Object::Func(_, ty) => HeapType::ConcreteFunc(ty.clone()),
            Object::Struct(_, ty) => HeapType::ConcreteStruct(ty.clone()),
            Object::Array(_, ty) => HeapType::ConcreteArray(ty.clone()),
            Object::Any(..) => HeapType::Any,
            Object::Extern(..) | Object::ExternI31(_) => HeapType::Extern,
            Object::Exn(_) => HeapType::Exn,
        }
    }

    /// The function in the store of this guest; `what` names it in errors.
    ///
    /// # Errors
    /// Class `call`: `wrong_instance`, `badarg`.
    pub(super) fn func_in(&self, control: &Arc<Control>, what: &str) -> Result<Func, Error> {
        match &self.0.object {
            _ if !self.is_of(control) => Err(wrong_instance(what)),
            Object::Func(func, _) => Ok(*func),
            _ => {
                let message = format!("{what} is a reference to something else");
                Err(Error::new(Class::Call, Kind::Badarg, message))
            }
        }
    }

    /// True for a reference into the store of this guest.
    pub(super) fn is_of(&self, control: &Arc<Control>) -> bool {
        Arc::ptr_eq(&self.0.owner, control)
    }

    /// Whether it may stand where a reference of type `ty` is wanted, as far as that can be told
    /// without its store.
    fn may_be(&self, ty: &RefType) -> bool {
        let top = ty.heap_type().top();
        match self.kind() {
            RefKind::Func => matches!(top, HeapType::Func),
            RefKind::Extern => matches!(top, HeapType::Extern),
            RefKind::Exn => matches!(top, HeapType::Exn),
            RefKind::Struct | RefKind::Array | RefKind::Any => matches!(top, HeapType::Any),
        }
    }

    /// The value in its own store, rooted in the present scope.
    pub(super) fn rooted(&self, mut store: impl AsContextMut) -> wasmtime::Result<Val> {
        Ok(match &self.0.object {
            Object::Func(func, _) => Val::FuncRef(Some(*func)),
            Object::Struct(any, _) | Object::Array(any, _) | Object::Any(any, _) => {
                Val::AnyRef(Some(any.to_rooted(store)))
            }
            Object::Extern(root, _) => Val::ExternRef(Some(root.to_rooted(store))),
            Object::ExternI31(number) => {
                let any = AnyRef::from_i31(&mut store, *number);
                Val::ExternRef(Some(ExternRef::convert_any(store, any)?))
            }
            Object::Exn(root) => Val::ExnRef(Some(root.to_rooted(store))),
        })
    }
}

impl PartialEq for Ref {
    /// The same reference; two references to one object are not told to be the same.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Ref {}

impl fmt::Debug for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ref({})", self.kind().as_str())
    }
}

impl Value {
    /// Whether it may be of type `ty`; a reference to an object is looked at only when it enters
    /// its store.
    pub fn may_be(&self, ty: &Type) -> bool {
        match (self, ty) {
            (Value::I32(_), Type::I8 | Type::I16 | Type::I32)
            | (Value::I64(_), Type::I64)
            | (Value::F32(_), Type::F32)
            | (Value::F64(_), Type::F64)
            | (Value::V128(_), Type::V128) => true,
            (Value::Null, Type::Ref(ty)) => ty.is_nullable(),
            (Value::I31(_), Type::Ref(ty)) => HeapType::I31.matches(ty.heap_type()),
            (Value::Ref(reference), Type::Ref(ty)) => reference.may_be(ty),
            _ => false,
        }
    }
}

/// Takes a value into the store of `store`, as a value of type `ty`.
pub(super) fn enter(
    mut store: impl AsContextMut<Data = Data>,
    value: &Value,
    ty: &Type,
) -> Result<Val, Misfit> {
    if !value.may_be(ty) {
        return Err(Misfit::Type);
    }
    if let Some(number) = value.to_number() {
        return Ok(number);
    }
    Ok(match (value, ty) {
        (Value::Null, Type::Ref(ty)) => Val::null_ref(ty.heap_type()),
        (Value::I31(v), _) => Val::AnyRef(Some(AnyRef::from_i31(store, I31::wrapping_i32(*v)))),
        (Value::Ref(reference), Type::Ref(ty)) => {
            if !reference.is_of(&store.as_context().data().control) {
                return Err(Misfit::Guest);
            }
            let val = reference.rooted(&mut store).map_err(|_| Misfit::Type)?;
            let fits = val.matches_ty(&store, &wasmtime::ValType::Ref(ty.clone()));
            if !fits.unwrap_or(false) {
                return Err(Misfit::Type);
            }
            val
        }
        _ => return Err(Misfit::Type),
    })
}

/// Takes values into a store; `what` owns them, for the errors.
///
/// # Errors
/// `badarg` of `class` and `wrong_instance` of class `call`, naming the position from 1.
pub(super) fn enter_all<'t>(
    mut store: impl AsContextMut<Data = Data>,
    values: &[Value],
    types: impl IntoIterator<Item = &'t Type>,
    class: Class,
    what: impl Fn() -> String,
) -> Result<Vec<Val>, Error> {
    let pairs = values.iter().zip(types).enumerate();
    pairs
        .map(|(at, (value, ty))| {
            let name = || format!("value {} of {}", at + 1, what());
            enter(&mut store, value, ty).map_err(|misfit| misfit.error(class, &name(), ty))
        })
        .collect()
}

impl Misfit {
    /// `what` cannot be of type `ty`.
    pub(super) fn error(self, class: Class, what: &str, ty: &Type) -> Error {
        match self {
            Misfit::Type => Error::new(class, Kind::Badarg, format!("{what} is not of type {ty}")),
            Misfit::Guest => wrong_instance(what),
        }
    }
}

/// `what` belongs to another guest.
pub(super) fn wrong_instance(what: &str) -> Error {
    let message = format!("{what} is a reference of another instance");
    Error::new(Class::Call, Kind::WrongInstance, message)
}

/// Takes a value out of its store.
pub(super) fn leave(mut store: impl AsContextMut<Data = Data>, val: &Val) -> Result<Value, Error> {
    if let Some(number) = Value::of_number(val) {
        return Ok(number);
    }
    let object = match val {
        Val::FuncRef(Some(func)) => Object::Func(*func, func.ty(&store)),
        Val::AnyRef(Some(any)) => match any.as_i31(&store).map_err(lost)? {
            Some(number) => return Ok(Value::I31(number.get_i32())),
            None => any_object(&mut store, *any).map_err(lost)?,
        },
        Val::ExternRef(Some(external)) => extern_object(&mut store, *external).map_err(lost)?,
        Val::ExnRef(Some(exn)) => Object::Exn(exn.to_owned_rooted(&mut store).map_err(lost)?),
        Val::FuncRef(None) | Val::AnyRef(None) | Val::ExternRef(None) | Val::ExnRef(None) => {
            return Ok(Value::Null);
        }
        _ => return Err(Error::internal("a value of a type that no module can have")),
    };
    Ok(Value::Ref(Ref::new(object, &store.as_context().data().control)))
}

/// Takes values out of their store.
pub(super) fn leave_all(
    mut store: impl AsContextMut<Data = Data>,
    vals: &[Val],
) -> Result<Vec<Value>, Error> {
    vals.iter().map(|val| leave(&mut store, val)).collect()
}

fn any_object(
    mut store: impl AsContextMut<Data = Data>,
    any: Rooted<AnyRef>,
) -> wasmtime::Result<Object> {
    let ty = any.ty(&store)?;
    let root = any.to_owned_rooted(&mut store)?;
    Ok(match ty {
        HeapType::ConcreteStruct(ty) => Object::Struct(root, ty),
        HeapType::ConcreteArray(ty) => Object::Array(root, ty),
        _ => {
            let external = ExternRef::convert_any(&mut store, any)?;
            Object::Any(root, datum(&store, external)?)
        }
    })
}

fn extern_object(
    mut store: impl AsContextMut<Data = Data>,
    external: Rooted<ExternRef>,
) -> wasmtime::Result<Object> {
    let any = AnyRef::convert_extern(&mut store, external)?;
    if let Some(number) = any.as_i31(&store)? {
        return Ok(Object::ExternI31(number));
    }
    let datum = datum(&store, external)?;
    Ok(Object::Extern(external.to_owned_rooted(&mut store)?, datum))
}

/// What the host put into it, if it was the host.
fn datum(
    store: &impl AsContext<Data = Data>,
    external: Rooted<ExternRef>,
) -> wasmtime::Result<Option<Datum>> {
    let data = external.data(store.as_context())?;
    Ok(data.and_then(|data| data.downcast_ref::<Datum>()).cloned())
}

/// A value that is in scope has its root.
fn lost(error: wasmtime::Error) -> Error {
    Error::internal(format!("a reference lost its root: {error:#}"))
}

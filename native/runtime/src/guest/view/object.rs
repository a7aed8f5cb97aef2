//! Structs and arrays in the guest's heap: read, written, made.

use wasmtime::{
    AnyRef, ArrayRef, ArrayRefPre, ArrayType, Rooted, StructRef, StructRefPre, StructType, Val,
};

use super::View;
use crate::error::{Class, Error, Kind, Quoted, Result};
use crate::guest::refs::{Ref, enter, enter_all, leave, wrong_instance};
use crate::guest::store::Data;
use crate::value::{Type, Value, element_type, field_types};

/// What a new array consists of.
#[derive(Clone, Debug)]
pub enum Elements {
    List(Vec<Value>),
    /// One value, so many times.
    Fill(Value, u32),
    /// Elements of 8 bits.
    Bytes(Vec<u8>),
}

impl View<'_> {
    /// A field of a struct.
    ///
    /// # Errors
    /// Class `call`: `wrong_instance`; class `ref`: `badarg`.
    pub fn struct_get(&mut self, of: &Ref, field: usize) -> Result<Value> {
        let val = self.structure(of)?.field(&mut self.store, field).map_err(missed)?;
        leave(&mut self.store, &val)
    }

    /// Sets a field of type `ty`.
    ///
    /// # Errors
    /// As [`View::struct_get`].
    pub fn struct_set(&mut self, of: &Ref, field: usize, ty: &Type, value: &Value) -> Result<()> {
        let object = self.structure(of)?;
        let val = self.inside(value, ty)?;
        object.set_field(&mut self.store, field, val).map_err(missed)
    }

    /// How many elements an array has.
    ///
    /// # Errors
    /// As [`View::struct_get`].
    pub fn array_len(&mut self, of: &Ref) -> Result<u32> {
        self.array(of)?.len(&self.store).map_err(missed)
    }

    /// An element of an array.
    ///
    /// # Errors
    /// As [`View::struct_get`], and class `ref`, kind `out_of_bounds`.
    pub fn array_get(&mut self, of: &Ref, index: u64) -> Result<Value> {
        let (object, index) = self.indexed(of, index)?;
        let val = object.get(&mut self.store, index).map_err(missed)?;
        leave(&mut self.store, &val)
    }

    /// Sets an element, which is of type `ty`.
    ///
    /// # Errors
    /// As [`View::array_get`].
    pub fn array_set(&mut self, of: &Ref, index: u64, ty: &Type, value: &Value) -> Result<()> {
        let (object, index) = self.indexed(of, index)?;
        let val = self.inside(value, ty)?;
        object.set(&mut self.store, index, val).map_err(missed)
    }

    /// A new struct of type `ty`.
    ///
    /// # Errors
    /// Class `call`: `wrong_instance`; class `ref`: `badarg`; class `limit`: `memory_limit`,
    /// `out_of_memory`.
    pub fn struct_new(&mut self, ty: &StructType, fields: &[Value]) -> Result<Ref> {
        let vals = self.all_inside(fields, &field_types(ty), "the struct")?;
        let allocator = StructRefPre::new(&mut self.store, ty.clone());
        self.take_hit();
        let made = StructRef::new(&mut self.store, &allocator, &vals);
        let made = made.map_err(|error| self.not_made(&error))?;
        self.keep(made.into())
    }

    /// A new array of type `ty`. Takes time for each element.
    ///
    /// # Errors
    /// As [`View::struct_new`], and class `trap`, kind `allocation_too_large`.
    pub fn array_new(&mut self, ty: &ArrayType, elements: &Elements) -> Result<Ref> {
        let of = element_type(ty);
        // Wasmtime looks at an element's type when the array is allocated already: too late.
        let vals = match elements {
            Elements::List(values) => {
                self.all_inside(values, std::iter::repeat(&of), "the array")?
            }
            Elements::Fill(value, _) => vec![self.inside(value, &of)?],
            Elements::Bytes(_) if of != Type::I8 => {
                return Err(Error::new(Class::Ref, Kind::Badarg, bytes_of(&of)));
            }
            Elements::Bytes(_) => Vec::new(),
        };
        let allocator = ArrayRefPre::new(&mut self.store, ty.clone());
        self.take_hit();
        let store = &mut self.store;
        let made = match elements {
            Elements::List(_) => ArrayRef::new_fixed(store, &allocator, &vals),
            Elements::Fill(_, count) => ArrayRef::new(store, &allocator, &vals[0], *count),
            Elements::Bytes(bytes) => ArrayRef::new_from_i8_slice(store, &allocator, bytes),
        };
        let made = made.map_err(|error| self.not_made(&error))?;
        self.keep(made.into())
    }

    /// A reference to an exported function.
    ///
    /// # Errors
    /// Class `call`, kind `unknown_export`.
    pub fn function(&mut self, name: &str) -> Result<Ref> {
        let func = self.instance().and_then(|instance| instance.get_func(&mut self.store, name));
        let func = func.ok_or_else(|| unknown_function(name))?;
        self.keep(func.into())
    }

    /// What was just made, as a reference.
    pub(super) fn keep(&mut self, val: Val) -> Result<Ref> {
        match leave(&mut self.store, &val)? {
            Value::Ref(reference) => Ok(reference),
            _ => Err(Error::internal("a new object is no reference")),
        }
    }

    fn inside(&mut self, value: &Value, ty: &Type) -> Result<Val> {
        enter(&mut self.store, value, ty)
            .map_err(|misfit| misfit.error(Class::Ref, "the value", ty))
    }

    fn all_inside<'t>(
        &mut self,
        values: &[Value],
        types: impl IntoIterator<Item = &'t Type>,
        what: &str,
    ) -> Result<Vec<Val>> {
        enter_all(&mut self.store, values, types, Class::Ref, || what.to_owned())
    }

    fn structure(&mut self, of: &Ref) -> Result<Rooted<StructRef>> {
        self.any(of)?.as_struct(&self.store).ok().flatten().ok_or_else(|| not_a("struct", of))
    }

    fn array(&mut self, of: &Ref) -> Result<Rooted<ArrayRef>> {
        self.any(of)?.as_array(&self.store).ok().flatten().ok_or_else(|| not_a("array", of))
    }

    fn indexed(&mut self, of: &Ref, index: u64) -> Result<(Rooted<ArrayRef>, u32)> {
        let object = self.array(of)?;
        let len = object.len(&self.store).map_err(missed)?;
        match u32::try_from(index) {
            Ok(index) if index < len => Ok((object, index)),
            _ => {
                let message = format!("index {index} is beyond the array's {len} elements");
                Err(Error::new(Class::Ref, Kind::OutOfBounds, message))
            }
        }
    }

    fn any(&mut self, of: &Ref) -> Result<Rooted<AnyRef>> {
        if !of.is_of(&self.data().control) {
            return Err(wrong_instance("the object"));
        }
        match of.rooted(&mut self.store).map_err(missed)? {
            Val::AnyRef(Some(any)) => Ok(any),
            _ => Err(not_a("struct or array", of)),
        }
    }

    fn data(&self) -> &Data {
        wasmtime::AsContext::as_context(&self.store).data()
    }
}

/// The reference is of another kind than `wanted`.
pub(crate) fn not_a(wanted: &str, of: &Ref) -> Error {
    let message = format!("a reference of kind {wanted} is needed, not {}", of.kind().as_str());
    Error::new(Class::Ref, Kind::Badarg, message)
}

fn bytes_of(ty: &Type) -> String {
    format!("bytes are for arrays of i8, not of {ty}")
}

/// What was checked before cannot fail.
fn missed(error: wasmtime::Error) -> Error {
    Error::internal(format!("{error:#}"))
}

/// No function is exported under this name.
pub(crate) fn unknown_function(name: &str) -> Error {
    Error::new(Class::Call, Kind::UnknownExport, format!("no exported function {}", Quoted(name)))
}

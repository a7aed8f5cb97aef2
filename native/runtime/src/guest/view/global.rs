//! Exported globals.

use wasmtime::Global;

use super::View;
use crate::error::{Class, Error, Kind, Quoted, Result};
use crate::guest::refs::{enter, leave};
use crate::value::{Field, Value};

impl View<'_> {
    /// The value of an exported global.
    ///
    /// # Errors
    /// Class `global`, kind `unknown_export`.
    pub fn global_get(&mut self, name: &str) -> Result<Value> {
        let val = self.global(name)?.get(&mut self.store);
        leave(&mut self.store, &val)
    }

    /// Gives an exported global of type `ty` a value (see [`crate::module::Module::global`]).
    ///
    /// # Errors
    /// Class `global`: `unknown_export`, `immutable`, `badarg`; class `call`: `wrong_instance`.
    pub fn global_set(&mut self, name: &str, ty: &Field, value: &Value) -> Result<()> {
        let global = self.global(name)?;
        if !ty.mutable {
            let message = format!("the global {} is immutable", Quoted(name));
            return Err(Error::new(Class::Global, Kind::Immutable, message));
        }
        let val = enter(&mut self.store, value, &ty.ty)
            .map_err(|misfit| misfit.error(Class::Global, "the value", &ty.ty))?;
        global.set(&mut self.store, val).map_err(|error| Error::internal(error.to_string()))
    }

    fn global(&mut self, name: &str) -> Result<Global> {
        let instance = self.instance();
        instance
            .and_then(|instance| instance.get_global(&mut self.store, name))
            .ok_or_else(|| unknown_global(name))
    }
}

/// No global is exported under this name.
pub(crate) fn unknown_global(name: &str) -> Error {
    Error::new(Class::Global, Kind::UnknownExport, format!("no exported global {}", Quoted(name)))
}

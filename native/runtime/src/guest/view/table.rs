//! Exported tables.

use wasmtime::{Ref as Element, Table, Val};

use super::View;
use crate::error::{Class, Error, Kind, Quoted, Result};
use crate::guest::refs::{enter, leave};
use crate::value::{Type, Value};

impl View<'_> {
    /// How many elements an exported table has.
    ///
    /// # Errors
    /// Class `table`, kind `unknown_export`.
    pub fn table_size(&mut self, name: &str) -> Result<u64> {
        Ok(self.table(name)?.size(&self.store))
    }

    /// An element of an exported table.
    ///
    /// # Errors
    /// Class `table`: `unknown_export`, `table_out_of_bounds`.
    pub fn table_get(&mut self, name: &str, index: u64) -> Result<Value> {
        let table = self.table(name)?;
        let size = table.size(&self.store);
        let element = table.get(&mut self.store, index).ok_or_else(|| beyond(index, size))?;
        leave(&mut self.store, &Val::from(element))
    }

    /// Sets an element of an exported table.
    ///
    /// # Errors
    /// Class `table`: `unknown_export`, `table_out_of_bounds`, `badarg`; class `call`:
    /// `wrong_instance`.
    pub fn table_set(&mut self, name: &str, index: u64, value: &Value) -> Result<()> {
        let table = self.table(name)?;
        let size = table.size(&self.store);
        if index >= size {
            return Err(beyond(index, size));
        }
        let element = self.element(&table, value)?;
        table
            .set(&mut self.store, index, element)
            .map_err(|error| Error::internal(error.to_string()))
    }

    /// Adds `count` elements that are `value`; answers the size before. Takes time for each.
    ///
    /// # Errors
    /// Class `table`: `unknown_export`, `badarg`, `table_limit` (the table's own maximum); class
    /// `limit`: `table_limit`, `out_of_memory`; class `call`: `wrong_instance`.
    pub fn table_grow(&mut self, name: &str, count: u64, value: &Value) -> Result<u64> {
        let table = self.table(name)?;
        let element = self.element(&table, value)?;
        let size = self.fits(&table, count)?;
        self.take_hit();
        match table.grow(&mut self.store, count, element) {
            Ok(before) => Ok(before),
            Err(_) => Err(self.take_hit().unwrap_or_else(|| {
                let message = format!("there is no memory for {count} elements after {size}");
                Error::new(Class::Limit, Kind::OutOfMemory, message)
            })),
        }
    }

    /// The size of a table that may, by its type, grow by `count`.
    fn fits(&self, table: &Table, count: u64) -> Result<u64> {
        let (ty, size) = (table.ty(&self.store), table.size(&self.store));
        let addresses = if ty.is_64() { u64::MAX } else { u64::from(u32::MAX) };
        let most = ty.maximum().unwrap_or(addresses);
        if size.checked_add(count).is_some_and(|sum| sum <= most) {
            return Ok(size);
        }
        let message = format!("{count} elements after {size} are over the table's maximum, {most}");
        Err(Error::new(Class::Table, Kind::TableLimit, message))
    }

    fn element(&mut self, table: &Table, value: &Value) -> Result<Element> {
        let ty = Type::Ref(table.ty(&self.store).element().clone());
        let val = enter(&mut self.store, value, &ty)
            .map_err(|misfit| misfit.error(Class::Table, "the value", &ty))?;
        val.ref_().ok_or_else(|| Error::internal("an element of a table is a reference"))
    }

    fn table(&mut self, name: &str) -> Result<Table> {
        let instance = self.instance();
        instance
            .and_then(|instance| instance.get_table(&mut self.store, name))
            .ok_or_else(|| unknown_table(name))
    }
}

/// No table is exported under this name.
pub(crate) fn unknown_table(name: &str) -> Error {
    Error::new(Class::Table, Kind::UnknownExport, format!("no exported table {}", Quoted(name)))
}

fn beyond(index: u64, size: u64) -> Error {
    let message = format!("index {index} is beyond the table's {size} elements");
    Error::new(Class::Table, Kind::TableOutOfBounds, message)
}

//! What tables hold after the init calls: every element is null, a function of the module, or refused.

use super::elements::Constant;
use super::inspect::{PREFIX, Shape, refuse};
use super::instrument::referable;
use crate::error::{Error, Kind, Result};
use std::collections::HashMap;
use wasmtime::{AsContextMut, Instance, Ref, Table};

/// Elements of one table, at most: what validators admit as a minimum.
const MAX_ELEMENTS: u64 = 10_000_000;

/// An element of a table: the index of a function, or one of the constants below.
/// (Tables can be large: this takes 4 bytes.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(u32);

impl Entry {
    pub const NULL: Entry = Entry(u32::MAX);
    /// Only what segments say can be unknown.
    pub const UNKNOWN: Entry = Entry(u32::MAX - 1);

    /// The index of a function, for an entry that is none of the constants.
    pub fn function(self) -> u32 {
        self.0
    }
}

impl From<Constant> for Entry {
    fn from(constant: Constant) -> Self {
        match constant {
            Constant::Func(index) => Entry(index),
            Constant::Null => Entry::NULL,
            Constant::Number(_) | Constant::Unknown => Entry::UNKNOWN,
        }
    }
}

/// The export that shows a table.
pub(super) fn table_name(index: u32) -> String {
    format!("{PREFIX}table_{index}")
}

/// The export that shows a function that a table may hold.
pub(super) fn function_name(index: u32) -> String {
    format!("{PREFIX}function_{index}")
}

/// The contents of every table of the instance.
///
/// Errors: `table_changed` for what no segment can say.
pub(super) fn observe(
    mut store: impl AsContextMut,
    instance: &Instance,
    shape: &Shape,
) -> Result<Vec<Vec<Entry>>> {
    let functions = addresses(&mut store, instance, shape)?;
    let mut tables = Vec::new();
    for index in (0u32..).take(shape.tables.len()) {
        let table = instance
            .get_table(&mut store, &table_name(index))
            .ok_or_else(|| Error::internal(format!("table {index} is not exported")))?;
        let entries = entries(&mut store, &table, &functions).map_err(|why| {
            refuse(Kind::TableChanged, format!("table {index} cannot be carried: {why}"))
        })?;
        tables.push(entries);
    }
    Ok(tables)
}

/// The functions that a table may hold, by address: a function of an instance has one address,
/// whoever refers to it.
fn addresses(
    mut store: impl AsContextMut,
    instance: &Instance,
    shape: &Shape,
) -> Result<HashMap<usize, u32>> {
    let mut functions = HashMap::new();
    for index in referable(shape) {
        let function = instance
            .get_func(&mut store, &function_name(index))
            .ok_or_else(|| Error::internal(format!("function {index} is not exported")))?;
        functions.insert(function.to_raw(&mut store).addr(), index);
    }
    Ok(functions)
}

/// The contents of one table, or why they cannot be carried.
fn entries(
    mut store: impl AsContextMut,
    table: &Table,
    functions: &HashMap<usize, u32>,
) -> std::result::Result<Vec<Entry>, String> {
    let size = table.size(&store);
    if size > MAX_ELEMENTS {
        return Err(format!("it has {size} elements, more than {MAX_ELEMENTS}"));
    }
    let mut entries = Vec::with_capacity(size as usize);
    for at in 0..size {
        let holds = match table.get(&mut store, at) {
            Some(Ref::Func(Some(function))) => functions
                .get(&function.to_raw(&mut store).addr())
                .map(|index| Entry(*index))
                .ok_or("a function that is not the module's own"),
            Some(reference) if reference.is_null() => Ok(Entry::NULL),
            Some(Ref::Exn(_)) => Err("an exception"),
            _ => Err("a host reference"),
        };
        entries.push(holds.map_err(|what| format!("element {at} holds {what}"))?);
    }
    Ok(entries)
}

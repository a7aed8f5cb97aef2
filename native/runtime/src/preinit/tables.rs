//! What the init calls changed in tables. A table after the run is compared with what a fresh instance
//! of the original would hold; where they differ, a further active segment says the new contents.

use super::elements::{self, Constant};
use super::inspect::{PREFIX, Shape, refuse};
use super::instrument::referable;
use super::sections::{find, reader, unreadable};
use crate::error::{Error, Kind, Result};
use std::collections::HashMap;
use std::ops::Range;
use wasm_encoder::{
    AbstractHeapType, ConstExpr, ElementSection, Elements, HeapType, RawSection, RefType,
    SectionId, TableSection, TableType,
};
use wasmparser::{ElementKind, SectionLimited, TableInit, TableSectionReader};
use wasmtime::{AsContextMut, Instance, Ref};

/// Elements of one table, at most: what validators admit as a minimum.
const MAX_ELEMENTS: u64 = 10_000_000;
/// Equal elements between two differing ones that do not split a segment: about what one costs.
const MERGE_GAP: usize = 8;
/// Further segments of one table, at most; beyond, one segment spans all differences.
const MAX_RUNS: usize = 1_000;

/// An element of a table: the index of a function, or one of the constants below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(u32);

impl Entry {
    const NULL: Entry = Entry(u32::MAX);
    /// Only what the segments say can be unknown.
    const UNKNOWN: Entry = Entry(u32::MAX - 1);

    fn of(constant: Constant) -> Self {
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
    let mut functions = HashMap::new();
    for index in referable(shape) {
        let function = instance
            .get_func(&mut store, &function_name(index))
            .ok_or_else(|| Error::internal(format!("function {index} is not exported")))?;
        // A function of an instance has one address for every reference to it.
        functions.insert(function.to_raw(&mut store).addr(), index);
    }
    (0u32..)
        .take(shape.tables.len())
        .map(|index| observe_table(&mut store, instance, index, &functions))
        .collect()
}

fn observe_table(
    mut store: impl AsContextMut,
    instance: &Instance,
    index: u32,
    functions: &HashMap<usize, u32>,
) -> Result<Vec<Entry>> {
    let table = instance
        .get_table(&mut store, &table_name(index))
        .ok_or_else(|| Error::internal(format!("table {index} is not exported")))?;
    let size = table.size(&store);
    if size > MAX_ELEMENTS {
        let message =
            format!("table {index} grew to {size} elements; {MAX_ELEMENTS} can be carried");
        return Err(refuse(Kind::TableChanged, message));
    }
    let element = |at| match table.get(&mut store, at) {
        Some(Ref::Func(Some(function))) => functions
            .get(&function.to_raw(&mut store).addr())
            .map(|index| Entry(*index))
            .ok_or("a function that is not the module's own"),
        Some(reference) if reference.is_null() => Ok(Entry::NULL),
        Some(Ref::Exn(_)) => Err("an exception"),
        _ => Err("a host reference"),
    };
    let refusal = |(at, what): (u64, &str)| {
        let message = format!("table {index} cannot be carried: element {at} holds {what}");
        refuse(Kind::TableChanged, message)
    };
    (0..size)
        .map({
            let mut element = element;
            move |at| element(at).map_err(|what| (at, what))
        })
        .collect::<std::result::Result<_, _>>()
        .map_err(refusal)
}

/// The table section with the sizes that tables grew to; `None` when none grew.
pub(super) fn grown(
    sections: &[RawSection<'_>],
    shape: &Shape,
    observed: &[Vec<Entry>],
) -> Result<Option<TableSection>> {
    let sizes = observed.iter().map(|entries| entries.len() as u64);
    if shape.tables.iter().zip(sizes.clone()).all(|(ty, size)| ty.initial == size) {
        return Ok(None);
    }
    let mut grown = TableSection::new();
    for (table, size) in defined(sections)?.into_iter().zip(sizes) {
        let ty = TableType {
            element_type: ref_type(table.ty.element_type)?,
            table64: table.ty.table64,
            minimum: size,
            maximum: table.ty.maximum,
            shared: table.ty.shared,
        };
        match table.init {
            TableInit::RefNull => grown.table(ty),
            TableInit::Expr(init) => grown.table_with_init(ty, &raw(&init)),
        };
    }
    Ok(Some(grown))
}

/// Segments that turn the tables of a fresh instance into the observed ones.
pub(super) fn changed(
    sections: &[RawSection<'_>],
    shape: &Shape,
    observed: &[Vec<Entry>],
) -> Result<ElementSection> {
    let fresh = fresh(sections, observed)?;
    let mut segments = ElementSection::new();
    for (index, (fresh, observed)) in (0u32..).zip(fresh.iter().zip(observed)) {
        let ty = shape.tables[index as usize];
        for run in differences(fresh, observed) {
            let offset = if ty.table64 {
                ConstExpr::i64_const(run.start as i64)
            } else {
                ConstExpr::i32_const(run.start as i32)
            };
            let entries = &observed[run];
            let (table, elements) = if plain(ty.element_type, entries) {
                let functions = entries.iter().map(|entry| entry.0).collect();
                ((index != 0).then_some(index), Elements::Functions(functions))
            } else {
                let ty = ref_type(ty.element_type)?;
                let exprs = entries.iter().map(|entry| expression(*entry, ty)).collect();
                (Some(index), Elements::Expressions(ty, exprs))
            };
            segments.active(table, &offset, elements);
        }
    }
    Ok(segments)
}

/// Whether the oldest form of a segment, a list of functions, can say these entries.
fn plain(ty: wasmparser::RefType, entries: &[Entry]) -> bool {
    ty == wasmparser::RefType::FUNCREF && !entries.contains(&Entry::NULL)
}

fn expression(entry: Entry, ty: RefType) -> ConstExpr {
    match entry {
        Entry::NULL => ConstExpr::ref_null(ty.heap_type),
        Entry(function) => ConstExpr::ref_func(function),
    }
}

/// What a fresh instance would hold, were its tables as large as the observed ones.
fn fresh(sections: &[RawSection<'_>], observed: &[Vec<Entry>]) -> Result<Vec<Vec<Entry>>> {
    let mut tables = Vec::new();
    for (table, observed) in defined(sections)?.iter().zip(observed) {
        let entry = match &table.init {
            TableInit::RefNull => Entry::NULL,
            TableInit::Expr(init) => Entry::of(elements::constant(init)?),
        };
        tables.push(vec![entry; observed.len()]);
    }
    let segments = elements::segments(find(sections, SectionId::Element))?;
    for segment in segments.into_iter().flatten() {
        let segment = segment.map_err(unreadable)?;
        if let ElementKind::Active { table_index, offset_expr } = &segment.kind {
            let table = &mut tables[table_index.unwrap_or(0) as usize];
            match elements::constant(offset_expr)? {
                Constant::Number(offset) => write(table, offset, elements::items(&segment)?),
                _ => table.fill(Entry::UNKNOWN),
            }
        }
    }
    Ok(tables)
}

/// Applies an active segment. (One that is out of bounds would have ended instantiation.)
fn write(table: &mut [Entry], offset: u64, items: Vec<Constant>) {
    let at = usize::try_from(offset).unwrap_or(usize::MAX);
    let to = table.get_mut(at..).unwrap_or_default();
    to.iter_mut().zip(items).for_each(|(entry, item)| *entry = Entry::of(item));
}

/// Where two tables of the same size differ.
fn differences(fresh: &[Entry], observed: &[Entry]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in (0..observed.len()).filter(|at| fresh[*at] != observed[*at]) {
        match runs.last_mut() {
            Some(run) if at - run.end <= MERGE_GAP => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    match (runs.first(), runs.last()) {
        (Some(first), Some(last)) if runs.len() > MAX_RUNS => vec![first.start..last.end],
        _ => runs,
    }
}

fn defined<'a>(sections: &[RawSection<'a>]) -> Result<Vec<wasmparser::Table<'a>>> {
    let Some(body) = find(sections, SectionId::Table) else { return Ok(Vec::new()) };
    let tables: TableSectionReader<'_> = SectionLimited::new(reader(body)).map_err(unreadable)?;
    tables.into_iter().map(|table| table.map_err(unreadable)).collect()
}

/// A constant expression as it was, without its `end`, which the encoder adds.
fn raw(expr: &wasmparser::ConstExpr<'_>) -> ConstExpr {
    let mut reader = expr.get_binary_reader();
    let bytes = reader.read_bytes(reader.bytes_remaining()).unwrap_or_default();
    ConstExpr::raw(bytes.split_last().map_or(&[][..], |(_, rest)| rest).iter().copied())
}

/// A type of references as the encoder has it.
fn ref_type(ty: wasmparser::RefType) -> Result<RefType> {
    use wasmparser::AbstractHeapType as Parsed;
    let abstract_type = |ty| HeapType::Abstract { shared: false, ty };
    let heap_type = match ty.heap_type() {
        wasmparser::HeapType::Abstract { shared: false, ty } => abstract_type(match ty {
            Parsed::Func => AbstractHeapType::Func,
            Parsed::NoFunc => AbstractHeapType::NoFunc,
            Parsed::Extern => AbstractHeapType::Extern,
            Parsed::NoExtern => AbstractHeapType::NoExtern,
            Parsed::Exn => AbstractHeapType::Exn,
            Parsed::NoExn => AbstractHeapType::NoExn,
            _ => return Err(Error::internal(format!("a table of GC type {ty:?} was let in"))),
        }),
        wasmparser::HeapType::Concrete(index) => HeapType::Concrete(
            index.as_module_index().ok_or_else(|| Error::internal("a type without an index"))?,
        ),
        other => return Err(Error::internal(format!("a table of type {other:?} was let in"))),
    };
    Ok(RefType { nullable: ty.is_nullable(), heap_type })
}

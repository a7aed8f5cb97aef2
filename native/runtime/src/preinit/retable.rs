//! Tables in the result. A table after the run is compared with what a fresh instance of the original
//! would hold; where they differ, a further active segment says the new contents.

use super::elements::{self, Constant};
use super::inspect::Shape;
use super::sections::{find, reader, unreadable};
use super::tables::Entry;
use crate::error::{Error, Result};
use std::ops::Range;
use wasm_encoder::{
    AbstractHeapType, ConstExpr, ElementSection, Elements, HeapType, RawSection, RefType,
    SectionId, TableSection, TableType,
};
use wasmparser::{ElementKind, SectionLimited, TableInit, TableSectionReader};

/// Equal elements between two differing ones that do not split a segment: about what one costs.
const MERGE_GAP: usize = 8;
/// Further segments of one table, at most; beyond, one segment spans all differences.
const MAX_RUNS: usize = 1_000;

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
            // The oldest form names no table.
            let (table, elements) = match listed(ty.element_type, &observed[run.clone()]) {
                Some(functions) if index == 0 => (None, functions),
                Some(functions) => (Some(index), functions),
                None => (Some(index), computed(ty.element_type, &observed[run.clone()])?),
            };
            segments.active(table, &offset(ty.table64, run.start), elements);
        }
    }
    Ok(segments)
}

fn offset(table64: bool, at: usize) -> ConstExpr {
    if table64 { ConstExpr::i64_const(at as i64) } else { ConstExpr::i32_const(at as i32) }
}

/// Entries as a list of functions, where that can say them.
fn listed(ty: wasmparser::RefType, entries: &[Entry]) -> Option<Elements<'static>> {
    let plain = ty == wasmparser::RefType::FUNCREF && !entries.contains(&Entry::NULL);
    plain.then(|| Elements::Functions(entries.iter().map(|entry| entry.function()).collect()))
}

/// Entries as constant expressions.
fn computed(ty: wasmparser::RefType, entries: &[Entry]) -> Result<Elements<'static>> {
    let ty = ref_type(ty)?;
    let expression = |entry: &Entry| match *entry {
        Entry::NULL => ConstExpr::ref_null(ty.heap_type),
        entry => ConstExpr::ref_func(entry.function()),
    };
    Ok(Elements::Expressions(ty, entries.iter().map(expression).collect()))
}

/// What a fresh instance would hold, were its tables as large as the observed ones.
fn fresh(sections: &[RawSection<'_>], observed: &[Vec<Entry>]) -> Result<Vec<Vec<Entry>>> {
    let mut tables = Vec::new();
    for (table, observed) in defined(sections)?.iter().zip(observed) {
        let entry = match &table.init {
            TableInit::RefNull => Entry::NULL,
            TableInit::Expr(init) => elements::constant(init)?.into(),
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
    to.iter_mut().zip(items).for_each(|(entry, item)| *entry = item.into());
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
        (Some(first), Some(last)) if runs.len() > MAX_RUNS => {
            let span = first.start..last.end;
            vec![span]
        }
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

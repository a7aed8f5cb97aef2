//! Element segments and the constant expressions in them, as both halves of a run read them.
//! Only what is a plain constant is understood; the rest is said to be unknown.

use super::sections::{find, reader, split, unreadable};
use crate::error::Result;
use wasm_encoder::SectionId;
use wasmparser::types::TypesRef;
use wasmparser::{
    AbstractHeapType, ConstExpr, Element, ElementItems, ElementKind, ElementSectionReader,
    HeapType, Operator, RefType, SectionLimited,
};

/// A passive segment that can be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Segment {
    Data {
        index: u32,
        memory64: bool,
    },
    /// `table` is one that a `table.init` of this segment may name.
    Elem {
        index: u32,
        table: u32,
        table64: bool,
    },
}

/// What a constant expression stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Constant {
    Number(u64),
    Func(u32),
    Null,
    /// Something that takes evaluation, such as `global.get`.
    Unknown,
}

/// The value of a constant expression.
pub(super) fn constant(expr: &ConstExpr<'_>) -> Result<Constant> {
    let mut ops = expr.get_operators_reader();
    let value = match ops.read().map_err(unreadable)? {
        Operator::I32Const { value } => Constant::Number(u64::from(value.cast_unsigned())),
        Operator::I64Const { value } => Constant::Number(value.cast_unsigned()),
        Operator::RefFunc { function_index } => Constant::Func(function_index),
        Operator::RefNull { .. } => Constant::Null,
        _ => Constant::Unknown,
    };
    Ok(if ops.is_end_then_eof() { value } else { Constant::Unknown })
}

/// The function that a constant expression names.
pub(super) fn named_function(expr: &ConstExpr<'_>) -> Result<Option<u32>> {
    for op in expr.get_operators_reader() {
        if let Operator::RefFunc { function_index } = op.map_err(unreadable)? {
            return Ok(Some(function_index));
        }
    }
    Ok(None)
}

/// The functions that a segment names.
pub(super) fn named_functions(segment: &Element<'_>) -> Result<Vec<u32>> {
    match &segment.items {
        ElementItems::Functions(items) => {
            items.clone().into_iter().map(|f| f.map_err(unreadable)).collect()
        }
        ElementItems::Expressions(_, items) => items
            .clone()
            .into_iter()
            .filter_map(|expr| {
                expr.map_err(unreadable).and_then(|e| named_function(&e)).transpose()
            })
            .collect(),
    }
}

/// The items of a segment, one by one.
pub(super) fn items(segment: &Element<'_>) -> Result<Vec<Constant>> {
    match &segment.items {
        ElementItems::Functions(items) => {
            let functions = items.clone().into_iter();
            functions.map(|f| f.map(Constant::Func).map_err(unreadable)).collect()
        }
        ElementItems::Expressions(_, items) => {
            items.clone().into_iter().map(|e| constant(&e.map_err(unreadable)?)).collect()
        }
    }
}

/// The type that a segment states; one that lists functions states none.
pub(super) fn segment_type(segment: &Element<'_>) -> Option<RefType> {
    match segment.items {
        ElementItems::Functions(_) => None,
        ElementItems::Expressions(ty, _) => Some(ty),
    }
}

/// A reader of the module's element segments; `None` when it has no such section.
pub(super) fn segments(body: Option<&[u8]>) -> Result<Option<ElementSectionReader<'_>>> {
    body.map(|body| SectionLimited::new(reader(body)).map_err(unreadable)).transpose()
}

/// Passive segments of a validated module that have items and a table to copy them to.
/// (Dropping others changes nothing that code could notice.)
pub(super) fn droppable(wasm: &[u8], types: TypesRef<'_>) -> Result<Vec<Segment>> {
    let sections = split(wasm)?;
    let Some(segments) = segments(find(&sections, SectionId::Element))? else {
        return Ok(Vec::new());
    };
    let mut droppable = Vec::new();
    for (index, segment) in (0u32..).zip(segments) {
        let segment = segment.map_err(unreadable)?;
        let empty = match &segment.items {
            ElementItems::Functions(items) => items.count() == 0,
            ElementItems::Expressions(_, items) => items.count() == 0,
        };
        if !matches!(segment.kind, ElementKind::Passive) || empty {
            continue;
        }
        let ty = types.element_at(index);
        let table = (0..types.table_count()).find(|t| fits(ty, types.table_at(*t).element_type));
        if let Some(table) = table {
            let table64 = types.table_at(table).table64;
            droppable.push(Segment::Elem { index, table, table64 });
        }
    }
    Ok(droppable)
}

/// Whether `a` is a subtype of `b`, both as the validator knows them and without declared supertypes.
fn fits(a: RefType, b: RefType) -> bool {
    use AbstractHeapType::*;
    if a.is_nullable() && !b.is_nullable() {
        return false;
    }
    match (a.heap_type(), b.heap_type()) {
        (a, b) if a == b => true,
        (HeapType::Concrete(_), b) => b == HeapType::FUNC,
        (HeapType::Abstract { ty: NoFunc, .. }, HeapType::Concrete(_)) => true,
        (HeapType::Abstract { ty: a, .. }, HeapType::Abstract { ty: b, .. }) => {
            matches!((a, b), (NoFunc, Func) | (NoExtern, Extern) | (NoExn, Exn))
        }
        _ => false,
    }
}

//! What the extraction needs to know of a module. Rule: it only reads.

use super::MEMORY_RESERVATION;
use super::extract::MemoryData;
use crate::{Class, Error, Kind, Result};
use std::ops::Range;
use wasmparser::{
    BinaryReaderError, ConstExpr, Data, DataKind, Element, ElementKind, FunctionBody,
    ImportSectionReader, MemoryType, Operator, Parser, Payload, TypeRef,
};

type Parsed<T> = std::result::Result<T, BinaryReaderError>;

/// A module's sections, memories and data segments.
#[derive(Default)]
pub(super) struct Layout<'a> {
    /// Id and content of each section, in order.
    pub(super) sections: Vec<(u8, Range<usize>)>,
    /// The defined memories, without content.
    pub(super) memories: Vec<MemoryData>,
    pub(super) segments: Vec<Segment<'a>>,
    /// The last data index that code refers to.
    pub(super) used: Option<u32>,
    /// True when functions get into an imported table before memory is initialized.
    pub(super) leaks: bool,
    imported_memories: u32,
    imported_tables: u32,
    data_count: bool,
}

/// A data segment.
pub(super) struct Segment<'a> {
    /// The defined memory it initializes; `None` when passive or for an imported memory.
    pub(super) memory: Option<usize>,
    /// `None` when not a constant.
    pub(super) offset: Option<u64>,
    pub(super) data: &'a [u8],
    /// The whole segment in the module.
    pub(super) range: Range<usize>,
}

impl Segment<'_> {
    /// The first address behind it; `None` when its offset is not a constant.
    pub(super) fn end(&self) -> Option<u64> {
        self.offset.map(|offset| offset.saturating_add(self.data.len() as u64))
    }
}

impl<'a> Layout<'a> {
    pub(super) fn parse(wasm: &'a [u8]) -> Result<Self> {
        let mut layout = Layout::default();
        for payload in Parser::new(0).parse_all(wasm) {
            payload
                .and_then(|payload| layout.read(payload))
                .map_err(|error| Error::new(Class::Compile, Kind::Malformed, error.to_string()))?;
        }
        Ok(layout)
    }

    fn read(&mut self, payload: Payload<'a>) -> Parsed<()> {
        if let Some(section) = payload.as_section() {
            self.sections.push(section);
        }
        match payload {
            Payload::ImportSection(imports) => self.count_imports(imports)?,
            Payload::MemorySection(types) => {
                for ty in types {
                    self.memories.push(memory(ty?));
                }
            }
            Payload::ElementSection(elements) => {
                for element in elements {
                    self.leaks |= self.is_leak(&element?);
                }
            }
            Payload::DataCountSection { .. } => self.data_count = true,
            // Code that refers to segments needs a data count section.
            Payload::CodeSectionEntry(body) if self.data_count => self.note_uses(&body)?,
            Payload::DataSection(segments) => {
                for data in segments {
                    self.segments.push(self.segment(data?)?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn count_imports(&mut self, imports: ImportSectionReader<'a>) -> Parsed<()> {
        for import in imports.into_imports() {
            match import?.ty {
                TypeRef::Memory(_) => self.imported_memories += 1,
                TypeRef::Table(_) => self.imported_tables += 1,
                _ => {}
            }
        }
        Ok(())
    }

    fn is_leak(&self, element: &Element<'_>) -> bool {
        match element.kind {
            ElementKind::Active { table_index, .. } => {
                table_index.unwrap_or(0) < self.imported_tables
            }
            ElementKind::Passive | ElementKind::Declared => false,
        }
    }

    fn note_uses(&mut self, body: &FunctionBody<'_>) -> Parsed<()> {
        for operator in body.get_operators_reader()? {
            let index = match operator? {
                Operator::MemoryInit { data_index, .. } | Operator::DataDrop { data_index } => {
                    data_index
                }
                Operator::ArrayNewData { array_data_index, .. }
                | Operator::ArrayInitData { array_data_index, .. } => array_data_index,
                _ => continue,
            };
            self.used = self.used.max(Some(index));
        }
        Ok(())
    }

    fn segment(&self, data: Data<'a>) -> Parsed<Segment<'a>> {
        let (memory, offset) = match &data.kind {
            DataKind::Passive => (None, None),
            DataKind::Active { memory_index, offset_expr } => {
                let memory = memory_index.checked_sub(self.imported_memories);
                let memory = memory.map(|memory| memory as usize);
                (memory.filter(|memory| *memory < self.memories.len()), constant(offset_expr)?)
            }
        };
        Ok(Segment { memory, offset, data: data.data, range: data.range })
    }
}

/// The value of an offset that is one constant.
fn constant(expr: &ConstExpr<'_>) -> Parsed<Option<u64>> {
    let mut operators = expr.get_operators_reader();
    let value = match operators.read()? {
        Operator::I32Const { value } => u64::from(value as u32),
        Operator::I64Const { value } => value as u64,
        _ => return Ok(None),
    };
    let ends = matches!(operators.read()?, Operator::End);
    Ok(ends.then_some(value))
}

fn memory(ty: MemoryType) -> MemoryData {
    let page_size_log2 = ty.page_size_log2.unwrap_or(16);
    let bytes = |pages: u64| {
        let bytes = u128::from(pages) << page_size_log2.min(63);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    };
    let min_bytes = bytes(ty.initial);
    MemoryData {
        min_bytes,
        max_bytes: ty.maximum.map(bytes),
        page_size_log2,
        is64: ty.memory64,
        shared: ty.shared,
        slotted: !ty.shared && page_size_log2 == 16 && min_bytes <= MEMORY_RESERVATION,
        content: Vec::new(),
    }
}

//! The module as Wizer sees it: the same memories, globals and data segments, and nothing else of
//! interest. What is left out or blanked here never reaches the result: both of Wizer's outputs are
//! only asked for the sections that it had to change.

use super::inspect::Shape;
use super::sections::{Changes, Items, assemble, find, reader, unreadable};
use crate::error::Result;
use std::collections::BTreeSet;
use wasm_encoder::{
    CodeSection, DataSection, Encode, EntityType, ExportSection, Function, ImportSection,
    MemorySection, MemoryType, RawSection, SectionId,
};
use wasmparser::{DataKind, ImportSectionReader, SectionLimited, TypeRef};

/// The skeleton of a module; the passive data segments in `dropped` are left empty.
pub(super) fn skeleton(
    sections: &[RawSection<'_>],
    shape: &Shape,
    dropped: &BTreeSet<u32>,
) -> Result<Vec<u8>> {
    let mut changes = Changes::new();
    // Wizer puts names before the data section even where they precede the code. It adds its exports
    // only to a section that is there.
    let absent = [SectionId::Custom, SectionId::Table, SectionId::Tag, SectionId::Start];
    changes.extend(absent.map(|id| (id.into(), None)));
    changes.insert(SectionId::Element.into(), None);
    changes.insert(SectionId::Export.into(), Some(body(&ExportSection::new())?));
    if let Some(imports) = find(sections, SectionId::Import) {
        changes.insert(SectionId::Import.into(), Some(blank_imports(imports)?));
    }
    if shape.has_custom_pages() {
        changes.insert(SectionId::Memory.into(), Some(plain_memories(shape)?));
    }
    if let Some(code) = find(sections, SectionId::Code) {
        changes.insert(SectionId::Code.into(), Some(stubs(Items::of(Some(code))?.count)?));
    }
    if let Some(data) = find(sections, SectionId::Data) {
        changes.insert(SectionId::Data.into(), Some(data_without(data, dropped)?));
    }
    Ok(assemble(sections, &changes))
}

/// The body of a section of Wasmtime's encoder.
fn body(section: &impl Encode) -> Result<Vec<u8>> {
    let mut items = Items::default();
    items.append(section)?;
    Ok(items.body())
}

/// Imported functions under a name that is not reserved by Wizer.
fn blank_imports(imports: &[u8]) -> Result<Vec<u8>> {
    let imports: ImportSectionReader<'_> =
        SectionLimited::new(reader(imports)).map_err(unreadable)?;
    let mut blank = ImportSection::new();
    for import in imports.into_imports() {
        if let TypeRef::Func(ty) = import.map_err(unreadable)?.ty {
            blank.import("module", "function", EntityType::Function(ty));
        }
    }
    body(&blank)
}

/// The memories with pages of the ordinary size: Wizer begins a segment with each page.
fn plain_memories(shape: &Shape) -> Result<Vec<u8>> {
    let mut plain = MemorySection::new();
    for memory in &shape.memories {
        let (memory64, shared) = (memory.memory64, memory.shared);
        let (minimum, maximum, page_size_log2) = (0, None, None);
        plain.memory(MemoryType { minimum, maximum, memory64, shared, page_size_log2 });
    }
    body(&plain)
}

/// As many bodies as the module has, each of them `unreachable`.
fn stubs(count: u32) -> Result<Vec<u8>> {
    let mut stub = Function::new([]);
    stub.instructions().unreachable().end();
    let mut code = CodeSection::new();
    for _ in 0..count {
        code.function(&stub);
    }
    body(&code)
}

/// The data segments that are still there after instantiation, in their places.
fn data_without(data: &[u8], dropped: &BTreeSet<u32>) -> Result<Vec<u8>> {
    let segments: wasmparser::DataSectionReader<'_> =
        SectionLimited::new(reader(data)).map_err(unreadable)?;
    let mut left = DataSection::new();
    for (index, segment) in (0u32..).zip(segments) {
        let segment = segment.map_err(unreadable)?;
        let gone = dropped.contains(&index) || !matches!(segment.kind, DataKind::Passive);
        left.passive(if gone { &[] } else { segment.data }.iter().copied());
    }
    body(&left)
}

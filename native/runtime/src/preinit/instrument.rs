//! The module that runs: the original, plus exports that show its state and probes of its segments.
//! Indices, code and custom sections of the original stay as they are.

use super::inspect::{Export, Shape, inspect};
use super::sections::{Changes, Items, assemble, find, reader, split, unreadable};
use super::snapshot::failed;
use super::{probe, skeleton, tables};
use crate::error::{Class, Error, Quoted, Result};
use std::collections::BTreeSet;
use wasm_encoder::{
    CodeSection, ExportKind, ExportSection, FunctionSection, RawSection, SectionId, TypeSection,
};
use wasmparser::{ExportSectionReader, ExternalKind, SectionLimited};
use wasmtime_wizer::Wizer;

/// A module made ready for its init run.
pub struct Instrumented {
    pub(super) original: Vec<u8>,
    pub(super) shape: Shape,
    wasm: Vec<u8>,
}

/// Makes a module ready for its init run.
///
/// # Errors
///
/// Of class `preinit`, by kind: `malformed` (not a valid module), `unsupported_import` (it imports a
/// memory, table, global or tag), `unsupported_type` (GC types, a mutable reference global),
/// `unsupported` (a component, a shared memory, a reserved export name).
pub fn instrument(wasm: &[u8]) -> Result<Instrumented> {
    let shape = inspect(wasm)?;
    let sections = split(wasm)?;
    let mut changes = Changes::new();
    changes.insert(SectionId::Export.into(), Some(exports(&sections, &shape)?));
    if !shape.droppable.is_empty() {
        add_probes(&sections, &shape, &mut changes)?;
    }
    let instrumented = assemble(&sections, &changes);
    Ok(Instrumented { original: wasm.to_vec(), shape, wasm: instrumented })
}

impl Instrumented {
    /// The module to compile, instantiate and run init calls in, by the ordinary path.
    pub fn wasm(&self) -> &[u8] {
        &self.wasm
    }

    /// Checks `remove_exports` before a run is spent on them.
    ///
    /// # Errors
    ///
    /// `badarg` with the key `remove_exports` for a name that the module does not export.
    pub fn check_remove_exports(&self, names: &[String]) -> Result<()> {
        let unknown = |name: &&String| !self.shape.exports.iter().any(|e| e.name == **name);
        match names.iter().find(unknown) {
            None => Ok(()),
            Some(name) => Err(Error::option(
                Class::Preinit,
                "remove_exports",
                format!("remove_exports names {}, which the module does not export", Quoted(name)),
            )),
        }
    }
}

/// The module's exports and ours.
fn exports(sections: &[RawSection<'_>], shape: &Shape) -> Result<Vec<u8>> {
    let skeleton = skeleton::skeleton(sections, shape, &BTreeSet::new())?;
    let (_, wasm) = Wizer::new().instrument(&skeleton).map_err(failed)?;
    let mut added = ExportSection::new();
    for export in wizer_exports(&wasm)? {
        added.export(&export.shown_name(), export_kind(export.kind)?, export.index);
    }
    for index in 0..shape.tables.len() {
        let index = u32::try_from(index).map_err(|e| Error::internal(e.to_string()))?;
        added.export(&tables::table_name(index), ExportKind::Table, index);
    }
    for function in referable(shape) {
        added.export(&tables::function_name(function), ExportKind::Func, function);
    }
    for (function, segment) in (shape.funcs..).zip(&shape.droppable) {
        added.export(&probe::name(*segment), ExportKind::Func, function);
    }
    let mut exports = Items::of(find(sections, SectionId::Export))?;
    exports.append(&added)?;
    Ok(exports.body())
}

/// The exports that Wizer added to a skeleton. In the module that runs, their names get our prefix,
/// for the module itself may use Wizer's.
pub(super) fn wizer_exports(wasm: &[u8]) -> Result<Vec<Export>> {
    let sections = split(wasm)?;
    let Some(exports) = find(&sections, SectionId::Export) else { return Ok(Vec::new()) };
    let exports: ExportSectionReader<'_> =
        SectionLimited::new(reader(exports)).map_err(unreadable)?;
    exports.into_iter().map(|e| e.map(Export::from).map_err(unreadable)).collect()
}

/// Functions that a table may hold after the init calls: no others can become references.
pub(super) fn referable(shape: &Shape) -> BTreeSet<u32> {
    if shape.tables.is_empty() {
        return BTreeSet::new();
    }
    let exported = shape.exports.iter().filter(|e| e.kind == ExternalKind::Func);
    shape.declared.iter().copied().chain(exported.map(|e| e.index)).collect()
}

/// The encoder's name for an export's kind.
pub(super) fn export_kind(kind: ExternalKind) -> Result<ExportKind> {
    Ok(match kind {
        ExternalKind::Func => ExportKind::Func,
        ExternalKind::Table => ExportKind::Table,
        ExternalKind::Memory => ExportKind::Memory,
        ExternalKind::Global => ExportKind::Global,
        ExternalKind::Tag => ExportKind::Tag,
        ExternalKind::FuncExact => return Err(Error::internal("an exact function was exported")),
    })
}

/// Exports without those that `keep` refuses.
pub(super) fn kept_exports(shape: &Shape, keep: impl Fn(&Export) -> bool) -> Result<Vec<u8>> {
    let mut kept = ExportSection::new();
    for export in shape.exports.iter().filter(|e| keep(e)) {
        kept.export(&export.name, export_kind(export.kind)?, export.index);
    }
    let mut items = Items::default();
    items.append(&kept)?;
    Ok(items.body())
}

/// Appends the probes: a type, and for each its function and body.
fn add_probes(sections: &[RawSection<'_>], shape: &Shape, changes: &mut Changes) -> Result<()> {
    let mut probe_type = TypeSection::new();
    probe_type.ty().function([], []);
    let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
    for segment in &shape.droppable {
        functions.function(shape.types);
        code.function(&probe::function(*segment));
    }
    let mut extend = |id: SectionId, section: &dyn wasm_encoder::Encode| -> Result<()> {
        let mut items = Items::of(find(sections, id))?;
        items.append(section)?;
        changes.insert(id.into(), Some(items.body()));
        Ok(())
    };
    extend(SectionId::Type, &probe_type)?;
    extend(SectionId::Function, &functions)?;
    extend(SectionId::Code, &code)
}

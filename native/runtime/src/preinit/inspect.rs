//! What a module has, as far as its state goes, and the refusal of everything that cannot be carried.
//! Every static refusal of pre-initialization stands in this file.

use super::elements::{self, Segment};
use super::sections::unreadable;
use crate::error::{Class, Error, Kind, Result};
use crate::module::foreign;
use std::collections::BTreeSet;
use wasmparser::{
    AbstractHeapType, BinaryReaderError, CompositeInnerType, DataKind, DataSectionReader,
    ElementSectionReader, ExportSectionReader, ExternalKind, GlobalSectionReader, HeapType,
    ImportSectionReader, MemorySectionReader, MemoryType, Parser, Payload, RefType, TableInit,
    TableSectionReader, TableType, TypeRef, TypeSectionReader, ValType, Validator, WasmFeatures,
};

/// Names that the instrumented module exports begin with this.
pub(super) const PREFIX: &str = "__wasmtime_preinit_";

/// An export of the module.
pub(super) struct Export {
    pub name: String,
    pub kind: ExternalKind,
    pub index: u32,
}

impl From<wasmparser::Export<'_>> for Export {
    fn from(export: wasmparser::Export<'_>) -> Self {
        Export { name: export.name.to_owned(), kind: export.kind, index: export.index }
    }
}

impl Export {
    /// The name under which the instrumented module shows an export of Wizer's.
    pub fn shown_name(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }
}

/// What a module has.
#[derive(Default)]
pub(super) struct Shape {
    /// Number of types.
    pub types: u32,
    /// Number of functions, imported ones included.
    pub funcs: u32,
    pub memories: Vec<MemoryType>,
    pub tables: Vec<TableType>,
    pub exports: Vec<Export>,
    /// Functions that `ref.func` may name, whatever is exported.
    pub declared: BTreeSet<u32>,
    /// Passive segments that code could drop and a later `init` would notice.
    pub droppable: Vec<Segment>,
    /// Without it, code cannot name data segments.
    data_count: bool,
}

fn invalid(wasm: &[u8], error: &BinaryReaderError) -> Error {
    let foreign = foreign(wasm).map(str::to_owned);
    let message = foreign.unwrap_or_else(|| format!("not a valid WebAssembly module: {error}"));
    refuse(Kind::Malformed, message)
}

/// The shape of a module that can be pre-initialized.
///
/// Errors are of class `preinit`: `malformed` for what is not a valid module, else what is refused.
pub(super) fn inspect(wasm: &[u8]) -> Result<Shape> {
    if Parser::is_component(wasm) {
        return Err(refuse(Kind::Unsupported, "a component was given where a module is expected"));
    }
    let types = Validator::new_with_features(features())
        .validate_all(wasm)
        .map_err(|error| invalid(wasm, &error))?;
    let mut shape = Shape::default();
    for payload in Parser::new(0).parse_all(wasm) {
        shape.visit(payload.map_err(unreadable)?)?;
    }
    shape.droppable.extend(elements::droppable(wasm, types.as_ref())?);
    Ok(shape)
}

/// The proposals that Wasmtime has; which of them are on is the compiler's to say.
pub(super) fn features() -> WasmFeatures {
    WasmFeatures::default() | WasmFeatures::CUSTOM_PAGE_SIZES | WasmFeatures::WIDE_ARITHMETIC
}

pub(super) fn refuse(kind: Kind, message: impl Into<String>) -> Error {
    Error::new(Class::Preinit, kind, message)
}

impl Shape {
    /// True when a memory has pages of another size than Wizer should see.
    pub fn has_custom_pages(&self) -> bool {
        self.memories.iter().any(|memory| memory.page_size_log2.is_some_and(|log2| log2 != 16))
    }

    fn visit(&mut self, payload: Payload<'_>) -> Result<()> {
        match payload {
            Payload::TypeSection(types) => self.types(types),
            Payload::ImportSection(imports) => self.imports(imports),
            Payload::FunctionSection(functions) => {
                self.funcs += functions.count();
                Ok(())
            }
            Payload::TableSection(tables) => self.tables(tables),
            Payload::MemorySection(memories) => self.memories(memories),
            Payload::GlobalSection(globals) => self.globals(globals),
            Payload::ExportSection(exports) => self.exports(exports),
            Payload::ElementSection(elements) => self.elements(elements),
            Payload::DataCountSection { .. } => {
                self.data_count = true;
                Ok(())
            }
            Payload::DataSection(data) => self.data(data),
            _ => Ok(()),
        }
    }

    fn types(&mut self, types: TypeSectionReader<'_>) -> Result<()> {
        for group in types {
            for ty in group.map_err(unreadable)?.types() {
                let function = matches!(ty.composite_type.inner, CompositeInnerType::Func(_));
                if !function || !ty.is_final || ty.supertype_idx.is_some() {
                    return Err(refuse(
                        Kind::UnsupportedType,
                        format!("type {} is of the GC proposal: {ty}", self.types),
                    ));
                }
                self.types += 1;
            }
        }
        Ok(())
    }

    fn imports(&mut self, imports: ImportSectionReader<'_>) -> Result<()> {
        for import in imports.into_imports() {
            let import = import.map_err(unreadable)?;
            let sort = match import.ty {
                TypeRef::Func(_) => {
                    self.funcs += 1;
                    continue;
                }
                TypeRef::FuncExact(_) => "a function of an exact type",
                TypeRef::Memory(_) => "a memory",
                TypeRef::Table(_) => "a table",
                TypeRef::Global(_) => "a global",
                TypeRef::Tag(_) => "a tag",
            };
            return Err(refuse(
                Kind::UnsupportedImport,
                format!("the import {}.{} is {sort}", import.module, import.name),
            ));
        }
        Ok(())
    }

    fn tables(&mut self, tables: TableSectionReader<'_>) -> Result<()> {
        for table in tables {
            let table = table.map_err(unreadable)?;
            if of_gc(table.ty.element_type) {
                let message = format!("table {} holds GC references", self.tables.len());
                return Err(refuse(Kind::UnsupportedType, message));
            }
            if let TableInit::Expr(init) = &table.init {
                self.declared.extend(elements::named_function(init)?);
            }
            self.tables.push(table.ty);
        }
        Ok(())
    }

    fn memories(&mut self, memories: MemorySectionReader<'_>) -> Result<()> {
        for memory in memories {
            let memory = memory.map_err(unreadable)?;
            let index = self.memories.len();
            if memory.shared {
                return Err(refuse(Kind::Unsupported, format!("memory {index} is shared")));
            }
            self.memories.push(memory);
        }
        Ok(())
    }

    fn globals(&mut self, globals: GlobalSectionReader<'_>) -> Result<()> {
        for (index, global) in globals.into_iter().enumerate() {
            let global = global.map_err(unreadable)?;
            if let ValType::Ref(ty) = global.ty.content_type {
                let what = match (global.ty.mutable, of_gc(ty)) {
                    (true, _) => "is mutable and holds a reference",
                    (false, true) => "holds a GC reference",
                    (false, false) => "",
                };
                if !what.is_empty() {
                    let message = format!("global {index} {what}");
                    return Err(refuse(Kind::UnsupportedType, message));
                }
            }
            self.declared.extend(elements::named_function(&global.init_expr)?);
        }
        Ok(())
    }

    fn exports(&mut self, exports: ExportSectionReader<'_>) -> Result<()> {
        for export in exports {
            let export = Export::from(export.map_err(unreadable)?);
            if export.name.starts_with(PREFIX) {
                let message = format!("the export {} begins with a reserved prefix", export.name);
                return Err(refuse(Kind::Unsupported, message));
            }
            self.exports.push(export);
        }
        Ok(())
    }

    fn elements(&mut self, segments: ElementSectionReader<'_>) -> Result<()> {
        for (index, segment) in segments.into_iter().enumerate() {
            let segment = segment.map_err(unreadable)?;
            if elements::segment_type(&segment).is_some_and(of_gc) {
                let message = format!("element segment {index} holds GC references");
                return Err(refuse(Kind::UnsupportedType, message));
            }
            self.declared.extend(elements::named_functions(&segment)?);
        }
        Ok(())
    }

    fn data(&mut self, segments: DataSectionReader<'_>) -> Result<()> {
        for (index, segment) in (0u32..).zip(segments) {
            let segment = segment.map_err(unreadable)?;
            let passive = matches!(segment.kind, DataKind::Passive);
            if let Some(memory) = self.memories.first()
                && self.data_count
                && passive
                && !segment.data.is_empty()
            {
                self.droppable.push(Segment::Data { index, memory64: memory.memory64 });
            }
        }
        Ok(())
    }
}

/// Whether a reference lives in the heap of the GC proposal. (Concrete types are function types:
/// others are refused where they are defined.)
fn of_gc(ty: RefType) -> bool {
    use AbstractHeapType::*;
    match ty.heap_type() {
        HeapType::Abstract { ty, .. } => {
            !matches!(ty, Func | NoFunc | Extern | NoExtern | Exn | NoExn)
        }
        HeapType::Concrete(_) | HeapType::Exact(_) => false,
    }
}

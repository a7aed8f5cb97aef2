//! The facts of a module, from its bytes: how much work an instantiation is.

use wasmparser::{
    Data, DataKind, Element, ElementItems, ElementKind, Parser, Payload, TableInit, TypeRef,
};

use super::Facts;
use crate::error::{Error, Result};
use crate::options::CompileOptions;

/// Work of an instantiation that a normal scheduler may wait for: an element of a table is 1, about
/// 4 ns.
const BOUNDED_WORK: u64 = 256 * 1024;

/// What a global, or a segment beside its contents, costs.
const EACH: u64 = 16;

/// What an import costs: it is looked up by its names.
const EACH_IMPORT: u64 = 128;

impl Facts {
    /// The facts of a valid module that is compiled with `options`.
    pub fn of(wasm: &[u8], options: &CompileOptions) -> Result<Self> {
        let (mut has_start, mut work) = (false, Work::default());
        for payload in Parser::new(0).parse_all(wasm) {
            match payload.map_err(|error| Error::internal(error.to_string()))? {
                Payload::StartSection { .. } => has_start = true,
                payload => work.count(payload),
            }
        }
        let CompileOptions { fuel, opt_level, proposals, .. } = options.clone();
        Ok(Facts { fuel, opt_level, proposals, has_start, heavy: work.amount > BOUNDED_WORK })
    }
}

/// What an instantiation writes, roughly in bytes.
#[derive(Default)]
struct Work {
    amount: u64,
    imported_memories: u32,
    imported_tables: u32,
}

impl Work {
    fn count(&mut self, payload: Payload<'_>) {
        match payload {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports().flatten() {
                    self.add(EACH_IMPORT);
                    match import.ty {
                        TypeRef::Memory(_) => self.imported_memories += 1,
                        TypeRef::Table(_) => self.imported_tables += 1,
                        _ => {}
                    }
                }
            }
            Payload::TableSection(tables) => tables.into_iter().flatten().for_each(|table| {
                let each = if matches!(table.init, TableInit::RefNull) { 1 } else { 16 };
                self.add(table.ty.initial.saturating_mul(each));
            }),
            Payload::GlobalSection(globals) => self.add(u64::from(globals.count()) * EACH),
            Payload::ElementSection(segments) => {
                segments.into_iter().flatten().for_each(|segment| self.element(&segment));
            }
            Payload::DataSection(segments) => {
                segments.into_iter().flatten().for_each(|segment| self.data(&segment));
            }
            _ => {}
        }
    }

    /// A defined table was counted as it is, and its segments fill it in later at little cost; what
    /// goes into an imported one is written at once.
    fn element(&mut self, segment: &Element<'_>) {
        let ElementKind::Active { table_index, .. } = segment.kind else { return };
        let items = match &segment.items {
            ElementItems::Functions(items) => items.count(),
            ElementItems::Expressions(_, items) => items.count(),
        };
        let imported = table_index.unwrap_or(0) < self.imported_tables;
        self.add(EACH + u64::from(items) * if imported { 16 } else { 2 });
    }

    /// Images take most of what goes into defined memories; the sum bounds what stays.
    fn data(&mut self, segment: &Data<'_>) {
        self.add(EACH);
        let DataKind::Active { memory_index, .. } = segment.kind else { return };
        let bytes = segment.data.len() as u64;
        self.add(if memory_index < self.imported_memories { bytes } else { bytes / 64 });
    }

    fn add(&mut self, amount: u64) {
        self.amount = self.amount.saturating_add(amount);
    }
}

//! The result: the original with the sections that its state touches written anew.

use super::elements;
use super::inspect::{Export, Shape, features};
use super::instrument::{Instrumented, kept_exports, wizer_exports};
use super::probe::{self, Dropped};
use super::retable;
use super::sections::{Changes, Items, assemble, find, reader, split, unreadable};
use super::skeleton::skeleton;
use super::state::{State, missing};
use super::tables::{self, Entry};
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use wasm_encoder::{Elements, Encode, MemorySection, MemoryType, RawSection, SectionId};
use wasmparser::{ExternalKind, Validator};
use wasmtime::{AsContext, AsContextMut, Instance, StoreContextMut};
use wasmtime_wizer::Wizer;

/// What becomes of exports.
#[derive(Clone, Debug, Default)]
pub struct SnapshotOptions {
    /// Names of the exports that the init run called: `_initialize` is removed when it was one.
    pub ran: Vec<String>,
    /// Names of further exports to remove.
    pub remove_exports: Vec<String>,
}

/// The opcode of `ref.func`.
const REF_FUNC: u8 = 0xd2;
/// Set in the flags of a passive element segment, it makes a declared one of it.
const DECLARED: u32 = 2;

impl Instrumented {
    /// The module with the state that `instance`, an instance of [`Instrumented::wasm`], is in.
    /// No call may run in it, and it is not to be used afterwards: fuel and deadline are lifted.
    ///
    /// # Errors
    ///
    /// `badarg` with the key `remove_exports`; `table_changed` when a table holds what no segment
    /// can say, such as a host reference.
    pub async fn snapshot<T: Send + 'static>(
        &self,
        mut store: impl AsContextMut<Data = T>,
        instance: &Instance,
        options: &SnapshotOptions,
    ) -> Result<Vec<u8>> {
        self.check_remove_exports(&options.remove_exports)?;
        let mut store = store.as_context_mut();
        let tables = tables::observe(&mut store, instance, &self.shape)?;
        let dropped = probe::run(&mut store, instance, &self.shape.droppable).await?;
        let sections = split(&self.original)?;
        let mut changes = wizer_changes(store, instance, &self.shape, &sections, &dropped).await?;
        changes.insert(SectionId::Start.into(), None);
        let undeclared = self.change_exports(&sections, options, &mut changes)?;
        self.change_tables(&sections, &tables, &dropped, &undeclared, &mut changes)?;
        let result = assemble(&sections, &changes);
        check(&result)?;
        Ok(result)
    }

    /// Removes exports. Functions that code refers to and that no longer are declared are returned.
    fn change_exports(
        &self,
        sections: &[RawSection<'_>],
        options: &SnapshotOptions,
        changes: &mut Changes,
    ) -> Result<Vec<u32>> {
        let initialize = options.ran.iter().find(|name| *name == "_initialize");
        let removed: BTreeSet<&String> = options.remove_exports.iter().chain(initialize).collect();
        let (gone, kept): (Vec<_>, Vec<_>) =
            self.shape.exports.iter().partition(|e| removed.contains(&e.name));
        if gone.is_empty() {
            return Ok(Vec::new());
        }
        let section = kept_exports(&self.shape, |e| !removed.contains(&e.name))?;
        changes.insert(SectionId::Export.into(), Some(section));
        let code = find(sections, SectionId::Code).unwrap_or_default();
        Ok(self.undeclared(&gone, &kept, code))
    }

    /// Functions of removed exports that code refers to and that nothing else declares.
    fn undeclared(&self, gone: &[&Export], kept: &[&Export], code: &[u8]) -> Vec<u32> {
        let function = |e: &&&Export| e.kind == ExternalKind::Func;
        let kept: BTreeSet<u32> = kept.iter().filter(function).map(|e| e.index).collect();
        let mut functions: BTreeSet<u32> = gone.iter().filter(function).map(|e| e.index).collect();
        functions.retain(|f| !self.shape.declared.contains(f) && !kept.contains(f));
        retain_named(&mut functions, code);
        functions.into_iter().collect()
    }

    /// Writes what differs in tables and element segments.
    fn change_tables(
        &self,
        sections: &[RawSection<'_>],
        tables: &[Vec<Entry>],
        dropped: &Dropped,
        undeclared: &[u32],
        changes: &mut Changes,
    ) -> Result<()> {
        if let Some(grown) = retable::grown(sections, &self.shape, tables)? {
            changes.insert(SectionId::Table.into(), Some(body(&grown)?));
        }
        let mut further = retable::changed(sections, &self.shape, tables)?;
        if !undeclared.is_empty() {
            further.declared(Elements::Functions(undeclared.into()));
        }
        if further.is_empty() && dropped.elem.is_empty() {
            return Ok(());
        }
        let mut elements = elements_without(sections, &dropped.elem)?;
        elements.append(&further)?;
        changes.insert(SectionId::Element.into(), Some(elements.body()));
        Ok(())
    }
}

/// The sections that Wizer writes: memories, globals and data.
async fn wizer_changes<T: Send + 'static>(
    mut store: StoreContextMut<'_, T>,
    instance: &Instance,
    shape: &Shape,
    sections: &[RawSection<'_>],
    dropped: &Dropped,
) -> Result<Changes> {
    let wizer = Wizer::new();
    let skeleton = skeleton(sections, shape, &dropped.data)?;
    let (context, wasm) = wizer.instrument(&skeleton).map_err(failed)?;
    let exports = wizer_exports(&wasm)?;
    let mut state = State::globals(&mut store, instance, &exports)?;
    let memories = exports.iter().filter(|e| e.kind == ExternalKind::Memory);
    let memories: Vec<_> =
        memories.map(|e| (e, instance.get_memory(&mut store, &e.shown_name()))).collect();
    let mut sizes = Vec::new();
    for (export, memory) in memories {
        let memory = memory.ok_or_else(|| missing(&export.name))?;
        sizes.push(memory.size(store.as_context()));
        state.memory(&export.name, memory, store.as_context());
    }
    let wasm = wizer.snapshot(&context, &mut state).await.map_err(failed)?;
    state.check()?;
    let mut changes = picked(&wasm, sections)?;
    if shape.has_custom_pages() {
        changes.insert(SectionId::Memory.into(), Some(memories_of(shape, &sizes)?));
    }
    Ok(changes)
}

/// The memories with the sizes that they grew to, in pages of their own.
fn memories_of(shape: &Shape, sizes: &[u64]) -> Result<Vec<u8>> {
    let mut section = MemorySection::new();
    for (memory, minimum) in shape.memories.iter().zip(sizes) {
        let (minimum, maximum) = (*minimum, memory.maximum);
        let (memory64, shared) = (memory.memory64, memory.shared);
        let page_size_log2 = memory.page_size_log2;
        section.memory(MemoryType { minimum, maximum, memory64, shared, page_size_log2 });
    }
    body(&section)
}

/// Wizer's version of the sections that it changes.
fn picked(wasm: &[u8], sections: &[RawSection<'_>]) -> Result<Changes> {
    let wanted = [SectionId::Memory, SectionId::Global, SectionId::DataCount, SectionId::Data];
    let mut changes = Changes::new();
    for section in split(wasm)? {
        let there = sections.iter().any(|s| s.id == section.id);
        let empty = Items::of(Some(section.data))?.count == 0;
        if wanted.map(u8::from).contains(&section.id) && (there || !empty) {
            changes.insert(section.id, Some(section.data.to_vec()));
        }
    }
    Ok(changes)
}

/// Wizer was given something that it cannot take: our fault.
pub(super) fn failed(error: wasmtime::Error) -> Error {
    Error::internal(format!("Wizer failed: {error:#}"))
}

fn body(section: &impl Encode) -> Result<Vec<u8>> {
    let mut items = Items::default();
    items.append(section)?;
    Ok(items.body())
}

/// The module's element segments, of which the dropped ones become declared ones: they have no items
/// at run time, and the functions they name stay declared.
fn elements_without(sections: &[RawSection<'_>], dropped: &BTreeSet<u32>) -> Result<Items> {
    let body = find(sections, SectionId::Element);
    let (Some(body), Some(segments)) = (body, elements::segments(body)?) else {
        return Ok(Items::default());
    };
    let mut items = Items::default();
    for (index, segment) in (0u32..).zip(segments) {
        let segment = &body[segment.map_err(unreadable)?.range];
        if dropped.contains(&index) {
            let mut reader = reader(segment);
            let mut declared = Vec::with_capacity(segment.len());
            (reader.read_var_u32().map_err(unreadable)? | DECLARED).encode(&mut declared);
            declared.extend_from_slice(&segment[reader.current_position()..]);
            items.push(&declared);
        } else {
            items.push(segment);
        }
    }
    Ok(items)
}

/// Keeps the functions that some `ref.func` in the code may name. Bytes are compared, not instructions:
/// a function kept for nothing costs a byte.
fn retain_named(functions: &mut BTreeSet<u32>, code: &[u8]) {
    let mut named = BTreeSet::new();
    for (at, _) in code.iter().enumerate().filter(|(_, byte)| **byte == REF_FUNC) {
        named.extend(reader(&code[at + 1..]).read_var_u32().ok().filter(|f| functions.contains(f)));
    }
    *functions = named;
}

/// The result is a plain module, or the fault is ours.
fn check(wasm: &[u8]) -> Result<()> {
    match Validator::new_with_features(features()).validate_all(wasm) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::internal(format!("the snapshot is not a valid module: {error}"))),
    }
}

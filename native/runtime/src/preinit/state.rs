//! The instance as Wizer reads it: values of globals and bytes of memories, by its export names.
//! Everything is looked up before Wizer asks, for its trait has no way to fail.

use super::inspect::{Export, PREFIX};
use crate::error::{Error, Result};
use crate::value::Value;
use std::collections::HashMap;
use wasmparser::ExternalKind;
use wasmtime::{AsContextMut, Instance, StoreContext};
use wasmtime_wizer::{InstanceState, SnapshotVal};

/// Bytes that are stored or left out together. Wizer splits segments at five zeros: a fragmented memory
/// then costs many times its size in ranges alone. For CPython's heap of 7.9 MB, blocks of 16, 64 and
/// 256 bytes make 9,635, 1,479 and 282 segments of 5.84, 6.00 and 6.18 MB together.
const BLOCK: usize = 64;

/// A page as Wizer knows it.
const PAGE: usize = 64 << 10;

/// The state of an instance.
pub(super) struct State<'a> {
    globals: HashMap<String, Value>,
    memories: HashMap<String, View<'a>>,
    /// What Wizer asked for that is not there.
    unknown: Option<String>,
}

struct View<'a> {
    bytes: &'a [u8],
    /// How often Wizer asked: first for what is worth a segment, then for the bytes.
    asked: u32,
    all_zero: bool,
}

impl<'a> State<'a> {
    /// Reads the globals that Wizer exports.
    pub fn globals(
        mut store: impl AsContextMut,
        instance: &Instance,
        exports: &[Export],
    ) -> Result<Self> {
        let mut globals = HashMap::new();
        for export in exports.iter().filter(|e| e.kind == ExternalKind::Global) {
            let value = instance
                .get_global(&mut store, &export.shown_name())
                .and_then(|global| Value::of_number(&global.get(&mut store)))
                .ok_or_else(|| missing(&export.name))?;
            globals.insert(export.name.clone(), value);
        }
        Ok(State { globals, memories: HashMap::new(), unknown: None })
    }

    /// Adds a memory.
    pub fn memory<T: 'static>(
        &mut self,
        name: &str,
        memory: wasmtime::Memory,
        store: impl Into<StoreContext<'a, T>>,
    ) {
        let view = View { bytes: memory.data(store), asked: 0, all_zero: true };
        self.memories.insert(name.to_owned(), view);
    }

    /// Whether Wizer got what it asked for, and asked as expected.
    pub fn check(&self) -> Result<()> {
        if let Some(name) = &self.unknown {
            return Err(missing(name));
        }
        let twice = |view: &View<'_>| view.asked == 2 || (view.asked == 1 && view.all_zero);
        if self.memories.values().all(twice) {
            Ok(())
        } else {
            Err(Error::internal("Wizer did not read each memory twice"))
        }
    }
}

/// An export that should be there.
pub(super) fn missing(name: &str) -> Error {
    Error::internal(format!("the instance lacks the export {PREFIX}{name}"))
}

impl InstanceState for State<'_> {
    async fn global_get(&mut self, name: &str, _: wasmparser::ValType) -> SnapshotVal {
        match self.globals.get(name) {
            Some(Value::I32(v)) => SnapshotVal::I32(*v),
            Some(Value::I64(v)) => SnapshotVal::I64(*v),
            Some(Value::F32(v)) => SnapshotVal::F32(*v),
            Some(Value::F64(v)) => SnapshotVal::F64(*v),
            Some(Value::V128(v)) => SnapshotVal::V128(*v),
            _ => {
                self.unknown = Some(name.to_owned());
                SnapshotVal::I32(0)
            }
        }
    }

    async fn memory_contents(&mut self, name: &str, contents: impl FnOnce(&[u8]) + Send) {
        let Some(view) = self.memories.get_mut(name) else {
            self.unknown = Some(name.to_owned());
            return contents(&[]);
        };
        view.asked += 1;
        if view.asked == 1 {
            let mut outline = outline(view.bytes);
            // A memory with pages of its own may end within one of Wizer's.
            outline.resize(outline.len().next_multiple_of(PAGE), 0);
            view.all_zero = !outline.contains(&1);
            contents(&outline);
        } else {
            contents(view.bytes);
        }
    }
}

/// The memory with every block that is not all zero filled with ones.
fn outline(memory: &[u8]) -> Vec<u8> {
    // Zeroed memory of this size comes from the OS untouched: pages of zeros stay shared.
    let mut outline = vec![0; memory.len()];
    for (block, of) in outline.chunks_mut(BLOCK).zip(memory.chunks(BLOCK)) {
        if of.iter().any(|byte| *byte != 0) {
            block.fill(1);
        }
    }
    outline
}

//! Which passive segments were dropped. A probe is an added function that copies nothing from the
//! second item on: it traps exactly when the segment has no items left, and it never writes.

use super::elements::Segment;
use super::inspect::PREFIX;
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use wasm_encoder::Function;
use wasmtime::{AsContextMut, Instance, Trap};

/// Ticks of the engine's epoch that are never reached.
const NEVER: u64 = 1 << 48;

/// Indices of the segments that an init call dropped.
#[derive(Default)]
pub(super) struct Dropped {
    pub data: BTreeSet<u32>,
    pub elem: BTreeSet<u32>,
}

/// The export that probes a segment.
pub(super) fn name(segment: Segment) -> String {
    match segment {
        Segment::Data { index, .. } => format!("{PREFIX}data_{index}"),
        Segment::Elem { index, .. } => format!("{PREFIX}elem_{index}"),
    }
}

/// The body of a probe, of type `[] -> []`.
pub(super) fn function(segment: Segment) -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    let (Segment::Data { memory64: wide, .. } | Segment::Elem { table64: wide, .. }) = segment;
    // Destination 0, source 1, length 0.
    if wide {
        code.i64_const(0)
    } else {
        code.i32_const(0)
    };
    code.i32_const(1).i32_const(0);
    match segment {
        Segment::Data { index, .. } => code.memory_init(0, index),
        Segment::Elem { index, table, .. } => code.table_init(table, index),
    };
    code.end();
    function
}

/// Runs the probes. The store's fuel and deadline are lifted: its guest is done.
pub(super) async fn run<T: Send + 'static>(
    mut store: impl AsContextMut<Data = T>,
    instance: &Instance,
    segments: &[Segment],
) -> Result<Dropped> {
    let mut store = store.as_context_mut();
    if !segments.is_empty() {
        store.set_epoch_deadline(NEVER);
        // An engine that counts no fuel refuses, and needs none.
        let _ = store.set_fuel(u64::MAX);
    }
    let mut dropped = Dropped::default();
    for segment in segments {
        let probe = instance
            .get_typed_func::<(), ()>(&mut store, &name(*segment))
            .map_err(|e| Error::internal(format!("a probe is missing: {e}")))?;
        if traps(probe.call_async(&mut store, ()).await)? {
            match segment {
                Segment::Data { index, .. } => dropped.data.insert(*index),
                Segment::Elem { index, .. } => dropped.elem.insert(*index),
            };
        }
    }
    Ok(dropped)
}

/// Whether a probe found its segment without items.
fn traps(outcome: wasmtime::Result<()>) -> Result<bool> {
    let Err(error) = outcome else { return Ok(false) };
    match error.downcast_ref::<Trap>() {
        Some(Trap::MemoryOutOfBounds | Trap::TableOutOfBounds) => Ok(true),
        _ => Err(Error::internal(format!("a probe failed: {error:#}"))),
    }
}

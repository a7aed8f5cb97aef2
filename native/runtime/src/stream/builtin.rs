//! The imports `erlang.send` and `erlang.recv`: whole messages, out of the guest's memory and into
//! it. Pointers are as wide as the memory's; what lies outside of it traps. Large messages are copied
//! in pieces, between which the guest can be stopped or sliced.

use std::future::Future;
use std::ops::Range;
use std::pin::pin;

use wasmtime::{AsContextMut, Caller, Extern, ExternType, Linker, ModuleExport, Trap};

use super::Stream;
use crate::error::{Class, Error, Kind, Result};
use crate::guest::{Data, shared_bytes};
use crate::wasi::yield_once;

const MODULE: &str = "erlang";
const SEND: &str = "send";
const RECV: &str = "recv";

/// Bytes copied at a time: about ten microseconds.
const PIECE: usize = 64 << 10;

/// What `erlang.recv` answers at the end.
const CLOSED: i64 = -1;

/// True when `module` imports our `erlang.send`, and not one that the host serves.
pub(crate) fn sends(module: &wasmtime::Module, served: &[(String, String)]) -> bool {
    let is_send = |from: &str, name: &str| (from, name) == (MODULE, SEND);
    module.imports().any(|import| is_send(import.module(), import.name()))
        && !served.iter().any(|(from, name)| is_send(from, name))
}

/// Defines the import of `module` when it is one of ours. Whether the module imports it with its type
/// is for the linker to see.
///
/// # Errors
/// Class `link`, kind `incompatible_import`: the module exports no memory.
pub(crate) fn define(
    linker: &mut Linker<Data>,
    module: &wasmtime::Module,
    (from, name): (&str, &str),
) -> Result<()> {
    if from != MODULE || !(name == SEND || name == RECV) {
        return Ok(());
    }
    let (memory, is_wide) = memory_of(module, name)?;
    match (name, is_wide) {
        (SEND, false) => define_send(linker, memory),
        (SEND, true) => define_send_64(linker, memory),
        (_, false) => define_recv(linker, memory),
        (_, true) => define_recv_64(linker, memory),
    }
    .map_err(|error| Error::internal(format!("cannot link {MODULE}.{name}: {error}")))
}

/// The memory that pointers point into, and whether its addresses have 64 bits: the one exported as
/// `memory`, else the first exported one.
fn memory_of(module: &wasmtime::Module, import: &str) -> Result<(ModuleExport, bool)> {
    let memories = module.exports().filter_map(|export| match export.ty() {
        ExternType::Memory(ty) => Some((export.name(), ty.is_64())),
        _ => None,
    });
    // The smallest key comes first: `memory` before the others, those in their order.
    let memory = memories.min_by_key(|(name, _)| *name != "memory");
    memory.and_then(|(name, wide)| Some((module.get_export_index(name)?, wide))).ok_or_else(|| {
        let message = format!("{MODULE}.{import} needs a memory that the module exports");
        Error::new(Class::Link, Kind::IncompatibleImport, message)
    })
}

fn define_send(linker: &mut Linker<Data>, memory: ModuleExport) -> wasmtime::Result<()> {
    linker
        .func_wrap_async(MODULE, SEND, move |mut caller, (ptr, len): (u32, u32)| {
            Box::new(async move { send(&mut caller, &memory, ptr.into(), len.into()).await })
        })
        .map(drop)
}

fn define_send_64(linker: &mut Linker<Data>, memory: ModuleExport) -> wasmtime::Result<()> {
    linker
        .func_wrap_async(MODULE, SEND, move |mut caller, (ptr, len): (u64, u64)| {
            Box::new(async move { send(&mut caller, &memory, ptr, len).await })
        })
        .map(drop)
}

fn define_recv(linker: &mut Linker<Data>, memory: ModuleExport) -> wasmtime::Result<()> {
    linker
        .func_wrap_async(MODULE, RECV, move |mut caller, (ptr, cap): (u32, u32)| {
            Box::new(async move {
                let answer = recv(&mut caller, &memory, ptr.into(), cap.into()).await?;
                // No message is longer than `MAX_MESSAGE`.
                Ok(answer as i32)
            })
        })
        .map(drop)
}

fn define_recv_64(linker: &mut Linker<Data>, memory: ModuleExport) -> wasmtime::Result<()> {
    linker
        .func_wrap_async(MODULE, RECV, move |mut caller, (ptr, cap): (u64, u64)| {
            Box::new(async move { recv(&mut caller, &memory, ptr, cap).await })
        })
        .map(drop)
}

/// Sends `len` bytes at `ptr` as one message.
async fn send(
    caller: &mut Caller<'_, Data>,
    memory: &ModuleExport,
    ptr: u64,
    len: u64,
) -> wasmtime::Result<()> {
    let range = range(caller, memory, ptr, len)?;
    let Some(outlet) = caller.data().ends.outlet.clone() else { return Ok(()) };
    if range.len() <= PIECE {
        outlet.put(Stream::Channel, &bytes(caller, memory)?[range]);
        return Ok(());
    }
    let mut draft = outlet.draft(range.len());
    for piece in pieces(range) {
        draft.write(&bytes(caller, memory)?[piece]);
        yield_once().await;
    }
    draft.send();
    Ok(())
}

/// Receives the first message into `cap` bytes at `ptr`; it leaves the inbox once all of it is there.
async fn recv(
    caller: &mut Caller<'_, Data>,
    memory: &ModuleExport,
    ptr: u64,
    cap: u64,
) -> wasmtime::Result<i64> {
    let buffer = range(caller, memory, ptr, cap)?;
    let inbox = caller.data().ends.inbox.clone();
    if waited(inbox.message()).await {
        // The time of the wait is not the guest's slice.
        caller.as_context_mut().set_epoch_deadline(1);
    }
    let Some(len) = inbox.front().await else { return Ok(CLOSED) };
    if len > buffer.len() {
        return Ok(-2 - len as i64);
    }
    let message = buffer.start..buffer.start + len;
    for piece in pieces(message.clone()) {
        let offset = piece.start - message.start;
        if offset > 0 {
            yield_once().await;
        }
        if !inbox.copy(offset, &mut bytes(caller, memory)?[piece]) {
            // Only a destroy takes messages away from a guest.
            return std::future::pending().await;
        }
    }
    inbox.pop();
    Ok(len as i64)
}

/// Awaits; true when that took more than one poll.
async fn waited(work: impl Future<Output = ()>) -> bool {
    let (mut work, mut polls) = (pin!(work), 0);
    std::future::poll_fn(|cx| {
        polls += 1;
        work.as_mut().poll(cx)
    })
    .await;
    polls > 1
}

/// A range in pieces.
fn pieces(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(PIECE).map(move |at| at..end.min(at + PIECE))
}

/// `len` bytes at `ptr` as a range of the memory.
fn range(
    caller: &mut Caller<'_, Data>,
    memory: &ModuleExport,
    ptr: u64,
    len: u64,
) -> wasmtime::Result<Range<usize>> {
    let size = bytes(caller, memory)?.len() as u64;
    match ptr.checked_add(len).filter(|end| *end <= size) {
        Some(end) => Ok(ptr as usize..end as usize),
        None => Err(Trap::MemoryOutOfBounds.into()),
    }
}

/// The guest's memory. A caller that has the import from a link that exports it again has a memory of
/// its own.
fn bytes<'a>(
    caller: &'a mut Caller<'_, Data>,
    memory: &ModuleExport,
) -> wasmtime::Result<&'a mut [u8]> {
    let known = caller.get_module_export(memory);
    match known.or_else(|| caller.get_export("memory")) {
        Some(Extern::Memory(memory)) => Ok(memory.data_mut(caller)),
        // SAFETY: the memory is the caller's, whose store is borrowed as long as the slice; the guest
        // waits in this import.
        Some(Extern::SharedMemory(memory)) => Ok(unsafe { shared_bytes(&memory) }),
        _ => {
            let message = "who calls erlang.send or erlang.recv must export its memory as `memory`";
            Err(Error::new(Class::Memory, Kind::UnknownExport, message).into())
        }
    }
}

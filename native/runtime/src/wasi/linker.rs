//! The imports. wasmtime-wasi's own, except those that would block the polling thread, leak the wall
//! clock, or let a guest use up what it shares with others.

use super::clocks::{is_known, refused};
use super::poll::{Layout, poll_oneoff};
use super::{Wasi, fifo, files, random};
use crate::error::{Class, Error, Kind, Result};
use crate::options::Clocks;
use wasmtime::{Caller, Extern, Linker};
use wasmtime_wasi::p1::wasi_snapshot_preview1::{self as preview1, WasiSnapshotPreview1};
use wasmtime_wasi::{I32Exit, ResourceTableError, p0, p1};
use wiggle::GuestMemory;

/// Errno `notcapable`.
pub(super) const NOTCAPABLE: i32 = 76;
/// Errno `inval`.
const INVAL: i32 = 28;
/// Errno `mfile`: too many open files.
const MFILE: i32 = 33;
/// Errno `notsup`.
const NOTSUP: i32 = 58;
const SUCCESS: i32 = 0;

/// What functions of wasmtime-wasi, and ours in their place, say of a caller without a memory.
const NO_MEMORY: &str = "missing required memory export";

/// Projects a store's data to its WASI context.
pub(super) trait Get<T>: Fn(&mut T) -> &mut Wasi + Copy + Send + Sync + 'static {}

impl<T, F: Fn(&mut T) -> &mut Wasi + Copy + Send + Sync + 'static> Get<T> for F {}

/// Puts an asynchronous function in the place of wasmtime-wasi's own: its body sees the guest's memory, the
/// WASI context, the fuel that a host call has, and the arguments. A macro, as no closure can lend what it
/// borrows of its caller to an async function it is given.
macro_rules! wrap {
    ($linker:ident, $module:ident, $get:ident, $name:literal,
     |$memory:ident, $wasi:ident, $fuel:pat_param, $arguments:pat_param in $type:ty| $body:expr) => {
        $linker.func_wrap_async(
            $module,
            $name,
            move |mut caller: wasmtime::Caller<'_, T>, $arguments: $type| {
                Box::new(async move {
                    let fuel = wasmtime::AsContextMut::as_context_mut(&mut caller).hostcall_fuel();
                    let export = caller.get_export("memory");
                    let (mut memory, $wasi) =
                        $crate::wasi::linker::parts(&mut caller, &export, $get)?;
                    $wasi.p1.set_hostcall_fuel(fuel);
                    let ($memory, $fuel) = (&mut memory, fuel);
                    $body
                })
            },
        )
    };
}
pub(super) use wrap;

/// Adds every import of `wasi_snapshot_preview1`. Afterwards the linker refuses to define a name twice,
/// as a new one does.
///
/// # Errors
/// `internal` when a name is defined already.
pub fn add_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    clocks: Clocks,
    get: impl Fn(&mut T) -> &mut Wasi + Copy + Send + Sync + 'static,
) -> Result<()> {
    p1::add_to_linker_async(linker, move |data| &mut get(data).p1)
        .and_then(|()| replace(linker, "wasi_snapshot_preview1", Layout::Preview1, clocks, get))
        .map_err(internal)
}

/// Adds every import of `wasi_unstable`, which compilers of before 2020 wrote (preview 0).
///
/// # Errors
/// `internal` when a name is defined already.
pub fn add_unstable_to_linker<T: Send + 'static>(
    linker: &mut Linker<T>,
    clocks: Clocks,
    get: impl Fn(&mut T) -> &mut Wasi + Copy + Send + Sync + 'static,
) -> Result<()> {
    p0::add_to_linker_async(linker, move |data| &mut get(data).p1)
        .and_then(|()| replace(linker, "wasi_unstable", Layout::Unstable, clocks, get))
        .map_err(internal)
}

/// The status of a guest that called `proc_exit`; any 32 bits, though an OS keeps only the low eight.
pub fn exit_status(error: &wasmtime::Error) -> Option<i32> {
    error.downcast_ref::<I32Exit>().map(|exit| exit.0)
}

/// Why a call of WASI failed that is no fault of ours: the caller exports no memory.
pub fn refusal(error: &wasmtime::Error) -> Option<Error> {
    let message = "a module that uses WASI must export its memory as `memory`";
    (error.root_cause().to_string() == NO_MEMORY)
        .then(|| Error::new(Class::Memory, Kind::UnknownExport, message))
}

fn internal(error: wasmtime::Error) -> Error {
    Error::internal(format!("cannot link WASI: {error}"))
}

fn replace<T: Send + 'static>(
    linker: &mut Linker<T>,
    module: &str,
    layout: Layout,
    clocks: Clocks,
    get: impl Get<T>,
) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let replaced = replace_poll(linker, module, layout, clocks, get)
        .and_then(|()| replace_clocks(linker, module, clocks, get))
        .and_then(|()| replace_random(linker, module, get))
        .and_then(|()| replace_open(linker, module, get))
        .and_then(|()| files::replace(linker, module, get))
        .and_then(|()| fifo::replace(linker, module, get))
        .and_then(|()| replace_exit(linker, module));
    linker.allow_shadowing(false);
    replaced
}

/// wasmtime-wasi sleeps inside the OS for a single relative timer when file calls may block.
fn replace_poll<T: Send + 'static>(
    linker: &mut Linker<T>,
    module: &str,
    layout: Layout,
    clocks: Clocks,
    get: impl Get<T>,
) -> wasmtime::Result<()> {
    type Places = (i32, i32, i32, i32);
    wrap!(linker, module, get, "poll_oneoff", |memory, wasi, _, (subs, events, n, out) in Places| {
        let places = [subs, events, n, out].map(|place| place as u32);
        poll_oneoff(memory, wasi, layout, clocks, places).await
    })?;
    Ok(())
}

/// A clock that does not exist is an errno, where wasmtime-wasi traps.
fn replace_clocks<T: Send + 'static>(
    linker: &mut Linker<T>,
    module: &str,
    clocks: Clocks,
    get: impl Get<T>,
) -> wasmtime::Result<()> {
    let time_get = move |mut caller: Caller<'_, T>, id: i32, precision: i64, out: i32| {
        if let Some(errno) = unreadable(clocks, id) {
            return Ok(errno);
        }
        let export = caller.get_export("memory");
        let (mut memory, wasi) = parts(&mut caller, &export, get)?;
        preview1::clock_time_get(&mut wasi.p1, &mut memory, id, precision, out)
    };
    let res_get = move |mut caller: Caller<'_, T>, id: i32, out: i32| {
        if let Some(errno) = unreadable(clocks, id) {
            return Ok(errno);
        }
        let export = caller.get_export("memory");
        let (mut memory, wasi) = parts(&mut caller, &export, get)?;
        preview1::clock_res_get(&mut wasi.p1, &mut memory, id, out)
    };
    linker.func_wrap(module, "clock_time_get", time_get)?;
    linker.func_wrap(module, "clock_res_get", res_get)?;
    Ok(())
}

fn unreadable(clocks: Clocks, id: i32) -> Option<i32> {
    if refused(clocks, id as u32) {
        return Some(NOTCAPABLE);
    }
    (!is_known(id as u32)).then_some(INVAL)
}

/// wasmtime-wasi fills a buffer of the guest's choosing on the host before it looks at the memory.
fn replace_random<T: Send + 'static>(
    linker: &mut Linker<T>,
    module: &str,
    get: impl Get<T>,
) -> wasmtime::Result<()> {
    wrap!(linker, module, get, "random_get", |memory, wasi, _, (ptr, len) in (i32, i32)| {
        random::fill(memory, ptr as u32, len as u32).await?;
        Ok(SUCCESS)
    })?;
    Ok(())
}

/// A guest that opens too many files gets an errno, where wasmtime-wasi traps; and a FIFO is not opened.
fn replace_open<T: Send + 'static>(
    linker: &mut Linker<T>,
    module: &str,
    get: impl Get<T>,
) -> wasmtime::Result<()> {
    wrap!(linker, module, get, "path_open", |memory, wasi, fuel, arguments in Open| {
        path_open(memory, wasi, fuel, arguments).await
    })?;
    Ok(())
}

/// Directory, lookup flags, path, its length, open flags, rights, inherited rights, descriptor
/// flags, out-pointer.
type Open = (i32, i32, i32, i32, i32, i64, i64, i32, i32);

async fn path_open(
    memory: &mut GuestMemory<'_>,
    wasi: &mut Wasi,
    fuel: usize,
    (dir, look, path, len, oflags, base, heir, flags, out): Open,
) -> wasmtime::Result<i32> {
    if fifo::is_fifo(memory, wasi, [dir, look, path, len]).await {
        return Ok(NOTSUP);
    }
    let p1 = &mut wasi.p1;
    // The look used some.
    p1.set_hostcall_fuel(fuel);
    let opened =
        preview1::path_open(p1, memory, dir, look, path, len, oflags, base, heir, flags, out);
    or_mfile(opened.await)
}

/// A table of descriptors without room is the guest's doing: an errno, not a trap.
pub(super) fn or_mfile(result: wasmtime::Result<i32>) -> wasmtime::Result<i32> {
    match result {
        Err(error) if is_full(&error) => Ok(MFILE),
        result => result,
    }
}

fn is_full(error: &wasmtime::Error) -> bool {
    matches!(error.downcast_ref::<ResourceTableError>(), Some(ResourceTableError::Full))
}

/// wasmtime-wasi refuses statuses from 126 on.
fn replace_exit<T: 'static>(linker: &mut Linker<T>, module: &str) -> wasmtime::Result<()> {
    linker.func_wrap(module, "proc_exit", |status: i32| -> wasmtime::Result<()> {
        Err(I32Exit(status).into())
    })?;
    Ok(())
}

/// The guest's memory and its WASI context, borrowed side by side.
pub(super) fn parts<'a, T: 'static>(
    caller: &'a mut Caller<'_, T>,
    export: &'a Option<Extern>,
    get: impl Get<T>,
) -> wasmtime::Result<(GuestMemory<'a>, &'a mut Wasi)> {
    match export {
        Some(Extern::Memory(memory)) => {
            let (bytes, data) = memory.data_and_store_mut(caller);
            Ok((GuestMemory::Unshared(bytes), get(data)))
        }
        Some(Extern::SharedMemory(memory)) => {
            Ok((GuestMemory::Shared(memory.data()), get(caller.data_mut())))
        }
        _ => Err(wasmtime::Error::msg(NO_MEMORY)),
    }
}

//! Calls that take a place beside the open files for a moment: with none left, they answer an errno,
//! where wasmtime-wasi traps.

use super::Wasi;
use super::linker::{Get, or_mfile, parts};
use wasmtime::{AsContextMut, Caller, Linker};
use wasmtime_wasi::p1::wasi_snapshot_preview1::{self as preview1, WasiSnapshotPreview1};
use wiggle::GuestMemory;

/// Descriptor, list of buffers or buffer, its length, offset or cookie, out-pointer.
type Arguments = (i32, i32, i32, i64, i32);

/// Puts these calls in the places of wasmtime-wasi's own.
///
/// # Errors
/// Those of the linker.
pub(super) fn replace<T: Send + 'static>(
    linker: &mut Linker<T>,
    module: &str,
    get: impl Get<T>,
) -> wasmtime::Result<()> {
    // A macro, as no closure can lend what it borrows of its caller to an async function it is given.
    macro_rules! wrap {
        ($name:literal, $call:ident) => {
            linker.func_wrap_async(
                module,
                $name,
                move |mut caller: Caller<'_, T>, arguments: Arguments| {
                    Box::new(async move {
                        let fuel = caller.as_context_mut().hostcall_fuel();
                        let export = caller.get_export("memory");
                        let (mut memory, wasi) = parts(&mut caller, &export, get)?;
                        wasi.p1.set_hostcall_fuel(fuel);
                        or_mfile($call(&mut memory, wasi, arguments).await)
                    })
                },
            )?
        };
    }
    wrap!("fd_pread", pread);
    wrap!("fd_readdir", readdir);
    Ok(())
}

async fn pread(
    memory: &mut GuestMemory<'_>,
    wasi: &mut Wasi,
    (fd, buffers, count, offset, out): Arguments,
) -> wasmtime::Result<i32> {
    preview1::fd_pread(&mut wasi.p1, memory, fd, buffers, count, offset, out).await
}

async fn readdir(
    memory: &mut GuestMemory<'_>,
    wasi: &mut Wasi,
    (fd, buffer, len, cookie, out): Arguments,
) -> wasmtime::Result<i32> {
    preview1::fd_readdir(&mut wasi.p1, memory, fd, buffer, len, cookie, out).await
}

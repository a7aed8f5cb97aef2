//! Calls that take a place beside the open files for a moment: with none left, they answer an errno,
//! where wasmtime-wasi traps.

use super::linker::{Get, or_mfile, wrap};
use wasmtime::Linker;
use wasmtime_wasi::p1::wasi_snapshot_preview1::{self as preview1, WasiSnapshotPreview1};

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
    wrap!(linker, module, get, "fd_pread", |memory, wasi, _, arguments in Arguments| {
        let (fd, buffers, count, offset, out) = arguments;
        let read = preview1::fd_pread(&mut wasi.p1, memory, fd, buffers, count, offset, out);
        or_mfile(read.await)
    })?;
    wrap!(linker, module, get, "fd_readdir", |memory, wasi, _, arguments in Arguments| {
        let (fd, buffer, len, cookie, out) = arguments;
        let listed = preview1::fd_readdir(&mut wasi.p1, memory, fd, buffer, len, cookie, out);
        or_mfile(listed.await)
    })?;
    Ok(())
}

//! FIFOs are not opened: that would hold the polling thread until somebody opens the other end.
//! Rule: every path is looked at before it is opened. The guest cannot make a FIFO, so that nothing
//! changes in between; errors are left to the opening.

use super::Wasi;
use super::linker::{Get, wrap};
use std::fs::File;
use std::io;
use std::sync::Arc;
use wasmtime::Linker;
use wasmtime_wasi::ResourceTable;
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtx, WasiFilesystemCtxView};
use wasmtime_wasi::p1::types::{Filetype, Lookupflags};
use wasmtime_wasi::p1::wasi_snapshot_preview1::{self as preview1, WasiSnapshotPreview1};
use wasmtime_wasi::p2::bindings::filesystem::preopens::Host;
use wiggle::{GuestMemory, GuestPtr};

/// The guest's number of the first preopen.
const FIRST: u32 = 3;

/// The preopens of a context in the order of their numbers. A look through one of them costs a
/// third of what wasmtime-wasi's own costs, which makes two.
#[derive(Clone, Default)]
pub(super) struct Preopens(Arc<[Arc<File>]>);

impl Preopens {
    /// Those of contexts that share `filesystem`.
    pub(super) fn of(filesystem: &WasiFilesystemCtx) -> Self {
        let (mut ctx, mut table) = (filesystem.clone(), ResourceTable::new());
        let mut view = WasiFilesystemCtxView { ctx: &mut ctx, table: &mut table };
        let dirs = view.get_directories().unwrap_or_default();
        let file = |(dir, _)| match table.get(&dir) {
            Ok(Descriptor::Dir(dir)) => Some(dir.dir.clone()),
            _ => None,
        };
        Preopens(dirs.into_iter().map(file).collect::<Option<_>>().unwrap_or_default())
    }

    fn get(&self, fd: u32) -> Option<&File> {
        let at = fd.checked_sub(FIRST)?;
        self.0.get(at as usize).map(|dir| &**dir)
    }

    /// From here on the number may stand for something else.
    fn forget(&mut self, fd: u32) {
        if self.get(fd).is_some() {
            *self = Preopens::default();
        }
    }
}

/// Puts calls that change what a number stands for in the places of wasmtime-wasi's own.
///
/// # Errors
/// Those of the linker.
pub(super) fn replace<T: Send + 'static>(
    linker: &mut Linker<T>,
    module: &str,
    get: impl Get<T>,
) -> wasmtime::Result<()> {
    wrap!(linker, module, get, "fd_close", |memory, wasi, _, (fd,) in (i32,)| {
        wasi.preopens.forget(fd as u32);
        preview1::fd_close(&mut wasi.p1, memory, fd).await
    })?;
    wrap!(linker, module, get, "fd_renumber", |memory, wasi, _, (from, to) in (i32, i32)| {
        [from, to].into_iter().for_each(|fd| wasi.preopens.forget(fd as u32));
        preview1::fd_renumber(&mut wasi.p1, memory, from, to).await
    })?;
    Ok(())
}

/// True for what is neither a file, a directory, a link nor a device.
pub(super) async fn is_fifo(
    memory: &mut GuestMemory<'_>,
    wasi: &mut Wasi,
    [dir, look, path, len]: [i32; 4],
) -> bool {
    let Ok(look) = Lookupflags::try_from(look) else { return false };
    let path = GuestPtr::new((path as u32, len as u32));
    let follow = look.contains(Lookupflags::SYMLINK_FOLLOW);
    let preopen = wasi.preopens.get(dir as u32);
    if let Some(found) = preopen.and_then(|dir| looked_at(dir, memory, path, follow)) {
        return found;
    }
    let stat = wasi.p1.path_filestat_get(memory, (dir as u32).into(), look, path).await;
    stat.is_ok_and(|stat| stat.filetype == Filetype::Unknown)
}

/// `None` where wasmtime-wasi must look.
#[cfg(target_os = "linux")]
fn looked_at(
    dir: &File,
    memory: &GuestMemory<'_>,
    path: GuestPtr<str>,
    follow: bool,
) -> Option<bool> {
    let path = memory.as_cow_str(path).ok()?;
    match open_beneath(dir, &path, follow).and_then(|file| file.metadata()) {
        Ok(metadata) => Some(is_special(metadata.file_type())),
        Err(error) => (error.kind() == io::ErrorKind::NotFound).then_some(false),
    }
}

#[cfg(not(target_os = "linux"))]
fn looked_at(_: &File, _: &GuestMemory<'_>, _: GuestPtr<str>, _: bool) -> Option<bool> {
    None
}

/// The file that the path leads to without leaving the directory, by its name alone: nothing is
/// opened for reading or writing, and nothing waits. As wasmtime-wasi resolves paths.
#[cfg(target_os = "linux")]
fn open_beneath(dir: &File, path: &str, follow: bool) -> io::Result<File> {
    use std::os::fd::{AsRawFd, FromRawFd};
    let path = std::ffi::CString::new(path)?;
    // SAFETY: numbers only, of which 0 is one.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    let link = if follow { 0 } else { libc::O_NOFOLLOW };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC | link) as u64;
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the path ends with a NUL, and the size is that of `how`; both live until it returns.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            dir.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call made it, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

#[cfg(target_os = "linux")]
fn is_special(kind: std::fs::FileType) -> bool {
    use std::os::unix::fs::FileTypeExt;
    kind.is_fifo() || kind.is_socket()
}

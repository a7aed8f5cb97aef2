//! The few system calls that linear memory is made of, with the arguments this crate uses.
//! Rule: nothing here knows what an image, a slot or a pool is.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

const NOTHING: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;

/// Size of a host page in bytes.
pub(super) fn page_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    // SAFETY: sysconf has no preconditions.
    *SIZE.get_or_init(|| match unsafe { libc::sysconf(libc::_SC_PAGESIZE) } {
        size if size > 0 => size as usize,
        _ => 4096,
    })
}

/// `bytes` rounded up to host pages; `None` when that overflows.
pub(super) fn round_up(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(page_size())
}

/// An owned range of address space, inaccessible at first, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    base: *mut u8,
    len: usize,
}

// SAFETY: a reservation is a range of numbers; whoever reads or writes it synchronizes.
unsafe impl Send for Reservation {}
// SAFETY: as above.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `len` bytes (host pages) that no access may touch.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe { map(std::ptr::null_mut(), len, libc::PROT_NONE, NOTHING, None)? };
        Ok(Reservation { base, len })
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and its owner is gone.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

unsafe fn map(
    at: *mut u8,
    len: usize,
    prot: libc::c_int,
    flags: libc::c_int,
    file: Option<(&File, u64)>,
) -> io::Result<*mut u8> {
    let (fd, offset) = file.map_or((-1, 0), |(file, offset)| (file.as_raw_fd(), offset));
    // SAFETY: the caller owns the range when MAP_FIXED is among the flags.
    let base = unsafe { libc::mmap(at.cast(), len, prot, flags, fd, offset as libc::off_t) };
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base.cast()) }
}

/// Maps a file for reading at an address of the kernel's choice. The result must be unmapped.
/// Private, because a sealed memfd refuses even readable shared mappings before Linux 6.7; the
/// pages are those of the page cache either way.
pub(super) fn map_read(file: &File, offset: u64, len: usize) -> io::Result<Reservation> {
    let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
    // SAFETY: a mapping at an address of the kernel's choice disturbs nothing.
    let base =
        unsafe { map(std::ptr::null_mut(), len, libc::PROT_READ, flags, Some((file, offset)))? };
    Ok(Reservation { base, len })
}

/// Replaces a range by the file's bytes, private and writable.
///
/// # Safety
/// The range is the caller's own and nothing refers to its bytes.
pub(super) unsafe fn map_private(
    at: *mut u8,
    len: usize,
    file: &File,
    offset: u64,
) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: promised by the caller.
    unsafe { map(at, len, prot, flags, Some((file, offset))) }.map(drop)
}

/// Replaces a range by inaccessible nothing: its bytes are gone.
///
/// # Safety
/// As for `map_private`.
pub(super) unsafe fn blank(at: *mut u8, len: usize) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    // SAFETY: promised by the caller.
    unsafe { map(at, len, libc::PROT_NONE, NOTHING | libc::MAP_FIXED, None) }.map(drop)
}

/// Makes a range readable and writable, or inaccessible.
///
/// # Safety
/// The range is the caller's own; nothing refers to bytes that become inaccessible.
pub(super) unsafe fn protect(at: *mut u8, len: usize, accessible: bool) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    let prot = if accessible { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    // SAFETY: promised by the caller.
    check(unsafe { libc::mprotect(at.cast(), len, prot) })
}

/// Drops what was written to a range of private mappings: the file's bytes or zeros are back.
///
/// # Safety
/// The range is the caller's own and nothing refers to its bytes.
#[cfg(target_os = "linux")]
pub(super) unsafe fn discard(at: *mut u8, len: usize) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    // SAFETY: promised by the caller.
    check(unsafe { libc::madvise(at.cast(), len, libc::MADV_DONTNEED) })
}

/// Only Linux drops private pages at once; elsewhere the slot is mapped anew.
///
/// # Safety
/// None is needed.
#[cfg(not(target_os = "linux"))]
pub(super) unsafe fn discard(_at: *mut u8, len: usize) -> io::Result<()> {
    if len == 0 { Ok(()) } else { Err(io::Error::from(io::ErrorKind::Unsupported)) }
}

/// Keeps huge pages out of a range: one written byte would make 2 MiB dirty.
/// Advice only: a kernel without huge pages refuses it and needs none.
///
/// # Safety
/// The range is the caller's own.
pub(super) unsafe fn no_huge_pages(at: *mut u8, len: usize) {
    #[cfg(target_os = "linux")]
    if len > 0 {
        // SAFETY: advice never changes contents.
        unsafe { libc::madvise(at.cast(), len, libc::MADV_NOHUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (at, len);
}

/// Moves the pages of one range to another without copying; false when that is impossible here.
///
/// # Safety
/// Both ranges are the caller's own, do not overlap, and nothing refers to their bytes.
pub(super) unsafe fn move_pages(from: *mut u8, to: *mut u8, len: usize) -> bool {
    #[cfg(target_os = "linux")]
    if len > 0 {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: promised by the caller.
        let at = unsafe { libc::mremap(from.cast(), len, len, flags, to.cast::<libc::c_void>()) };
        return at != libc::MAP_FAILED;
    }
    let _ = (from, to);
    len == 0
}

/// A file without a name that lives in memory and goes with its last mapping.
#[cfg(target_os = "linux")]
pub(crate) fn anonymous_file() -> io::Result<File> {
    use std::os::fd::FromRawFd;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Older kernels do not know the flag against executing it.
    for flags in [flags | libc::MFD_NOEXEC_SEAL, flags] {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"wasm-image".as_ptr(), flags) };
        if fd >= 0 {
            // SAFETY: the descriptor is new and nobody else's.
            return Ok(unsafe { File::from_raw_fd(fd) });
        }
    }
    Err(io::Error::last_os_error())
}

/// A file that has no name from the moment it is made.
#[cfg(not(target_os = "linux"))]
pub(crate) fn anonymous_file() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name =
        format!("wasm-image-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let mut how = File::options();
    let file = how.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Forbids every later change of an anonymous file, where the kernel can.
pub(crate) fn seal(file: &File) {
    #[cfg(target_os = "linux")]
    {
        let seals =
            libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
        // SAFETY: the descriptor is open; a refusal leaves the file as it was.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

fn check(code: libc::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

//! `random_get` from the operating system, straight into guest memory in bounded pieces.
//! No generator is seeded per instance, and a snapshot carries no generator's state.

use super::streams::yield_once;
use std::io;
use wasmtime::Result;
use wiggle::{GuestMemory, GuestPtr};

/// Bytes asked of the OS at a time.
const PIECE: usize = 4096;
/// Pieces filled before the guest yields to its runner: about a hundred microseconds.
const PIECES_PER_YIELD: usize = 16;

/// Fills `len` bytes of guest memory at `ptr`. The range is checked first, so that a guest can ask
/// for no more than it has.
///
/// # Errors
/// Traps when the range is outside of the memory, or when the OS has no randomness.
pub(super) async fn fill(memory: &mut GuestMemory<'_>, ptr: u32, len: u32) -> Result<()> {
    check_range(memory, ptr, len)?;
    let mut piece = [0; PIECE];
    let mut done = 0;
    while done < len {
        let size = PIECE.min((len - done) as usize);
        os_random(&mut piece[..size])?;
        memory.copy_from_slice(&piece[..size], GuestPtr::new((ptr + done, size as u32)))?;
        done += size as u32;
        if (done as usize).is_multiple_of(PIECE * PIECES_PER_YIELD) {
            yield_once().await;
        }
    }
    Ok(())
}

/// Both ends of the range lie in the memory; nothing is copied for this.
fn check_range(memory: &GuestMemory<'_>, ptr: u32, len: u32) -> Result<()> {
    let size = match memory {
        GuestMemory::Unshared(bytes) => bytes.len(),
        GuestMemory::Shared(cells) => cells.len(),
    };
    if u64::from(ptr) + u64::from(len) > size as u64 {
        return Err(wiggle::GuestError::PtrOutOfBounds(wiggle::Region { start: ptr, len }).into());
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn os_random(mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        // SAFETY: the pointer and the length are those of a live, writable slice.
        let filled = unsafe { libc::getrandom(buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match usize::try_from(filled) {
            Ok(filled) => buffer = &mut buffer[filled..],
            Err(_) => interrupted(io::Error::last_os_error())?,
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn os_random(buffer: &mut [u8]) -> io::Result<()> {
    // `getentropy` takes at most 256 bytes.
    for piece in buffer.chunks_mut(256) {
        // SAFETY: the pointer and the length are those of a live, writable slice.
        while unsafe { libc::getentropy(piece.as_mut_ptr().cast(), piece.len()) } != 0 {
            interrupted(io::Error::last_os_error())?;
        }
    }
    Ok(())
}

fn interrupted(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

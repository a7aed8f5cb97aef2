//! Memory outside any slot: GC heaps, shared memories, custom page sizes, 64-bit memories that
//! outgrow a slot. Rule: reserved and guarded as compiled code expects; unmapped when dropped.

use super::MEMORY_GUARD;
use super::grow::NotGrown;
use super::sys::{self, Reservation};
use std::io;
use wasmtime::LinearMemory;

/// Room to grow into when a memory must move, so that it does not move at each growth.
const HEADROOM: usize = 2 << 30;

/// Guard in front, as compiled code may expect behind the memory that is mapped before.
const LEAD: usize = MEMORY_GUARD as usize;

/// A mapping of its own.
pub(super) struct Plain {
    map: Reservation,
    guard: usize,
    len: usize,
    /// Bytes it may grow to.
    limit: usize,
}

impl Plain {
    /// `len` bytes of zeros with room for `reserve` bytes and `guard` bytes that stay inaccessible.
    pub(super) fn new(len: usize, reserve: usize, guard: usize, limit: usize) -> io::Result<Self> {
        let size = LEAD.checked_add(len.max(reserve)).and_then(|n| n.checked_add(guard));
        let map = Reservation::new(size.and_then(sys::round_up).ok_or_else(too_large)?)?;
        let mut plain = Plain { map, guard, len: 0, limit };
        plain.extend(len)?;
        Ok(plain)
    }

    /// A memory of `len` bytes that starts with `old`'s bytes.
    pub(super) fn copy_of(old: &[u8], len: usize, guard: usize) -> io::Result<Self> {
        let plain = Plain::new(len, len.saturating_add(HEADROOM), guard, usize::MAX)?;
        let (from, to) = (old.as_ptr(), plain.as_ptr());
        // SAFETY: the new memory is another mapping, and at least as long.
        unsafe { std::ptr::copy_nonoverlapping(from, to, old.len().min(len)) };
        Ok(plain)
    }

    fn capacity(&self) -> usize {
        self.map.len() - LEAD - self.guard
    }

    /// Makes the bytes up to `len` accessible; whole host pages are.
    fn extend(&mut self, len: usize) -> io::Result<()> {
        let from = sys::round_up(self.len).ok_or_else(too_large)?;
        let to = sys::round_up(len).ok_or_else(too_large)?;
        if to > from {
            // SAFETY: the pages are ours and lie within the mapping's capacity.
            unsafe { sys::protect(self.as_ptr().add(from), to - from, true)? };
        }
        self.len = len;
        Ok(())
    }

    /// Moves to a larger mapping.
    fn relocate(&mut self, len: usize) -> io::Result<()> {
        let reserve = len.saturating_add(HEADROOM);
        let mut new = Plain::new(0, reserve, self.guard, self.limit)?;
        let used = sys::round_up(self.len).ok_or_else(too_large)?;
        // SAFETY: both mappings are ours; nothing refers to the old bytes once growth is under way.
        if unsafe { sys::move_pages(self.as_ptr(), new.as_ptr(), used) } {
            new.len = self.len;
            new.extend(len)?;
        } else {
            new.extend(len)?;
            // SAFETY: the new memory is another mapping, and at least as long.
            unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), new.as_ptr(), self.len) };
        }
        *self = new;
        Ok(())
    }
}

// SAFETY: the range is page aligned, reserved and guarded as asked for, and ours until dropped;
// the base moves only beyond the capacity.
unsafe impl LinearMemory for Plain {
    fn byte_size(&self) -> usize {
        self.len
    }

    fn byte_capacity(&self) -> usize {
        self.capacity()
    }

    fn grow_to(&mut self, new_size: usize) -> wasmtime::Result<()> {
        if new_size > self.limit {
            let why = format!("a memory of {new_size} bytes is more than {}", self.limit);
            return Err(NotGrown::because(why));
        }
        let grown = if new_size <= self.capacity() {
            self.extend(new_size)
        } else {
            self.relocate(new_size)
        };
        grown.map_err(NotGrown::because)
    }

    fn as_ptr(&self) -> *mut u8 {
        // SAFETY: the mapping is longer than its leading guard.
        unsafe { self.map.base().add(LEAD) }
    }
}

fn too_large() -> io::Error {
    io::Error::from(io::ErrorKind::OutOfMemory)
}

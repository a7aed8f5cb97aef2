//! A slot: the address range that one linear memory lives in, with an image mapped at its start.
//! Rule: an idle slot holds exactly its image and zeros, accessible up to the memory's minimum.

use super::image::Image;
use super::sys::{self, Reservation};
use super::{MEMORY_GUARD, MEMORY_RESERVATION};
use std::io;

/// Bytes from one slot of an arena to the next.
pub(super) const STRIDE: usize = MEMORY_RESERVATION as usize + MEMORY_GUARD as usize;

/// Guard in front of the first slot; the others have their neighbour's.
const LEAD: usize = MEMORY_GUARD as usize;

/// What an idle slot is ready for: an image and a minimum in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) image: u64,
    pub(super) min: usize,
}

impl Key {
    pub(super) fn of(image: &Image, min: usize) -> Self {
        Key { image: image.id(), min }
    }
}

/// The slots of a pool: one reservation, cut by the stride.
#[derive(Debug)]
pub(super) struct Arena(Reservation);

impl Arena {
    /// Address space for `slots` slots in bytes; `None` when that overflows.
    pub(super) fn size(slots: u32) -> Option<usize> {
        STRIDE.checked_mul(slots as usize)?.checked_add(LEAD)
    }

    pub(super) fn new(slots: u32) -> io::Result<Self> {
        let size = Arena::size(slots).ok_or(io::ErrorKind::OutOfMemory)?;
        let range = Reservation::new(size)?;
        // SAFETY: the reservation is ours.
        unsafe { sys::no_huge_pages(range.base(), range.len()) };
        Ok(Arena(range))
    }

    /// The slot with this number, which nobody else holds.
    pub(super) fn slot(&self, number: u32) -> Slot {
        // SAFETY: the arena was sized for every number that the pool gives out.
        let base = unsafe { self.0.base().add(LEAD + number as usize * STRIDE) };
        Slot { base, key: None, extent: 0, own: None }
    }
}

/// An address range of 4 GiB and its guard.
#[derive(Debug)]
pub(super) struct Slot {
    base: *mut u8,
    /// What is mapped; `None` is nothing.
    key: Option<Key>,
    /// Bytes that are accessible or have pages.
    extent: usize,
    /// The range itself, when it is not part of an arena.
    own: Option<Reservation>,
}

// SAFETY: a slot is held by one owner at a time, which synchronizes what it does with the bytes.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// A slot of its own, outside any arena.
    pub(super) fn new() -> io::Result<Self> {
        let range = Reservation::new(LEAD + STRIDE)?;
        // SAFETY: the reservation is ours, and is longer than the guard.
        let base = unsafe {
            sys::no_huge_pages(range.base(), range.len());
            range.base().add(LEAD)
        };
        Ok(Slot { base, key: None, extent: 0, own: Some(range) })
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    pub(super) fn key(&self) -> Option<Key> {
        self.key
    }

    /// True when the slot unmaps itself when dropped.
    pub(super) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Makes the slot hold `image` and zeros up to `min`, whatever it held before.
    /// On an error it may hold anything and must be blanked or never used again.
    pub(super) fn prepare(&mut self, image: &Image, min: usize) -> io::Result<()> {
        if self.key == Some(Key::of(image, min)) {
            return Ok(());
        }
        self.blank()?;
        let len = image.len();
        if min > MEMORY_RESERVATION as usize || len > min {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        self.key = Some(Key::of(image, min));
        self.extent = min;
        // SAFETY: the slot is ours, nothing refers to its bytes, and both ranges lie within it.
        unsafe {
            image.map_at(self.base)?;
            sys::no_huge_pages(self.base, len);
            sys::protect(self.base.add(len), min - len, true)
        }
    }

    /// Takes everything out of the slot.
    pub(super) fn blank(&mut self) -> io::Result<()> {
        // SAFETY: the slot is ours and nothing refers to its bytes.
        unsafe {
            sys::blank(self.base, self.extent)?;
            sys::no_huge_pages(self.base, self.extent);
        }
        self.key = None;
        self.extent = 0;
        Ok(())
    }

    /// Makes the bytes from `from` up to `to` (both within the reservation) accessible.
    pub(super) fn grow(&mut self, from: usize, to: usize) -> io::Result<()> {
        self.extent = self.extent.max(to);
        // SAFETY: the slot is ours; bytes beyond the memory's length were inaccessible.
        unsafe { sys::protect(self.base.add(from), to - from, true) }
    }

    /// Makes the bytes from `to` up to `from` inaccessible again.
    pub(super) fn shrink(&mut self, from: usize, to: usize) -> io::Result<()> {
        // SAFETY: the slot is ours and nothing refers to its bytes.
        unsafe { sys::protect(self.base.add(to), from - to, false) }
    }

    /// Bytes that are accessible or have pages.
    pub(super) fn extent(&self) -> usize {
        self.extent
    }

    /// Notes that no byte from `top` on has a page.
    pub(super) fn trim(&mut self, top: usize) {
        self.extent = top;
    }
}

//! Answers a store's requests for memory: with the slot offered on this thread, else with plain
//! memory. Rule: a request that does not match its offer is refused, never served by guess.

use super::defer;
use super::grow::NotGrown;
use super::held::Held;
use super::lease::{self, Offer};
use super::plain::Plain;
use super::{GC_HEAP_GUARD, MEMORY_GUARD, MEMORY_RESERVATION};
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

/// The creator of memories for every engine.
#[derive(Debug)]
pub struct Creator;

// SAFETY: slots and plain memories are page aligned, reserved and guarded as asked for, hold the
// image or zeros, and belong to one store until it drops them.
unsafe impl MemoryCreator for Creator {
    fn new_memory(
        &self,
        ty: MemoryType,
        minimum: usize,
        _maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        // GC heaps are told by their guard; they take nobody's offer.
        let offer = if guard == GC_HEAP_GUARD as usize { None } else { lease::next_offer() };
        let limit = match offer {
            Some(Offer::Slot(held)) => return SlotMemory::taking(held, &ty, minimum),
            Some(Offer::Plain { limit }) => limit,
            None => usize::MAX,
        };
        let memory = Plain::new(minimum, reserved.unwrap_or(0), guard, limit);
        let memory = memory
            .map_err(|error| format!("the system refused a memory of {minimum} bytes: {error}"))?;
        Ok(Box::new(memory))
    }
}

/// A memory in a slot, until it outgrows it.
enum SlotMemory {
    Slot { held: Option<Held>, is64: bool },
    Outgrown(Plain),
}

impl SlotMemory {
    fn taking(held: Held, ty: &MemoryType, min: usize) -> Result<Box<dyn LinearMemory>, String> {
        if ty.is_shared() || ty.page_size_log2() != 16 {
            return Err("a slot was offered to a memory that cannot live in one".into());
        }
        let Some(held) = held.hand_over(min) else {
            return Err(format!("the slot offered does not suit a memory of {min} bytes"));
        };
        Ok(Box::new(SlotMemory::Slot { held: Some(held), is64: ty.is_64() }))
    }

    /// Leaves the slot for a mapping of `size` bytes.
    fn outgrow(&mut self, size: usize) -> wasmtime::Result<()> {
        // SAFETY: the bytes are accessible, and Wasmtime runs nothing while a memory grows.
        let old = unsafe { std::slice::from_raw_parts(self.as_ptr(), self.byte_size()) };
        let plain = Plain::copy_of(old, size, MEMORY_GUARD as usize).map_err(NotGrown::because)?;
        drop(std::mem::replace(self, SlotMemory::Outgrown(plain)));
        Ok(())
    }
}

// SAFETY: the slot is page aligned, reserved and guarded for 4 GiB, and ours until dropped; the
// base moves only beyond the capacity.
unsafe impl LinearMemory for SlotMemory {
    fn byte_size(&self) -> usize {
        match self {
            SlotMemory::Slot { held, .. } => held.as_ref().map_or(0, Held::len),
            SlotMemory::Outgrown(plain) => plain.byte_size(),
        }
    }

    /// All of a slot, also where its pool lets a memory have less: beyond this Wasmtime refuses a
    /// growth by itself, and the limiter that granted it would not know.
    fn byte_capacity(&self) -> usize {
        match self {
            SlotMemory::Slot { .. } => MEMORY_RESERVATION as usize,
            SlotMemory::Outgrown(plain) => plain.byte_capacity(),
        }
    }

    fn grow_to(&mut self, new_size: usize) -> wasmtime::Result<()> {
        match self {
            SlotMemory::Slot { held: Some(held), .. } if new_size <= held.capacity() => {
                held.grow(new_size).map_err(NotGrown::because)
            }
            SlotMemory::Slot { held: Some(held), is64: true } if held.may_outgrow() => {
                self.outgrow(new_size)
            }
            SlotMemory::Slot { held, .. } => {
                let most = held.as_ref().map_or(0, Held::capacity);
                let why = format!("a memory of {new_size} bytes is more than the slot's {most}");
                Err(NotGrown::because(why))
            }
            SlotMemory::Outgrown(plain) => plain.grow_to(new_size),
        }
    }

    fn as_ptr(&self) -> *mut u8 {
        match self {
            SlotMemory::Slot { held, .. } => held.as_ref().map_or(std::ptr::null_mut(), Held::base),
            SlotMemory::Outgrown(plain) => plain.as_ptr(),
        }
    }
}

impl Drop for SlotMemory {
    fn drop(&mut self) {
        if let SlotMemory::Slot { held, .. } = self
            && let Some(held) = held.take()
        {
            defer::settle(held);
        }
    }
}

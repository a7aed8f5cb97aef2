//! Linear memory: read, written, measured.

use wasmtime::{Extern, ExternType, Memory, SharedMemory};

use super::View;
use crate::error::{Class, Error, Kind, Quoted, Result};

/// The size of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySize {
    /// In pages of the memory's own page size.
    pub pages: u64,
    pub bytes: usize,
}

/// An exported memory.
enum Linear {
    Own(Memory),
    Shared(SharedMemory),
}

impl View<'_> {
    /// Copies memory at `offset` into `into`.
    ///
    /// # Errors
    /// `memory_out_of_bounds`, `unknown_export`; both of class `memory`.
    pub fn read(&mut self, name: Option<&str>, offset: u64, into: &mut [u8]) -> Result<()> {
        let bytes = self.bytes(name)?;
        let at = in_bounds(offset, into.len(), bytes.len())?;
        into.copy_from_slice(&bytes[at..at + into.len()]);
        Ok(())
    }

    /// Copies `from` to memory at `offset`; all or nothing.
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn write(&mut self, name: Option<&str>, offset: u64, from: &[u8]) -> Result<()> {
        let bytes = self.bytes(name)?;
        let at = in_bounds(offset, from.len(), bytes.len())?;
        bytes[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }

    /// `len` as a length that can be read at `offset`.
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn must_hold(&mut self, name: Option<&str>, offset: u64, len: u64) -> Result<usize> {
        let size = self.size(name)?.bytes;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        in_bounds(offset, len, size).map(|_| len)
    }

    /// The size of a memory.
    pub fn size(&mut self, name: Option<&str>) -> Result<MemorySize> {
        let (pages, bytes) = match self.memory(name)? {
            Linear::Own(memory) => (memory.size(&self.store), memory.data_size(&self.store)),
            Linear::Shared(memory) => (memory.size(), memory.data_size()),
        };
        Ok(MemorySize { pages, bytes })
    }

    fn bytes(&mut self, name: Option<&str>) -> Result<&mut [u8]> {
        match self.memory(name)? {
            Linear::Own(memory) => Ok(memory.data_mut(&mut self.store)),
            // SAFETY: the memory is the store's, which the view has to itself: the guest is idle or
            // waits for the host. So nobody writes, and the slice borrows the view.
            Linear::Shared(memory) => Ok(unsafe { shared_bytes(&memory) }),
        }
    }

    /// The memory exported as `name`; without a name `memory`, else the first exported one.
    fn memory(&mut self, name: Option<&str>) -> Result<Linear> {
        let wanted = name.unwrap_or("memory");
        let instance = self.instance().ok_or_else(|| unknown(wanted))?;
        match instance.get_export(&mut self.store, wanted).and_then(Linear::of) {
            Some(memory) => return Ok(memory),
            None if name.is_some() => return Err(unknown(wanted)),
            None => {}
        }
        let module = instance.module(&self.store);
        let first = module.exports().find(|export| matches!(export.ty(), ExternType::Memory(_)));
        let first = first.map(|export| export.name().to_owned()).ok_or_else(|| unknown(wanted))?;
        let export = instance.get_export(&mut self.store, &first);
        export.and_then(Linear::of).ok_or_else(|| unknown(&first))
    }
}

impl Linear {
    fn of(export: Extern) -> Option<Self> {
        match export {
            Extern::Memory(memory) => Some(Linear::Own(memory)),
            Extern::SharedMemory(memory) => Some(Linear::Shared(memory)),
            _ => None,
        }
    }
}

/// The bytes of a shared memory, which here belongs to one store like any other memory: no import and
/// no export takes it from one store to the next, and one thread at a time is in a store.
///
/// # Safety
/// A store holds the memory, and the slice lives no longer than an exclusive borrow of that store, in
/// which nothing of the guest runs.
pub(crate) unsafe fn shared_bytes<'a>(memory: &SharedMemory) -> &'a mut [u8] {
    let cells = memory.data();
    // SAFETY: the cells are bytes that live as long as the memory; the rest is promised by the caller.
    unsafe { std::slice::from_raw_parts_mut(cells.as_ptr().cast_mut().cast(), cells.len()) }
}

fn unknown(name: &str) -> Error {
    Error::new(Class::Memory, Kind::UnknownExport, format!("no exported memory {}", Quoted(name)))
}

fn in_bounds(offset: u64, len: usize, size: usize) -> Result<usize> {
    usize::try_from(offset)
        .ok()
        .filter(|at| at.checked_add(len).is_some_and(|end| end <= size))
        .ok_or_else(|| out_of_bounds(offset, len, size))
}

fn out_of_bounds(offset: u64, len: usize, size: usize) -> Error {
    let message = format!("{len} bytes at {offset} are outside the memory of {size} bytes");
    Error::new(Class::Memory, Kind::MemoryOutOfBounds, message)
}

//! Linear memory: read, written, measured.

use wasmtime::{Extern, ExternType, Memory};

use super::View;
use crate::error::{Class, Error, Kind, Result};

/// The size of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySize {
    /// In pages of the memory's own page size.
    pub pages: u64,
    pub bytes: usize,
}

impl View<'_> {
    /// Copies memory at `offset` into `into`.
    ///
    /// # Errors
    /// `memory_out_of_bounds`, `unknown_export`; both of class `memory`.
    pub fn read(&mut self, name: Option<&str>, offset: u64, into: &mut [u8]) -> Result<()> {
        let memory = self.memory(name)?;
        let size = memory.data_size(&self.store);
        let at = in_bounds(offset, into.len(), size)?;
        memory.read(&self.store, at, into).map_err(|_| out_of_bounds(offset, into.len(), size))
    }

    /// Copies `from` to memory at `offset`; all or nothing.
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn write(&mut self, name: Option<&str>, offset: u64, from: &[u8]) -> Result<()> {
        let memory = self.memory(name)?;
        let size = memory.data_size(&self.store);
        let at = in_bounds(offset, from.len(), size)?;
        memory.write(&mut self.store, at, from).map_err(|_| out_of_bounds(offset, from.len(), size))
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
        let memory = self.memory(name)?;
        let (pages, bytes) = (memory.size(&self.store), memory.data_size(&self.store));
        Ok(MemorySize { pages, bytes })
    }

    /// The memory exported as `name`; without a name `memory`, else the first exported one.
    fn memory(&mut self, name: Option<&str>) -> Result<Memory> {
        let wanted = name.unwrap_or("memory");
        let instance = self.instance().ok_or_else(|| unknown(wanted))?;
        match instance.get_export(&mut self.store, wanted).and_then(Extern::into_memory) {
            Some(memory) => return Ok(memory),
            None if name.is_some() => return Err(unknown(wanted)),
            None => {}
        }
        let module = instance.module(&self.store);
        let first = module.exports().find(|export| matches!(export.ty(), ExternType::Memory(_)));
        let first = first.map(|export| export.name().to_owned()).ok_or_else(|| unknown(wanted))?;
        instance.get_memory(&mut self.store, &first).ok_or_else(|| unknown(&first))
    }
}

fn unknown(name: &str) -> Error {
    Error::new(Class::Memory, Kind::UnknownExport, format!("no exported memory {name:?}"))
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

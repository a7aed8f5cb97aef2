//! The guest's garbage-collected heap: what is put into it from outside, and its collection.

use wasmtime::{AsContextMut, ExternRef, GcHeapOutOfMemory, Trap};

use super::View;
use crate::error::{Class, Error, Kind, Result};
use crate::guest::refs::{Datum, Ref};
use crate::guest::store::Data;
use crate::trap;

impl View<'_> {
    /// A reference to something of the host, that the guest can keep and give back.
    ///
    /// # Errors
    /// Class `limit`: `memory_limit`, `out_of_memory`.
    pub fn make_extern(&mut self, datum: Datum) -> Result<Ref> {
        self.take_hit();
        let made = ExternRef::new(&mut self.store, datum);
        let made = made.map_err(|error| self.not_made(&error))?;
        self.keep(made.into())
    }

    /// Collects garbage: objects that neither the guest nor a reference reaches, except for cycles.
    ///
    /// # Errors
    /// Class `limit`, kind `out_of_memory`.
    pub fn collect(&mut self) -> Result<()> {
        let collected = self.store.as_context_mut().gc(None);
        collected.map_err(|error| self.not_made(&error))
    }

    /// The limit that refused something since the last look.
    pub(super) fn take_hit(&mut self) -> Option<Error> {
        self.store.as_context_mut().data_mut().limiter.take_hit()
    }

    /// Why an allocation failed.
    pub(super) fn not_made(&mut self, error: &wasmtime::Error) -> Error {
        if error.is::<Trap>() {
            return trap::from_wasmtime(error);
        }
        heap_full(self.store.as_context_mut().data_mut(), error)
    }
}

/// The error of an allocation that found no room: the limit that kept the heap from growing, if one
/// did.
pub(in crate::guest) fn heap_full(data: &mut Data, error: &wasmtime::Error) -> Error {
    data.limiter.take_hit().unwrap_or_else(|| {
        Error::new(Class::Limit, Kind::OutOfMemory, error.root_cause().to_string())
    })
}

/// True for the error of an allocation inside the guest that found no room.
pub(in crate::guest) fn is_heap_full(error: &wasmtime::Error) -> bool {
    error.is::<GcHeapOutOfMemory<()>>()
}

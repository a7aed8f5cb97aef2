//! What can be done with the store of a guest that is idle or parked in a host call.
//!
//! - `memory`: linear memory.
//! - `global`, `table`: those that the module exports.
//! - `object`: structs, arrays and functions behind references.
//! - `heap`: terms of the host in the guest's heap, and its collection.

mod global;
mod heap;
mod memory;
mod object;
mod table;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use wasmtime::{AsContext, AsContextMut, Instance, RootScope, StoreContextMut};

pub(crate) use global::unknown_global;
pub(super) use heap::{heap_full, is_heap_full};
pub use memory::MemorySize;
pub(crate) use memory::shared_bytes;
pub use object::Elements;
pub(crate) use object::not_a;
pub(crate) use object::unknown_function;
pub(crate) use table::unknown_table;

use super::store::Data;
use crate::error::{Class, Error, Kind, Result};
use crate::preinit::{Instrumented, SnapshotOptions};

/// A guest's store, entered between two polls. What is rooted meanwhile goes with it.
pub struct View<'a> {
    store: RootScope<StoreContextMut<'a, Data>>,
}

impl<'a> View<'a> {
    pub(super) fn new(store: StoreContextMut<'a, Data>) -> Self {
        View { store: RootScope::new(store) }
    }

    fn instance(&self) -> Option<Instance> {
        self.store.as_context().data().instance
    }

    /// The instance's state as a module (see [`crate::preinit`]).
    ///
    /// # Errors
    /// Class `preinit`.
    pub fn snapshot(&mut self, of: &Instrumented, options: &SnapshotOptions) -> Result<Vec<u8>> {
        let instance =
            self.instance().ok_or_else(|| Error::internal("a snapshot of no instance"))?;
        let mut store = self.store.as_context_mut();
        let mut work = pin!(of.snapshot(&mut store, &instance, options));
        let mut cx = Context::from_waker(Waker::noop());
        // Its probes are a few instructions each: a pending poll is an epoch's yield.
        loop {
            if let Poll::Ready(result) = work.as_mut().poll(&mut cx) {
                return result;
            }
        }
    }

    /// The fuel that is left.
    ///
    /// # Errors
    /// Class `call`, kind `unsupported`: the module was compiled without `fuel`.
    pub fn fuel(&self) -> Result<u64> {
        self.store.as_context().get_fuel().map_err(|_| {
            let message = "the module was not compiled with the option fuel";
            Error::new(Class::Call, Kind::Unsupported, message)
        })
    }
}

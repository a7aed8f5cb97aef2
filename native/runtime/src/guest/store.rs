//! What a store holds: the guest's WASI state, its limits and its control; and the store with its
//! instance as one movable piece.

use std::sync::Arc;

use wasmtime::{Instance, ResourceLimiter, Store};

use super::control::Control;
use super::fit::exceeded;
use crate::counts::{Live, Object};
use crate::engine::Engine;
use crate::error::{Error, Kind};
use crate::inject::point;
use crate::memory::{Lease, NotGrown, Permit, Share};
use crate::options::Limits;
use crate::stream::Ends;
use crate::wasi::Wasi;

/// The data of a guest's store.
pub struct Data {
    pub(crate) control: Arc<Control>,
    /// Boxed: a store is moved a few times while it is made.
    pub(crate) wasi: Option<Box<Wasi>>,
    pub(crate) limiter: Limiter,
    pub(crate) ends: Ends,
    pub(super) instance: Option<Instance>,
}

impl Data {
    pub(crate) fn new(
        control: Arc<Control>,
        wasi: Option<Box<Wasi>>,
        limits: Limits,
        ends: Ends,
    ) -> Self {
        Data { control, wasi, limiter: Limiter::new(limits), ends, instance: None }
    }
}

/// A store, and what lives exactly as long.
pub struct StoreCell {
    pub(super) store: Store<Data>,
    /// The store counts fuel.
    pub(super) counts_fuel: bool,
    /// Memories for the instance to come.
    pub(super) lease: Option<Lease>,
    /// Instead of the lease, memories for each module of a chain.
    pub(super) shares: Vec<Share>,
    /// The instance's place in its pool. After the store: the place is free when that is gone.
    pub(super) permit: Option<Permit>,
    _live: Live,
}

impl StoreCell {
    pub fn new(engine: &Engine, data: Data) -> Self {
        let mut store = Store::new(engine.wasmtime(), data);
        store.limiter(|data| data);
        // Every bump of the epoch is a look at the flags; the runner polls again at once.
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        // Compiled code tells what it used when it calls a function or yields for fuel: a guest that
        // is stopped in between would seem to have used nothing.
        let counts_fuel = engine.options().fuel;
        if counts_fuel {
            let _ = store.fuel_async_yield_interval(Some(FUEL_TOLD));
        }
        StoreCell {
            store,
            counts_fuel,
            lease: None,
            shares: Vec::new(),
            permit: None,
            _live: Live::new(Object::Store),
        }
    }
}

impl StoreCell {
    /// True when dropping the store takes longer than a scheduler may wait: objects and terms in its
    /// heap are let go one by one, a large table is given back to the system, and with a file that
    /// was removed while it is open goes its content. Much input and long texts are freed.
    pub(super) fn takes_long(&mut self) -> bool {
        let elements = self.store.data().limiter.elements;
        let wasi = self.store.data_mut().wasi.as_deref_mut();
        wasi.is_some_and(Wasi::takes_long)
            || self.store.gc_heap_capacity() > 0
            || elements > LARGE_TABLE
    }

    /// As [`Self::takes_long`], the restore of its memories included, whatever was written.
    pub(super) fn may_take_long(&mut self) -> bool {
        self.takes_long() || self.store.data().limiter.total > LARGE_MEMORY
    }

    /// True once the instance is there.
    pub(super) fn is_made(&self) -> bool {
        self.store.data().instance.is_some()
    }
}

impl Drop for StoreCell {
    fn drop(&mut self) {
        point("store");
    }
}

/// Fuel that a guest uses, at most, until it is told.
const FUEL_TOLD: u64 = 100_000;

/// Elements of a table that is given back at once.
const LARGE_TABLE: usize = 100_000;

/// Bytes of memories that are restored where a run ends: about a tenth of a millisecond.
const LARGE_MEMORY: u64 = 1 << 20;

/// Enforces the limits of one instance and remembers which was hit.
pub struct Limiter {
    limits: Limits,
    total: u64,
    /// Bytes granted last: taken back when exactly that growth fails.
    pending: u64,
    hit: Option<Error>,
    /// Of the largest table.
    elements: usize,
}

impl Limiter {
    fn new(limits: Limits) -> Self {
        Limiter { limits, total: 0, pending: 0, hit: None, elements: 0 }
    }

    /// The limit that refused something since the last look.
    pub(super) fn take_hit(&mut self) -> Option<Error> {
        self.hit.take()
    }

    fn refuse(&mut self, kind: Kind, key: &'static str, message: String) -> wasmtime::Result<bool> {
        self.hit = Some(exceeded(kind, key, message));
        Ok(false)
    }
}

impl Data {
    /// Counts memory that nobody will ask for.
    pub(super) fn reserve(&mut self, bytes: u64) {
        self.count(self.limiter.total.saturating_add(bytes));
    }

    fn count(&mut self, total: u64) {
        self.limiter.total = total;
        self.control.meter.set_memory(total);
    }
}

impl ResourceLimiter for Data {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let limiter = &mut self.limiter;
        limiter.hit = None;
        // Wasmtime would refuse it after it was granted.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let desired = desired as u64;
        if let Some(limit) = limiter.limits.memory.filter(|limit| desired > *limit) {
            let message = format!("a memory of {desired} bytes is over memory_limit ({limit})");
            return limiter.refuse(Kind::MemoryLimit, "memory_limit", message);
        }
        let growth = desired.saturating_sub(current as u64);
        let total = limiter.total.saturating_add(growth);
        if let Some(limit) = limiter.limits.total_memory.filter(|limit| total > *limit) {
            let message = format!("{total} bytes of memory are over total_memory_limit ({limit})");
            return limiter.refuse(Kind::MemoryLimit, "total_memory_limit", message);
        }
        limiter.pending = growth;
        self.count(total);
        Ok(true)
    }

    /// Wasmtime also tells of growth that it never asked for, because no memory of the type could have
    /// it: right after one that succeeded, perhaps, and that of another memory.
    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        if NotGrown::is(&error) {
            let pending = std::mem::take(&mut self.limiter.pending);
            self.count(self.limiter.total.saturating_sub(pending));
        }
        Ok(())
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let limiter = &mut self.limiter;
        match limiter.limits.table_elements.filter(|limit| desired as u64 > *limit) {
            Some(limit) => {
                let message =
                    format!("a table of {desired} elements is over max_table_elements ({limit})");
                limiter.refuse(Kind::TableLimit, "max_table_elements", message)
            }
            None => {
                limiter.elements = limiter.elements.max(desired);
                Ok(true)
            }
        }
    }

    fn instances(&self) -> usize {
        self.limiter.limits.instances.map_or(usize::MAX, clamp)
    }

    fn tables(&self) -> usize {
        self.limiter.limits.tables.map_or(usize::MAX, clamp)
    }

    fn memories(&self) -> usize {
        usize::MAX
    }
}

fn clamp(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

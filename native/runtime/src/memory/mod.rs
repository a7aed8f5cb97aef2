//! Linear memory: images that are mapped, slots that hold them, and the reset that restores them.
//!
//! An [`Image`] is a module's initial memory. A slot is 4 GiB of address space with a guard and an
//! image mapped copy-on-write at its start. A [`Pool`] keeps slots, warm, for the next instance of
//! the same image. [`Pool::acquire`] gives a [`Lease`], whose [`Lease::offer`] hands the slots to
//! the store that is instantiated meanwhile; the [`Permit`] left over counts the live instance.
//! A store's memories are restored when it is dropped, or later (see [`deferring`]).

mod creator;
mod defer;
#[cfg(feature = "compiler")]
mod extract;
mod grow;
mod held;
mod idle;
mod image;
mod info;
#[cfg(feature = "compiler")]
mod layout;
mod lease;
mod limits;
mod pagemap;
mod plain;
mod pool;
mod reset;
mod restorer;
mod slot;
mod sys;

pub use creator::Creator;
pub use defer::{Pending, deferring};
#[cfg(feature = "compiler")]
pub use extract::{Extracted, MemoryData, extract};
pub(crate) use grow::NotGrown;
pub use image::{Image, MemoryPlan};
pub use info::PoolInfo;
pub use lease::{Lease, Permit, Share};
pub use pagemap::pagemap_scan_available;
pub use pool::Pool;
pub use restorer::start as start_restorer;
pub(crate) use sys::{anonymous_file, seal as seal_file};

use std::sync::Arc;

/// Address space of one memory in bytes: all that a 32-bit memory can address, so that compiled
/// code needs no bounds checks.
pub const MEMORY_RESERVATION: u64 = 4 << 30;

/// Inaccessible bytes behind a memory (and in front of it): Wasmtime's default, above the static
/// offsets found in practice.
pub const MEMORY_GUARD: u64 = 32 << 20;

/// Guard of GC heaps; differs from that of memories, which tells a request for one from the other.
pub const GC_HEAP_GUARD: u64 = MEMORY_GUARD + (64 << 10);

/// Makes an engine take its linear memories from this module. Part of every core module engine's
/// configuration, pooled or not: compiled code depends on it.
pub fn configure(config: &mut wasmtime::Config) {
    config
        .with_host_memory(Arc::new(Creator))
        .memory_reservation(MEMORY_RESERVATION)
        .memory_guard_size(MEMORY_GUARD)
        .gc_heap_reservation(MEMORY_RESERVATION)
        .gc_heap_guard_size(GC_HEAP_GUARD)
        // Initial content is mapped by the slots.
        .memory_init_cow(false);
}

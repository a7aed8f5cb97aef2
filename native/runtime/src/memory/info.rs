//! What a pool tells of itself. Rule: counters only grow; what is live is asked of the pool.

use super::pool::Live;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Debug, Default)]
pub(super) struct Counters {
    resets: AtomicU64,
    bytes_restored: AtomicU64,
    verify_failures: AtomicU64,
    quarantined: AtomicU64,
}

/// What a pool did and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolInfo {
    /// Slots there are: all of a pool's, or those an engine without a pool holds just now.
    pub total: u64,
    /// Live memories.
    pub used: u64,
    /// Memories of instances that are gone, which are being restored.
    pub restoring: u64,
    /// Idle slots that hold an image, ready for its next instance.
    pub warm: u64,
    /// Live instances.
    pub instances: u64,
    /// Memories restored since the pool was made.
    pub resets: u64,
    /// Bytes restored in place since the pool was made.
    pub bytes_restored: u64,
    /// Memories that differed from their image after a reset; only `verify` looks. Always 0.
    pub verify_failures: u64,
    /// Slots given up because the system refused to map them anew.
    pub quarantined: u64,
}

impl Counters {
    pub(super) fn info(&self, total: u64, warm: u64, restoring: u64, live: &Live) -> PoolInfo {
        PoolInfo {
            total,
            used: live.memories,
            restoring,
            warm,
            instances: live.instances,
            resets: self.resets.load(Relaxed),
            bytes_restored: self.bytes_restored.load(Relaxed),
            verify_failures: self.verify_failures.load(Relaxed),
            quarantined: self.quarantined.load(Relaxed),
        }
    }

    pub(super) fn reset(&self, restored: usize) {
        self.resets.fetch_add(1, Relaxed);
        self.bytes_restored.fetch_add(restored as u64, Relaxed);
    }

    pub(super) fn verify_failure(&self) {
        self.verify_failures.fetch_add(1, Relaxed);
    }

    pub(super) fn quarantine(&self) {
        self.quarantined.fetch_add(1, Relaxed);
    }
}

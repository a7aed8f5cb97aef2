//! What the modules of an instance need whatever runs, against the instance's limits, before anything
//! of it is made. Rule: an answer names the option.

use crate::error::{Class, Error, Kind, Result};
use crate::memory::MemoryPlan;
use crate::options::Limits;

/// What all modules of an instance define together.
pub(crate) struct Needs<'a> {
    pub(super) memories: &'a [MemoryPlan],
    pub(super) tables: usize,
    pub(super) modules: usize,
    /// Bytes that a memory may have in the modules' pool.
    pub(super) most: u64,
}

impl Needs<'_> {
    /// Wasmtime asks no limiter when a shared memory grows: what it may grow to counts from the start.
    /// Answers the bytes by which shared memories may grow.
    ///
    /// # Errors
    /// Class `limit`: `memory_limit`, `table_limit`, `instance_limit`.
    pub(crate) fn must_fit(&self, limits: &Limits) -> Result<u64> {
        self.counts(limits)?;
        let (mut all, mut growth) = (0_u64, 0_u64);
        for plan in self.memories.iter().filter(|plan| plan.shared) {
            let most = plan.max_bytes.unwrap_or(u64::MAX).min(self.most);
            within(most, limits.memory, Kind::MemoryLimit, "memory_limit", |limit| {
                format!("a shared memory may grow to {most} bytes, over memory_limit ({limit})")
            })?;
            all = all.saturating_add(most);
            growth = growth.saturating_add(most.saturating_sub(plan.min_bytes));
        }
        within(all, limits.total_memory, Kind::MemoryLimit, "total_memory_limit", |limit| {
            format!(
                "shared memories may grow to {all} bytes together, over total_memory_limit ({limit})"
            )
        })?;
        Ok(growth)
    }

    /// What every instance begins with: the limits would refuse it while it is made.
    ///
    /// # Errors
    /// Class `limit`: `memory_limit`, `table_limit`.
    pub(crate) fn can_begin(&self, largest_table: u64, limits: &Limits) -> Result<()> {
        let bytes = || self.memories.iter().filter(|plan| !plan.shared).map(|plan| plan.min_bytes);
        let largest = bytes().max().unwrap_or_default();
        within(largest, limits.memory, Kind::MemoryLimit, "memory_limit", |limit| {
            format!("a memory of {largest} bytes is over memory_limit ({limit})")
        })?;
        let all = bytes().fold(0, u64::saturating_add);
        within(all, limits.total_memory, Kind::MemoryLimit, "total_memory_limit", |limit| {
            format!("memories of {all} bytes are over total_memory_limit ({limit})")
        })?;
        let table = largest_table;
        within(table, limits.table_elements, Kind::TableLimit, "max_table_elements", |limit| {
            format!("a table of {table} elements is over max_table_elements ({limit})")
        })
    }

    fn counts(&self, limits: &Limits) -> Result<()> {
        let (tables, modules) = (self.tables as u64, self.modules as u64);
        within(tables, limits.tables, Kind::TableLimit, "max_tables", |limit| {
            format!("{tables} tables are over max_tables ({limit})")
        })?;
        within(modules, limits.instances, Kind::InstanceLimit, "max_instances", |limit| {
            format!("{modules} modules in one instance are over max_instances ({limit})")
        })
    }
}

/// # Errors
/// That of [`exceeded`], when `needed` is more than the limit.
fn within(
    needed: u64,
    limit: Option<u64>,
    kind: Kind,
    key: &'static str,
    message: impl FnOnce(u64) -> String,
) -> Result<()> {
    match limit.filter(|limit| needed > *limit) {
        Some(limit) => Err(exceeded(kind, key, message(limit))),
        None => Ok(()),
    }
}

/// A limit that was hit, with the option that sets it.
pub(super) fn exceeded(kind: Kind, key: &'static str, message: String) -> Error {
    Error { key: Some(key), ..Error::new(Class::Limit, kind, message) }
}

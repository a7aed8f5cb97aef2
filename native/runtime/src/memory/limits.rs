//! The caps of a pool and the answers when one is reached. Rule: an answer names its cap.

use super::image::MemoryPlan;
use super::pool::Live;
use crate::options::PoolOptions;
use crate::{Class, Error, Kind, Result};

/// Caps of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    instances: u32,
    core_instances: u32,
    pub(super) memories: u32,
    tables: u32,
    max_memory: u64,
}

impl Limits {
    pub(super) fn of(options: &PoolOptions) -> Self {
        Limits {
            instances: options.instances,
            core_instances: options.core_instances,
            memories: options.memories,
            tables: options.tables,
            max_memory: options.max_memory,
        }
    }

    /// Every memory must begin within `max_memory`.
    pub(super) fn check(&self, plans: &[MemoryPlan]) -> Result<()> {
        let Some(plan) = plans.iter().find(|plan| plan.min_bytes > self.max_memory) else {
            return Ok(());
        };
        let text = format!(
            "a memory begins with {} bytes, more than the pool's max_memory of {} bytes",
            plan.min_bytes, self.max_memory
        );
        let error = Error::new(Class::Limit, Kind::MemoryLimit, text);
        Err(Error { key: Some("max_memory"), ..error })
    }

    /// Room for one more instance?
    pub(super) fn admit(&self, live: &Live, need: &Live) -> Result<()> {
        let caps = [
            ("instances", live.instances, need.instances, self.instances),
            ("core_instances", live.core_instances, need.core_instances, self.core_instances),
            ("memories", live.memories, need.memories, self.memories),
            ("tables", live.tables, need.tables, self.tables),
        ];
        match caps.iter().find(|(_, live, need, cap)| live + need > u64::from(*cap)) {
            Some(&(key, live, need, cap)) => Err(exhausted(key, live, need, cap)),
            None => Ok(()),
        }
    }
}

fn exhausted(key: &'static str, live: u64, need: u64, cap: u32) -> Error {
    let text = format!("the pool has {live} of its {cap} {key} in use; {need} more are needed");
    Error { key: Some(key), ..Error::new(Class::Pool, Kind::PoolExhausted, text) }
}

//! Runners that know processes.

pub mod scheduler;

//! Runners poll guests.

pub mod thread;

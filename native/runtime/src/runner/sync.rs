//! Where the hand-off takes its locks, atomics and threads from: here those of the system. The model
//! checker has a module of the same names (native/fuzz/handoff).

pub(super) use std::sync::Arc;
pub(super) use std::sync::atomic::{AtomicU8, Ordering};
pub(super) use std::thread::{Thread, park, park_timeout};

pub(super) use parking_lot::Mutex;

//! Fuzz targets: each takes bytes, and panics when what it proves does not hold.
//!
//! | target | what it proves |
//! |---|---|
//! | [`artifact`] | damaged metadata and seals of artifacts are refused, or do no harm |
//! | [`preinit`] | a snapshot goes on as the module that it was taken of |
//! | [`extraction`] | images, mapped and restored, are what Wasmtime's own initialization makes |
//! | [`value`] | values come back as they went in, or are refused by name |
//! | [`sequence`] | whatever is asked of a guest in whatever order: each job is answered once |
//! | [`differential`] | calls give the results, traps and fuel that plain Wasmtime gives |
//!
//! The same functions run under libFuzzer (`main.rs`, scripts/fuzz.sh) and as an ordinary test
//! (`tests/replay.rs`). Rule: a target is a function of its bytes alone, as far as clocks allow.

use std::sync::atomic::{AtomicUsize, Ordering};

pub mod artifact;
pub mod differential;
pub mod extraction;
mod host;
pub mod input;
mod ours;
mod plain;
pub mod preinit;
pub mod sequence;
mod smith;
pub mod value;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// Every target with its name, which is that of its corpus too.
pub const TARGETS: [(&str, Target); 6] = [
    ("artifact", artifact::run),
    ("preinit", preinit::run),
    ("extraction", extraction::run),
    ("value", value::run),
    ("sequence", sequence::run),
    ("differential", differential::run),
];

/// Inputs that came as far as a comparison: a test sees by it that a target does not refuse them all.
static REACHED: AtomicUsize = AtomicUsize::new(0);

/// An input came as far as a comparison.
fn reached() {
    REACHED.fetch_add(1, Ordering::Relaxed);
}

/// How many inputs of this process came as far as a comparison.
pub fn count_reached() -> usize {
    REACHED.load(Ordering::Relaxed)
}

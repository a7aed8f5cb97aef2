//! Panics on demand: there only with the feature `inject-panics`, for scripts/test-panics.sh.

use rustler::Atom;
use wasmtime_beam::inject::{POINTS, arm, left};

use crate::atoms;

/// The names of the points.
#[rustler::nif]
fn panic_points() -> Vec<&'static str> {
    POINTS.to_vec()
}

/// The next passes of a point panic, as many as `times` says.
#[rustler::nif]
fn panic_arm(point: &str, times: u64) -> Atom {
    arm(point, times);
    atoms::ok()
}

/// How many passes of a point are still to panic.
#[rustler::nif]
fn panic_left(point: &str) -> u64 {
    left(point)
}

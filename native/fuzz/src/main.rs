//! What libFuzzer calls, whose own `main` is linked: the target that FUZZ_TARGET names. A panic ends the
//! process, which libFuzzer takes for a crash and keeps the bytes of.
#![no_main]

use std::sync::OnceLock;

use wasmtime_fuzz::{TARGETS, Target};

/// Runs the target once.
///
/// # Safety
/// `data` must be readable for `len` bytes, unless that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn LLVMFuzzerTestOneInput(data: *const u8, len: usize) -> i32 {
    // SAFETY: the caller's promise.
    let bytes = if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, len) } };
    target()(bytes);
    0
}

fn target() -> Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    *TARGET.get_or_init(|| {
        let wanted = std::env::var("FUZZ_TARGET").unwrap_or_default();
        let found = TARGETS.iter().find(|(name, _)| *name == wanted);
        found.unwrap_or_else(|| panic!("FUZZ_TARGET names no target: {wanted:?}")).1
    })
}

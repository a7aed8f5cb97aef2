//! What an artifact depends on besides its module and options: versions and the CPU. Rule: a node
//! without a compiler tells the same as one with it, so that it finds what the other made.

#[cfg(target_arch = "aarch64")]
use std::arch::is_aarch64_feature_detected as detect;
#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected as detect;

use crate::WASMTIME_VERSION;
use crate::module::artifact::CONTAINER_VERSION;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! detected {
    ($($feature:tt),*) => { [$(($feature, detect!($feature))),*] };
}

/// The versions and the CPU in words. Artifacts of equal targets load in each other's place; a
/// feature that is missing here costs a compilation, as loading checks it.
pub fn target() -> String {
    let (arch, os) = (std::env::consts::ARCH, std::env::consts::OS);
    let library = env!("CARGO_PKG_VERSION");
    let mut text = format!("wasmtime {WASMTIME_VERSION} {library} {CONTAINER_VERSION} {arch} {os}");
    for (feature, _) in features().iter().filter(|(_, present)| *present) {
        text.push(' ');
        text.push_str(feature);
    }
    text
}

/// Those that Cranelift makes use of.
#[cfg(target_arch = "x86_64")]
fn features() -> [(&'static str, bool); 19] {
    detected!(
        "sse3",
        "ssse3",
        "sse4.1",
        "sse4.2",
        "cmpxchg16b",
        "popcnt",
        "avx",
        "avx2",
        "fma",
        "avxvnni",
        "avx512vnni",
        "bmi1",
        "bmi2",
        "avx512bitalg",
        "avx512dq",
        "avx512f",
        "avx512vl",
        "avx512vbmi",
        "lzcnt"
    )
}

/// Those that Cranelift makes use of.
#[cfg(target_arch = "aarch64")]
fn features() -> [(&'static str, bool); 5] {
    detected!("lse", "paca", "fp16", "dotprod", "i8mm")
}

/// Unknown CPUs are told apart by loading alone.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> [(&'static str, bool); 0] {
    []
}

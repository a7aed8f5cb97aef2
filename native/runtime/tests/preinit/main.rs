//! A module and its pre-initialized form, run side by side in plain Wasmtime.
//! Each case is a behaviour; the two sides of a boundary stand in one case.

mod carried;
mod exports;
mod property;
mod refused;
mod support;
mod tables;
mod toolchains;

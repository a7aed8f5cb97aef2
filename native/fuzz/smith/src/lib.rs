//! Random modules behind a C function. Rule: its own library, because a feature that wasm-smith
//! turns on would build another Wasmtime.

use std::ffi::c_void;
use std::panic::catch_unwind;

use arbitrary::Unstructured;
use wasm_smith::{Config, Module};

/// What the host serves to modules.
const HOST: &str = r#"(module
    (import "host" "a" (func (param i32) (result i32)))
    (import "host" "b" (func (param i64 f64) (result f32)))
    (import "host" "c" (func (param v128 i32) (result i64 v128)))
    (import "host" "d" (func)))"#;

/// Iterations and calls until a module traps by itself.
const FUEL: u32 = 2_000;

/// Largest memory and table that a module may have.
const MAX_MEMORY: u64 = 4 << 20;
const MAX_ELEMENTS: u64 = 2_000;

/// Hands a module made of `len` bytes at `dna` to `take`, once, or not at all when they are none.
/// `sort` is 0 for all that Wasmtime has, 1 for what pre-initialization carries.
///
/// # Safety
/// `dna` must be readable for `len` bytes; `take` must accept `context`, and keep nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn smith_module(
    dna: *const u8,
    len: usize,
    sort: u32,
    take: unsafe extern "C" fn(*mut c_void, *const u8, usize),
    context: *mut c_void,
) {
    // SAFETY: the caller's promise.
    let dna = unsafe { std::slice::from_raw_parts(dna, len) };
    if let Ok(Some(wasm)) = catch_unwind(|| module(dna, sort)) {
        // SAFETY: the caller's promise.
        unsafe { take(context, wasm.as_ptr(), wasm.len()) };
    }
}

fn module(dna: &[u8], sort: u32) -> Option<Vec<u8>> {
    let mut module = Module::new(config(sort), &mut Unstructured::new(dna)).ok()?;
    module.ensure_termination(FUEL).ok()?;
    Some(module.to_bytes())
}

fn config(sort: u32) -> Config {
    let carried = sort == 1;
    let mut config = Config {
        available_imports: wat::parse_str(HOST).ok(),
        export_everything: true,
        canonicalize_nans: true,
        max_imports: 4,
        max_types: 20,
        max_funcs: 12,
        max_globals: 12,
        max_tables: 3,
        max_memories: 3,
        max_tags: 4,
        max_data_segments: 12,
        max_element_segments: 12,
        max_memory32_bytes: MAX_MEMORY,
        max_memory64_bytes: MAX_MEMORY.into(),
        max_table_elements: MAX_ELEMENTS,
        memory_max_size_required: true,
        table_max_size_required: true,
        min_funcs: 1,
        threads_enabled: false,
        compact_imports_enabled: false,
        gc_enabled: !carried,
        exceptions_enabled: !carried,
        custom_page_sizes_enabled: true,
        wide_arithmetic_enabled: true,
        ..Config::default()
    };
    config.min_memories = u32::from(carried);
    config
}

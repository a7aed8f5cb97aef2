//! Instances over Wasmtime's own pool, as well set up as its options allow: copy-on-write images,
//! warm slots, and each way that it can reset a memory.

use std::time::{Duration, Instant};

use wasmtime::{Enabled, Engine, InstanceAllocationStrategy, InstancePre, Module};
use wasmtime::{PoolingAllocationConfig, Result};

use crate::arguments::Arguments;
use crate::request::{self, Files, Site, State};
use crate::{Named, Row};

/// One request is served at a time; the rest keeps the pool from ever being the limit.
const SLOTS: u32 = 16;

const MAX_MEMORY: usize = 256 << 20;
const KEEP_RESIDENT: usize = 64 << 20;

/// More than any table of a guest needs.
const TABLE_ELEMENTS: usize = 50_000;

/// A snapshot has thousands of data segments, and an instance a few bytes for each.
const INSTANCE_SIZE: usize = 8 << 20;

/// Wasmtime makes no image of a memory that would hold more than this; here it always should.
const IMAGE_LIMIT: u64 = 1 << 40;

/// How the pool resets a memory.
struct Reset {
    name: &'static str,
    keep_resident: usize,
    pagemap_scan: bool,
}

const RESETS: [Reset; 3] = [
    Reset { name: "keep_resident 0", keep_resident: 0, pagemap_scan: false },
    Reset { name: "keep_resident 64 MiB", keep_resident: KEEP_RESIDENT, pagemap_scan: false },
    Reset {
        name: "keep_resident 64 MiB, pagemap_scan",
        keep_resident: KEEP_RESIDENT,
        pagemap_scan: true,
    },
];

const FILES: [(&str, Files); 2] =
    [("WASI as ours", Files::Direct), ("WASI's defaults", Files::Default)];

/// A row for each reset that this system can do, with either way to call files.
pub fn rows(arguments: &Arguments) -> Result<Vec<Named>> {
    let code = compile(&std::fs::read(&arguments.module)?)?;
    let scan = PoolingAllocationConfig::is_pagemap_scan_available();
    let mut rows = Vec::new();
    for reset in RESETS.iter().filter(|reset| scan || !reset.pagemap_scan) {
        let engine = engine(reset)?;
        // SAFETY: these are the bytes that the same Wasmtime serialized just now.
        let module = unsafe { Module::deserialize(&engine, &code) }?;
        let pre = request::linker(&engine)?.instantiate_pre(&module)?;
        rows.extend(FILES.iter().map(|(name, files)| {
            let row = Stock { pre: pre.clone(), site: Site::new(arguments, *files) };
            Named { name: format!("{}, {name}", reset.name), row: Box::new(row) }
        }));
    }
    Ok(rows)
}

/// The pools differ in their reset only, so the code is made once.
fn compile(wasm: &[u8]) -> Result<Vec<u8>> {
    Module::new(&engine(&RESETS[0])?, wasm)?.serialize()
}

fn engine(reset: &Reset) -> Result<Engine> {
    let mut pool = PoolingAllocationConfig::default();
    pool.total_memories(SLOTS)
        .total_core_instances(SLOTS)
        .total_tables(SLOTS)
        .table_elements(TABLE_ELEMENTS)
        .max_core_instance_size(INSTANCE_SIZE)
        .max_memory_size(MAX_MEMORY)
        .linear_memory_keep_resident(reset.keep_resident)
        .table_keep_resident(TABLE_ELEMENTS * size_of::<usize>())
        .pagemap_scan(if reset.pagemap_scan { Enabled::Yes } else { Enabled::No });
    let mut config = request::config();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .memory_init_cow(true)
        .memory_guaranteed_dense_image_size(IMAGE_LIMIT);
    Engine::new(&config)
}

struct Stock {
    pre: InstancePre<State>,
    site: Site,
}

impl Row for Stock {
    fn request(&mut self) -> Result<Duration> {
        let start = Instant::now();
        let mut store = self.site.store(self.pre.module().engine())?;
        let instance = self.pre.instantiate(&mut store)?;
        self.site.handle(&mut store, &instance)?;
        let result = store.data_mut().take_result();
        drop(store);
        let duration = start.elapsed();
        self.site.check(&result)?;
        Ok(duration)
    }
}

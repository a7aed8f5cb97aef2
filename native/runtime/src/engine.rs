//! Engines by option set: one engine per distinct set, shared while a module of it lives.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use wasmtime::Config;

use crate::counts::{Live, Object};
use crate::error::{Class, Error, Kind, Result};
use crate::memory::{self, Pool};
#[cfg(feature = "compiler")]
use crate::options::OptLevel;
use crate::options::{Allocator, CompileOptions, Proposal};
use crate::stack::Stacks;

/// Engines alive at once, at most.
pub const MAX_ENGINES: usize = 32;

/// Bytes of stack a guest may use: deep recursion in C guests ends in their own error, not in a trap.
const WASM_STACK: usize = 1 << 20;

/// Bytes of a fiber's stack: the guest's share and what host functions need on top.
const FIBER_STACK: usize = 2 << 20;

/// An engine with the pool that its memories come from.
pub struct Engine {
    wasmtime: wasmtime::Engine,
    options: CompileOptions,
    pool: Arc<Pool>,
    _live: Live,
}

static ENGINES: Mutex<Option<HashMap<CompileOptions, Weak<Engine>>>> = Mutex::new(None);

impl Engine {
    /// The engine of an option set.
    ///
    /// # Errors
    /// `too_many_configurations`, `pool_too_large`, and `badarg` for proposals that do not go together.
    pub fn get(options: &CompileOptions) -> Result<Arc<Self>> {
        let mut engines = ENGINES.lock();
        let engines = engines.get_or_insert_default();
        if let Some(engine) = engines.get(options).and_then(Weak::upgrade) {
            return Ok(engine);
        }
        engines.retain(|_, engine| engine.strong_count() > 0);
        if engines.len() >= MAX_ENGINES {
            let message = format!(
                "{MAX_ENGINES} sets of compile options are in use by modules that are referred to"
            );
            return Err(Error::new(Class::Compile, Kind::TooManyConfigurations, message));
        }
        let engine = Arc::new(Engine::new(options)?);
        engines.insert(options.clone(), Arc::downgrade(&engine));
        Ok(engine)
    }

    /// Bumps the epoch of every engine. Never waits: an engine that is just being made has no guest.
    pub(crate) fn bump_all() {
        let Some(engines) = ENGINES.try_lock() else { return };
        for engine in engines.iter().flat_map(HashMap::values).filter_map(Weak::upgrade) {
            engine.wasmtime.increment_epoch();
        }
    }

    fn new(options: &CompileOptions) -> Result<Self> {
        let wasmtime = wasmtime::Engine::new(&config(options)).map_err(|error| {
            Error::option(Class::Compile, "proposals", error.root_cause().to_string())
        })?;
        let pool = match &options.allocator {
            Allocator::OnDemand => Pool::on_demand(),
            Allocator::Pooling(pool) => Pool::pooled(pool)?,
        };
        Ok(Engine { wasmtime, options: options.clone(), pool, _live: Live::new(Object::Engine) })
    }

    pub fn wasmtime(&self) -> &wasmtime::Engine {
        &self.wasmtime
    }

    pub fn options(&self) -> &CompileOptions {
        &self.options
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

fn config(options: &CompileOptions) -> Config {
    let mut config = Config::new();
    memory::configure(&mut config);
    config
        .epoch_interruption(true)
        .consume_fuel(options.fuel)
        .max_wasm_stack(WASM_STACK)
        .async_stack_size(FIBER_STACK)
        .with_host_stack(Arc::new(Stacks::default()))
        .concurrency_support(false)
        .wasm_component_model(false);
    #[cfg(feature = "compiler")]
    config.cranelift_opt_level(opt_level(options.opt_level));
    for (proposal, enable) in &options.proposals {
        propose(&mut config, *proposal, *enable);
    }
    config
}

#[cfg(feature = "compiler")]
fn opt_level(level: OptLevel) -> wasmtime::OptLevel {
    match level {
        OptLevel::None => wasmtime::OptLevel::None,
        OptLevel::Speed => wasmtime::OptLevel::Speed,
        OptLevel::SpeedAndSize => wasmtime::OptLevel::SpeedAndSize,
    }
}

fn propose(config: &mut Config, proposal: Proposal, enable: bool) {
    match proposal {
        Proposal::Simd => config.wasm_simd(enable),
        Proposal::RelaxedSimd => config.wasm_relaxed_simd(enable),
        Proposal::RelaxedSimdDeterministic => config.relaxed_simd_deterministic(enable),
        Proposal::BulkMemory => config.wasm_bulk_memory(enable),
        Proposal::MultiValue => config.wasm_multi_value(enable),
        Proposal::MultiMemory => config.wasm_multi_memory(enable),
        Proposal::Memory64 => config.wasm_memory64(enable),
        Proposal::TailCall => config.wasm_tail_call(enable),
        Proposal::WideArithmetic => config.wasm_wide_arithmetic(enable),
        Proposal::CustomPageSizes => config.wasm_custom_page_sizes(enable),
        Proposal::Threads => config.wasm_threads(enable).shared_memory(enable),
        Proposal::ReferenceTypes => config.wasm_reference_types(enable),
        Proposal::FunctionReferences => config.wasm_function_references(enable),
        Proposal::Gc => config.wasm_gc(enable),
        Proposal::Exceptions => config.wasm_exceptions(enable),
    };
}

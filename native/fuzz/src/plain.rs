//! Plain Wasmtime: its own memories, its own initialization, nothing asynchronous. What it does is
//! right by definition.

use std::sync::OnceLock;

use wasmtime::{
    Config, Engine, Extern, ExternType, GcHeapOutOfMemory, Instance, Linker, Module, OptLevel,
    Store, StoreLimits, StoreLimitsBuilder, ThrownException, Trap, Val,
};
use wasmtime_beam::module::Module as Ours;
use wasmtime_beam::value::{Type, Value};
use xxhash_rust::xxh3::xxh3_64;

use crate::host::{answer, told};

/// Bytes of a memory, at most, on both sides.
pub const MAX_MEMORY: u64 = 16 << 20;

/// What a call gave: results as both sides can tell them, or why it failed.
pub type Outcome = Result<Vec<String>, String>;

/// An instance.
pub struct Plain {
    store: Store<StoreLimits>,
    instance: Instance,
}

/// The engine: like ours in what can be observed.
pub fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let mut config = Config::new();
        config.wasm_function_references(true).wasm_gc(true).wasm_exceptions(true);
        config.wasm_wide_arithmetic(true).wasm_custom_page_sizes(true).wasm_memory64(true);
        config.relaxed_simd_deterministic(true).wasm_component_model(false);
        config.consume_fuel(true).epoch_interruption(true).max_wasm_stack(1 << 20);
        config.cranelift_opt_level(OptLevel::None);
        Engine::new(&config).expect("an engine")
    })
}

/// The module, if plain Wasmtime takes it.
pub fn compile(wasm: &[u8]) -> wasmtime::Result<Module> {
    Module::new(engine(), wasm)
}

impl Plain {
    /// An instance, or why there is none.
    pub fn new(module: &Module) -> Result<Self, String> {
        let limits = StoreLimitsBuilder::new().memory_size(MAX_MEMORY as usize).build();
        let mut store = Store::new(engine(), limits);
        store.limiter(|limits| limits);
        store.set_epoch_deadline(u64::MAX / 2);
        store.set_fuel(u64::MAX).map_err(|error| error.to_string())?;
        let mut linker = Linker::new(engine());
        for import in module.imports() {
            let ExternType::Func(ty) = import.ty() else { return Err("an import".into()) };
            let name = import.name().to_owned();
            let results: Vec<Type> = ty.results().map(|ty| Type::of(&ty)).collect();
            let serve =
                move |_: wasmtime::Caller<'_, StoreLimits>, args: &[Val], into: &mut [Val]| {
                    let args: Option<Vec<Value>> = args.iter().map(Value::of_number).collect();
                    let values = answer(&name, &args.unwrap_or_default(), &results);
                    let values = values.iter().filter_map(Value::to_number);
                    into.iter_mut().zip(values).for_each(|(into, value)| *into = value);
                    Ok(())
                };
            linker.allow_shadowing(true);
            let linked = linker.func_new(import.module(), import.name(), ty, serve);
            linked.map_err(|error| error.to_string())?;
        }
        let instance = linker.instantiate(&mut store, module).map_err(|error| failure(&error))?;
        Ok(Plain { store, instance })
    }

    /// Calls an export with so much fuel.
    pub fn call(&mut self, name: &str, args: &[Value], fuel: u64) -> Outcome {
        let function = self.instance.get_func(&mut self.store, name).expect("an export");
        let ty = function.ty(&self.store);
        let pairs = ty.params().zip(args);
        let args: Vec<Val> = pairs
            .map(|(ty, arg)| arg.to_number().or_else(|| Val::default_for_ty(&ty)).expect("a value"))
            .collect();
        let mut results = vec![Val::I32(0); ty.results().len()];
        self.store.set_fuel(fuel).expect("fuel");
        match function.call(&mut self.store, &args, &mut results) {
            Ok(()) => Ok(results.iter().map(|val| self.tell(val)).collect()),
            Err(error) => {
                if error.is::<ThrownException>() {
                    self.store.take_pending_exception();
                }
                Err(failure(&error))
            }
        }
    }

    /// The fuel that is left.
    pub fn fuel(&self) -> u64 {
        self.store.get_fuel().unwrap_or(0)
    }

    /// All that its exports show, by the exports of our module.
    pub fn state(&mut self, exports: &Ours) -> Vec<String> {
        let names: Vec<String> = exports.exports().into_iter().map(|export| export.name).collect();
        names
            .into_iter()
            .filter_map(|name| Some(format!("{name} {}", self.export(&name)?)))
            .collect()
    }

    fn export(&mut self, name: &str) -> Option<String> {
        match self.instance.get_export(&mut self.store, name)? {
            Extern::Memory(memory) => {
                let bytes = memory.data(&self.store);
                Some(memory_state(memory.size(&self.store), bytes))
            }
            Extern::Global(global) => {
                let val = global.get(&mut self.store);
                Some(self.tell(&val))
            }
            Extern::Table(table) => {
                let size = table.size(&self.store);
                let null =
                    |at| table.get(&mut self.store, at).is_some_and(|element| element.is_null());
                Some(table_state(&(0..size).map(null).collect::<Vec<_>>()))
            }
            _ => None,
        }
    }

    fn tell(&mut self, val: &Val) -> String {
        if let Some(number) = Value::of_number(val) {
            return told(&[number]).concat();
        }
        let store = &self.store;
        match val {
            Val::AnyRef(Some(any)) => match any.as_i31(store).ok().flatten() {
                Some(number) => told(&[Value::I31(number.get_i32())]).concat(),
                None if any.is_struct(store).unwrap_or(false) => "struct".into(),
                None if any.is_array(store).unwrap_or(false) => "array".into(),
                None => "anyref".into(),
            },
            Val::FuncRef(Some(_)) => "funcref".into(),
            Val::ExternRef(Some(_)) => "externref".into(),
            Val::ExnRef(Some(_)) => "exnref".into(),
            _ => told(&[Value::Null]).concat(),
        }
    }
}

/// A memory: its size in pages of its own, and its bytes.
pub fn memory_state(pages: u64, bytes: &[u8]) -> String {
    format!("{pages} pages, {} bytes, {:016x}", bytes.len(), xxh3_64(bytes))
}

/// A table: which elements are null.
pub fn table_state(nulls: &[bool]) -> String {
    let bytes: Vec<u8> = nulls.iter().map(|null| u8::from(*null)).collect();
    format!("{} elements, {:016x}", nulls.len(), xxh3_64(&bytes))
}

/// Why something failed, by the names that users see.
fn failure(error: &wasmtime::Error) -> String {
    if let Some(trap) = error.downcast_ref::<Trap>() {
        return wasmtime_beam::trap::kind(*trap).as_str().into();
    }
    let other = match () {
        _ if error.is::<ThrownException>() => "uncaught_exception",
        _ if error.is::<GcHeapOutOfMemory<()>>() => "limit",
        _ => "another",
    };
    other.into()
}

//! The harness: an instance that is called step by step, and a run of pre-initialization.

use std::sync::OnceLock;

use wasmtime::{
    Config, Engine, Extern, Instance, Linker, Module, OptLevel, Ref, Store, Trap, Val, ValType,
};
use wasmtime_beam::error::{Error, Kind};
use wasmtime_beam::preinit::{SnapshotOptions, instrument};

/// What a call gave: the bits of its results, or why it trapped.
pub type Outcome = Result<Vec<String>, String>;

/// An instance with the host function `env.double`, in plain Wasmtime.
pub struct Guest {
    pub store: Store<()>,
    pub instance: Instance,
}

/// Plain Wasmtime with all that modules may use, which compiles without effort: most code runs once.
pub fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let mut config = Config::new();
        config.wasm_function_references(true).wasm_exceptions(true).wasm_memory64(true);
        config.wasm_multi_memory(true).wasm_tail_call(true).wasm_threads(true);
        config.wasm_wide_arithmetic(true).wasm_custom_page_sizes(true);
        config.cranelift_opt_level(OptLevel::None).memory_reservation(1 << 24);
        Engine::new(&config).expect("an engine")
    })
}

impl Guest {
    pub fn new(wasm: &[u8]) -> Self {
        let engine = engine();
        let module = Module::new(engine, wasm).expect("the module loads");
        let mut linker = Linker::new(engine);
        linker.func_wrap("env", "double", |x: i32| x.wrapping_mul(2)).expect("linked");
        let mut store = Store::new(engine, ());
        let instance = linker.instantiate(&mut store, &module).expect("instantiated");
        Guest { store, instance }
    }

    pub fn call(&mut self, name: &str, args: &[i64]) -> Outcome {
        let function = self.instance.get_func(&mut self.store, name).expect(name);
        let ty = function.ty(&self.store);
        let args: Vec<Val> = ty.params().zip(args).map(|(ty, arg)| value(&ty, *arg)).collect();
        let mut results = vec![Val::I32(0); ty.results().len()];
        match function.call(&mut self.store, &args, &mut results) {
            Ok(()) => Ok(results.iter().map(bits).collect()),
            Err(error) => Err(match error.downcast_ref::<Trap>() {
                Some(trap) => format!("{trap:?}"),
                None => format!("{error:#}"),
            }),
        }
    }

    /// The exported memory's bytes.
    pub fn memory(&mut self, name: &str) -> Vec<u8> {
        let memory = self.instance.get_memory(&mut self.store, name).expect(name);
        memory.data(&self.store).to_vec()
    }

    pub fn table_set(&mut self, name: &str, at: u64, value: Ref) {
        let table = self.instance.get_table(&mut self.store, name).expect(name);
        table.set(&mut self.store, at, value).expect("set");
    }

    /// What a table holds: functions by the first of `names` that exports them.
    pub fn table(&mut self, name: &str, names: &[String]) -> Vec<String> {
        let Guest { store, instance } = self;
        let named: Vec<_> = names
            .iter()
            .map(|name| {
                (name, instance.get_func(&mut *store, name).expect(name).to_raw(&mut *store))
            })
            .collect();
        let table = instance.get_table(&mut *store, name).expect(name);
        let size = table.size(&*store);
        let holds = |at| match table.get(&mut *store, at).expect("in bounds") {
            Ref::Func(Some(function)) => {
                let raw = function.to_raw(&mut *store);
                let known = named.iter().find(|(_, known)| *known == raw);
                known.map_or("a function".into(), |(name, _)| (*name).clone())
            }
            other => format!("null {}", other.is_null()),
        };
        (0..size).map(holds).collect()
    }

    pub fn global(&mut self, name: &str) -> Vec<String> {
        let global = self.instance.get_global(&mut self.store, name).expect(name);
        vec![bits(&global.get(&mut self.store))]
    }

    pub fn export(&mut self, name: &str) -> Option<Extern> {
        self.instance.get_export(&mut self.store, name)
    }
}

fn value(ty: &ValType, arg: i64) -> Val {
    match ty {
        ValType::I32 => Val::I32(arg as i32),
        ValType::I64 => Val::I64(arg),
        other => panic!("no argument of type {other}"),
    }
}

fn bits(value: &Val) -> String {
    match value {
        Val::F32(bits) => format!("f32 {bits:08x}"),
        Val::F64(bits) => format!("f64 {bits:016x}"),
        Val::V128(bits) => format!("v128 {:032x}", bits.as_u128()),
        Val::FuncRef(f) => format!("func {}", f.is_some()),
        Val::ExternRef(e) => format!("extern {}", e.is_some()),
        other => format!("{other:?}"),
    }
}

pub fn wasm(wat: &str) -> Vec<u8> {
    wat::parse_str(wat).unwrap_or_else(|e| panic!("{e}\n{wat}"))
}

pub fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

pub fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("runtime").block_on(future)
}

/// Runs `init` in the instrumented module and takes the snapshot.
pub fn preinit_with(
    module: &[u8],
    options: &SnapshotOptions,
    init: impl FnOnce(&mut Guest),
) -> Result<Vec<u8>, Error> {
    let instrumented = instrument(module)?;
    let mut guest = Guest::new(instrumented.wasm());
    init(&mut guest);
    let Guest { mut store, instance } = guest;
    block_on(instrumented.snapshot(&mut store, &instance, options))
}

/// The same for a list of exports that are called, as `preinit/3` does it.
pub fn preinit(module: &[u8], init: &[&str]) -> Result<Vec<u8>, Error> {
    let options = SnapshotOptions { ran: names(init), remove_exports: Vec::new() };
    preinit_with(module, &options, |guest| {
        for name in init {
            guest.call(name, &[]).expect(name);
        }
    })
}

/// A module in two lives: the original after its init calls, and a fresh instance of its snapshot.
pub struct Pair {
    pub original: Guest,
    pub result: Guest,
    pub wasm: Vec<u8>,
}

impl Pair {
    pub fn new(wat: &str, init: &[&str]) -> Self {
        let module = wasm(wat);
        let result = preinit(&module, init).unwrap_or_else(|e| panic!("{e}\n{wat}"));
        let mut original = Guest::new(&module);
        for name in init {
            original.call(name, &[]).expect(name);
        }
        Pair { original, result: Guest::new(&result), wasm: result }
    }

    /// Calls both and returns what both gave.
    pub fn same(&mut self, name: &str, args: &[i64]) -> Outcome {
        let (original, result) = (self.original.call(name, args), self.result.call(name, args));
        assert_eq!(original, result, "{name}{args:?} differs");
        result
    }

    /// The one result of a call that both gave.
    pub fn gives(&mut self, name: &str, args: &[i64], expected: &str) {
        assert_eq!(self.same(name, args), Ok(vec![expected.to_owned()]), "{name}{args:?}");
    }

    pub fn traps(&mut self, name: &str, args: &[i64], expected: &str) {
        assert_eq!(self.same(name, args), Err(expected.to_owned()), "{name}{args:?}");
    }
}

/// Exports of a module, by name.
pub fn export_names(wasm: &[u8]) -> Vec<String> {
    let module = Module::new(engine(), wasm).expect("the module loads");
    module.exports().map(|e| e.name().to_owned()).collect()
}

pub fn kind(result: Result<impl Sized, Error>) -> (&'static str, Kind, String) {
    match result {
        Ok(_) => panic!("this was not refused"),
        Err(error) => (error.class.as_str(), error.kind, error.message),
    }
}

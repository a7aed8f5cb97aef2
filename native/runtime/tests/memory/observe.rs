//! What can be seen of a module, as it was and with its segments moved into images.

use crate::support::*;
use std::borrow::Cow;
use wasmtime::{Engine, Extern, Instance, Module, Store, Trap, Val};
use wasmtime_beam::memory::{Extracted, Pool, extract};

/// What can be observed of an instance: how instantiation went, the exported memories, and what
/// each exported function without parameters answers.
#[derive(Debug, PartialEq)]
pub struct Observed {
    failed: Option<String>,
    memories: Vec<(String, Vec<u8>)>,
    calls: Vec<(String, Result<Vec<String>, String>)>,
    /// The imported memory and what a function that got into the imported table answers.
    outside: (Vec<u8>, Option<String>),
}

pub fn test_engine() -> Engine {
    engine(|config| {
        config
            .wasm_memory64(true)
            .wasm_multi_memory(true)
            .wasm_gc(true)
            .wasm_custom_page_sizes(true);
        config.wasm_function_references(true);
        config.wasm_threads(true).shared_memory(true);
    })
}

pub fn describe(error: &wasmtime::Error) -> String {
    match error.downcast_ref::<Trap>() {
        Some(trap) => format!("{trap:?}"),
        None => error.to_string(),
    }
}

/// Instantiates with whatever is imported: a memory, a table, a global, made by the host.
pub fn observe(engine: &Engine, wasm: &[u8], offer: impl FnOnce(&mut dyn FnMut())) -> Observed {
    let module = Module::new(engine, wasm).unwrap();
    let mut store = Store::new(engine, ());
    let imports: Vec<Extern> = module
        .imports()
        .map(|import| match import.ty() {
            wasmtime::ExternType::Memory(ty) => {
                wasmtime::Memory::new(&mut store, ty).unwrap().into()
            }
            wasmtime::ExternType::Table(ty) => {
                wasmtime::Table::new(&mut store, ty, wasmtime::Ref::Func(None)).unwrap().into()
            }
            wasmtime::ExternType::Global(ty) => {
                wasmtime::Global::new(&mut store, ty, Val::I32(16)).unwrap().into()
            }
            other => panic!("no import of {other:?}"),
        })
        .collect();
    let mut instance = None;
    offer(&mut || instance = Some(Instance::new(&mut store, &module, &imports)));
    let instance = instance.unwrap();
    let mut observed = Observed {
        failed: instance.as_ref().err().map(describe),
        memories: Vec::new(),
        calls: Vec::new(),
        outside: outside(&mut store, &imports),
    };
    let Ok(instance) = instance else { return observed };
    let exports: Vec<_> =
        instance.exports(&mut store).map(|e| (e.name().to_string(), e.into_extern())).collect();
    for (name, export) in exports {
        match export {
            Extern::Func(func) => {
                let mut results = vec![Val::I32(0); func.ty(&store).results().len()];
                let answer = func.call(&mut store, &[], &mut results);
                let answer = answer.map(|()| results.iter().map(|v| format!("{v:?}")).collect());
                observed.calls.push((name, answer.map_err(|e| describe(&e))));
            }
            Extern::Memory(memory) => observed.memories.push((name, memory.data(&store).to_vec())),
            _ => {}
        }
    }
    observed
}

pub fn outside(store: &mut Store<()>, imports: &[Extern]) -> (Vec<u8>, Option<String>) {
    let (mut bytes, mut answer) = (Vec::new(), None);
    for import in imports {
        match import {
            Extern::Memory(memory) => bytes = memory.data(&*store).to_vec(),
            Extern::Table(table) => {
                if let Some(wasmtime::Ref::Func(Some(func))) = table.get(&mut *store, 0) {
                    let mut result = [Val::I32(0)];
                    let called = func.call(&mut *store, &[], &mut result);
                    answer =
                        Some(format!("{:?}", called.map(|()| result).map_err(|e| describe(&e))));
                }
            }
            _ => {}
        }
    }
    (bytes, answer)
}

/// The module and its extraction are the same to see, twice on the same slots.
pub fn same(wat: &str) -> Extracted<'static> {
    println!("{wat}");
    same_wasm(&wat::parse_str(wat).unwrap())
}

pub fn same_wasm(wasm: &[u8]) -> Extracted<'static> {
    let engine = test_engine();
    let plain = observe(&engine, wasm, |instantiate| instantiate());
    let extracted = extract(wasm).unwrap();
    let plans: Vec<_> = extracted.memories.iter().map(|data| data.plan().unwrap()).collect();
    let pool = Pool::pooled(&options(plans.len() as u32, 256 << 20)).unwrap();
    for _ in 0..2 {
        let restored = observe(&engine, &extracted.wasm, |instantiate| {
            let ((), permit) = pool.acquire(&plans, 0).unwrap().offer(instantiate);
            assert_eq!(permit.unclaimed(), 0);
        });
        assert_eq!(restored, plain);
    }
    assert_eq!(pool.info().verify_failures, 0);
    Extracted { wasm: Cow::Owned(extracted.wasm.into_owned()), memories: extracted.memories }
}

pub fn segments(wasm: &[u8]) -> Option<u32> {
    wasmparser::Parser::new(0).parse_all(wasm).find_map(|payload| match payload.unwrap() {
        wasmparser::Payload::DataSection(section) => Some(section.count()),
        _ => None,
    })
}

pub fn has_data_count(wasm: &[u8]) -> bool {
    let mut payloads = wasmparser::Parser::new(0).parse_all(wasm);
    payloads.any(|p| matches!(p.unwrap(), wasmparser::Payload::DataCountSection { .. }))
}

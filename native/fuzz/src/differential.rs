//! The same calls of the same module, by plain Wasmtime and by a guest of ours, twice: the second
//! guest gets the memory that the first one left. Results, traps, fuel, and all that exports show are
//! the same.

use wasmtime_beam::Kind;
use wasmtime_beam::module::{ExternKind, Module};
use wasmtime_beam::value::{Type, Value};

use crate::host::value;
use crate::input::{Choices, Input};
use crate::ours::{self, Ours, options};
use crate::plain::{self, Plain};
use crate::smith::Sort;

/// Fuel of a call.
const FUEL: u64 = 20_000;

/// Calls of an instance, at most.
const CALLS: usize = 12;

pub fn run(data: &[u8]) {
    let Some(input) = Input::of(data, Sort::Any) else { return };
    let Some((ours, plain)) = compile(&input.wasm) else { return };
    // Nothing would end a start section that does not end.
    if ours.facts().has_start && !input.ends {
        return;
    }
    for _ in 0..2 {
        compare(&ours, &plain, &mut input.choices());
    }
}

/// The module on both sides, or neither takes it.
pub fn compile(wasm: &[u8]) -> Option<(Module, wasmtime::Module)> {
    match (Module::compile(wasm, &options(true)), plain::compile(wasm)) {
        (Ok(ours), Ok(plain)) => Some((ours, plain)),
        (Err(_), Err(_)) => None,
        (Err(error), Ok(_)) => {
            // Shared memories that were not asked for, waits on them, and what takes the compiler long.
            let unasked = error.key == Some("proposals");
            assert!(unasked || error.kind == Kind::Unsupported, "{error}");
            None
        }
        (Ok(_), Err(error)) => panic!("only Wasmtime refuses this module: {error:#}"),
    }
}

fn compare(module: &Module, plain: &wasmtime::Module, choices: &mut Choices<'_>) {
    let (ours, mut plain) = match (Ours::new(module), Plain::new(plain)) {
        (Ok(ours), Ok(plain)) => (ours, plain),
        (Err(error), Err(expected)) => {
            let failure = ours::failure(&error);
            assert!(failure == expected || failure == "another", "{error}: not {expected}");
            return;
        }
        (Err(error), Ok(_)) => {
            // The host serves functions only.
            assert!(is_import(error.kind), "only ours is not made: {error}");
            return;
        }
        (Ok(_), Err(failure)) => panic!("only Wasmtime does not make this instance: {failure}"),
    };
    assert_eq!(ours.state(), plain.state(module), "at first");
    for (name, args) in calls(module, choices) {
        same(&ours, &mut plain, &name, &args);
        assert_eq!(ours.state(), plain.state(module), "after {name}");
    }
    ours.destroy();
    crate::reached();
}

fn is_import(kind: Kind) -> bool {
    matches!(kind, Kind::UnknownImport | Kind::UnsupportedImport | Kind::IncompatibleImport)
}

/// Compares a call.
fn same(ours: &Ours, plain: &mut Plain, name: &str, args: &[Value]) {
    let (got, wanted) = (ours.call(name, args, Some(FUEL)), plain.call(name, args, FUEL));
    assert_eq!(got, wanted, "{name}{args:?}");
    assert_eq!(ours.fuel(), plain.fuel(), "fuel after {name}{args:?}");
}

/// Calls of exported functions, with values for their parameters.
pub fn calls(module: &Module, choices: &mut Choices<'_>) -> Vec<(String, Vec<Value>)> {
    let exports = module.exports().into_iter().filter(|export| export.kind == ExternKind::Func);
    let names: Vec<String> = exports.map(|export| export.name).collect();
    let mut calls = Vec::new();
    for at in 0..if names.is_empty() { 0 } else { CALLS } {
        // Each once, as far as there are choices; then any.
        let name = if at < names.len() / 2 { at } else { choices.below(names.len()) };
        let args = module.function(&names[name]).ok();
        let args = args.and_then(|function| arguments(&function.signature.params, choices));
        calls.extend(args.map(|args| (names[name].clone(), args)));
    }
    calls
}

/// Values for these types, if there are some without an instance.
fn arguments(types: &[Type], choices: &mut Choices<'_>) -> Option<Vec<Value>> {
    let argument = |ty: &Type| {
        let value = value(ty, choices.bits());
        value.may_be(ty).then_some(value)
    };
    types.iter().map(argument).collect()
}

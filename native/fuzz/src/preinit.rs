//! Pre-initialization of arbitrary modules: what is refused is refused as such, and a snapshot goes
//! on as the module, after the same calls, would.

use wasmtime_beam::error::{Class, Kind};
use wasmtime_beam::module::Module;
use wasmtime_beam::preinit::{Instrumented, SnapshotOptions, instrument};
use wasmtime_beam::value::Value;

use crate::differential::{calls, compile};
use crate::input::Input;
use crate::ours::{Ours, options};
use crate::plain::Plain;
use crate::smith::Sort;

/// Fuel of a call.
const FUEL: u64 = 20_000;

type Call = (String, Vec<Value>);

pub fn run(data: &[u8]) {
    let Some(input) = Input::of(data, Sort::Carried) else { return };
    let instrumented = match instrument(&input.wasm) {
        Ok(instrumented) => instrumented,
        Err(error) => {
            let meant = error.class == Class::Preinit && error.kind != Kind::Internal;
            return assert!(meant, "{error}");
        }
    };
    let Some((module, plain)) = compile(&input.wasm) else { return };
    if module.facts().has_start && !input.ends {
        return;
    }
    let mut choices = input.choices();
    let init = calls(&module, &mut choices);
    let Some(snapshot) = snapshot(&instrumented, &init) else { return };
    let then = calls(&module, &mut choices);
    let (result, result_plain) = compile(&snapshot).expect("a module that compiles");
    assert!(!result.facts().has_start);
    same(&plain, &result_plain, &module, &init, &then);
    // Once more through images and slots.
    let (ours, mut plain) = match (Ours::new(&result), Plain::new(&result_plain)) {
        (Ok(ours), Ok(plain)) => (ours, plain),
        (ours, plain) => panic!("{:?} {:?}", ours.err(), plain.err()),
    };
    assert_eq!(ours.state_of(&module), plain.state(&module));
    ours.destroy();
    crate::reached();
}

/// The state after the calls as a module; `None` when there is no instance.
fn snapshot(instrumented: &Instrumented, init: &[Call]) -> Option<Vec<u8>> {
    let module = Module::compile(instrumented.wasm(), &options(true));
    let module = module.unwrap_or_else(|error| panic!("the instrumented module: {error}"));
    let guest = Ours::new(&module).ok()?;
    for (name, args) in init {
        let _ = guest.call(name, args, Some(FUEL));
    }
    let ran: Vec<String> = init.iter().map(|(name, _)| name.clone()).collect();
    let keeps = SnapshotOptions { ran: vec![], remove_exports: vec![] };
    assert!(instrumented.check_remove_exports(&ran).is_ok());
    let snapshot = guest.access(|view| Ok(view.snapshot(instrumented, &keeps)));
    guest.destroy();
    match snapshot {
        Ok(wasm) => Some(wasm),
        Err(error) => {
            assert_eq!((error.class, error.kind), (Class::Preinit, Kind::TableChanged), "{error}");
            None
        }
    }
}

/// The original after its init calls and the result cannot be told apart, at once and later.
fn same(
    original: &wasmtime::Module,
    result: &wasmtime::Module,
    exports: &Module,
    init: &[Call],
    then: &[Call],
) {
    let plain = |module| Plain::new(module).unwrap_or_else(|failure| panic!("{failure}"));
    let (mut original, mut result): (Plain, Plain) = (plain(original), plain(result));
    for (name, args) in init {
        let _ = original.call(name, args, FUEL);
    }
    assert_eq!(original.state(exports), result.state(exports), "at once");
    for (name, args) in then {
        let (wanted, got) = (original.call(name, args, FUEL), result.call(name, args, FUEL));
        assert_eq!(wanted, got, "{name}{args:?}");
        assert_eq!(original.state(exports), result.state(exports), "after {name}");
    }
}

//! Several modules in one store: whichever thread polls, each module gets its own memories.

use std::sync::Arc;

use wasmtime_beam::guest::{Destroyed, Guest, Request, Step};
use wasmtime_beam::links::Link;
use wasmtime_beam::module::Module;
use wasmtime_beam::template::Template;
use wasmtime_beam::value::Value;
use wasmtime_beam::{Class, Kind};

use crate::support::{Recorder, call, done, host_call, module_in_own_pool, options, step, submit};

const LINK: &str = r#"(module (import "host" "ask" (func $ask (result i32)))
  (memory (export "m") 1) (data (i32.const 0) "link") (memory 1)
  (func $s (i32.store8 (i32.const 9) (call $ask))) (start $s))"#;

const MAIN: &str = r#"(module (import "a" "m" (memory $a 1)) (import "b" "m" (memory $b 1))
  (memory $own 1) (data (memory $own) (i32.const 0) "main")
  (func (export "bytes") (result i32 i32 i32 i32)
    (i32.load8_u $own (i32.const 0)) (i32.load8_u $a (i32.const 0))
    (i32.load8_u $a (i32.const 9)) (i32.load8_u $b (i32.const 9))))"#;

/// Two links of one module, compiled in the engine of the main module.
fn template(main: &Module) -> Template {
    let wasm = wasmtime_beam::module::parse_wat(LINK.as_bytes()).unwrap();
    let link = Module::compile(&wasm, main.engine().options()).unwrap();
    let links = ["a", "b"].map(|name| Link { name: name.into(), module: link.clone() });
    Template::linked(main, &options(&link), &links).unwrap()
}

fn used(module: &Module) -> u64 {
    module.engine().pool().info().used
}

/// Polls on a thread of its own until the guest asks, and answers.
fn answer_elsewhere(guest: &Arc<Guest>, value: i32) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let asked = host_call(guest);
            guest.control().reply(asked.id, Ok(vec![Value::I32(value)]));
        });
    });
}

/// A start section waits between the modules, and other threads go on with the next one.
#[test]
fn each_module_takes_its_own_memories_on_any_thread() {
    let main = module_in_own_pool(MAIN);
    let template = template(&main);
    for _ in 0..3 {
        let (guest, client) = (Guest::of(&template).unwrap(), Recorder::new());
        assert!(guest.has_start());
        submit(&guest, &client, Request::Instantiate);
        answer_elsewhere(&guest, 5);
        answer_elsewhere(&guest, 6);
        assert_eq!(done(&guest), Ok(vec![]));
        assert_eq!(used(&main), 5);
        submit(&guest, &client, call("bytes", &[]));
        let bytes = [b'm', b'l', 5, 6].map(|byte| Value::I32(byte.into()));
        assert_eq!(done(&guest), Ok(bytes.to_vec()));
        // From here on nobody polls it.
        assert!(matches!(step(&guest), Step::Idle));
        assert_eq!(guest.destroy(), Destroyed::Done);
        assert_eq!(used(&main), 0);
    }
    assert_eq!(main.engine().pool().info().verify_failures, 0);
}

/// An end between two modules gives back what was taken and what was not yet.
#[test]
fn an_end_halfway_leaves_nothing() {
    let main = module_in_own_pool(MAIN);
    let template = template(&main);
    for end in ["interrupt", "destroy", "drop", "never begun"] {
        let (guest, client) = (Guest::of(&template).unwrap(), Recorder::new());
        assert_eq!(used(&main), 5);
        if end != "never begun" {
            submit(&guest, &client, Request::Instantiate);
            answer_elsewhere(&guest, 5);
            host_call(&guest);
        }
        match end {
            "interrupt" => {
                assert!(guest.control().interrupt());
                let error = done(&guest).unwrap_err();
                assert_eq!((error.class, error.kind), (Class::Trap, Kind::Interrupt));
            }
            "destroy" => {
                guest.destroy();
                assert!(done(&guest).is_err());
                while !matches!(crate::support::poll(&guest), Step::Gone) {}
            }
            _ => drop(guest),
        }
        assert_eq!(used(&main), 0, "{end}");
    }
}

/// A pool without room for all of them gives none.
#[test]
fn all_or_nothing() {
    let main = module_in_own_pool(MAIN);
    let template = template(&main);
    let mut guests = Vec::new();
    let refused = loop {
        match Guest::of(&template) {
            Ok(guest) => guests.push(guest),
            Err(error) => break error,
        }
    };
    // 64 memories, five for each.
    assert_eq!(
        (guests.len(), refused.kind, refused.key),
        (12, Kind::PoolExhausted, Some("memories"))
    );
    assert_eq!(used(&main), 60);
    drop(guests);
    assert_eq!(used(&main), 0);
}

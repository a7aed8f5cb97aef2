//! What becomes of exports.

use crate::support::{Guest, export_names, kind, names, preinit, preinit_with, wasm};
use wasmtime_beam::error::Kind;
use wasmtime_beam::preinit::{SnapshotOptions, instrument};

const REACTOR: &str = r#"(module (memory (export "memory") 1) (global $g (mut i32) (i32.const 0))
  (table 1 funcref) (data $d "x")
  (func (export "_initialize") (global.set $g (i32.const 1)))
  (func (export "init") (global.set $g (i32.const 2)) (data.drop $d))
  (func (export "run") (result i32) (global.get $g)))"#;

/// `_initialize` goes when it was one of the calls, and only then; nothing of ours stays.
#[test]
fn initialize_goes_when_it_ran() {
    let module = wasm(REACTOR);
    let with = preinit(&module, &["_initialize", "init"]).unwrap();
    assert_eq!(export_names(&with), ["memory", "init", "run"]);
    let without = preinit(&module, &["init"]).unwrap();
    assert_eq!(export_names(&without), ["memory", "_initialize", "init", "run"]);
}

/// Named exports of any sort are removed; their functions stay callable from inside.
#[test]
fn exports_are_removed() {
    let options =
        SnapshotOptions { ran: names(&["init"]), remove_exports: names(&["init", "memory"]) };
    let result = preinit_with(&wasm(REACTOR), &options, |g| _ = g.call("init", &[])).unwrap();
    assert_eq!(export_names(&result), ["_initialize", "run"]);
    assert_eq!(Guest::new(&result).call("run", &[]).unwrap(), ["I32(2)"]);
}

/// A name that is not exported is an option error that says which, before and after the run.
#[test]
fn unknown_exports_are_refused() {
    let unknown = names(&["run", "rum"]);
    let instrumented = instrument(&wasm(REACTOR)).unwrap();
    let early = instrumented.check_remove_exports(&unknown).unwrap_err();
    let options = SnapshotOptions { ran: vec![], remove_exports: unknown };
    let late = preinit_with(&wasm(REACTOR), &options, |_| ()).unwrap_err();
    assert_eq!(early, late);
    assert_eq!(early.key, Some("remove_exports"));
    let (class, kind, message) = kind(Err::<(), _>(early));
    assert_eq!((class, kind), ("preinit", Kind::Badarg));
    assert!(message.contains("\"rum\""), "{message}");
    assert!(instrumented.check_remove_exports(&names(&["run", "run"])).is_ok());
}

/// A function that code refers to stays declared when the export that declared it goes.
#[test]
fn removed_functions_stay_declared() {
    let module = wasm(
        r#"(module (func $f (export "f") (result i32) (i32.const 8)) (table 1 funcref)
          (func (export "run") (result i32)
            (table.set (i32.const 0) (ref.func $f)) (call_indirect (result i32) (i32.const 0))))"#,
    );
    let options = SnapshotOptions { ran: vec![], remove_exports: names(&["f"]) };
    let result = preinit_with(&module, &options, |_| ()).unwrap();
    assert_eq!(export_names(&result), ["run"]);
    assert_eq!(Guest::new(&result).call("run", &[]).unwrap(), ["I32(8)"]);
}

/// A module may itself use Wizer's names, for exports and for imports.
#[test]
fn names_of_wizer_are_free() {
    let module = wasm(
        r#"(module (memory (export "__wizer_memory_0") 1)
          (global $g (export "__wizer_global_1") (mut i32) (i32.const 0))
          (global $h (export "__wizer_global_0") (mut i64) (i64.const 0))
          (func (export "init") (global.set $g (i32.const 3)) (global.set $h (i64.const 4)))
          (func (export "get") (result i32 i64) (global.get $g) (global.get $h)))"#,
    );
    let result = preinit(&module, &["init"]).unwrap();
    assert_eq!(Guest::new(&result).call("get", &[]).unwrap(), ["I32(3)", "I64(4)"]);
    assert_eq!(export_names(&result).len(), 5);
    let import = wasm(r#"(module (import "__wizer_x" "__wizer_y" (func)) (memory 1))"#);
    assert!(instrument(&import).is_ok());
}

/// A module without exports, or without anything, can be instrumented and snapshotted.
#[test]
fn modules_without_exports() {
    for wat in [
        "(module)",
        "(module (memory 1) (global (mut i32) (i32.const 1)))",
        "(module (memory 1) (func $s (i32.store (i32.const 0) (i32.const 1))) (start $s))",
    ] {
        Guest::new(&preinit(&wasm(wat), &[]).unwrap());
    }
}

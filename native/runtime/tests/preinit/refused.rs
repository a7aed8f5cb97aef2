//! What is refused, by kind; next to each, what is not.

use crate::support::{kind, preinit, wasm};
use wasmtime_beam::error::Kind;
use wasmtime_beam::preinit::instrument;

fn refusal(wat: &str) -> (Kind, String) {
    let (class, kind, message) = kind(instrument(&wasm(wat)));
    assert_eq!(class, "preinit", "{wat}");
    (kind, message)
}

/// Imported state lives outside; imported functions do not count.
#[test]
fn imported_state() {
    for (import, sort) in [
        ("(memory 1)", "a memory"),
        ("(memory 1 2 shared)", "a memory"),
        ("(table 1 funcref)", "a table"),
        ("(global i32)", "a global"),
        ("(global (mut i32))", "a global"),
        ("(tag)", "a tag"),
    ] {
        let (kind, message) = refusal(&format!(r#"(module (import "env" "it" {import}))"#));
        assert_eq!(kind, Kind::UnsupportedImport, "{import}");
        assert!(message.contains("env.it") && message.contains(sort), "{message}");
    }
    assert!(instrument(&wasm(r#"(module (import "env" "it" (func)))"#)).is_ok());
}

/// References in globals that can change, and anything of the GC proposal, cannot be written down.
#[test]
fn types_without_constants() {
    for wat in [
        "(module (global (mut funcref) (ref.null func)))",
        "(module (global (mut externref) (ref.null extern)))",
        "(module (type $f (func)) (global (mut (ref null $f)) (ref.null $f)))",
        "(module (global i31ref (ref.i31 (i32.const 1))))",
        "(module (type (struct (field i32))))",
        "(module (type (array (mut i8))))",
        "(module (type (sub (func))))",
        "(module (table 1 anyref))",
        "(module (elem i31ref (ref.i31 (i32.const 1))))",
    ] {
        assert_eq!(refusal(wat).0, Kind::UnsupportedType, "{wat}");
    }
    for wat in [
        "(module (global funcref (ref.func $f)) (func $f))",
        "(module (global externref (ref.null extern)))",
        "(module (rec (type (func)) (type (func (param i32)))))",
        "(module (table 1 externref) (func (param externref)))",
        "(module (tag (param i32)))",
    ] {
        assert!(instrument(&wasm(wat)).is_ok(), "{wat}");
        assert!(preinit(&wasm(wat), &[]).is_ok(), "{wat}");
    }
}

/// The message says which item it is.
#[test]
fn refusals_name_the_item() {
    let wat = "(module (global i32 (i32.const 0)) (global (mut funcref) (ref.null func)))";
    assert!(refusal(wat).1.contains("global 1"));
    assert!(refusal("(module (memory 1) (memory 1 2 shared))").1.contains("memory 1"));
    assert!(refusal("(module (table 1 funcref) (table 1 anyref))").1.contains("table 1"));
}

/// Shared memories and our own export names.
#[test]
fn unsupported() {
    for wat in [
        "(module (memory 1 2 shared))",
        r#"(module (func (export "__wasmtime_preinit_")))"#,
        r#"(module (memory (export "__wasmtime_preinit_memory") 1))"#,
        "(component)",
    ] {
        assert_eq!(refusal(wat).0, Kind::Unsupported, "{wat}");
    }
    assert!(instrument(&wasm(r#"(module (func (export "__wasmtime_preinit")))"#)).is_ok());
}

/// Bytes that are no module, or no valid one, or cut short anywhere.
#[test]
fn malformed() {
    let valid = wasm(
        r#"(module (memory 1) (data "abc") (table 1 funcref) (elem func $f) (global (mut i32) (i32.const 1))
          (func $f (export "f") (memory.init 0 (i32.const 0) (i32.const 0) (i32.const 1))))"#,
    );
    assert!(instrument(&valid).is_ok());
    // A module may end before its export section and still be valid; one of 8 bytes is empty.
    for end in (0..8).chain(valid.len() - 8..valid.len()) {
        assert_eq!(kind(instrument(&valid[..end])).1, Kind::Malformed, "cut at {end}");
    }
    for bytes in [&b"not wasm at all"[..], b"", b"\0asm\x02\0\0\0", b"(module)"] {
        assert_eq!(kind(instrument(bytes)).1, Kind::Malformed);
    }
    let invalid = wasm("(module (func (result i32) (i64.const 1)))");
    assert_eq!(kind(instrument(&invalid)).1, Kind::Malformed);
}

/// No flip of a byte makes a panic: what still is valid is instrumented to something valid.
#[test]
fn flipped_bytes() {
    let valid = wasm(
        r#"(module (import "a" "b" (func)) (memory 1) (data "abc") (data (i32.const 1) "x")
          (table 3 funcref) (elem func $f) (elem (i32.const 1) $f) (global (mut i64) (i64.const 1))
          (func $f (export "f") (elem.drop 0) (data.drop 0) (table.set (i32.const 0) (ref.func $f))))"#,
    );
    for at in 0..valid.len() {
        for flip in [1, 2, 4, 0x10, 0x40, 0x80, 0xff] {
            let mut bytes = valid.clone();
            bytes[at] ^= flip;
            if let Ok(instrumented) = instrument(&bytes) {
                let mut config = wasmtime::Config::new();
                config.wasm_custom_page_sizes(true).wasm_wide_arithmetic(true);
                let engine = wasmtime::Engine::new(&config).unwrap();
                wasmtime::Module::validate(&engine, instrumented.wasm()).unwrap();
            }
        }
    }
}

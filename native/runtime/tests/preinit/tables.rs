//! Tables that an init call, a start function or the host changed.

use crate::support::{Guest, Pair, kind, preinit_with, wasm};
use wasmtime::{Extern, ExternRef, Func, Ref};
use wasmtime_beam::error::Kind;
use wasmtime_beam::preinit::SnapshotOptions;

/// Sections of a module that are a table's: declared size and segments.
fn element_section(wasm: &[u8]) -> Option<Vec<u8>> {
    wasmparser::Parser::new(0).parse_all(wasm).find_map(|payload| match payload.unwrap() {
        wasmparser::Payload::ElementSection(section) => Some(wasm[section.range()].to_vec()),
        _ => None,
    })
}

const FUNCTIONS: &str = r#"(import "env" "double" (func $double (param i32) (result i32)))
  (type $unary (func (param i32) (result i32)))
  (func $inc (type $unary) (i32.add (local.get 0) (i32.const 1)))
  (func $neg (type $unary) (i32.sub (i32.const 0) (local.get 0)))
  (func $ten (type $unary) (i32.mul (local.get 0) (i32.const 10)))"#;

/// Elements set, replaced and cleared are carried, imported functions too; the table behaves as before.
#[test]
fn elements_are_carried() {
    let mut pair = Pair::new(
        &format!(
            r#"(module {FUNCTIONS} (table $t 8 20 funcref) (elem (i32.const 1) $inc $neg $ten $inc)
              (elem declare func $double)
              (func (export "init")
                (table.set $t (i32.const 0) (ref.func $double)) (table.set $t (i32.const 1) (ref.null func))
                (table.copy $t $t (i32.const 5) (i32.const 2) (i32.const 2)))
              (func (export "call") (param i32 i32) (result i32)
                (call_indirect $t (type $unary) (local.get 1) (local.get 0)))
              (func (export "size") (result i32) (table.size $t))
              (func (export "grow") (param i32) (result i32)
                (table.grow $t (ref.func $double) (local.get 0))))"#
        ),
        &["init"],
    );
    for at in 0..9 {
        pair.same("call", &[at, 7]).ok();
    }
    pair.gives("call", &[0, 7], "I32(14)");
    pair.traps("call", &[1, 7], "IndirectCallToNull");
    pair.gives("call", &[5, 7], "I32(-7)");
    pair.traps("call", &[8, 7], "TableOutOfBounds");
    pair.gives("size", &[], "I32(8)");
    pair.gives("grow", &[12], "I32(8)");
    pair.gives("grow", &[1], "I32(-1)");
}

/// A table that grew keeps its size, its filling and its maximum; null and 64-bit tables too.
#[test]
fn grown_tables_are_carried() {
    let mut pair = Pair::new(
        &format!(
            r#"(module {FUNCTIONS} (table $a 0 funcref) (table $b i64 2 100 funcref) (table $x 1 externref)
              (elem declare func $ten)
              (func (export "init")
                (drop (table.grow $a (ref.func $ten) (i32.const 40)))
                (table.fill $a (i32.const 10) (ref.null func) (i32.const 20))
                (drop (table.grow $b (ref.null func) (i64.const 7)))
                (table.set $b (i64.const 8) (ref.func $ten))
                (drop (table.grow $x (ref.null extern) (i32.const 3))))
              (func (export "a") (param i32) (result i32)
                (call_indirect $a (type $unary) (i32.const 4) (local.get 0)))
              (func (export "b") (param i64) (result i32)
                (call_indirect $b (type $unary) (i32.const 4) (local.get 0)))
              (func (export "sizes") (result i32 i64 i32) (table.size $a) (table.size $b) (table.size $x))
              (func (export "more") (param i64) (result i64) (table.grow $b (ref.null func) (local.get 0))))"#
        ),
        &["init"],
    );
    assert_eq!(pair.same("sizes", &[]).unwrap(), ["I32(40)", "I64(9)", "I32(4)"]);
    for at in 0..41 {
        pair.same("a", &[at]).ok();
        pair.same("b", &[at]).ok();
    }
    pair.gives("b", &[8], "I32(40)");
    pair.gives("more", &[91], "I64(9)");
    pair.gives("more", &[1], "I64(-1)");
}

/// Tables of typed references, with and without null, keep types and contents.
#[test]
fn typed_tables_are_carried() {
    let mut pair = Pair::new(
        &format!(
            r#"(module {FUNCTIONS}
              (table $n 3 (ref null $unary)) (table $r 3 9 (ref $unary) (ref.func $inc))
              (elem declare func $ten $neg)
              (func (export "init")
                (table.set $n (i32.const 2) (ref.func $ten)) (table.set $r (i32.const 1) (ref.func $neg))
                (drop (table.grow $r (ref.func $ten) (i32.const 1))))
              (func (export "n") (param i32) (result i32) (call_ref $unary (i32.const 5) (table.get $n (local.get 0))))
              (func (export "r") (param i32) (result i32) (call_ref $unary (i32.const 5) (table.get $r (local.get 0)))))"#
        ),
        &["init"],
    );
    pair.traps("n", &[0], "NullReference");
    pair.gives("n", &[2], "I32(50)");
    for (at, expected) in [(0, "I32(6)"), (1, "I32(-5)"), (2, "I32(6)"), (3, "I32(50)")] {
        pair.gives("r", &[at], expected);
    }
    pair.traps("r", &[4], "TableOutOfBounds");
}

/// What segments say through a global is not evaluated but overwritten with what is there.
#[test]
fn computed_segments_are_carried() {
    let mut pair = Pair::new(
        &format!(
            r#"(module {FUNCTIONS} (global $at i32 (i32.const 2)) (global $f funcref (ref.func $ten))
              (table $t 6 funcref) (elem (global.get $at) $inc $neg)
              (table $u 6 funcref) (elem (table $u) (i32.const 1) funcref (global.get $f) (ref.null func))
              (func (export "init") (table.set $t (i32.const 2) (ref.null func))
                (table.set $u (i32.const 2) (global.get $f)))
              (func (export "t") (param i32) (result i32)
                (call_indirect $t (type $unary) (i32.const 4) (local.get 0)))
              (func (export "u") (param i32) (result i32)
                (call_indirect $u (type $unary) (i32.const 4) (local.get 0))))"#
        ),
        &["init"],
    );
    for at in 0..6 {
        pair.same("t", &[at]).ok();
        pair.same("u", &[at]).ok();
    }
    pair.traps("t", &[2], "IndirectCallToNull");
    pair.gives("t", &[3], "I32(-4)");
    pair.gives("u", &[2], "I32(40)");
}

/// A module that could change its table and did not keeps its element section as it was.
#[test]
fn unchanged_tables_are_left_alone() {
    let module = wasm(&format!(
        r#"(module {FUNCTIONS} (table $t 8 funcref) (elem (i32.const 1) $inc $neg) (elem $p func $ten)
          (elem (i32.const 2) funcref (ref.func $ten) (ref.null func))
          (func (export "init") (table.set $t (i32.const 2) (table.get $t (i32.const 2))))
          (func (export "drop") (elem.drop $p)))"#
    ));
    let options = SnapshotOptions::default();
    let result = preinit_with(&module, &options, |g| _ = g.call("init", &[])).unwrap();
    assert_eq!(element_section(&module), element_section(&result));
}

/// A passive element segment that was dropped stays dropped, and its functions stay declared.
#[test]
fn dropped_elements_stay_dropped() {
    let mut pair = Pair::new(
        &format!(
            r#"(module {FUNCTIONS} (table $t 4 funcref) (table $n 4 (ref null $unary)) (table $x 2 externref)
              (elem $gone func $inc $neg) (elem $kept func $ten) (elem $typed (ref null $unary) (ref.func $inc))
              (elem $nulls externref (ref.null extern))
              (func (export "init") (table.init $t $gone (i32.const 0) (i32.const 1) (i32.const 1))
                (elem.drop $gone) (elem.drop $typed) (elem.drop $nulls))
              (func (export "gone") (table.init $t $gone (i32.const 0) (i32.const 0) (i32.const 1)))
              (func (export "kept") (table.init $t $kept (i32.const 1) (i32.const 0) (i32.const 1)))
              (func (export "typed") (table.init $n $typed (i32.const 1) (i32.const 0) (i32.const 1)))
              (func (export "nulls") (table.init $x $nulls (i32.const 1) (i32.const 0) (i32.const 1)))
              (func (export "inc") (result funcref) (ref.func $inc))
              (func (export "call") (param i32) (result i32)
                (call_indirect $t (type $unary) (i32.const 4) (local.get 0))))"#
        ),
        &["init"],
    );
    for name in ["gone", "typed", "nulls"] {
        pair.traps(name, &[], "TableOutOfBounds");
    }
    assert_eq!(pair.same("kept", &[]), Ok(vec![]));
    pair.gives("call", &[0], "I32(-4)");
    pair.gives("call", &[1], "I32(40)");
    pair.gives("inc", &[], "func true");
}

const EXPORTED: &str = r#"(module (table (export "f") 3 funcref) (table (export "x") 3 externref)
  (func $own (export "own") (result i32) (i32.const 9))
  (func (export "call") (result i32) (call_indirect (result i32) (i32.const 1))))"#;

/// A function that the host took from the module and set in a table is the module's own.
#[test]
fn the_host_may_set_own_functions() {
    let options = SnapshotOptions::default();
    let result = preinit_with(&wasm(EXPORTED), &options, |guest| {
        let Some(Extern::Func(own)) = guest.export("own") else { panic!("no function") };
        guest.table_set("f", 1, Ref::Func(Some(own)));
    });
    assert_eq!(Guest::new(&result.unwrap()).call("call", &[]).unwrap(), ["I32(9)"]);
}

/// Host functions and host references cannot be written down; the message says where they are.
#[test]
fn host_references_are_refused() {
    let options = SnapshotOptions::default();
    let function = preinit_with(&wasm(EXPORTED), &options, |guest| {
        let host = Func::wrap(&mut guest.store, || 1i32);
        guest.table_set("f", 1, Ref::Func(Some(host)));
    });
    let reference = preinit_with(&wasm(EXPORTED), &options, |guest| {
        let host = ExternRef::new(&mut guest.store, 1u8).unwrap();
        guest.table_set("x", 2, Ref::Extern(Some(host)));
    });
    for (result, table, element) in
        [(function, "table 0", "element 1"), (reference, "table 1", "element 2")]
    {
        let (class, kind, message) = kind(result);
        assert_eq!((class, kind), ("preinit", Kind::TableChanged));
        assert!(message.contains(table) && message.contains(element), "{message}");
    }
    // A host reference that was taken out again does no harm.
    let clean = preinit_with(&wasm(EXPORTED), &options, |guest| {
        let host = ExternRef::new(&mut guest.store, 1u8).unwrap();
        guest.table_set("x", 2, Ref::Extern(Some(host)));
        guest.table_set("x", 2, Ref::Extern(None));
    });
    assert!(clean.is_ok());
}

/// Many scattered changes make one segment rather than thousands, and the same table.
#[test]
fn scattered_changes_are_carried() {
    let mut pair = Pair::new(
        &format!(
            r#"(module {FUNCTIONS} (table $t 50000 funcref) (elem declare func $ten)
              (func (export "init") (local $at i32)
                (loop $l
                  (table.set $t (local.get $at) (ref.func $ten))
                  (local.set $at (i32.add (local.get $at) (i32.const 17)))
                  (br_if $l (i32.lt_u (local.get $at) (i32.const 50000)))))
              (func (export "null") (param i32) (result i32) (ref.is_null (table.get $t (local.get 0)))))"#
        ),
        &["init"],
    );
    for at in (0..1000).chain(49_000..50_000) {
        pair.gives("null", &[at], if at % 17 == 0 { "I32(0)" } else { "I32(1)" });
    }
    assert!(pair.wasm.len() < 250_000);
}

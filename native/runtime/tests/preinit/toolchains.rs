//! Modules as other toolchains write them: each of their instructions and sections, before and after
//! a snapshot.

use crate::support::{Guest, Pair, preinit, wasm};

/// Everything of bulk memory and reference types in one module, run and not run by its init.
#[test]
fn bulk_memory_and_references() {
    for init in ["change", "leave"] {
        let mut pair = Pair::new(
            r#"(module (type $t (func (result i32)))
              (memory $a 1) (memory $b 1) (table $f 6 12 funcref) (table $x 2 externref)
              (data $p "passive") (data $q "other") (data (memory $b) (i32.const 4) "active")
              (elem $e func $one $two) (elem (table $f) (i32.const 4) func $one) (elem declare func $three)
              (func $one (type $t) (i32.const 1)) (func $two (type $t) (i32.const 2))
              (func $three (type $t) (i32.const 3))
              (func (export "leave"))
              (func (export "change")
                (memory.init $a $p (i32.const 8) (i32.const 1) (i32.const 3)) (data.drop $p)
                (memory.copy $b $a (i32.const 0) (i32.const 8) (i32.const 2))
                (memory.fill $a (i32.const 100) (i32.const 7) (i32.const 9))
                (table.init $f $e (i32.const 0) (i32.const 0) (i32.const 2)) (elem.drop $e)
                (table.set $f (i32.const 2) (ref.func $three))
                (table.copy $f $f (i32.const 3) (i32.const 1) (i32.const 2))
                (drop (table.grow $f (ref.func $two) (i32.const 2)))
                (table.fill $f (i32.const 0) (ref.null func) (i32.const 1)))
              (func (export "call") (param i32) (result i32) (call_indirect $f (type $t) (local.get 0)))
              (func (export "again") (memory.init $a $p (i32.const 0) (i32.const 0) (i32.const 1)))
              (func (export "elem") (table.init $f $e (i32.const 0) (i32.const 0) (i32.const 1)))
              (func (export "size") (result i32) (table.size $f))
              (func (export "a") (param i32) (result i64) (i64.load $a (local.get 0)))
              (func (export "b") (param i32) (result i64) (i64.load $b (local.get 0))))"#,
            &[init],
        );
        for at in 0..9 {
            pair.same("call", &[at]).ok();
        }
        for at in [0, 8, 96, 104] {
            pair.same("a", &[at]).ok();
            pair.same("b", &[at]).ok();
        }
        let changed = init == "change";
        pair.gives("size", &[], if changed { "I32(8)" } else { "I32(6)" });
        assert_eq!(pair.same("again", &[]).is_err(), changed);
        assert_eq!(pair.same("elem", &[]).is_err(), changed);
    }
}

/// Tail calls and exceptions, of the init and afterwards; a tag is no state.
#[test]
fn tail_calls_and_exceptions() {
    let mut pair = Pair::new(
        r#"(module (tag $e (param i32)) (global $n (mut i32) (i32.const 0))
          (func $count (param i32) (result i32)
            (if (i32.eqz (local.get 0)) (then (return (global.get $n))))
            (global.set $n (i32.add (global.get $n) (i32.const 1)))
            (return_call $count (i32.sub (local.get 0) (i32.const 1))))
          (func $catch (param i32) (result i32)
            (block $h (result i32)
              (try_table (result i32) (catch $e $h) (throw $e (local.get 0)))))
          (func (export "init") (drop (call $count (call $catch (i32.const 2000)))))
          (func (export "count") (param i32) (result i32) (return_call $count (local.get 0)))
          (func (export "catch") (param i32) (result i32) (call $catch (local.get 0)))
          (export "tag" (tag $e)))"#,
        &["init"],
    );
    pair.gives("count", &[0], "I32(2000)");
    pair.gives("count", &[5], "I32(2005)");
    pair.gives("catch", &[9], "I32(9)");
}

/// Atomics on a memory that is not shared, as compilers write them for one thread.
#[test]
fn atomics_without_sharing() {
    let mut pair = Pair::new(
        r#"(module (memory 1 2)
          (func (export "init")
            (drop (i32.atomic.rmw.add (i32.const 8) (i32.const 5))) (atomic.fence)
            (i64.atomic.store (i32.const 16) (i64.const -1))
            (drop (memory.atomic.notify (i32.const 8) (i32.const 1))))
          (func (export "add") (param i32) (result i32)
            (i32.atomic.rmw.add (i32.const 8) (local.get 0)))
          (func (export "cmpxchg") (result i64)
            (i64.atomic.rmw.cmpxchg (i32.const 16) (i64.const -1) (i64.const 3))))"#,
        &["init"],
    );
    pair.gives("add", &[2], "I32(5)");
    pair.gives("add", &[0], "I32(7)");
    pair.gives("cmpxchg", &[], "I64(-1)");
    pair.gives("cmpxchg", &[], "I64(3)");
}

/// The start section changes tables and drops segments like an init call does.
#[test]
fn a_start_section_is_an_init() {
    let mut pair = Pair::new(
        r#"(module (memory 1) (table $t 2 funcref) (data $d "ab") (elem $e func $f) (start $s)
          (global $n (mut i64) (i64.const 0)) (func $f (result i32) (i32.const 6))
          (func $s (table.init $t $e (i32.const 1) (i32.const 0) (i32.const 1)) (elem.drop $e)
            (memory.init $d (i32.const 3) (i32.const 0) (i32.const 2)) (data.drop $d)
            (global.set $n (i64.const 9)))
          (func (export "call") (result i32) (call_indirect $t (result i32) (i32.const 1)))
          (func (export "n") (result i64) (global.get $n))
          (func (export "d") (memory.init $d (i32.const 3) (i32.const 0) (i32.const 1)))
          (func (export "e") (table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1))))"#,
        &[],
    );
    pair.gives("call", &[], "I32(6)");
    pair.gives("n", &[], "I64(9)");
    pair.traps("d", &[], "MemoryOutOfBounds");
    pair.traps("e", &[], "TableOutOfBounds");
}

/// Segments that instantiation drops, active and declared ones, stay dropped; their indices stay.
#[test]
fn segments_that_instantiation_drops() {
    let mut pair = Pair::new(
        r#"(module (memory 1) (table $t 4 funcref)
          (data $a (i32.const 0) "active") (data $p "passive") (elem $act (i32.const 0) func $f)
          (elem $dec declare func $f) (elem $pas func $f) (func $f)
          (func (export "init") (i32.store8 (i32.const 50) (i32.const 1)))
          (func (export "a") (param i32) (memory.init $a (i32.const 9) (i32.const 0) (local.get 0)))
          (func (export "p") (param i32) (memory.init $p (i32.const 9) (i32.const 0) (local.get 0)))
          (func (export "act") (param i32) (table.init $t $act (i32.const 1) (i32.const 0) (local.get 0)))
          (func (export "dec") (param i32) (table.init $t $dec (i32.const 1) (i32.const 0) (local.get 0)))
          (func (export "pas") (param i32) (table.init $t $pas (i32.const 1) (i32.const 0) (local.get 0))))"#,
        &["init"],
    );
    for (name, ends) in
        [("a", "MemoryOutOfBounds"), ("act", "TableOutOfBounds"), ("dec", "TableOutOfBounds")]
    {
        assert_eq!(pair.same(name, &[0]), Ok(vec![]));
        pair.traps(name, &[1], ends);
    }
    assert_eq!(pair.same("p", &[7]), Ok(vec![]));
    assert_eq!(pair.same("pas", &[1]), Ok(vec![]));
}

/// Offsets and initial values that are computed, of other globals too.
#[test]
fn computed_constants() {
    let mut pair = Pair::new(
        r#"(module (memory 1) (table $t 8 funcref)
          (global $base i32 (i32.const 3)) (global $next i32 (i32.add (global.get $base) (i32.const 2)))
          (global $n (mut i32) (i32.mul (global.get $next) (i32.const 10)))
          (data (offset (i32.add (global.get $base) (i32.const 1))) "here")
          (elem (table $t) (offset (global.get $next)) func $f) (func $f (result i32) (global.get $n))
          (func (export "init")
            (global.set $n (i32.add (global.get $n) (i32.const 1)))
            (table.set $t (i32.const 0) (table.get $t (i32.const 5)))
            (table.set $t (i32.const 5) (ref.null func)))
          (func (export "call") (param i32) (result i32) (call_indirect $t (result i32) (local.get 0)))
          (func (export "load") (result i32) (i32.load (i32.const 4))))"#,
        &["init"],
    );
    pair.gives("call", &[0], "I32(51)");
    pair.traps("call", &[5], "IndirectCallToNull");
    pair.gives("load", &[], "I32(1701995880)");
}

/// Names, the sections that debuggers and tools read, and the code's bytes stay as they were.
#[test]
fn names_and_code_stay() {
    let module = wasm(
        r#"(module $program (memory $m 1) (table $t 2 funcref) (elem declare func $f) (data $d "x")
          (@custom "target_features" (before code) "\01+\0bbulk-memory")
          (func $f (export "init") (param $p i32) (local $l i32)
            (table.set $t (i32.const 1) (ref.func $f)) (data.drop $d))
          (@producers (language "C" "1")) (@custom ".debug_info" "dwarf"))"#,
    );
    let result = crate::support::preinit_with(&module, &Default::default(), |guest| {
        _ = guest.call("init", &[1])
    });
    let sections = |wasm: &[u8]| -> Vec<(String, Vec<u8>)> {
        let of = |payload| match payload {
            wasmparser::Payload::CustomSection(c) => Some((c.name().to_owned(), c.data().to_vec())),
            wasmparser::Payload::CodeSectionStart { range, .. } => {
                Some(("code".into(), wasm[range].to_vec()))
            }
            _ => None,
        };
        wasmparser::Parser::new(0).parse_all(wasm).filter_map(|p| of(p.unwrap())).collect()
    };
    let (before, after) = (sections(&module), sections(&result.unwrap()));
    assert_eq!(before, after);
    let names: Vec<&str> = after.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["target_features", "code", "producers", ".debug_info", "name"]);
}

/// A large module: thousands of functions, a table of all of them, megabytes of data.
#[test]
fn large_modules() {
    use std::fmt::Write;
    const FUNCTIONS: usize = 3_000;
    let mut wat =
        String::from("(module (memory (export \"m\") 64) (table $t 6000 funcref) (elem $e func");
    (0..FUNCTIONS).for_each(|f| write!(wat, " $f{f}").unwrap());
    wat.push(')');
    (0..FUNCTIONS).for_each(|f| write!(wat, "(func $f{f} (result i32) (i32.const {f}))").unwrap());
    for at in 0..2_000 {
        write!(wat, "(data (i32.const {}) \"{}\")", at * 1_024, "0123456789".repeat(60)).unwrap();
    }
    wat.push_str(
        r#"(func (export "init")
            (table.init $t $e (i32.const 0) (i32.const 0) (i32.const 3000))
            (table.init $t $e (i32.const 3000) (i32.const 0) (i32.const 3000)) (elem.drop $e)
            (memory.copy (i32.const 0x200000) (i32.const 0) (i32.const 0x1f0000)))
          (func (export "call") (param i32) (result i32) (call_indirect $t (result i32) (local.get 0))))"#,
    );
    let module = wasm(&wat);
    let result = preinit(&module, &["init"]).unwrap();
    let (mut original, mut result) = (Guest::new(&module), Guest::new(&result));
    original.call("init", &[]).unwrap();
    for at in [0, 1, 2_999, 3_000, 5_999, 6_000] {
        assert_eq!(original.call("call", &[at]), result.call("call", &[at]), "{at}");
    }
    assert!(original.memory("m") == result.memory("m"));
}

/// Memories with pages of one byte: sizes that are no multiple of anything, growth, and the end.
#[test]
fn custom_page_sizes() {
    let mut pair = Pair::new(
        r#"(module (memory $a (export "a") 100 70000 (pagesize 1)) (memory $b (export "b") 1 2)
          (memory $c (export "c") 0 (pagesize 1)) (memory $d (export "d") 1 2 (pagesize 65536))
          (data (memory $a) (i32.const 90) "0123456789")
          (func (export "init")
            (drop (memory.grow $a (i32.const 65437)))
            (i32.store8 $a (i32.const 65536) (i32.const 5)) (i32.store8 $a (i32.const 3) (i32.const 7))
            (i32.store8 $b (i32.const 65535) (i32.const 6)))
          (func (export "size") (result i32 i32 i32) (memory.size $a) (memory.size $b) (memory.size $c))
          (func (export "load") (param i32) (result i32) (i32.load8_u $a (local.get 0)))
          (func (export "grow") (param i32) (result i32) (memory.grow $a (local.get 0))))"#,
        &["init"],
    );
    assert_eq!(pair.same("size", &[]).unwrap(), ["I32(65537)", "I32(1)", "I32(0)"]);
    pair.gives("load", &[65_536], "I32(5)");
    pair.traps("load", &[65_537], "MemoryOutOfBounds");
    for name in ["a", "b", "c", "d"] {
        assert!(pair.original.memory(name) == pair.result.memory(name), "{name}");
    }
    pair.gives("grow", &[4_463], "I32(65537)");
    pair.gives("grow", &[1], "I32(-1)");
}

//! State that a snapshot carries: globals, memories, dropped segments.

use crate::support::{Guest, Pair, names, preinit, preinit_with, wasm};
use wasmtime_beam::preinit::{SnapshotOptions, instrument};

/// Globals keep every bit, exported or not: NaN payloads, signs of zero, all of a v128.
#[test]
fn globals_are_bit_exact() {
    let mut pair = Pair::new(
        r#"(module
          (global $f (mut f32) (f32.const 1)) (global $d (mut f64) (f64.const 1))
          (global $z (mut f64) (f64.const 1)) (global $v (mut v128) (v128.const i64x2 0 0))
          (global $i (export "i") (mut i32) (i32.const 5)) (global $l (mut i64) (i64.const 5))
          (global $k f32 (f32.const nan:0x2bcdef))
          (func (export "init")
            (global.set $f (f32.const nan:0x200001)) (global.set $d (f64.const -nan:0x4000000000123))
            (global.set $z (f64.const -0)) (global.set $i (i32.const -7))
            (global.set $l (i64.const 0x8000000000000001))
            (global.set $v (v128.const i64x2 0x0123456789abcdef 0xfedcba9876543210)))
          (func (export "f") (result f32) (global.get $f))
          (func (export "d") (result f64) (global.get $d))
          (func (export "z") (result f64) (global.get $z))
          (func (export "v") (result v128) (global.get $v))
          (func (export "i32") (result i32) (global.get $i))
          (func (export "l") (result i64) (global.get $l))
          (func (export "k") (result f32) (global.get $k)))"#,
        &["init"],
    );
    pair.gives("f", &[], "f32 7fa00001");
    pair.gives("d", &[], "f64 fff4000000000123");
    pair.gives("z", &[], "f64 8000000000000000");
    pair.gives("v", &[], "v128 fedcba98765432100123456789abcdef");
    pair.gives("i32", &[], "I32(-7)");
    pair.gives("l", &[], "I64(-9223372036854775807)");
    pair.gives("k", &[], "f32 7fabcdef");
}

/// Every memory is carried with the size it grew to, a 64-bit one too, and keeps its maximum.
#[test]
fn memories_keep_bytes_and_sizes() {
    let mut pair = Pair::new(
        r#"(module
          (memory $a (export "a") 1 4) (memory $b i64 1) (memory $empty 0)
          (data (memory $a) (i32.const 65530) "abcdef") (data (memory $b) (i64.const 0) "wide")
          (func (export "init")
            (drop (memory.grow $a (i32.const 2))) (drop (memory.grow $b (i64.const 1)))
            (i32.store8 $a (i32.const 196607) (i32.const 9))
            (i64.store $b (i64.const 131064) (i64.const -2)))
          (func (export "a8") (param i32) (result i32) (i32.load8_u $a (local.get 0)))
          (func (export "b8") (param i64) (result i32) (i32.load8_u $b (local.get 0)))
          (func (export "size") (result i32 i64 i32) (memory.size $a) (memory.size $b) (memory.size $empty))
          (func (export "grow") (result i32) (memory.grow $a (i32.const 1))))"#,
        &["init"],
    );
    assert_eq!(pair.same("size", &[]).unwrap(), ["I32(3)", "I64(2)", "I32(0)"]);
    pair.gives("a8", &[196_607], "I32(9)");
    pair.gives("a8", &[65_535], "I32(102)");
    pair.gives("b8", &[1], "I32(105)");
    pair.gives("b8", &[131_071], "I32(255)");
    pair.traps("a8", &[196_608], "MemoryOutOfBounds");
    pair.gives("grow", &[], "I32(3)");
    pair.gives("grow", &[], "I32(-1)");
    assert_eq!(pair.original.memory("a"), pair.result.memory("a"));
}

/// Zeros are not stored: 64 MiB with a byte here and there make a small module, equal byte by byte.
#[test]
fn long_runs_of_zeros_are_left_out() {
    let mut pair = Pair::new(
        r#"(module (memory (export "m") 1024)
          (func (export "init") (local $at i32)
            (loop $l
              (i32.store8 (local.get $at) (i32.const 1))
              (local.set $at (i32.add (local.get $at) (i32.const 0x1ffff)))
              (br_if $l (i32.lt_u (local.get $at) (i32.const 0x4000000))))
            (i32.store8 (i32.const 0x3ffffff) (i32.const 7))))"#,
        &["init"],
    );
    assert!(pair.wasm.len() < 64 * 1024, "{} bytes", pair.wasm.len());
    assert!(pair.original.memory("m") == pair.result.memory("m"));
    let untouched = preinit(&wasm(r#"(module (memory (export "m") 1024))"#), &[]).unwrap();
    assert!(untouched.len() < 64, "{} bytes", untouched.len());
}

/// The worst pattern for ranges, every other byte, makes neither many segments nor a wrong memory.
#[test]
fn scattered_bytes_are_carried() {
    let mut pair = Pair::new(
        r#"(module (memory (export "m") 64)
          (func (export "init") (local $at i32)
            (loop $l
              (i32.store8 (local.get $at) (i32.const 255))
              (local.set $at (i32.add (local.get $at) (i32.const 2)))
              (br_if $l (i32.lt_u (local.get $at) (i32.const 0x200000))))
            (loop $l
              (i32.store8 (local.get $at) (i32.const 3))
              (local.set $at (i32.add (local.get $at) (i32.const 129)))
              (br_if $l (i32.lt_u (local.get $at) (i32.const 0x400000))))))"#,
        &["init"],
    );
    assert!(pair.original.memory("m") == pair.result.memory("m"));
}

/// The start function ran once, before the snapshot; the result has none.
#[test]
fn start_is_removed() {
    let mut pair = Pair::new(
        r#"(module (global $n (mut i32) (i32.const 0)) (start $s)
          (func $s (global.set $n (i32.add (global.get $n) (i32.const 1))))
          (func (export "n") (result i32) (global.get $n)))"#,
        &[],
    );
    pair.gives("n", &[], "I32(1)");
}

/// A passive data segment that was dropped stays dropped; others stay whole.
#[test]
fn dropped_data_stays_dropped() {
    let mut pair = Pair::new(
        r#"(module (memory (export "m") 1) (data $gone "hello") (data $kept "world") (data $empty "")
          (data (i32.const 100) "active")
          (func (export "init")
            (memory.init $gone (i32.const 0) (i32.const 0) (i32.const 5)) (data.drop $gone))
          (func (export "gone") (param i32) (memory.init $gone (i32.const 8) (i32.const 0) (local.get 0)))
          (func (export "empty") (param i32) (memory.init $empty (i32.const 8) (i32.const 0) (local.get 0)))
          (func (export "kept") (param i32) (memory.init $kept (i32.const 16) (i32.const 0) (local.get 0))))"#,
        &["init"],
    );
    pair.traps("gone", &[1], "MemoryOutOfBounds");
    assert_eq!(pair.same("gone", &[0]), Ok(vec![]));
    pair.traps("empty", &[1], "MemoryOutOfBounds");
    assert_eq!(pair.same("kept", &[5]), Ok(vec![]));
    pair.traps("kept", &[6], "MemoryOutOfBounds");
    assert_eq!(pair.original.memory("m"), pair.result.memory("m"));
    assert_eq!(&pair.result.memory("m")[..21], b"hello\0\0\0\0\0\0\0\0\0\0\0world");
}

/// Probing writes nothing and needs no page: a memory of size 0, and one of 64 bits.
#[test]
fn probes_need_no_memory() {
    for (memory, zero) in [("0 0", "i32.const 0"), ("i64 0 0", "i64.const 0")] {
        let wat = format!(
            r#"(module (memory {memory}) (data $gone "x") (data $kept "y")
              (func (export "init") (data.drop $gone))
              (func (export "gone") (memory.init $gone ({zero}) (i32.const 1) (i32.const 0)))
              (func (export "kept") (memory.init $kept ({zero}) (i32.const 1) (i32.const 0))))"#
        );
        let mut pair = Pair::new(&wat, &["init"]);
        pair.traps("gone", &[], "MemoryOutOfBounds");
        assert_eq!(pair.same("kept", &[]), Ok(vec![]));
    }
}

/// Probes run although the guest used up its fuel and its deadline has passed.
#[test]
fn probes_ignore_fuel_and_deadline() {
    let module = wasm(
        r#"(module (memory 1) (data $gone "x") (data $kept "y")
          (func (export "init") (data.drop $gone))
          (func (export "use") (memory.init $kept (i32.const 0) (i32.const 0) (i32.const 1))
            (memory.init $gone (i32.const 0) (i32.const 0) (i32.const 1))))"#,
    );
    let instrumented = instrument(&module).unwrap();
    let mut config = wasmtime::Config::new();
    config.consume_fuel(true).epoch_interruption(true);
    let engine = wasmtime::Engine::new(&config).unwrap();
    let mut store = wasmtime::Store::new(&engine, ());
    store.set_fuel(1000).unwrap();
    store.set_epoch_deadline(1);
    let compiled = wasmtime::Module::new(&engine, instrumented.wasm()).unwrap();
    let instance = wasmtime::Instance::new(&mut store, &compiled, &[]).unwrap();
    instance.get_typed_func::<(), ()>(&mut store, "init").unwrap().call(&mut store, ()).unwrap();
    store.set_fuel(0).unwrap();
    engine.increment_epoch();
    let options = SnapshotOptions::default();
    let taken = instrumented.snapshot(&mut store, &instance, &options);
    let result = crate::support::block_on(taken).unwrap();
    assert_eq!(Guest::new(&result).call("use", &[]), Err("MemoryOutOfBounds".into()));
}

/// Calls of imported functions work before and after; their imports stay.
#[test]
fn imports_stay() {
    let mut pair = Pair::new(
        r#"(module (import "env" "double" (func $double (param i32) (result i32)))
          (global $n (mut i32) (i32.const 4))
          (func (export "init") (global.set $n (call $double (global.get $n))))
          (func (export "n") (result i32) (call $double (global.get $n))))"#,
        &["init"],
    );
    pair.gives("n", &[], "I32(16)");
}

/// A snapshot can be pre-initialized again, with what the first left.
#[test]
fn snapshots_can_be_taken_again() {
    let mut wat = wasm(
        r#"(module (memory 1) (data "x") (table $t 1 funcref) (elem declare func $f)
          (global $n (mut i32) (i32.const 0)) (func $f (result i32) (i32.const 42))
          (func (export "init") (global.set $n (i32.add (global.get $n) (i32.const 1)))
            (table.set $t (i32.const 0) (ref.func $f))
            (i32.store (i32.const 8) (i32.add (i32.load (i32.const 8)) (global.get $n))))
          (func (export "n") (result i32 i32 i32)
            (global.get $n) (i32.load (i32.const 8)) (call_indirect (result i32) (i32.const 0))))"#,
    );
    for _ in 0..3 {
        wat = preinit(&wat, &["init"]).unwrap();
    }
    assert_eq!(Guest::new(&wat).call("n", &[]).unwrap(), ["I32(3)", "I32(6)", "I32(42)"]);
}

/// Custom sections keep their bytes; names placed before the code do no harm.
#[test]
fn custom_sections_stay() {
    let mut pair = Pair::new(
        r#"(module (@custom "name" (before first) "\00\04\03mod") (@custom "early" (before code) "e")
          (memory 1) (func (export "init") (i32.store (i32.const 4) (i32.const 77)))
          (func (export "get") (result i32) (i32.load (i32.const 4)))
          (@custom "late" (after last) "l"))"#,
        &["init"],
    );
    pair.gives("get", &[], "I32(77)");
    let customs: Vec<_> = wasmparser::Parser::new(0)
        .parse_all(&pair.wasm)
        .filter_map(|payload| match payload.unwrap() {
            wasmparser::Payload::CustomSection(c) => Some((c.name().to_owned(), c.data().to_vec())),
            _ => None,
        })
        .collect();
    let expected = [("name", &b"\0\x04\x03mod"[..]), ("early", b"e"), ("late", b"l")];
    assert_eq!(customs, expected.map(|(name, data)| (name.to_owned(), data.to_vec())));
}

/// The same state gives the same bytes.
#[test]
fn snapshots_are_deterministic() {
    let module = wasm(
        r#"(module (memory 2) (memory 1) (global (mut i32) (i32.const 0)) (table 9 funcref)
          (elem declare func $f $g) (func $f) (func $g)
          (func (export "init") (i32.store (i32.const 70000) (i32.const 1))
            (table.set (i32.const 3) (ref.func $g)) (table.set (i32.const 5) (ref.func $f))))"#,
    );
    assert_eq!(preinit(&module, &["init"]).unwrap(), preinit(&module, &["init"]).unwrap());
}

/// The future can be sent: a runner may poll it on any thread. What it is taken from can be shared.
#[test]
fn snapshot_is_send() {
    fn send<T: Send>(value: T) -> T {
        value
    }
    let module = wasm("(module (memory 1))");
    fn shared<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    let instrumented = shared(instrument(&module).unwrap());
    let Guest { mut store, instance } = Guest::new(instrumented.wasm());
    let options = SnapshotOptions { ran: names(&[]), remove_exports: vec![] };
    crate::support::block_on(send(instrumented.snapshot(&mut store, &instance, &options))).unwrap();
    assert!(preinit_with(&module, &options, |_| ()).is_ok());
}

//! Real guests in slots and in plain memory: every access outside traps, growth keeps its limits.

use crate::support::*;
use std::sync::Arc;
use wasmtime::{Engine, Instance, Memory, Module, Store, Trap, Val};
use wasmtime_beam::memory::{
    GC_HEAP_GUARD, MEMORY_GUARD, MemoryPlan, Permit, Pool, deferring, extract,
};
use wasmtime_beam::options::PoolOptions;

struct Guest {
    store: Store<()>,
    instance: Instance,
    _permit: Permit,
}

/// A module, and what its instances' memories begin with.
struct Program {
    engine: Engine,
    module: Module,
    plans: Vec<MemoryPlan>,
}

fn program(wat: &str) -> Program {
    let engine = engine(|config| {
        config.wasm_memory64(true).wasm_gc(true).wasm_function_references(true);
        config.wasm_threads(true).shared_memory(true).wasm_custom_page_sizes(true);
    });
    let wasm = wat::parse_str(wat).unwrap();
    let extracted = extract(&wasm).unwrap();
    let plans = extracted.memories.iter().map(|data| data.plan().unwrap()).collect();
    let module = Module::new(&engine, &extracted.wasm).unwrap();
    Program { engine, module, plans }
}

impl Program {
    fn start(&self, pool: &Arc<Pool>) -> Guest {
        let mut store = Store::new(&self.engine, ());
        let lease = pool.acquire(&self.plans, 0).unwrap();
        let (instance, permit) = lease.offer(|| Instance::new(&mut store, &self.module, &[]));
        assert_eq!(permit.unclaimed(), 0);
        Guest { store, instance: instance.unwrap(), _permit: permit }
    }
}

impl Guest {
    fn call(&mut self, name: &str, args: &[Val]) -> Result<i64, Trap> {
        let func = self.instance.get_func(&mut self.store, name).unwrap();
        let mut results = [Val::I64(0)];
        match func.call(&mut self.store, args, &mut results) {
            Ok(()) => Ok(results[0].unwrap_i64()),
            Err(error) => Err(*error.downcast_ref::<Trap>().unwrap()),
        }
    }

    fn memory(&mut self) -> Memory {
        self.instance.get_memory(&mut self.store, "m").unwrap()
    }
}

const POKE: &str = r#"(module (memory (export "m") 1) (data (i32.const 65528) "\01\02")
    (func (export "load") (param i32) (result i64) (i64.load (local.get 0)))
    (func (export "far") (param i32) (result i64) (i64.load offset=4294967295 (local.get 0)))
    (func (export "store") (param i32) (result i64) (i64.store (local.get 0) (i64.const -1)) (i64.const 0))
    (func (export "fill") (param i32 i32) (result i64)
      (memory.fill (local.get 0) (i32.const 7) (local.get 1)) (i64.const 0))
    (func (export "grow") (param i32) (result i64) (i64.extend_i32_s (memory.grow (local.get 0)))))"#;

/// Every access outside the memory traps, before and after growth and in the next instance.
#[test]
fn accesses_outside_trap() {
    for pool in [
        Pool::pooled(&PoolOptions { max_memory: 1 << 20, ..options(1, 1 << 20) }).unwrap(),
        Pool::on_demand(),
    ] {
        let program = program(POKE);
        for _ in 0..3 {
            let mut guest = program.start(&pool);
            let outside = Err(Trap::MemoryOutOfBounds);
            assert_eq!(guest.call("load", &[Val::I32(65528)]), Ok(0x201));
            for address in [65529, 65536, 1 << 20, 1 << 30, -1, -8, i32::MIN] {
                assert_eq!(guest.call("load", &[Val::I32(address)]), outside, "{address}");
                assert_eq!(guest.call("store", &[Val::I32(address)]), outside, "{address}");
            }
            assert_eq!(guest.call("far", &[Val::I32(0)]), outside);
            assert_eq!(guest.call("far", &[Val::I32(-1)]), outside);
            assert_eq!(guest.call("fill", &[Val::I32(0), Val::I32(65537)]), outside);
            assert_eq!(guest.call("fill", &[Val::I32(0), Val::I32(65536)]), Ok(0));
            assert_eq!(guest.call("grow", &[Val::I32(2)]), Ok(1));
            assert_eq!(guest.call("store", &[Val::I32(3 * 65536 - 8)]), Ok(0));
            assert_eq!(guest.call("load", &[Val::I32(3 * 65536 - 7)]), outside);
        }
        assert_eq!(pool.info().verify_failures, 0);
        assert_eq!(counts(&pool), (0, 1, 0));
    }
}

/// A guest cannot grow beyond the pool's max_memory and sees -1.
#[test]
fn memory_grow_answers_minus_one() {
    let pool = Pool::pooled(&PoolOptions { max_memory: 1 << 20, ..options(1, 0) }).unwrap();
    let mut guest = program(POKE).start(&pool);
    assert_eq!(guest.call("grow", &[Val::I32(16)]), Ok(-1));
    assert_eq!(guest.call("grow", &[Val::I32(15)]), Ok(1));
    assert_eq!(guest.call("grow", &[Val::I32(1)]), Ok(-1));
    assert_eq!(guest.call("load", &[Val::I32((1 << 20) - 8)]), Ok(0));
}

/// GC heaps ask the same creator, and take no memory's slot.
#[test]
fn gc_heaps_get_plain_memory() {
    let pool = Pool::pooled(&options(1, 0)).unwrap();
    let wat = r#"(module (type $s (struct (field (mut i64)))) (memory (export "m") 1)
        (data (i32.const 0) "image") (global $g (mut (ref null $s)) (struct.new $s (i64.const 41)))
        (func (export "run") (result i64) (local $n i32)
          (loop $l (global.set $g (struct.new $s (i64.add (i64.const 1)
              (struct.get $s 0 (global.get $g)))))
            (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 100000))))
          (struct.get $s 0 (global.get $g))))"#;
    let program = program(wat);
    for _ in 0..2 {
        let mut guest = program.start(&pool);
        assert_eq!(guest.call("run", &[]), Ok(100_041));
        let memory = guest.memory();
        assert_eq!(&memory.data(&guest.store)[..6], b"image\0");
    }
    assert_ne!(GC_HEAP_GUARD, MEMORY_GUARD);
    assert_eq!(pool.info().resets, 2);
}

/// Shared memories and memories of small pages live outside slots, and grow to their limits.
#[test]
fn plain_memories_grow() {
    let pool = Pool::on_demand();
    let wat = r#"(module (memory $m 1 3 shared) (data (i32.const 3) "s")
        (func (export "grow") (param i32) (result i64) (i64.extend_i32_s (memory.grow (local.get 0))))
        (func (export "load") (param i32) (result i64) (i64.load (local.get 0))))"#;
    let mut shared = program(wat).start(&pool);
    assert_eq!(shared.call("load", &[Val::I32(3)]), Ok(i64::from(b's')));
    assert_eq!(shared.call("grow", &[Val::I32(2)]), Ok(1));
    assert_eq!(shared.call("grow", &[Val::I32(1)]), Ok(-1));
    assert_eq!(shared.call("load", &[Val::I32(3 * 65536 - 8)]), Ok(0));
    assert_eq!(shared.call("load", &[Val::I32(3 * 65536 - 7)]), Err(Trap::MemoryOutOfBounds));

    let wat = r#"(module (memory $m 10 20000 (pagesize 1)) (data (i32.const 2) "tiny")
        (func (export "grow") (param i32) (result i64) (i64.extend_i32_s (memory.grow (local.get 0))))
        (func (export "load") (param i32) (result i64) (i64.load (local.get 0))))"#;
    let mut tiny = program(wat).start(&pool);
    assert_eq!(tiny.call("load", &[Val::I32(2)]), Ok(i64::from_le_bytes(*b"tiny\0\0\0\0")));
    assert_eq!(tiny.call("load", &[Val::I32(3)]), Err(Trap::MemoryOutOfBounds));
    assert_eq!(tiny.call("grow", &[Val::I32(9990)]), Ok(10));
    assert_eq!(tiny.call("load", &[Val::I32(9992)]), Ok(0));
    assert_eq!(tiny.call("load", &[Val::I32(9993)]), Err(Trap::MemoryOutOfBounds));
    assert_eq!(tiny.call("grow", &[Val::I32(10_001)]), Ok(-1));
}

const WIDE: &str = r#"(module (memory (export "m") i64 1) (data (i64.const 5) "wide")
    (func (export "load") (param i64) (result i64) (i64.load (local.get 0)))
    (func (export "store") (param i64) (result i64) (i64.store (local.get 0) (i64.const 77)) (i64.const 0))
    (func (export "grow") (param i64) (result i64) (memory.grow (local.get 0))))"#;

/// A 64-bit memory leaves its slot when it outgrows it, keeps its bytes, and moves again.
#[test]
fn wide_memories_outgrow_their_slot() {
    let pool = Pool::on_demand();
    let mut guest = program(WIDE).start(&pool);
    let (outside, word) = (Err(Trap::MemoryOutOfBounds), i64::from(u32::from_le_bytes(*b"wide")));
    assert_eq!(guest.call("load", &[Val::I64(5)]), Ok(word));
    assert_eq!(guest.call("load", &[Val::I64(4 << 30)]), outside);
    assert_eq!(guest.call("grow", &[Val::I64(100)]), Ok(1));
    assert_eq!(guest.call("store", &[Val::I64(100 * 65536)]), Ok(0));
    assert_eq!(counts(&pool), (1, 0, 1));
    // Beyond 4 GiB, in place within the headroom, and beyond that.
    for (delta, total) in [(65_536, 65_637), (16_384, 82_021), (40_000, 122_021)] {
        assert_eq!(guest.call("grow", &[Val::I64(delta)]), Ok(total - delta));
        assert_eq!(counts(&pool).0, 0, "the slot is free again");
        let end = total * 65536;
        assert_eq!(guest.call("load", &[Val::I64(5)]), Ok(word));
        assert_eq!(guest.call("load", &[Val::I64(100 * 65536)]), Ok(77));
        assert_eq!(guest.call("load", &[Val::I64(end - 8)]), Ok(0));
        assert_eq!(guest.call("store", &[Val::I64(end - 8)]), Ok(0));
        for address in [end - 7, end, end + (32 << 20), i64::MAX, -1] {
            assert_eq!(guest.call("load", &[Val::I64(address)]), outside);
        }
    }
    assert_eq!(guest.call("load", &[Val::I64(82_021 * 65536 - 8)]), Ok(77));
    assert_eq!(guest.call("grow", &[Val::I64(1 << 31)]), Ok(-1));
}

/// In a pool it stays within its slot.
#[test]
fn wide_memories_stay_in_a_pool() {
    let pool = Pool::pooled(&PoolOptions { max_memory: 4 << 30, ..options(1, 0) }).unwrap();
    let mut guest = program(WIDE).start(&pool);
    assert_eq!(guest.call("grow", &[Val::I64(65_536)]), Ok(-1));
    assert_eq!(guest.call("grow", &[Val::I64(65_535)]), Ok(1));
    assert_eq!(guest.call("load", &[Val::I64((4 << 30) - 8)]), Ok(0));
    assert_eq!(guest.call("load", &[Val::I64((4 << 30) - 7)]), Err(Trap::MemoryOutOfBounds));
}

/// A store's memories can be restored after it is gone.
#[test]
fn a_store_can_be_dropped_first() {
    let pool = Pool::pooled(&options(1, 1 << 20)).unwrap();
    let program = program(POKE);
    let mut guest = program.start(&pool);
    assert_eq!(guest.call("fill", &[Val::I32(0), Val::I32(65536)]), Ok(0));
    let ((), pending) = deferring(|| drop(guest));
    assert_eq!(counts(&pool), (1, 0, 0));
    assert!(pending.finish_within(1 << 20).is_none());
    assert_eq!(counts(&pool), (0, 1, 0));
}

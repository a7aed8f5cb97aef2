//! A pool gives an instance all it needs or a plain answer, and gets everything back.

use crate::support::*;
use std::sync::Arc;
use wasmtime::LinearMemory;
use wasmtime_beam::memory::{Lease, MemoryPlan, Pool};
use wasmtime_beam::options::PoolOptions;
use wasmtime_beam::{Class, Error, Kind};

fn refusal(answer: wasmtime_beam::Result<Lease>) -> Error {
    answer.expect_err("the pool is full")
}

/// Each cap is named when it is reached, refuses at once, and opens again.
#[test]
fn each_cap_is_named() {
    let wide =
        PoolOptions { instances: 3, core_instances: 3, memories: 3, tables: 3, ..options(3, 0) };
    let narrow = [
        ("instances", PoolOptions { instances: 2, ..wide.clone() }),
        ("core_instances", PoolOptions { core_instances: 2, ..wide.clone() }),
        ("memories", PoolOptions { memories: 2, ..wide.clone() }),
        ("tables", PoolOptions { tables: 2, ..wide.clone() }),
    ];
    for (key, options) in narrow {
        let pool = Pool::pooled(&options).unwrap();
        let plans = [plan(1, b"image")];
        let first = pool.acquire(&plans, 1).unwrap();
        let second = pool.acquire(&plans, 1).unwrap();
        let error = refusal(pool.acquire(&plans, 1));
        assert_eq!(
            (error.class, error.kind, error.key),
            (Class::Pool, Kind::PoolExhausted, Some(key))
        );
        assert!(error.message.contains(key), "{}", error.message);
        drop(first);
        let third = pool.acquire(&plans, 1).unwrap();
        assert_eq!(refusal(pool.acquire(&plans, 1)).key, Some(key));
        drop((second, third));
        assert_eq!(counts(&pool), (0, 2, 0));
    }
}

/// An instance that needs more than is left gets nothing, and takes nothing.
#[test]
fn all_or_nothing() {
    let pool = Pool::pooled(&options(3, 0)).unwrap();
    let plans = [plan(1, b"a"), plan(1, b"b")];
    let lease = pool.acquire(&plans, 0).unwrap();
    assert_eq!(refusal(pool.acquire(&plans, 0)).key, Some("memories"));
    assert_eq!(counts(&pool), (2, 0, 1));
    drop(lease);
    assert_eq!(counts(&pool), (0, 2, 0));
}

/// A memory that begins larger than the pool's memories is refused, exactly as large is not.
#[test]
fn max_memory_bounds_the_minimum() {
    let pool = Pool::pooled(&PoolOptions { max_memory: 1 << 20, ..options(1, 0) }).unwrap();
    drop(pool.acquire(&[plan(16, b"x")], 0).unwrap());
    for plans in [[plan(17, b"x")], [MemoryPlan { slotted: false, ..plan(17, b"") }]] {
        let error = refusal(pool.acquire(&plans, 0));
        assert_eq!((error.class, error.kind), (Class::Limit, Kind::MemoryLimit));
        assert!(error.message.contains("1114112") && error.message.contains("1048576"));
        assert_eq!(pool.check(&plans).unwrap_err(), error);
    }
    assert_eq!(counts(&pool).2, 0);
}

/// Growth ends at the pool's max_memory.
#[test]
fn max_memory_bounds_growth() {
    let pool = Pool::pooled(&PoolOptions { max_memory: 1 << 20, ..options(1, 0) }).unwrap();
    let mut raw = Raw::take(&pool, &plan(1, b"x"));
    // It never moves, however large; growth is refused where it is asked for.
    assert_eq!(raw.memory.byte_capacity(), 4 << 30);
    raw.memory.grow_to(1 << 20).unwrap();
    raw.bytes().fill(1);
    assert!(raw.memory.grow_to((1 << 20) + WASM_PAGE).is_err());
    assert_eq!(raw.memory.byte_size(), 1 << 20);
    let plain = MemoryPlan { slotted: false, ..plan(1, b"") };
    drop(raw);
    let mut raw = Raw::take(&pool, &plain);
    raw.memory.grow_to(1 << 20).unwrap();
    assert!(raw.memory.grow_to((1 << 20) + WASM_PAGE).is_err());
}

/// More address space than there is: a plain answer that names the sizes.
#[test]
fn a_pool_that_does_not_fit_is_refused() {
    for memories in [100_000, u32::MAX] {
        let error = Pool::pooled(&options(memories, 0)).unwrap_err();
        assert_eq!((error.class, error.kind), (Class::Compile, Kind::PoolTooLarge));
        assert!(error.message.contains(&memories.to_string()), "{}", error.message);
        assert!(error.message.contains("GiB"), "{}", error.message);
    }
    // The most that may be asked for does fit, and costs nothing until used.
    let pool = Pool::pooled(&options(10_000, 0)).unwrap();
    Raw::take(&pool, &plan(1, b"x"));
    drop(pool);
}

/// The slot used last for an image comes back first; another image takes a fresh one, then the
/// one idle for longest.
#[test]
fn slots_stay_with_their_image() {
    let pool = Pool::pooled(&options(3, 1 << 20)).unwrap();
    let (a, b, c) = (plan(1, b"a"), plan(1, b"b"), plan(1, b"c"));
    let at = |plan: &MemoryPlan| {
        let mut raw = Raw::take(&pool, plan);
        raw.assert_fresh(plan);
        raw.memory.as_ptr() as usize
    };
    let (first, second) = (Raw::take(&pool, &a), Raw::take(&pool, &a));
    let (slot1, slot2) = (first.memory.as_ptr() as usize, second.memory.as_ptr() as usize);
    drop(first);
    drop(second);
    assert_eq!(at(&a), slot2);
    let slot3 = at(&b);
    assert!(slot3 != slot1 && slot3 != slot2);
    assert_eq!((at(&a), at(&b)), (slot2, slot3));
    assert_eq!(counts(&pool), (0, 3, 0));
    // The first slot has been idle for longest.
    assert_eq!(at(&c), slot1);
    assert_eq!((at(&a), at(&b), at(&c)), (slot2, slot3, slot1));
}

/// Who may not clear much gets no slot that another image left much in; it stays as it is, and is
/// still the next to go.
#[test]
fn slots_that_take_long_to_clear_are_left_alone() {
    let pool = Pool::pooled(&options(2, 256 << 20)).unwrap();
    let [a, b, c] = [b"a", b"b", b"c"].map(|content| plan(1, content));
    let fill = |plan: &MemoryPlan, pages: usize| {
        let mut raw = Raw::take(&pool, plan);
        raw.grow(pages - 1);
        raw.bytes().fill(7);
        raw.memory.as_ptr() as usize
    };
    let within = |plan: &MemoryPlan, clears: usize| {
        let plans = std::slice::from_ref(plan);
        pool.acquire_linked(1, plans, 0, clears).unwrap().is_some()
    };
    let oldest = fill(&a, 100);
    fill(&b, 100);
    for _ in 0..3 {
        assert!(!within(&c, 100 * WASM_PAGE - 1));
        assert_eq!(counts(&pool), (0, 2, 0));
    }
    // Their own images' slots need no clearing.
    assert!(within(&b, 0));
    assert!(within(&c, 100 * WASM_PAGE));
    let mut raw = Raw::take(&pool, &c);
    assert_eq!(raw.memory.as_ptr() as usize, oldest);
    raw.assert_fresh(&c);
    drop(raw);
    // Two at once: both are counted, and both are put back.
    let two = |clears| pool.acquire_linked(1, &[a.clone(), a.clone()], 0, clears).unwrap();
    assert!(two(101 * WASM_PAGE - 1).is_none());
    assert_eq!(counts(&pool), (0, 2, 0));
    assert!(within(&b, 0) && within(&c, 0));
    assert!(two(101 * WASM_PAGE).is_some());
}

/// When a module goes, its bytes go from every idle slot, and from a live one when it is given back.
#[test]
fn a_freed_image_leaves_no_bytes() {
    for pool in [Pool::pooled(&options(3, 1 << 20)).unwrap(), Pool::on_demand()] {
        let image = plan(2, &Random(1).bytes(70_000));
        let (mut idle, mut live) = (Raw::take(&pool, &image), Raw::take(&pool, &image));
        idle.bytes().fill(7);
        live.bytes().fill(8);
        let (at, also) = (idle.memory.as_ptr() as usize, live.memory.as_ptr() as usize);
        drop(idle);
        assert_eq!(counts(&pool), (1, 1, 1));
        let pooled = pool.info().total == 3;
        if pooled {
            assert!(resident(at, 2 * WASM_PAGE) > 0);
        }
        drop(image);
        drop(live);
        assert_eq!(counts(&pool), (0, 0, 0));
        if pooled {
            assert_eq!(resident(at, 2 * WASM_PAGE) + resident(also, 2 * WASM_PAGE), 0);
        }
        let other = plan(2, b"other");
        Raw::take(&pool, &other).assert_fresh(&other);
    }
}

/// Without a pool nothing is refused, and few slots stay behind.
#[test]
fn on_demand_keeps_a_few_slots() {
    let pool = Pool::on_demand();
    let plan = plan(1, b"image");
    let raws: Vec<Raw> = (0..40).map(|_| Raw::take(&pool, &plan)).collect();
    assert_eq!(counts(&pool), (40, 0, 40));
    assert_eq!(pool.info().total, 40);
    drop(raws);
    let (used, warm, instances) = counts(&pool);
    assert_eq!((used, instances), (0, 0));
    assert!((1..=8).contains(&warm));
    Raw::take(&pool, &plan).assert_fresh(&plan);
}

/// A pool lives as long as one of its memories.
#[test]
fn a_memory_outlives_its_pool() {
    let pool = Pool::pooled(&options(2, 1 << 20)).unwrap();
    let mut raw = Raw::take(&pool, &plan(1, b"image"));
    let weak = Arc::downgrade(&pool);
    drop(pool);
    raw.bytes()[9] = 9;
    assert!(weak.upgrade().is_some());
    drop(raw);
    assert!(weak.upgrade().is_none());
}

/// What the store does not take is told and given back, also when the closure panics.
#[test]
fn unclaimed_memories_are_told() {
    let pool = Pool::pooled(&options(4, 0)).unwrap();
    let plans = [plan(1, b"a"), plan(2, b"b")];
    let (memory, permit) =
        pool.acquire(&plans, 0).unwrap().offer(|| request(WASM_PAGE, false).unwrap());
    assert_eq!(permit.unclaimed(), 1);
    assert_eq!(counts(&pool), (1, 1, 1));
    drop((memory, permit));
    let lease = pool.acquire(&plans, 0).unwrap();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        lease.offer(|| panic!("on purpose"))
    }));
    assert!(caught.is_err());
    assert_eq!(counts(&pool), (0, 2, 0));
    // The thread offers nothing any more.
    assert_eq!(request(WASM_PAGE, false).unwrap().byte_capacity(), 4 << 30);
}

/// A request that does not fit its offer is refused, and the slot comes back.
#[test]
fn a_wrong_request_is_refused() {
    let pool = Pool::pooled(&options(1, 0)).unwrap();
    let plans = [plan(2, b"a")];
    let (answer, permit) = pool.acquire(&plans, 0).unwrap().offer(|| request(WASM_PAGE, false));
    assert!(answer.err().unwrap().contains("65536"));
    drop(permit);
    assert_eq!(counts(&pool), (0, 1, 0));
}

/// An instantiation inside another one's takes its own memories, and the outer goes on.
#[test]
fn offers_nest() {
    let pool = Pool::pooled(&options(3, 0)).unwrap();
    let (a, b, c) = (plan(1, b"a"), plan(1, b"b"), plan(1, b"c"));
    let outer = pool.acquire(&[a, b], 0).unwrap();
    let byte = |memory: &dyn LinearMemory| unsafe { *memory.as_ptr() };
    let ((first, inner, second), permit) = outer.offer(|| {
        let first = request(WASM_PAGE, false).unwrap();
        let inner = Raw::take(&pool, &c);
        (first, inner, request(WASM_PAGE, false).unwrap())
    });
    assert_eq!(permit.unclaimed(), 0);
    assert_eq!([byte(&*first), byte(&*inner.memory), byte(&*second)], *b"acb");
}

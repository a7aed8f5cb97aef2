//! A slot's next tenant finds the image, zeros, and nothing else, whatever the last one wrote.

use crate::support::*;
use std::sync::Arc;
use wasmtime_beam::memory::{MemoryPlan, Pool, deferring, pagemap_scan_available};
use wasmtime_beam::options::PoolOptions;

/// Random tenants under every policy, with images whose ends fall in and on pages.
#[test]
fn random_tenants_leave_nothing_behind() {
    for (name, pool) in policies() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let ends = [0, 1, PAGE - 1, PAGE, PAGE + 1, 3 * WASM_PAGE + 17, 8 * WASM_PAGE];
        let plans: Vec<_> = ends.iter().map(|end| plan(8, &random.bytes(*end))).collect();
        for round in 0..300 {
            // Mostly the same image, so that the slot is reused as it is.
            let plan = &plans[(round / 20) % plans.len()];
            let mut raw = Raw::take(&pool, plan);
            raw.assert_fresh(plan);
            vandalize(&mut random, &mut raw);
        }
        assert_sound(&pool, name);
        assert_eq!(pool.info().resets, 300, "{name}");
    }
}

/// Every second page is a region of its own: one scan cannot report them all.
#[test]
fn a_scan_with_more_regions_than_fit_goes_on() {
    let pool = Pool::pooled(&options(1, 256 << 20)).unwrap();
    let plan = plan(1024, &Random(7).bytes(30 * WASM_PAGE));
    let pages = 1024 * WASM_PAGE / PAGE / 2;
    for _ in 0..3 {
        let mut raw = Raw::take(&pool, &plan);
        raw.assert_fresh(&plan);
        raw.bytes().chunks_mut(2 * PAGE).for_each(|chunk| chunk[5] = 0xee);
    }
    assert_sound(&pool, "many regions");
    if pagemap_scan_available() {
        assert!(pages > 4096);
        assert_eq!(pool.info().bytes_restored, (3 * pages * PAGE) as u64);
    }
}

/// Exactly the written pages are restored; pages that were only read are not.
#[test]
fn reading_is_not_writing() {
    if !pagemap_scan_available() {
        return;
    }
    let pool = Pool::pooled(&options(1, 256 << 20)).unwrap();
    let plan = plan(16, &Random(3).bytes(2 * WASM_PAGE));
    let mut raw = Raw::take(&pool, &plan);
    assert!(raw.bytes().iter().map(|byte| u64::from(*byte)).sum::<u64>() > 0);
    drop(raw);
    assert_eq!(pool.info().bytes_restored, 0);
    let mut raw = Raw::take(&pool, &plan);
    for at in [0, WASM_PAGE, 2 * WASM_PAGE - 1, 2 * WASM_PAGE, 16 * WASM_PAGE - 1] {
        raw.bytes()[at] = 0xcc;
    }
    drop(raw);
    assert_eq!(pool.info().bytes_restored, 5 * PAGE as u64);
    assert_sound(&pool, "read");
}

/// What is restored in place stays within `keep_resident`, also for one long run.
#[test]
fn keep_resident_bounds_what_stays() {
    if !pagemap_scan_available() {
        return;
    }
    let keep = 10 * PAGE as u64;
    let pool = Pool::pooled(&options(1, keep)).unwrap();
    let plan = plan(16, &Random(5).bytes(WASM_PAGE));
    let mut raw = Raw::take(&pool, &plan);
    raw.bytes().fill(1);
    drop(raw);
    assert_eq!(pool.info().bytes_restored, keep);
    // Nothing is written now: what the next reset finds is what stayed.
    Raw::take(&pool, &plan).assert_fresh(&plan);
    assert_eq!(pool.info().bytes_restored, 2 * keep);
    assert_sound(&pool, "keep");
}

/// Memory that one tenant grew is inaccessible to the next until it grows too, and then zero.
#[test]
fn grown_memory_is_taken_away() {
    for (name, pool) in policies() {
        let plan = plan(1, b"image");
        let mut raw = Raw::take(&pool, &plan);
        raw.grow(100);
        raw.bytes().fill(0x77);
        drop(raw);
        let mut raw = Raw::take(&pool, &plan);
        raw.assert_fresh(&plan);
        raw.grow(100);
        assert!(raw.bytes()[WASM_PAGE..].iter().all(|byte| *byte == 0), "{name}");
        drop(raw);
        assert_sound(&pool, name);
    }
}

/// What is kept of grown memory counts as kept, and goes when others write more.
#[test]
fn grown_memory_counts_as_resident() {
    if !pagemap_scan_available() {
        return;
    }
    // Verification would read all pages, and so make them resident.
    let options = PoolOptions { verify: false, ..options(1, 20 * PAGE as u64) };
    let pool = Pool::pooled(&options).unwrap();
    let plan = plan(1, b"image");
    let mut raw = Raw::take(&pool, &plan);
    raw.grow(1);
    raw.bytes()[WASM_PAGE..].fill(3);
    let at = raw.memory.as_ptr() as usize;
    drop(raw);
    // Sixteen pages stay, and the file has the image's own.
    assert_eq!((pool.info().bytes_restored, resident(at, 2 * WASM_PAGE)), (16 * PAGE as u64, 17));
    // The next one writes ten pages: the sum is more than may stay.
    let mut raw = Raw::take(&pool, &plan);
    raw.bytes()[..10 * PAGE].fill(4);
    drop(raw);
    assert_eq!(resident(at, 2 * WASM_PAGE), 20);
    let mut raw = Raw::take(&pool, &plan);
    raw.assert_fresh(&plan);
    raw.grow(3);
    assert!(raw.bytes()[WASM_PAGE..].iter().all(|byte| *byte == 0));
    drop(raw);
    assert_sound(&pool, "grown");
}

/// A memory without a byte, and one that is all image, are memories too.
#[test]
fn the_smallest_and_the_fullest_memory() {
    for (name, pool) in policies() {
        for (pages, content) in [(0, 0), (0, 0), (1, WASM_PAGE), (1, WASM_PAGE), (0, 0)] {
            let plan = plan(pages, &Random(13).bytes(content));
            let mut raw = Raw::take(&pool, &plan);
            raw.assert_fresh(&plan);
            raw.grow(1);
            raw.bytes().fill(9);
        }
        assert_sound(&pool, name);
    }
}

fn dirty(pool: &Arc<Pool>, plan: &MemoryPlan, bytes: usize) -> Raw {
    let mut raw = Raw::take(pool, plan);
    raw.assert_fresh(plan);
    raw.bytes()[..bytes].fill(0x42);
    raw
}

/// A small reset is done within its budget, a large one is handed on and loses nothing.
#[test]
fn a_reset_can_be_put_off() {
    for (name, pool) in policies() {
        let plan = plan(32, &Random(17).bytes(5 * WASM_PAGE));
        let raw = dirty(&pool, &plan, 20 * WASM_PAGE);
        let ((), pending) = deferring(|| drop(raw));
        assert!(!pending.is_empty());
        assert_eq!((pool.info().used, pool.info().resets), (1, 0), "{name}");
        let pending = pending.finish_within(PAGE).expect("more than a page was written");
        assert_eq!((pool.info().used, pool.info().resets), (1, 0), "{name}");
        let pending = pending.finish_within(3 * PAGE).expect("more than three pages");
        pending.finish();
        assert_eq!((pool.info().used, pool.info().resets), (0, 1), "{name}");

        let raw = dirty(&pool, &plan, 3 * PAGE);
        let ((), pending) = deferring(|| drop(raw));
        assert!(pending.finish_within(64 << 20).is_none(), "{name}");
        Raw::take(&pool, &plan).assert_fresh(&plan);

        let raw = dirty(&pool, &plan, WASM_PAGE);
        drop(deferring(|| drop(raw)));
        Raw::take(&pool, &plan).assert_fresh(&plan);
        assert_sound(&pool, name);
    }
}

/// A closure that panics leaves no memory unrestored and no thread collecting for ever.
#[test]
fn a_panic_while_putting_off_restores() {
    let pool = Pool::pooled(&options(1, 1 << 20)).unwrap();
    let plan = plan(2, b"image");
    let raw = dirty(&pool, &plan, PAGE);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        deferring(|| {
            drop(raw);
            panic!("on purpose");
        })
    }));
    assert!(caught.is_err());
    assert_eq!(pool.info().resets, 1);
    drop(dirty(&pool, &plan, PAGE));
    assert_eq!(pool.info().resets, 2);
    assert_sound(&pool, "panic");
}

/// Inner and outer closures each collect their own.
#[test]
fn putting_off_nests() {
    let pool = Pool::pooled(&options(2, 1 << 20)).unwrap();
    let plan = plan(2, b"image");
    let (outer, inner) = (dirty(&pool, &plan, PAGE), dirty(&pool, &plan, PAGE));
    let (inner, outer) = deferring(|| {
        let ((), inner) = deferring(|| drop(inner));
        drop(outer);
        inner
    });
    inner.finish();
    assert_eq!(pool.info().resets, 1);
    outer.finish();
    assert_eq!(pool.info().resets, 2);
    assert_sound(&pool, "nested");
}

/// Several threads use one pool; each finds its image.
#[test]
fn threads_share_a_pool() {
    for (name, pool) in
        [("pooled", Pool::pooled(&options(3, 1 << 20)).unwrap()), ("on demand", Pool::on_demand())]
    {
        std::thread::scope(|scope| {
            for seed in 1..=3 {
                let pool = &pool;
                scope.spawn(move || {
                    let mut random = Random(seed * 7919);
                    let plans = [plan(4, &random.bytes(9000)), plan(4, &random.bytes(70_000))];
                    for round in 0..200 {
                        let plan = &plans[round / 10 % 2];
                        let mut raw = Raw::take(pool, plan);
                        raw.assert_fresh(plan);
                        vandalize(&mut random, &mut raw);
                    }
                });
            }
        });
        assert_sound(&pool, name);
    }
}

/// Where the system refuses to drop pages (they are locked), the slot is mapped anew.
#[test]
fn a_refused_reset_maps_the_slot_anew() {
    for (name, pool) in policies() {
        let plan = plan(2, &Random(23).bytes(9000));
        let drops = !["all in place", "on demand"].contains(&name);
        for _ in 0..3 {
            let mut raw = Raw::take(&pool, &plan);
            raw.assert_fresh(&plan);
            raw.grow(2);
            raw.bytes().fill(0x66);
            let (base, len) = (raw.memory.as_ptr(), raw.memory.byte_size());
            assert_eq!(unsafe { libc::mlock(base.cast(), len) }, 0);
            drop(raw);
            assert_eq!(counts(&pool), (0, if drops { 0 } else { 1 }, 0), "{name}");
        }
        Raw::take(&pool, &plan).assert_fresh(&plan);
        assert_eq!(counts(&pool), (0, 1, 0), "{name}");
        assert_sound(&pool, name);
    }
}

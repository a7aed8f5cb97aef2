//! Memories that are restored by the thread for it: whoever comes next finds them as any other.

use crate::support::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wasmtime_beam::memory::{MemoryPlan, Pending, Pool, deferring, start_restorer};

/// Memories that the thread has at most.
const SPARE: u64 = 2;

/// There is one thread for all pools.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    start_restorer().unwrap();
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves the memory to the thread; true when it took it.
fn leave(raw: Raw) -> bool {
    let ((), pending) = deferring(|| drop(raw));
    pending.leave().map(Pending::finish).is_none()
}

fn wait(what: &str, mut is_over: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_over() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

/// Tenants that write anywhere, in pools of one place: the next one has its place at once, and
/// finds nothing.
#[test]
fn nothing_stays_behind_and_no_place_is_missed() {
    let _alone = alone();
    for (name, pool) in policies() {
        let mut random = Random(77);
        let known = Known::new(30, random.bytes(10 * WASM_PAGE + 1234));
        let rounds = rounds(100, 500, 20_000);
        let mut taken = 0;
        for _ in 0..rounds {
            let mut raw = known.tenant(&pool, name);
            vandalize(&mut random, &mut raw);
            taken += usize::from(leave(raw));
            assert_eq!(pool.info().used, 0, "{name}");
        }
        wait(name, || pool.info().restoring == 0);
        assert!(taken > 10, "{name}: the thread took {taken}");
        assert_eq!(pool.info().resets, rounds as u64, "{name}");
        assert_sound(&pool, name);
    }
}

/// What is being restored takes nobody's place, and there are never more of it than slots to spare, nor
/// more than 64 MiB, by which a pool needs more than its live memories.
#[test]
fn it_has_no_more_than_it_may() {
    let _alone = alone();
    let pool = |memories| Pool::pooled(&options(memories, 256 << 20)).unwrap();
    let (long, short) = (pool(1), pool(1));
    let (large, small) = (plan(900, b"large"), plan(4, b"small"));
    let too_much = dirtied(&pool(1), &plan(150, b"too much"));
    // Restoring and looking at 56 MiB takes far longer than all that follows.
    assert!(leave(dirtied(&long, &large)));
    assert!(!leave(too_much));
    for restoring in 1..SPARE {
        assert!(leave(dirtied(&short, &small)));
        let info = short.info();
        assert_eq!((info.used, info.restoring, info.total), (0, restoring, 1));
    }
    assert!(!leave(dirtied(&short, &small)));
    assert_eq!(short.info().resets, 1);
    wait("restored", || long.info().restoring + short.info().restoring == 0);
    assert_eq!(short.info().resets, SPARE);
    for (pool, plan) in [(&long, &large), (&short, &small)] {
        Raw::take(pool, plan).assert_fresh(plan);
        assert_sound(pool, "spare");
    }
}

fn dirtied(pool: &Arc<Pool>, plan: &MemoryPlan) -> Raw {
    let mut raw = Raw::take(pool, plan);
    raw.assert_fresh(plan);
    raw.bytes().fill(0xa5);
    raw
}

/// Its last holders may be gone before it comes to a memory.
#[test]
fn a_pool_lives_until_its_memories_are_restored() {
    let _alone = alone();
    for (name, pool) in policies() {
        let plan = plan(20, &Random(9).bytes(15 * WASM_PAGE));
        let raw = dirtied(&pool, &plan);
        let pool = {
            drop(plan);
            Arc::downgrade(&{ pool })
        };
        leave(raw);
        wait(name, || pool.strong_count() == 0);
    }
}

/// Waking the thread would take longer than the work.
#[test]
fn little_is_not_left() {
    let _alone = alone();
    let pool = Pool::pooled(&options(1, 1 << 20)).unwrap();
    for _ in 0..20 {
        assert!(!leave(dirtied(&pool, &plan(3, b"little"))));
    }
    assert_eq!(pool.info().resets, 20);
    assert!(Pending::default().leave().is_some_and(|pending| pending.is_empty()));
}

//! What a slot may keep, against what its tenant wrote: less, all but a page, all, and more.

use crate::support::*;
use wasmtime_beam::memory::{Pool, pagemap_scan_available};

/// Where a tenant's pages lie, of a memory of 64 pages of 64 KiB.
type Shape = (&'static str, fn(usize) -> usize);

const SHAPES: [Shape; 4] = [
    ("in one run", |n| 300 + n),
    ("each for itself", |n| 3 * n),
    ("across the image's end", |n| 20 * 16 - 30 + n),
    ("at both ends", |n| if n.is_multiple_of(2) { n } else { 64 * 16 - n }),
];

/// The next tenant sees the image however little may stay, and no more stays than may.
#[test]
fn a_slot_keeps_less_than_was_written() {
    const DIRTY: usize = 60;
    for keep in [0, 1, 4095, 4096, (DIRTY - 1) * PAGE, DIRTY * PAGE - 1, DIRTY * PAGE, 61 * PAGE] {
        for (name, place) in SHAPES {
            let name = &format!("{keep} bytes stay, written {name}");
            let pool = Pool::pooled(&options(1, keep as u64)).unwrap();
            let known = Known::new(64, Random(29).bytes(20 * WASM_PAGE + 100));
            for _ in 0..5 {
                let before = pool.info().bytes_restored;
                let mut raw = known.tenant(&pool, name);
                (0..DIRTY).for_each(|n| raw.bytes()[place(n) * PAGE + n] ^= 0xff);
                drop(raw);
                let restored = (pool.info().bytes_restored - before) as usize;
                if pagemap_scan_available() {
                    assert_eq!(restored, keep.min(DIRTY * PAGE) / PAGE * PAGE, "{name}");
                }
            }
            drop(known.tenant(&pool, name));
            assert_sound(&pool, name);
        }
    }
}

/// The same where the pages that stay are of grown memory.
#[test]
fn a_slot_keeps_less_than_was_grown() {
    const GROWN: usize = 2 * WASM_PAGE / PAGE;
    for keep in [0, 1, GROWN - 1, GROWN, GROWN + 1, GROWN + 7, GROWN + 8] {
        let name = &format!("{keep} pages stay");
        let pool = Pool::pooled(&options(1, (keep * PAGE) as u64)).unwrap();
        let known = Known::new(2, Random(31).bytes(WASM_PAGE + 100));
        for round in 0..6 {
            let mut raw = known.tenant(&pool, name);
            raw.grow(1 + round % 3);
            let grown = raw.bytes()[2 * WASM_PAGE..].iter().position(|byte| *byte != 0);
            assert_eq!(grown, None, "{name}");
            raw.bytes()[2 * WASM_PAGE..].fill(0xd1);
            raw.bytes()[..8 * PAGE].fill(0xd2);
        }
        drop(known.tenant(&pool, name));
        assert_sound(&pool, name);
    }
}

//! Pages that the system takes away, while a tenant lives and after: in swap, where there is any (see
//! `swap`), and those of files. Each test tells how many it saw there.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::pages::Pages;
use crate::support::*;
use crate::swap::Swap;
use wasmtime_beam::memory::Image;

/// Address range of a tenant's memory.
fn range(raw: &Raw) -> Range<usize> {
    let base = raw.memory.as_ptr() as usize;
    base..base + raw.memory.byte_size()
}

/// Takes away what can be taken; answers the pages that are in swap then.
fn page_out(range: &Range<usize>) -> usize {
    unsafe { libc::madvise(range.start as *mut _, range.len(), libc::MADV_PAGEOUT) };
    Pages::of(range).swapped
}

/// With swap, many pages must have been there; without, none can have been.
fn assert_forced(test: &str, swap: &std::io::Result<Arc<Swap>>, swapped: usize, least: usize) {
    match swap {
        Ok(_) => assert!(swapped >= least, "{test}: only {swapped} pages were seen in swap"),
        Err(_) => assert_eq!(swapped, 0, "{test}"),
    }
    let how = swap.as_ref().map_or_else(|e| format!("no swap: {e}"), |_| "swap".to_owned());
    println!("{test}: {swapped} pages were seen in swap ({how})");
}

/// A tenant's pages are in swap when it ends, some of them back again, some written anew.
#[test]
fn written_pages_in_swap_are_restored() {
    let swap = Swap::open();
    let (mut swapped, mut random) = (0, Random(0x51f1_5e5d));
    let rounds = rounds(10, 40, 1_000);
    for (name, pool) in policies() {
        let known = Known::new(64, Random(11).bytes(20 * WASM_PAGE + 100));
        for _ in 0..rounds {
            let mut raw = known.tenant(&pool, name);
            vandalize(&mut random, &mut raw);
            raw.bytes().chunks_mut(7 * PAGE).for_each(|chunk| chunk[9] ^= 0xab);
            swapped += page_out(&range(&raw));
            let len = raw.bytes().len();
            for _ in 0..random.below(20) {
                let at = random.below(len);
                raw.bytes()[at] ^= (random.next() & 1) as u8;
            }
        }
        drop(known.tenant(&pool, name));
        assert_sound(&pool, name);
    }
    assert_forced("written pages", &swap, swapped, rounds * policies().len() * 100);
}

/// The pages that stay with an idle slot are in swap when its next tenant comes, and when it goes.
#[test]
fn idle_pages_in_swap_are_the_image_still() {
    let swap = Swap::open();
    let (mut swapped, rounds) = (0, rounds(10, 40, 1_000));
    for (name, pool) in policies() {
        let known = Known::new(16, Random(13).bytes(4 * WASM_PAGE + 100));
        for round in 0..rounds {
            let mut raw = known.tenant(&pool, name);
            raw.grow(2);
            raw.bytes().chunks_mut(PAGE).step_by(1 + round % 3).for_each(|page| page.fill(0xcd));
            let range = range(&raw);
            drop(raw);
            swapped += page_out(&range);
            if round % 2 == 0 {
                // It reads nothing, so its reset finds in swap what was left there.
                drop(Raw::take(&pool, &known.plan));
            }
        }
        drop(known.tenant(&pool, name));
        assert_sound(&pool, name);
    }
    assert_forced("idle pages", &swap, swapped, rounds * 2 * 50);
}

/// Pages go to swap at any moment, also between the scan and the restore.
#[test]
fn pages_go_to_swap_at_any_moment() {
    let swap = Swap::open();
    let (mut swapped, rounds) = (0, rounds(100, 400, 10_000));
    for (name, pool) in policies().into_iter().filter(|(name, _)| *name != "on demand") {
        let known = Known::new(32, Random(17).bytes(10 * WASM_PAGE + 100));
        let (range, done) = (range(&known.tenant(&pool, name)), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let pager = scope.spawn(|| {
                let mut swapped = 0;
                while !done.load(Relaxed) {
                    swapped += page_out(&range);
                }
                swapped
            });
            let until = Done(&done);
            let mut random = Random(0xfeed);
            for _ in 0..rounds {
                vandalize(&mut random, &mut known.tenant(&pool, name));
            }
            drop(until);
            swapped += pager.join().unwrap();
        });
        assert_sound(&pool, name);
    }
    assert_forced("pages at any moment", &swap, swapped, rounds);
}

/// Clean pages of an image in a file are taken away without any swap, and come back from the file.
/// (Not those that the pristine view maps as well: each image is new.)
#[test]
fn clean_pages_of_a_file_come_back() {
    let content = Random(19).bytes(20 * WASM_PAGE);
    let path = std::env::temp_dir().join(format!("wasmtime-test-image-{}", std::process::id()));
    std::fs::write(&path, &content).unwrap();
    let file = Arc::new(File::options().read(true).write(true).open(&path).unwrap());
    file.sync_all().unwrap();
    std::fs::remove_file(&path).unwrap();
    let (mut taken, rounds) = (0, rounds(2, 5, 100));
    for (name, pool) in policies() {
        for _ in 0..rounds {
            let mut known = Known::new(32, content.clone());
            let image = Image::from_file(file.clone(), 0, content.len() as u64);
            known.plan.image = Some(image.unwrap());
            let mut raw = known.tenant(&pool, name);
            raw.bytes().chunks_mut(5 * PAGE).for_each(|chunk| chunk[1] ^= 1);
            let range = range(&raw);
            let present = Pages::of(&range).present;
            let swapped = page_out(&range);
            taken += present.saturating_sub(Pages::of(&range).present + swapped);
            drop(raw);
            drop(known.tenant(&pool, name));
        }
        assert_sound(&pool, name);
    }
    println!("clean pages: {taken} were taken away");
    let least = rounds * policies().len() * 100;
    assert!(taken >= least, "only {taken} clean pages were taken away");
}

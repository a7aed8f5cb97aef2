//! Huge pages, with the system's settings at `always` where the test may set them: slots stay free
//! of them, and are restored all the same where they get some.

use std::fs;
use std::ops::Range;

use crate::pages::{flags, huge_kib};
use crate::support::*;

const HUGE: usize = 2 << 20;

/// Collapses what is there into huge pages at once.
const MADV_COLLAPSE: libc::c_int = 25;

/// A setting of the system while this lives.
struct Setting {
    path: &'static str,
    before: Option<String>,
}

impl Setting {
    fn new(path: &'static str, value: &str) -> Setting {
        let text = fs::read_to_string(path).unwrap_or_default();
        let before = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let before = before.map(|(value, _)| value.to_owned());
        let before = before.filter(|_| fs::write(path, value).is_ok());
        Setting { path, before }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if let Some(value) = &self.before {
            let _ = fs::write(self.path, value);
        }
    }
}

/// Both settings: of memory, and of files in memory, as which images are kept.
fn always() -> [Setting; 2] {
    ["enabled", "shmem_enabled"].map(|name| match name {
        "enabled" => Setting::new("/sys/kernel/mm/transparent_hugepage/enabled", "always"),
        _ => Setting::new("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always"),
    })
}

fn range(raw: &Raw) -> Range<usize> {
    let base = raw.memory.as_ptr() as usize;
    base..base + raw.memory.byte_size()
}

/// An ordinary mapping, all written: KiB of it in huge pages.
fn ordinary_kib() -> usize {
    let len = 4 * HUGE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    unsafe { at.cast::<u8>().write_bytes(1, len) };
    let kib = huge_kib(&(at as usize..at as usize + len));
    unsafe { libc::munmap(at, len) };
    kib
}

/// Where every mapping gets huge pages, slots get none: each page is written, kept and read alone.
#[test]
fn slots_are_free_of_huge_pages() {
    let settings = always();
    let ordinary = ordinary_kib();
    if settings[0].before.is_some() {
        assert!(ordinary > 0, "the setting has no effect");
    }
    for (name, pool) in policies() {
        let known = Known::new(128, Random(37).bytes(3 * HUGE / 2));
        for _ in 0..rounds(2, 5, 50) {
            let mut raw = known.tenant(&pool, name);
            raw.grow(64);
            raw.bytes().fill(0x3c);
            assert_eq!(huge_kib(&range(&raw)), 0, "{name}");
            assert!(flags(&range(&raw)).iter().all(|flags| flags.contains(" nh")), "{name}");
        }
        drop(known.tenant(&pool, name));
        assert_sound(&pool, name);
    }
    println!("slots: 0 KiB in huge pages; an ordinary mapping: {ordinary} KiB");
}

/// A slot that somebody gave huge pages all the same is restored as any other, also where a single
/// byte of two million was written.
#[test]
fn a_slot_of_huge_pages_is_restored() {
    let _settings = always();
    let (mut most, mut random) = (0, Random(41));
    for (name, pool) in policies() {
        for image in [0, WASM_PAGE + 100, 3 * HUGE + 5000] {
            let known = Known::new(256, Random(43).bytes(image));
            for round in 0..rounds(2, 6, 60) {
                let mut raw = known.tenant(&pool, name);
                raw.grow(64);
                let range = range(&raw);
                let advise = |advice| unsafe {
                    libc::madvise(range.start as *mut _, range.len(), advice);
                };
                advise(libc::MADV_HUGEPAGE);
                raw.bytes().chunks_mut(HUGE / 4).for_each(|chunk| chunk[7] ^= 0xff);
                advise(MADV_COLLAPSE);
                most = most.max(huge_kib(&range));
                if round % 2 == 0 {
                    vandalize(&mut random, &mut raw);
                }
            }
            drop(known.tenant(&pool, name));
            assert_sound(&pool, name);
        }
    }
    println!("slots that were given huge pages: up to {most} KiB");
    if ordinary_kib() > 0 {
        assert!(most > 0, "no slot got huge pages");
    }
}

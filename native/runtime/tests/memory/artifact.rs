//! An artifact gives back what was written, and every damaged one is an error that says so.

use crate::support::*;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use wasmtime_beam::memory::{MEMORY_RESERVATION, MemoryPlan};
use wasmtime_beam::module::artifact::{ALIGNMENT, parse, parse_file, write};
use wasmtime_beam::options::Check;
use wasmtime_beam::{Class, Error, Kind};

fn sample() -> (Vec<u8>, Vec<MemoryPlan>, Vec<u8>) {
    let mut random = Random(42);
    let wide =
        MemoryPlan { is64: true, max_bytes: Some(1 << 40), ..plan(4, &random.bytes(70_000)) };
    let shared = MemoryPlan { shared: true, slotted: false, max_bytes: Some(3), ..plan(1, b"") };
    let tiny = MemoryPlan { page_size_log2: 0, min_bytes: 7, slotted: false, ..plan(0, b"") };
    let plans = vec![plan(2, &random.bytes(5000)), shared, wide, tiny, plan(0, b"")];
    (random.bytes(30_001), plans, random.bytes(100))
}

/// A file that is removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("artifact-{}-{name}", std::process::id()));
        File::create(&path).unwrap().write_all(bytes).unwrap();
        Temporary(path)
    }

    fn open(&self) -> Arc<File> {
        Arc::new(File::open(&self.0).unwrap())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn assert_same(plans: &[MemoryPlan], expected: &[MemoryPlan]) {
    assert_eq!(plans.len(), expected.len());
    for (plan, expected) in plans.iter().zip(expected) {
        let facts = |p: &MemoryPlan| {
            (p.min_bytes, p.max_bytes, p.page_size_log2, p.is64, p.shared, p.slotted)
        };
        assert_eq!(facts(plan), facts(expected));
        let bytes = |p: &MemoryPlan| p.image.as_ref().map(|image| image.bytes().to_vec());
        assert!(bytes(plan) == bytes(expected));
    }
}

fn assert_refused(error: &Error) {
    assert_eq!(error.class, Class::Compile, "{error}");
    assert!([Kind::Corrupted, Kind::Incompatible].contains(&error.kind), "{error}");
    assert!(error.message.contains("artifact"), "{error}");
}

/// Bytes and file give back the same: code, memories, images, meta.
#[test]
fn round_trip() {
    let (code, plans, meta) = sample();
    let artifact = write(&code, &plans, &meta);
    for check in [Check::Metadata, Check::Full] {
        let contents = parse(&artifact, check).unwrap();
        assert_eq!(artifact[contents.code.clone()], code);
        assert_eq!(contents.meta, meta);
        assert_same(&contents.plans(&artifact).unwrap(), &plans);

        let path = Temporary::new(&format!("{check:?}"), &artifact);
        let file = path.open();
        assert_eq!(parse_file(&file, check).unwrap(), contents);
        assert_same(&contents.plans_from(&file).unwrap(), &plans);
    }
    let images = parse(&artifact, Check::Full).unwrap().memories;
    assert!(images.iter().all(|memory| memory.image.start % ALIGNMENT as u64 == 0));
    // Nothing at all is an artifact too.
    let empty = write(&[], &[], &[]);
    let contents = parse(&empty, Check::Full).unwrap();
    assert_eq!((contents.code, contents.memories, contents.meta), (0..0, vec![], vec![]));
}

/// An image mapped from a file is a slot's content like any other, also when the file is replaced.
#[test]
fn slots_map_the_file() {
    let (code, plans, _) = sample();
    let artifact = write(&code, &plans, &[]);
    let path = Temporary::new("slots", &artifact);
    let file = path.open();
    let mapped = parse_file(&file, Check::Metadata).unwrap().plans_from(&file).unwrap();
    drop(file);
    let pool = wasmtime_beam::memory::Pool::pooled(&options(1, 1 << 20)).unwrap();
    for round in 0..6 {
        let plan = &mapped[[0, 2][round / 3]];
        let mut raw = Raw::take(&pool, plan);
        raw.assert_fresh(plan);
        raw.bytes().fill(0xee);
        // A new file is renamed over the path, as the docs ask for.
        let new = Temporary::new(&format!("slots-{round}"), b"something else");
        std::fs::rename(&new.0, &path.0).unwrap();
    }
    assert_eq!(pool.info().verify_failures, 0);
    assert_same(&mapped, &plans);
}

/// Cut short anywhere, or with bytes behind.
#[test]
fn every_truncation_is_refused() {
    let (code, plans, meta) = sample();
    let artifact = write(&code, &plans, &meta);
    let mut random = Random(5);
    let near_end = artifact.len() - 1000..artifact.len();
    let lengths = (0..100).chain(near_end).chain((0..500).map(|_| random.below(artifact.len())));
    for len in lengths.collect::<Vec<_>>() {
        assert_refused(&parse(&artifact[..len], Check::Metadata).unwrap_err());
        if len % 7 == 0 {
            let file = Temporary::new("short", &artifact[..len]);
            assert_refused(&parse_file(&file.open(), Check::Metadata).unwrap_err());
        }
    }
    let longer = [&artifact[..], b"x"].concat();
    assert_refused(&parse(&longer, Check::Metadata).unwrap_err());
}

/// Any wrong bit of footer and trailer is noticed at once.
#[test]
fn every_flip_of_footer_and_trailer_is_refused() {
    let (code, plans, meta) = sample();
    let mut artifact = write(&code, &plans, &meta);
    let body = parse(&artifact, Check::Full).unwrap();
    let footer = body.memories.iter().map(|memory| memory.image.end).max().unwrap() as usize;
    for at in footer..artifact.len() {
        for bit in 0..8 {
            artifact[at] ^= 1 << bit;
            assert_refused(&parse(&artifact, Check::Metadata).unwrap_err());
            artifact[at] ^= 1 << bit;
        }
    }
    assert!(parse(&artifact, Check::Full).is_ok());
}

/// Any wrong byte of code, padding or images is noticed by the full check, from bytes and file.
#[test]
fn every_flip_of_the_body_is_found_by_the_full_check() {
    let (code, plans, meta) = sample();
    let mut artifact = write(&code, &plans, &meta);
    let mut random = Random(77);
    for round in 0..5000 {
        let (at, bit) = (random.below(artifact.len()), 1 << random.below(8));
        artifact[at] ^= bit;
        assert_refused(&parse(&artifact, Check::Full).unwrap_err());
        if round % 100 == 0 {
            let file = Temporary::new("flipped", &artifact);
            assert_refused(&parse_file(&file.open(), Check::Full).unwrap_err());
        }
        artifact[at] ^= bit;
    }
}

/// Another version of the container is told as such; foreign files say what they are not.
#[test]
fn other_files_are_told_apart() {
    let artifact = write(b"code", &[], &[]);
    let mut other = artifact.clone();
    let version = other.len() - 12;
    other[version] = 9;
    let error = parse(&other, Check::Metadata).unwrap_err();
    assert_eq!((error.class, error.kind), (Class::Compile, Kind::Incompatible));
    assert!(error.message.contains('9'), "{error}");

    let wasm =
        wat::parse_str("(module (func (export \"a long enough name to be a file\")))").unwrap();
    let error = parse(&wasm, Check::Metadata).unwrap_err();
    assert!(error.message.contains("WebAssembly"), "{error}");
    let mut random = Random(123);
    for len in [0, 1, 43, 44, 45, 5000] {
        assert_refused(&parse(&random.bytes(len), Check::Full).unwrap_err());
        assert_refused(&parse(&vec![0; len], Check::Full).unwrap_err());
    }
}

/// Rewrites the record of the first memory and both checksums, as a hand with intent would.
fn forged(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut artifact = write(&[7; 5000], &[plan(1, &[1; 4096])], &[]);
    let len = artifact.len();
    let footer = parse(&artifact, Check::Full).unwrap().memories[0].image.end as usize;
    change(&mut artifact[footer..len - 44]);
    let trailer = len - 44;
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    hash.update(&artifact[footer..trailer]);
    hash.update(&artifact[trailer..trailer + 24]);
    artifact[trailer + 24..trailer + 32].copy_from_slice(&hash.digest().to_le_bytes());
    artifact
}

/// Right checksums do not make wrong numbers right.
#[test]
fn every_number_is_checked() {
    assert!(parse(&forged(|_| ()), Check::Full).is_ok());
    let put = |at: usize, value: u64| {
        forged(move |footer| footer[at..at + 8].copy_from_slice(&value.to_le_bytes()))
    };
    let (code, count, record) = (0, 8, 16);
    let (min, start, end, sort) = (record, record + 16, record + 24, record + 32);
    let page = ALIGNMENT as u64;
    let wrong = [
        (code, 1 << 40),
        (code, 2 * page + 1),
        (code, u64::MAX),
        (count, 0),
        (count, 2),
        (count, u64::MAX),
        (start, 0),
        (start, page + 1),
        (start, u64::MAX - page + 1),
        (end, 100 * page),
        (end, 3 * page + 1),
        (end, u64::MAX - page + 1),
        (min, 0),
        (min, MEMORY_RESERVATION + 1),
        (sort, 17),
        (sort, 16),
        (sort, 16 | 12 << 32),
        (sort, 16 | 1 << 63),
        (record + 40, 1),
        (record + 40, u64::MAX),
    ];
    for (at, value) in wrong {
        let error = parse(&put(at, value), Check::Full).unwrap_err();
        assert_eq!(error.kind, Kind::Corrupted, "{at} {value:#x}");
    }
}
